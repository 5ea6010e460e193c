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
"""Lists of any length, page by page, and the records on them."""

from __future__ import annotations

import collections
from typing import Any, Deque, Iterator, List, Mapping, Optional
import urllib.parse

from nova_bdm_cleanup.fleet import http

#: How many records at the end of a page may be deleted before the next page
#: is asked for, until the listing is given up.
_MARKERS = 20


def pages(service: http.Service, path: str, key: str,
          query: Mapping[str, str], limit: Optional[int],
          follow_links: bool) -> Iterator[List[Mapping[str, Any]]]:
    """Every page of a list.

    :param service: where to ask
    :param path: of the list
    :param key: of the list in the answer
    :param query: filters
    :param limit: how many records to ask for at once; the service may give
        fewer.  None: as many as it likes
    :param follow_links: whether this list says that there is more.  If not,
        the end is where a page is empty: a short page proves nothing, since
        the service cuts it where it likes.
    :raises http.FleetError: when any page is not answered
    """
    markers: Deque[str] = collections.deque(maxlen=_MARKERS)
    while True:
        body = _page(service, path, query, limit, markers)
        page = records(body, key)
        ids = [text(r, 'id') for r in page]
        if markers and markers[-1] in ids:
            raise http.Unanswered('%s gave the same page of %s twice'
                                  % (service.name, key))
        markers.extend(ids)
        if page:
            yield page
        if not page or (follow_links and not body.get(key + '_links')):
            return


def _page(service: http.Service, path: str, query: Mapping[str, str],
          limit: Optional[int], markers: Deque[str]) -> Any:
    """The page after the last marker that still exists."""
    while True:
        parameters = dict(query)
        if limit is not None:
            parameters['limit'] = str(limit)
        if markers:
            parameters['marker'] = markers[-1]
        separator = '?' if parameters else ''
        try:
            return service.get(
                path + separator + urllib.parse.urlencode(parameters))
        except (http.NotFound, http.BadMarker) as exc:
            # The record that ended the page was deleted meanwhile; the one
            # before it ends the same page.
            if len(markers) < 2:
                raise http.Unanswered(str(exc)) from exc
            markers.pop()


def record(body: Any, key: str) -> Mapping[str, Any]:
    """The only record of an answer."""
    found = body.get(key) if isinstance(body, dict) else None
    if not isinstance(found, dict):
        raise http.Unanswered('an answer has no "%s"' % key)
    return found


def records(body: Any, key: str) -> List[Mapping[str, Any]]:
    """All records of an answer."""
    found = body.get(key) if isinstance(body, dict) else None
    if not isinstance(found, list) or not all(
            isinstance(r, dict) for r in found):
        raise http.Unanswered('an answer has no list of "%s"' % key)
    return found


def text(record: Mapping[str, Any], key: str) -> str:
    """A field that must be there."""
    value = record.get(key)
    if not isinstance(value, str) or not value:
        raise http.Unanswered('a record has no "%s"' % key)
    return value


def optional_text(record: Mapping[str, Any], key: str) -> Optional[str]:
    value = record.get(key)
    return value if isinstance(value, str) and value else None
