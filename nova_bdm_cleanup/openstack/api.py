# SPDX-License-Identifier: Apache-2.0
"""Asks one API of OpenStack, by way of keystoneauth.

The clients' own managers are not used: they fold a proxy's 404 page into the
same "not found" as the API's own, and cut lists silently.  Here every answer
that is not a success raises an :class:`.errors.ApiError`.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping
import dataclasses
from typing import Any, Callable, TypeVar
import urllib.parse

from keystoneauth1 import exceptions as ksa_exceptions

from nova_bdm_cleanup.openstack import answers, errors
from nova_bdm_cleanup.openstack.deadline import Deadline, TimedOut

T = TypeVar('T')

#: The ``request`` method of a keystoneauth ``LegacyJsonAdapter``: takes path
#: and method, returns the response and its decoded body.
Send = Callable[..., Any]

#: Statuses to retry: a rate limit, or a load balancer between back ends.
_RETRIABLE_STATUSES = (429, 502, 503, 504)

#: Records at the end of a page that may be deleted before the next page is
#: requested; with more, the listing is given up.
_MAX_MARKERS = 20

#: Seconds without a byte until a request without a deadline is given up.
_READ_TIMEOUT = 60.0


@dataclasses.dataclass(frozen=True)
class Hints:
    """Hints for an operator whose request failed."""

    #: Where the credentials come from.
    credentials: str
    #: What says which endpoint is taken from the catalogue.
    catalogue: str
    #: What is missing when a request is forbidden.
    role: str
    #: How to send a service token; empty: none is meant to be sent.
    service_user: str = ''


class Budget:
    """Counts the requests of one command.

    :param limit: how many there may be; 0: any number
    :param on_request: called with the name of the API before each
    """

    def __init__(self, limit: int = 0,
                 on_request: Callable[[str], None] = lambda api: None
                 ) -> None:
        self._limit = limit
        self._on_request = on_request
        #: Requests made, by API.
        self.made: collections.Counter[str] = collections.Counter()

    def spend(self, api: str) -> None:
        """Count one more.

        :raises OverBudget: when that were too many
        """
        if self._limit and sum(self.made.values()) >= self._limit:
            raise errors.OverBudget(
                '--max-requests %d allows no more requests' % self._limit)
        self.made[api] += 1
        self._on_request(api)


class _Gate:
    """Lets nothing through when the time is over.

    Before it sends a request keystoneauth may have to get a token, which can
    take longer than there is time.  What it holds as its "rate semaphore" it
    enters last of all, each time that it sends something.
    """

    def __init__(self, deadline: Deadline, what: str) -> None:
        self._deadline = deadline
        self._what = what

    def __enter__(self) -> None:
        self._deadline.check(self._what)

    def __exit__(self, *error: object) -> None:
        pass


class Api:
    """One API.

    A question may be repeated, since asking twice is harmless.  A change is
    sent once: changing twice may not be.

    :param name: how the operator knows it
    :param connect: gives what sends a request, on first use; may raise
    :param advice: ends the messages of errors
    :param deadline: bounds all requests; None: they are not bounded
    """

    def __init__(self, name: str, microversion: str,
                 connect: Callable[[], Send], advice: Hints,
                 deadline: Deadline | None = None,
                 budget: Budget | None = None) -> None:
        self.name = name
        self.advice = advice
        self._microversion = microversion
        self._connect = connect
        self._deadline = deadline
        self._budget = budget
        self._connected: Send | None = None

    @property
    def is_bounded(self) -> bool:
        """Return whether requests have a deadline."""
        return self._deadline is not None

    def in_time(self, what: str, func: Callable[[], T]) -> T:
        """Call a function that makes requests, and wait for it no longer
        than there is time.

        :param what: names the call in the exception
        :raises TimedOut: when the time is over
        """
        if self._deadline is None:
            return func()
        return self._deadline.call(what, func)

    def get(self, path: str,
            query: Mapping[str, str] | None = None,
            microversion: str | None = None) -> Any:
        """Return the decoded body of an answer.

        :param microversion: for what another version does not tell
        :raises NotFound: on the API's own 404
        :raises ApiError: when there is no usable answer
        """
        if query:
            path = '%s?%s' % (path, urllib.parse.urlencode(query))
        return self._request('GET', path, 200,
                             microversion=microversion or self._microversion)

    def one(self, kind: str, identifier: str,
            parse: Callable[[Mapping[str, Any]], T]) -> T | None:
        """Return one resource by its id; None: it does not exist, as these
        credentials see it.

        :raises ApiError: when there is no usable answer
        """
        try:
            body = self.get('/%ss/%s' % (kind, answers.quoted(identifier)))
        except errors.NotFound:
            return None
        found = answers.record(body, kind)
        known_as = answers.identifier(found, 'id')
        if known_as != identifier:
            raise errors.BadAnswer('asked for %s %s, %s answered with %s' % (
                kind, identifier, self.name, known_as))
        return parse(found)

    def pages(self, path: str, key: str, query: Mapping[str, str],
              follow_links: bool) -> Iterator[list[Mapping[str, Any]]]:
        """Yield every page of a list of any length.

        :param path: of the list
        :param key: of the list in the answer
        :param query: with a "limit", the records of a page; the service may
            give fewer
        :param follow_links: whether this list says that there is more.  If
            not, the end is where a page is empty: a short page proves nothing,
            since the service cuts it where it likes.
        :raises ApiError: when any page is not answered
        """
        markers: collections.deque[str] = collections.deque(
            maxlen=_MAX_MARKERS)
        while True:
            body = self._page(path, query, markers)
            page = answers.records(body, key)
            ids = [answers.text(r, 'id') for r in page]
            if markers and markers[-1] in ids:
                raise errors.BadAnswer('%s gave the same page of %s twice'
                                       % (self.name, key))
            markers.extend(ids)
            if page:
                yield page
            if not page or (follow_links and not body.get(key + '_links')):
                return

    def _page(self, path: str, query: Mapping[str, str],
              markers: collections.deque[str]) -> Any:
        """Return the page after the last marker that still exists."""
        while True:
            try:
                return self.get(path, {**query, 'marker': markers[-1]}
                                if markers else query)
            except (errors.NotFound, errors.BadMarker) as exc:
                # The record that ended the page was deleted meanwhile; the one
                # before it ends the same page.
                if len(markers) < 2:
                    raise errors.BadAnswer(str(exc), exc.status) from exc
                markers.pop()

    def post(self, path: str, body: Mapping[str, Any],
             success: int = 202) -> Any:
        """Change something.

        :param success: the status of the answer that says that it is done
        :raises NotFound: on the API's own 404
        :raises Conflict: when the API does not do it as things are
        :raises ApiError: when it cannot be known to be done
        """
        return self._request('POST', path, success, body=dict(body))

    def delete(self, path: str, success: int = 200) -> Any:
        """Delete something; raises as :meth:`post` does."""
        return self._request('DELETE', path, success)

    def _request(self, method: str, path: str, success: int,
                 **content: Any) -> Any:
        what = '%s %s' % (method, path.partition('?')[0])
        if self._budget is not None:
            self._budget.spend(self.name)
        try:
            try:
                response, body = self._send(what, method, path, content)
            except ksa_exceptions.ConnectFailure:
                # A connection kept from before may be dead.
                if method != 'GET' or self._deadline is None:
                    raise
                response, body = self._send(what, method, path, content)
        except (errors.ApiError, TimedOut):
            raise
        except Exception as exc:
            raise self._error(exc) from exc
        if response.status_code != success:
            raise self._failure(what, method, response.status_code, body)
        return body

    def _send(self, what: str, method: str, path: str,
              content: Mapping[str, Any]) -> Any:
        values: dict[str, Any] = {
            'connect_retries': 0, 'status_code_retries': 0,
            'timeout': _READ_TIMEOUT, 'microversion': self._microversion}
        if self._deadline is not None:
            # A call that was given up asks no further questions.  Nor does
            # keystoneauth, which would also repeat what ran out of time.
            self._deadline.check(what)
            values['timeout'] = max(self._deadline.remaining, 0.001)
            values['rate_semaphore'] = _Gate(self._deadline, what)
        elif method == 'GET':
            values.update(connect_retries=2, status_code_retries=2,
                          retriable_status_codes=_RETRIABLE_STATUSES)
        if self._connected is None:
            self._connected = self._connect()
        return self._connected(path, method, authenticated=True,
                               raise_exc=False, **{**values, **content})

    def _error(self, exc: Exception) -> errors.ApiError:
        """Return the error for what keystoneauth raised."""
        if isinstance(exc, ksa_exceptions.CatalogException):
            return errors.Refused(
                '%s is not in the service catalogue: %s; %s'
                % (self.name, exc, self.advice.catalogue))
        if isinstance(exc, ksa_exceptions.ConnectionError):
            return errors.Unreachable(
                '%s does not answer: %s' % (self.name, exc))
        if isinstance(exc, ksa_exceptions.HttpServerError):
            return errors.Unreachable(
                'no token for %s: Keystone failed: %s'
                % (self.name, exc))
        if isinstance(exc, (ksa_exceptions.HttpError,
                            ksa_exceptions.AuthorizationFailure,
                            ksa_exceptions.AuthPluginException)):
            return errors.Refused(
                'Keystone gives no token for %s: %s; %s'
                % (self.name, exc, self.advice.credentials))
        return errors.Unanswered(
            'no request to %s could be made: %s: %s'
            % (self.name, type(exc).__name__, exc))

    def _failure(self, what: str, method: str, status: int,
                 body: Any) -> errors.ApiError:
        """Return the error for an answer that is not a success.

        An error's own words are left out where they may be a proxy's page.
        """
        words = answers.error_words(body)
        text = '%s: %s answered %d%s' % (what, self.name, status,
                                         words and ' (%s)' % words)
        kind: type[errors.ApiError] = errors.BadAnswer
        advice = ''
        if status == 404 and answers.is_not_found(body):
            kind = errors.NotFound
        elif status == 404:
            advice = ('not as %s does: is its endpoint right, or a proxy in '
                      'trouble?' % self.name)
        elif status == 401:
            kind, advice = errors.Refused, self.advice.credentials
        elif status == 403:
            kind, advice = errors.Forbidden, self.advice.role
        elif status == 406:
            kind = errors.Refused
            advice = 'version %s of the API is needed' % self._microversion
        elif method != 'GET' and status in (400, 409):
            kind = errors.Conflict
        elif status == 400 and 'marker' in words:
            kind = errors.BadMarker
        elif status == 400:
            kind = errors.BadRequest
        return kind(text + (advice and '; ' + advice), status)
