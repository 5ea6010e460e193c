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
"""The one place that speaks to Cinder.

It asks through the session of python-cinderclient, not through its managers:
these fold a proxy's 404 page into the same ``NotFound`` as Cinder's own, cut
lists silently, and take no time-out.  Every answer that is not exactly what
Cinder's API promises raises a :class:`CinderError`: no answer is not "gone".
"""

from __future__ import annotations

import datetime
from typing import (Any, Callable, Dict, Iterable, Iterator, List,
                    Mapping, Optional, Sequence)
import urllib.parse

from keystoneauth1 import exceptions as ksa_exceptions

from nova_bdm_cleanup import deadline as deadlines
from nova_bdm_cleanup.model import AttachedServer
from nova_bdm_cleanup.model import Attachment
from nova_bdm_cleanup.model import Bdm
from nova_bdm_cleanup.model import Volume
from nova_bdm_cleanup.ports import Answers

#: The microversion that Nova speaks for attachments since Queens.  From 3.31
#: on Cinder refuses an id filter that it would silently drop before.
MICROVERSION = '3.44'

#: Cinder cuts lists at ``osapi_max_limit``, by default this, without a link.
_PAGE = 1000

#: Sixty ids make a URL of 3 kB; some servers accept no more than 8 kB.
_BATCH = 60

#: What Cinder answers when it has done what it was asked.
_SUCCESS = {'GET': 200, 'DELETE': 200, 'POST': 202}

#: What marks a volume (or a server) that must only be reported.
KEEP_KEY, KEEP_VALUE = 'bdm_cleanup', 'keep'


class CinderError(Exception):
    """No usable answer; nothing may be concluded from it."""


class Unreachable(CinderError):
    """No connection, no TLS session, or no answer in time."""


class Refused(CinderError):
    """Keystone or Cinder does not accept the credentials."""


class ProjectHidden(CinderError):
    """The credentials at hand cannot see the project of the server."""


class Unusable(CinderError):
    """The catalogue or the API version does not fit."""


class Faulty(CinderError):
    """An answer, but an error or not in the form that the API promises."""


class ServiceTokenRequired(CinderError):
    """Cinder deletes an attachment that Nova may use for services only."""


class _NotFound(Exception):
    """Cinder's own, typed 404."""


