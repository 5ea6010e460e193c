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
"""Cinder as the operators' commands see it: whole lists, and the releases.

One server is looked at through :class:`nova_bdm_cleanup.cinder.Cinder`, as
nova-compute does it; answers are parsed there, too.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import (Any, Dict, Iterator, List, Mapping, Optional, Sequence,
                    Tuple)
import urllib.parse

from nova_bdm_cleanup import cinder as core
from nova_bdm_cleanup import deadline
from nova_bdm_cleanup.fleet import http
from nova_bdm_cleanup.fleet.nova import quoted
from nova_bdm_cleanup.fleet import paging
from nova_bdm_cleanup.model import Attachment
from nova_bdm_cleanup.model import Bdm
from nova_bdm_cleanup.model import Volume

MICROVERSION = core.MICROVERSION

#: Cinder never gives more at once, and often less.
_PAGE = 1000

#: A look at one server is a handful of requests.
_LOOK_SECONDS = 600

_NOBODY = '00000000-0000-0000-0000-000000000000'


class Cinder:
    """Cinder.

    :param service: makes the requests
    """

    def __init__(self, service: http.Service) -> None:
        self._service = service
        #: Whether every project is seen; see :meth:`prove_admin`.
        self.all_projects = False

    # The whole cloud

    def prove_admin(self) -> bool:
        """Find out whether this Cinder shows every project, and use it.

        To who is not an administrator its lists show one project, without
        a word; only the filter by id is refused.
        """
        query = urllib.parse.urlencode(
            {'all_tenants': '1', 'id': "['%s']" % _NOBODY})
        try:
            self._service.get('/volumes/detail?' + query)
        except (http.BadRequest, http.Forbidden):
            self.all_projects = False
        else:
            self.all_projects = True
        return self.all_projects

    def attachments(self, project: Optional[str] = None,
                    volume: Optional[str] = None
                    ) -> Iterator[List[Attachment]]:
        """Attachments, page by page.

        In detail, which costs Cinder the same: only so does it show which
        ones are connected.  The connections themselves, which are large and
        hold secrets, are dropped at once.
        """
        query = self._query(project)
        if volume:
            query['volume_id'] = volume
        for page in paging.pages(self._service, '/attachments/detail',
                                 'attachments', query, _PAGE,
                                 follow_links=False):
            with _translated():
                found = [_without_connection(core.parse_attachment(r))
                         for r in page]
            yield found

    def volume_ids(self, status: str, project: Optional[str] = None
                   ) -> Iterator[List[str]]:
        """The volumes in one state, page by page: the light list."""
        query = dict(self._query(project), status=status)
        for page in paging.pages(self._service, '/volumes', 'volumes', query,
                                 _PAGE, follow_links=True):
            yield [paging.text(r, 'id') for r in page]

    def _query(self, project: Optional[str]) -> Dict[str, str]:
        if not self.all_projects:
            return {}
        query = {'all_tenants': '1'}
        if project:
            query['project_id'] = project
        return query

    # One server

    def look(self, server_id: str, bdms: Sequence[Bdm]
             ) -> Tuple[Dict[str, Optional[Volume]], Tuple[Attachment, ...]]:
        """All that Cinder knows of one server's disks."""
        with _translated():
            return self._core().look(server_id, bdms)

    def knows_any(self, volume_ids: Sequence[str]) -> bool:
        """Whether at least one of some volumes exists in this Cinder."""
        with _translated():
            return self._core().knows_any(volume_ids)

    def _core(self) -> core.Cinder:
        return core.Cinder(lambda: _Client(self._service), self.all_projects,
                           deadline.Deadline(_LOOK_SECONDS))

    # One volume

    def volume(self, volume_id: str) -> Optional[Volume]:
        """One volume; None: it does not exist."""
        try:
            body = self._service.get('/volumes/' + quoted(volume_id))
        except http.NotFound:
            return None
        with _translated():
            volume = core.parse_volume(paging.record(body, 'volume'))
        if volume.id != volume_id:
            raise http.Unanswered('asked for volume %s, Cinder answered with '
                                  '%s' % (volume_id, volume.id))
        return volume

    def attachment(self, attachment_id: str) -> Optional[Attachment]:
        """One attachment; None: it does not exist."""
        try:
            body = self._service.get('/attachments/' + quoted(attachment_id))
        except http.NotFound:
            return None
        with _translated():
            attachment = core.parse_attachment(
                paging.record(body, 'attachment'))
        if attachment.id != attachment_id:
            raise http.Unanswered('asked for attachment %s, Cinder answered '
                                  'with %s' % (attachment_id, attachment.id))
        return attachment

    def attachments_of(self, volume_id: str) -> Tuple[Attachment, ...]:
        """All attachments of a volume."""
        return tuple(
            a for page in self.attachments(volume=volume_id) for a in page
            if a.volume_id == volume_id)

    # Changing

    def delete_attachment(self, attachment_id: str) -> None:
        """Have the back end unmap the volume, and drop the record."""
        self._service.delete('/attachments/' + quoted(attachment_id))

    def act(self, volume_id: str, action: str,
            arguments: Optional[Mapping[str, Any]] = None) -> None:
        """One of Cinder's volume actions."""
        self._service.post('/volumes/%s/action' % quoted(volume_id),
                           {action: arguments})


def _without_connection(attachment: Attachment) -> Attachment:
    return dataclasses.replace(attachment, connection_info={})


class _Client:
    """What the core takes for a python-cinderclient."""

    def __init__(self, service: http.Service) -> None:
        self.client = self
        self._service = service

    def request(self, path: str, method: str, **kwargs: Any) -> Any:
        try:
            return self._service.request(method, path, kwargs.get('body'))
        except http.NotFound as exc:
            return _NotFoundResponse, {'itemNotFound': {'message': str(exc)}}
        except http.FleetError as exc:
            # The core passes on its own errors only.
            raise _Failed(exc) from exc


class _NotFoundResponse:
    status_code = 404


class _Failed(core.CinderError):
    """Carries an error of a request through the core."""

    def __init__(self, cause: http.FleetError) -> None:
        super().__init__(str(cause))
        self.cause = cause


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """The core's errors as those of a request."""
    try:
        yield
    except _Failed as exc:
        raise exc.cause from None
    except (core.CinderError, deadline.TimedOut) as exc:
        raise http.Unanswered(str(exc)) from exc
