# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""Requests to Nova and Cinder: counted, paced, and sorted when they fail.

No answer is not "gone": only an API's own typed not-found is
:class:`NotFound`; everything else that is not a success is
:class:`Unanswered` or :class:`Refused` and says what to look at.
"""

from __future__ import annotations

import collections
import time
from typing import Any, Callable, Counter, Dict, Mapping, Optional, Protocol

from keystoneauth1 import exceptions as ksa_exceptions

#: Worth asking again: a rate limit, or a load balancer between back ends.
_PASSING = (429, 502, 503, 504)


class FleetError(Exception):
    """A question that went unanswered; nothing may be concluded from it."""


class Unanswered(FleetError):
    """No answer, or not one that the API promises."""


class BadRequest(Unanswered):
    """The API does not accept a question in this form."""


class Refused(FleetError):
    """The credentials are not accepted or not sufficient."""


class Forbidden(Refused):
    """The credentials are accepted, but not for this question."""


class OverBudget(FleetError):
    """As many requests were made as the operator allows."""


class BadInput(FleetError):
    """What the operator asked for does not exist, or is not unique."""


class NotFound(Exception):
    """The API's own, typed 404."""


class BadMarker(Exception):
    """The record that ended the last page has been deleted since."""


class Conflict(FleetError):
    """The API refuses the change in the state that things are in."""


class Gate:
    """Every request passes it: it counts them, and holds them to a rate.

    :param rate: requests per second; 0: as fast as possible
    :param limit: how many requests; 0: without limit
    :param clock: a monotonic clock
    :param sleep: waits
    """

    def __init__(self, rate: float = 0, limit: int = 0,
                 clock: Callable[[], float] = time.monotonic,
                 sleep: Callable[[float], None] = time.sleep) -> None:
        self._interval = 1 / rate if rate else 0.0
        self._limit = limit
        self._clock = clock
        self._sleep = sleep
        self._next = 0.0
        #: Requests made, by service.
        self.made: Counter[str] = collections.Counter()

    def enter(self, service: str) -> None:
        """Wait for one's turn.

        :raises OverBudget: when the limit is reached
        """
        if self._limit and sum(self.made.values()) >= self._limit:
            raise OverBudget(
                '%d requests were made, and --max-requests allows no more'
                % self._limit)
        now = self._clock()
        if now < self._next:
            self._sleep(self._next - now)
        self._next = max(now, self._next) + self._interval
        self.made[service] += 1


class Transport(Protocol):
    """What the session clients of OpenStack have in common."""

    def __call__(self, method: str, path: str, body: Any,
                 **kwargs: Any) -> Any:
        """Make one request; returns the response and its decoded body."""


class Service:
    """One API.

    :param name: how the operator knows it
    :param transport: makes one request
    :param gate: where requests are counted and paced
    :param timeout: seconds without a byte until a request is given up
    """

    def __init__(self, name: str, transport: Transport, gate: Gate,
                 timeout: float = 60) -> None:
        self.name = name
        self._transport = transport
        self._gate = gate
        self._timeout = timeout

    def get(self, path: str) -> Any:
        """The decoded body of an answer.

        :raises NotFound: on the API's own 404
        :raises FleetError: when there is no usable answer
        """
        return self.request('GET', path)[1]

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Change something.

        :raises NotFound: on the API's own 404
        :raises Conflict: when the API does not want to
        :raises FleetError: when it cannot be known to be done
        """
        return self.request('POST', path, body)[1]

    def delete(self, path: str) -> Any:
        """Delete something; raises as :meth:`post` does."""
        return self.request('DELETE', path)[1]

    def request(self, method: str, path: str,
                body: Optional[Mapping[str, Any]] = None) -> Any:
        """Make one request.

        :returns: the response and its decoded body, of a success
        """
        self._gate.enter(self.name)
        kwargs: Dict[str, Any] = {}
        if method == 'GET':
            # Asking twice is harmless, changing twice may not be.
            kwargs = {'connect_retries': 2, 'status_code_retries': 2,
                      'retriable_status_codes': _PASSING}
        try:
            response, answer = self._transport(
                method, path, body, timeout=self._timeout, raise_exc=False,
                **kwargs)
        except (ksa_exceptions.Unauthorized,
                ksa_exceptions.AuthorizationFailure,
                ksa_exceptions.MissingAuthPlugin,
                ksa_exceptions.AuthPluginException) as exc:
            raise Refused('Keystone gives no token for %s: %s'
                          % (self.name, exc)) from exc
        except ksa_exceptions.CatalogException as exc:
            raise Refused('%s is not in the service catalogue: %s; check '
                          '--os-region-name and --os-interface'
                          % (self.name, exc)) from exc
        except ksa_exceptions.ClientException as exc:
            raise Unanswered(
                '%s does not answer: %s' % (self.name, exc)) from exc
        self._check(method, path.partition('?')[0], response.status_code,
                    answer)
        return response, answer

    def _check(self, method: str, path: str, status: int,
               body: Any) -> None:
        """Raise what fits an answer that is not a success."""
        if status in (200, 202, 204):
            return
        words = _words(body)
        what = '%s %s: %s answered %d%s' % (method, path, self.name, status,
                                            words and ' (%s)' % words)
        if status == 404 and isinstance(body, dict) and isinstance(
                body.get('itemNotFound'), dict):
            raise NotFound(what)
        if status == 400 and method == 'GET' and 'marker' in words:
            raise BadMarker(what)
        if status == 400 and method == 'GET':
            raise BadRequest(what)
        if status == 401:
            raise Refused('%s; the token is not accepted: has it expired?'
                          % what)
        if status == 403:
            raise Forbidden('%s; this needs the admin role' % what)
        if method != 'GET' and status in (400, 409):
            raise Conflict(what)
        if status == 404:
            raise Unanswered('%s, and not as %s does: is the endpoint right?'
                             % (what, self.name))
        if status == 406:
            raise Refused('%s; it is too old for this command' % what)
        raise Unanswered(what)


def _words(body: Any) -> str:
    """The message of an API's own error; a proxy's page says nothing."""
    if isinstance(body, dict):
        for error in body.values():
            message = error.get('message') if isinstance(error, dict) else None
            if isinstance(message, str):
                return message[:200]
    return ''