class Cinder:
    """Cinder as one reboot sees it.

    :param connect: gives the client on first use; may raise anything
    :param all_projects: the credentials are the service's and see every
        project; otherwise they are those of the server's own project
    :param deadline: bounds every call
    """

    def __init__(self, connect: Callable[[], Any], all_projects: bool,
                 deadline: deadlines.Deadline) -> None:
        self._connect = connect
        #: Whether the credentials see every project.
        self.sees_all = all_projects
        self._deadline = deadline
        self._client: Any = None
        self._glanced = False

    # Reading

    def look(self, server_id: str, bdms: Sequence[Bdm]) -> Answers:
        """All that Cinder knows of one server's disks.

        Two requests when everything is in order, whatever the number of
        volumes.  What a list does not show is asked for by its id, since a
        list may be cut or filtered and its silence proves nothing.

        :param server_id: the server
        :param bdms: all its block device mappings
        :returns: the volumes by id, None for one that does not exist, and the
            attachments that name the server or that a mapping carries
        :raises CinderError: when any question went unanswered
        :raises deadlines.TimedOut: when the time is over
        """
        return self._deadline.call(
            'asking Cinder', lambda: self._look(server_id, bdms))

    def knows_any(self, volume_ids: Sequence[str]) -> bool:
        """Whether at least one of some volumes exists in this Cinder.

        :raises CinderError: when the question went unanswered
        :raises deadlines.TimedOut: when the time is over
        """
        return self._deadline.call(
            'asking Cinder for a witness',
            lambda: self._knows_any(volume_ids[:_BATCH]))

    def _knows_any(self, volume_ids: Sequence[str]) -> bool:
        if any(v.id in volume_ids for v in self._several(volume_ids)):
            return True
        # A few by their id, in case it is only the filter that is broken.
        return any(map(self._volume, volume_ids[:3]))

    def _look(self, server_id: str, bdms: Sequence[Bdm]) -> Answers:
        if self.sees_all and not self._glanced:
            # Once: a second look follows only where there was something.
            self._glanced = True
            answers = self._glance(server_id, bdms)
            if answers is not None:
                return answers
        return self._look_closely(server_id, bdms)

    def _glance(self, server_id: str,
                bdms: Sequence[Bdm]) -> Optional[Answers]:
        """The answers when all is in order, as it nearly always is.

        Cinder spends some 2 ms on each record of a list, and that of the
        volumes already names the attachments that are attached.  What it
        cannot show is whether the server has more of them than its mappings
        carry: so the other question is for one more after so many, which
        costs Cinder the same whatever their number.

        :returns: None when something is not in order, whatever it is
        """
        on_volumes = [b for b in bdms if b.volume_id or b.attachment_id]
        carried = {b.attachment_id: b.volume_id for b in on_volumes
                   if b.attachment_id}
        if len(carried) != len(on_volumes):
            return None  # One carries none, or two carry the same.
        if self._list_page('/attachments', server_id, limit='1',
                           offset=str(len(carried))):
            return None
        wanted = list(dict.fromkeys(v for v in carried.values() if v))
        volumes: Dict[str, Optional[Volume]] = {
            v.id: v for v in self._in_batches(wanted)}
        attached = {
            a.attachment_id: Attachment(id=a.attachment_id, volume_id=v.id,
                                        server_id=server_id, status='attached')
            for v in volumes.values() if v is not None and v.status == 'in-use'
            for a in v.attached_to
            if a.server_id == server_id and a.attachment_id
            and carried.get(a.attachment_id) == v.id}
        if attached.keys() != carried.keys():
            return None
        return volumes, tuple(attached.values())

    def _look_closely(self, server_id: str, bdms: Sequence[Bdm]) -> Answers:
        carried = [b.attachment_id for b in bdms if b.attachment_id]
        listed = {a.id: a for a in self._list(server_id, carried)}
        volume_ids = [b.volume_id for b in bdms if b.volume_id]
        volume_ids += [a.volume_id for a in listed.values()]
        volumes = self._volumes(volume_ids) if volume_ids else {}

        attachments = list(listed.values())
        for attachment_id in dict.fromkeys(carried):
            if attachment_id not in listed:
                shown = self._attachment(attachment_id)
                attachments += [shown] if shown else []
        # An attachment shown by its id may name a volume not looked at yet.
        extra = [a.volume_id for a in attachments
                 if a.volume_id not in volumes]
        if extra:
            volumes.update(self._volumes(extra))
        return volumes, tuple(attachments)

    def _list(self, server_id: str,
              expected: Iterable[str]) -> Iterator[Attachment]:
        """The attachments of a server, whole even where pages are small.

        Cinder's list carries no link to the next page.  The next page is
        asked for when this one is full or something expected is not on it.
        """
        missing = set(expected)
        marker: Optional[str] = None
        while True:
            page = self._list_page(
                '/attachments/detail', server_id, limit=str(_PAGE),
                **({'marker': marker} if marker else {}))
            yield from page
            missing -= {a.id for a in page}
            if not page or not (missing or len(page) >= _PAGE):
                return
            if marker == page[-1].id:
                raise Faulty('Cinder gave the same page of attachments twice')
            marker = page[-1].id

    def _list_page(self, path: str, server_id: str,
                   **query: str) -> List[Attachment]:
        query['instance_id'] = server_id
        if self.sees_all:
            # Without it even an administrator sees one project only.
            query['all_tenants'] = '1'
        page = [parse_attachment(r) for r in self._get_list(
            path + '?' + urllib.parse.urlencode(query), 'attachments')]
        if any(a.server_id != server_id for a in page):
            raise Faulty('Cinder listed attachments of other servers: its '
                         'resource_filters.json must allow "instance_id" for '
                         '"attachment"')
        return page

    def _attachment(self, attachment_id: str) -> Optional[Attachment]:
        try:
            body = self._get('/attachments/' + _quoted(attachment_id))
        except _NotFound:
            return None
        attachment = parse_attachment(_record(body, 'attachment'))
        if attachment.id != attachment_id:
            raise Faulty('asked for attachment %s, Cinder answered with %s'
                         % (attachment_id, attachment.id))
        return attachment

    def _volumes(self, volume_ids: Sequence[str]
                 ) -> Dict[str, Optional[Volume]]:
        wanted = list(dict.fromkeys(volume_ids))
        found: Dict[str, Optional[Volume]] = {}
        if self.sees_all:
            found.update((v.id, v) for v in self._in_batches(wanted))
        for volume_id in wanted:
            if volume_id not in found:
                found[volume_id] = self._volume(volume_id)
        return found

    def _in_batches(self, volume_ids: Sequence[str]) -> Iterator[Volume]:
        for start in range(0, len(volume_ids), _BATCH):
            batch = volume_ids[start:start + _BATCH]
            yield from (v for v in self._several(batch) if v.id in batch)

    def _several(self, volume_ids: Sequence[str]) -> List[Volume]:
        ids = '[%s]' % ','.join("'%s'" % _quoted(v) for v in volume_ids)
        query = urllib.parse.urlencode({'all_tenants': '1', 'id': ids})
        return [parse_volume(r) for r in self._get_list(
            '/volumes/detail?' + query, 'volumes')]

    def _volume(self, volume_id: str) -> Optional[Volume]:
        try:
            body = self._get('/volumes/' + _quoted(volume_id))
        except _NotFound:
            return None
        volume = parse_volume(_record(body, 'volume'))
        if volume.id != volume_id:
            raise Faulty('asked for volume %s, Cinder answered with %s'
                         % (volume_id, volume.id))
        return volume

    # Changing

    def delete_attachment(self, attachment_id: str) -> bool:
        """Delete an attachment; the back end unmaps the volume first.

        :returns: False when it was gone already
        :raises ServiceTokenRequired: when Cinder wants a service token
        :raises CinderError: when it cannot be known to be done
        :raises deadlines.TimedOut: when the time is over
        """
        def delete() -> bool:
            try:
                body = self._request('DELETE',
                                     '/attachments/' + _quoted(attachment_id))
            except _NotFound:
                return False
            # Cinder answers with what is left; a proxy's page does not.
            _records(body, 'attachments')
            return True

        return self._deadline.call(
            'deleting attachment %s' % attachment_id, delete)

    def force_detach(self, attachment: Attachment,
                     connector: Mapping[str, Any]) -> bool:
        """Detach what was attached before Cinder kept connectors.

        A plain delete of such a record never tells the back end.

        :param attachment: verified to be of its volume: with a service token
            Cinder itself does not check
        :param connector: this host's; without one Cinder would disconnect
            every host
        :returns: False when it was gone already
        :raises ServiceTokenRequired: when Cinder wants a service token
        :raises CinderError: when it cannot be known to be done
        :raises deadlines.TimedOut: when the time is over
        """
        def detach() -> bool:
            try:
                self._request(
                    'POST',
                    '/volumes/%s/action' % _quoted(attachment.volume_id),
                    {'os-force_detach': {'attachment_id': attachment.id,
                                         'connector': dict(connector)}})
            except _NotFound:
                return False
            return True

        return self._deadline.call(
            'detaching legacy attachment %s' % attachment.id, detach)

    # HTTP

    def _get(self, path: str) -> Any:
        return self._request('GET', path)

    def _get_list(self, path: str, key: str) -> List[Mapping[str, Any]]:
        try:
            return _records(self._get(path), key)
        except _NotFound as exc:
            raise Faulty('Cinder answered a list of %s with "not found"; it '
                         'changed meanwhile' % key) from exc

    def _request(self, method: str, path: str,
                 body: Optional[Mapping[str, Any]] = None) -> Any:
        what = '%s %s' % (method, path.partition('?')[0])
        try:
            # Not by keystoneauth, which also repeats what ran out of time:
            # nobody waits for that any more.  And a change whose answer got
            # lost must not be sent again after the reboot went on.
            try:
                response, answer = self._send(what, method, path, body)
            except ksa_exceptions.ConnectFailure:
                if method != 'GET':
                    raise
                response, answer = self._send(what, method, path, body)
        except (CinderError, deadlines.TimedOut):
            raise
        except ksa_exceptions.CatalogException as exc:
            raise Unusable('Cinder is not in the service catalogue: %s; check '
                           '[cinder] catalog_info and os_region_name'
                           % exc) from exc
        except ksa_exceptions.ConnectionError as exc:
            raise Unreachable(str(exc)) from exc
        except ksa_exceptions.HttpServerError as exc:
            raise Unreachable('no token for Cinder: Keystone is in trouble: '
                              '%s' % exc) from exc
        except (ksa_exceptions.HttpError,
                ksa_exceptions.AuthorizationFailure,
                ksa_exceptions.AuthPluginException) as exc:
            raise Refused('no token for Cinder: %s; check the credentials in '
                          '[cinder] and [service_user]' % exc) from exc
        except Exception as exc:
            raise Unusable('no request to Cinder could be made: %s: %s'
                           % (type(exc).__name__, exc)) from exc
        return _answer(what, method, response, answer)

    def _send(self, what: str, method: str, path: str,
              body: Optional[Mapping[str, Any]]) -> Any:
        # A call that was given up asks no further questions.
        self._deadline.check(what)
        if self._client is None:
            self._client = self._connect().client
        kwargs: Dict[str, Any] = {} if body is None else {'body': body}
        return self._client.request(
            path, method, authenticated=True, raise_exc=False,
            connect_retries=0,
            timeout=max(self._deadline.remaining, 0.001), **kwargs)


