# SPDX-License-Identifier: Apache-2.0
"""What can go wrong when OpenStack is asked, or told to do something.

No answer is not "gone": of all these only :class:`NotFound` says that
something does not exist.
"""

from __future__ import annotations


class ApiError(Exception):
    """A request without success.

    :param text: what was asked, what came of it, and what to look at
    :param status: the status of the answer, if there was one
    """

    def __init__(self, text: str = '', status: int | None = None) -> None:
        super().__init__(text)
        self.status = status


class NotFound(ApiError):
    """The API's own, typed 404."""


class Unanswered(ApiError):
    """No usable answer; nothing may be concluded from it."""


class Unreachable(Unanswered):
    """No connection, no TLS session, or no answer in time."""


class BadAnswer(Unanswered):
    """An answer, but an error or not in the form that the API promises."""


class BadRequest(Unanswered):
    """The API does not accept a question in this form."""


class BadMarker(BadRequest):
    """The record that ended the last page has been deleted since."""


class Refused(ApiError):
    """The credentials are not accepted or not sufficient, or the catalogue or
    the API version does not fit: nothing was done.
    """


class Forbidden(Refused):
    """The credentials are accepted, but not for this."""


class ProjectHidden(Refused):
    """The credentials do not see every project, or not that of a server."""


class ServiceTokenRequired(Refused):
    """Cinder deletes an attachment that Nova may use for services only."""


class Conflict(ApiError):
    """The API refuses the change in the state that things are in."""


class OverBudget(ApiError):
    """As many requests were made as the operator allows."""


class BadInput(ApiError):
    """What the operator asked for does not exist, or is not unique."""
