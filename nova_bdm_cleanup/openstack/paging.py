# SPDX-License-Identifier: Apache-2.0
"""Lists of any length, page by page."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping
from typing import Any

from nova_bdm_cleanup.openstack import answers, errors
from nova_bdm_cleanup.openstack.api import Api

#: How many records at the end of a page may be deleted before the next page
#: is asked for, until the listing is given up.
_MARKERS = 20


def pages(api: Api, path: str, key: str, query: Mapping[str, str],
          limit: int | None, follow_links: bool
          ) -> Iterator[list[Mapping[str, Any]]]:
    """Every page of a list.

    :param path: of the list
    :param key: of the list in the answer
    :param limit: how many records to ask for at once; the service may give
        fewer.  None: as many as it likes
    :param follow_links: whether this list says that there is more.  If not,
        the end is where a page is empty: a short page proves nothing, since
        the service cuts it where it likes.
    :raises ApiError: when any page is not answered
    """
    markers: collections.deque[str] = collections.deque(maxlen=_MARKERS)
    while True:
        body = _page(api, path, query, limit, markers)
        page = answers.records(body, key)
        ids = [answers.text(r, 'id') for r in page]
        if markers and markers[-1] in ids:
            raise errors.BadAnswer('%s gave the same page of %s twice'
                                   % (api.name, key))
        markers.extend(ids)
        if page:
            yield page
        if not page or (follow_links and not body.get(key + '_links')):
            return


def _page(api: Api, path: str, query: Mapping[str, str],
          limit: int | None, markers: collections.deque[str]) -> Any:
    """The page after the last marker that still exists."""
    while True:
        parameters = dict(query)
        if limit is not None:
            parameters['limit'] = str(limit)
        if markers:
            parameters['marker'] = markers[-1]
        try:
            return api.get(path, parameters)
        except (errors.NotFound, errors.BadMarker) as exc:
            # The record that ended the page was deleted meanwhile; the one
            # before it ends the same page.
            if len(markers) < 2:
                raise errors.BadAnswer(str(exc), exc.status) from exc
            markers.pop()