def _answer(what: str, method: str, response: Any, body: Any) -> Any:
    """The body of a success; otherwise the exception that fits.

    An error's own words are left out where they may be a proxy's page.
    """
    status = response.status_code
    if status == _SUCCESS[method]:
        return body
    words = _words(body)
    if status == 404 and isinstance(body, dict) and isinstance(
            body.get('itemNotFound'), dict):
        raise _NotFound()
    if method != 'GET' and status in (403, 409):
        # Not "option = value": that would be taken for a secret and masked.
        raise ServiceTokenRequired(
            '%s: Cinder answered %d%s; nova.conf must enable '
            'send_service_user_token in [service_user], with the credentials '
            'of a user whose role is in service_token_roles of Cinder\'s '
            '[keystone_authtoken]' % (what, status, words))
    if status in (401, 403):
        raise Refused('%s: Cinder answered %d%s; the credentials in [cinder] '
                      'need the admin role' % (what, status, words))
    if status == 400 and what.startswith('GET /volumes/detail'):
        raise Refused('%s: Cinder answered 400%s; filtering volumes by id '
                      'needs the admin role for the credentials in [cinder]'
                      % (what, words))
    if status == 404:
        raise Faulty('%s: a 404 that is not Cinder\'s own; is the [cinder] '
                     'endpoint right, or a proxy in trouble?' % what)
    if status == 406:
        raise Unusable('%s: Cinder answered %d%s; API version %s (Queens) or '
                       'later is needed at the [cinder] endpoint'
                       % (what, status, words, MICROVERSION))
    raise Faulty('%s: Cinder answered %d%s' % (what, status, words))


def _words(body: Any) -> str:
    if isinstance(body, dict):
        for error in body.values():
            if isinstance(error, dict) and isinstance(
                    error.get('message'), str):
                return ' (%s)' % error['message'][:200]
    return ''


def _quoted(identifier: str) -> str:
    """An id as a path segment; nothing in it may be taken for more."""
    return urllib.parse.quote(identifier, safe='')


# Parsing: the smallest set of facts, each of the type the API promises.


def _record(body: Any, key: str) -> Mapping[str, Any]:
    record = body.get(key) if isinstance(body, dict) else None
    if not isinstance(record, dict):
        raise Faulty('an answer of Cinder has no "%s"' % key)
    return record


def _records(body: Any, key: str) -> List[Mapping[str, Any]]:
    records = body.get(key) if isinstance(body, dict) else None
    if not isinstance(records, list) or not all(
            isinstance(r, dict) for r in records):
        raise Faulty('an answer of Cinder has no list of "%s"' % key)
    return records


def _text(record: Mapping[str, Any], key: str) -> str:
    value = record.get(key)
    if not isinstance(value, str) or not value:
        raise Faulty('a record of Cinder has no "%s"' % key)
    return value


def _optional_text(record: Mapping[str, Any], key: str) -> Optional[str]:
    value = record.get(key)
    if value is not None and not isinstance(value, str):
        raise Faulty('"%s" in a record of Cinder is no text' % key)
    return value or None


def _mapping(record: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = record.get(key)
    if value is not None and not isinstance(value, dict):
        raise Faulty('"%s" in a record of Cinder is no object' % key)
    return value or {}


def _time(record: Mapping[str, Any],
          key: str) -> Optional[datetime.datetime]:
    value = _optional_text(record, key)
    try:
        moment = datetime.datetime.fromisoformat(value or '')
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(
        tzinfo=datetime.timezone.utc)


def parse_attachment(record: Mapping[str, Any]) -> Attachment:
    """One attachment of a list or by itself, brief or detailed.

    :raises Faulty: when it is not what the API promises
    """
    connection_info = _mapping(record, 'connection_info')
    return Attachment(
        id=_text(record, 'id'),
        volume_id=_text(record, 'volume_id'),
        server_id=_optional_text(record, 'instance'),
        status=_text(record, 'status'),
        connected=bool(connection_info),
        connection_info=connection_info)


def parse_volume(record: Mapping[str, Any]) -> Volume:
    """One volume in detail.

    :raises Faulty: when it is not what the API promises
    """
    attached = record.get('attachments')
    if not isinstance(attached, list) or not all(
            isinstance(a, dict) for a in attached):
        raise Faulty('a volume of Cinder has no list of "attachments"')
    return Volume(
        id=_text(record, 'id'),
        status=_text(record, 'status'),
        multiattach=record.get('multiattach') is True,
        migration_status=_optional_text(record, 'migration_status'),
        attached_to=tuple(AttachedServer(
            server_id=_optional_text(a, 'server_id'),
            attachment_id=_optional_text(a, 'attachment_id'),
            host=_optional_text(a, 'host_name')) for a in attached),
        keep=_mapping(record, 'metadata').get(KEEP_KEY) == KEEP_VALUE,
        updated_at=_time(record, 'updated_at') or _time(record, 'created_at'))
