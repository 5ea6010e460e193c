# SPDX-License-Identifier: Apache-2.0
"""A cloud of any size on the loopback: Nova and Cinder as the APIs show them.

It has their quirks.  Pages are cut without notice.  Cinder's attachment list
has no link to the next page.  A volume shows its attached attachments only.
Depending on the microversion, Nova omits all ids, or the mappings without an
attachment id.  Every filtered or paged list omits the servers of a silent
cell.  A user who is not an administrator sees one project, and neither the
host nor the root device of a server.  :mod:`.wire` serves the cloud over HTTP,
and breaks its answers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
import datetime
import re
import threading
from typing import Any, Callable, NamedTuple
import urllib.parse
import uuid

_DAY = datetime.timedelta(days=1)

#: It includes the secrets of the back end.
_CONNECTION = {'driver_volume_type': 'rbd',
               'keyring': '[client.cinder]\n\tkey = not-a-key\n'}


def uid(name: str) -> str:
    """Return the UUID for a name."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, name))


class Request(NamedTuple):
    """A request to an API."""

    method: str
    #: Relative to the root of the API.
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any
    #: The whole URL, decoded.
    url: str

    @property
    def is_admins(self) -> bool:
        return self.headers.get('X-Auth-Token') == 'admin'

    def __str__(self) -> str:
        return '%s %s' % (self.method, self.url)


class LoopbackCloud:
    """The records of Nova and Cinder.

    :param page: the maximum number of records in a list
    """

    def __init__(self, page: int = 1000) -> None:
        self.page = page
        #: By id, oldest first.
        self.servers: dict[str, dict[str, Any]] = {}
        self.mappings: dict[str, list[dict[str, Any]]] = {}
        #: Servers that Nova has deleted, and still remembers.
        self.deleted: dict[str, dict[str, Any]] = {}
        self.volumes: dict[str, dict[str, Any]] = {}
        self.attachments: dict[str, dict[str, Any]] = {}
        #: The events of each swap of volumes, the newest first, by server.
        self.swaps: dict[str, list[list[dict[str, Any]]]] = {}
        #: The names of the events of the reboots, by server.
        self.reboot_events: dict[str, list[str]] = {}
        #: The actions of each server besides swaps, the newest first.
        self.actions: dict[str, list[dict[str, Any]]] = {}
        #: Cinder's messages about volumes, the newest first.
        self.messages: list[dict[str, str]] = []
        #: The states of their migrations, by server.
        self.migrations: dict[str, list[str]] = {}
        #: The names of the events of actions, the newest first, by request.
        self.action_events: dict[str, list[str]] = {}
        #: Hosts that run nova-compute.
        self.hosts = ['compute1', 'compute2']
        self.silent_hosts: list[str] = []
        #: Other services of each API.
        self.services: dict[str, list[dict[str, str]]] = {
            'nova': [], 'cinder': []}
        #: Those that show the plugin in mode enforce.
        self.plugin_hosts = ['compute1', 'compute2']
        self.silent_servers: list[str] = []
        self.token_is_valid = True
        #: The volume filters of members: Cinder's resource_filters.json.
        self.volume_filters = {'status', 'name', 'metadata'}
        #: Whether attachments are filtered by the project of their volume.
        self.filters_projects = True
        #: Every request but those to Keystone.
        self.requests: list[Request] = []
        #: The calls to the back end.
        self.driver: list[tuple[str, str]] = []
        self._rules: list[tuple[str, Callable[..., Any]]] = []
        self._lock = threading.Lock()
        # In creation order.
        self._of_server: dict[str, dict[str, None]] = {}
        self._of_volume: dict[str, dict[str, None]] = {}

    # Creating records

    def server(self, name: str, project: str = 'own', **fields: Any) -> str:
        """Add a server that was booted from an image."""
        server_id = uid(name)
        self.servers[server_id] = dict({
            'id': server_id, 'name': name, 'status': 'ACTIVE',
            'tenant_id': project, 'user_id': 'someone',
            'image': {'id': uid('image')},
            'metadata': {}, 'locked': False,
            'OS-EXT-SRV-ATTR:host': 'compute1',
            'OS-EXT-SRV-ATTR:root_device_name': '/dev/vda',
            'OS-EXT-STS:task_state': None}, **fields)
        self.mappings[server_id] = []
        return server_id

    def volume(self, name: str, status: str = 'available',
               project: str = 'own', age: datetime.timedelta = _DAY,
               **fields: Any) -> str:
        """Add a volume without attachments."""
        return self.put_volume(uid(name), status, name=name, **{
            'os-vol-tenant-attr:tenant_id': project,
            'updated_at': _stamp(age), **fields})

    def attachment(self, name: str, server_id: str | None,
                   volume_id: str, status: str = 'attached',
                   connected: bool = True, host: str = 'compute1') -> str:
        """Add an attachment to Cinder."""
        return self.put_attachment(
            uid(name), server_id, volume_id, status=status, host=host,
            connection_info=_CONNECTION if connected else {})

    def put_volume(self, volume_id: str, status: str = 'in-use',
                   **fields: Any) -> str:
        """Add a volume with any id and fields."""
        self.volumes[volume_id] = dict({
            'id': volume_id, 'name': volume_id, 'size': 1, 'status': status,
            'multiattach': False, 'migration_status': None, 'metadata': {},
            'os-vol-tenant-attr:tenant_id': 'own',
            'created_at': '2026-01-01T00:00:00.000000',
            'updated_at': '2026-01-02T00:00:00.000000'}, **fields)
        return volume_id

    def put_attachment(self, attachment_id: str, server_id: str | None,
                       volume_id: str, **fields: Any) -> str:
        """Add an attachment with any id and fields."""
        self.attachments[attachment_id] = dict({
            'id': attachment_id, 'instance': server_id,
            'volume_id': volume_id, 'status': 'attached',
            'host': 'compute1', 'connection_info': _CONNECTION,
            'attached_at': '2026-01-02T00:00:00.000000'}, **fields)
        self._of_server.setdefault(
            (server_id or '').lower(), {})[attachment_id] = None
        self._of_volume.setdefault(volume_id, {})[attachment_id] = None
        return attachment_id

    def mapping(self, server_id: str, volume_id: str,
                attachment_id: str | None = None) -> None:
        """Add a block device mapping to Nova."""
        mappings = self.mappings[server_id]
        mappings.append({
            'volumeId': volume_id, 'serverId': server_id,
            'device': '/dev/vd' + chr(ord('b') + len(mappings)),
            'attachment_id': attachment_id,
            'bdm_uuid': uid('bdm %s %s' % (server_id, volume_id))})

    def attach(self, server_id: str, name: str, **fields: Any) -> str:
        """Add a volume that is attached correctly."""
        volume_id = self.volume(
            name, 'in-use', self.servers[server_id]['tenant_id'], **fields)
        self.mapping(server_id, volume_id, self.attachment(
            'attachment of ' + name, server_id, volume_id,
            host=self.servers[server_id]['OS-EXT-SRV-ATTR:host']))
        return volume_id

    def populate(self, servers: int, volumes_each: int) -> None:
        """Add servers with healthy disks."""
        for number in range(servers):
            server_id = self.server('server-%d' % number,
                                    'project-%d' % (number % 50))
            for disk in range(volumes_each):
                self.attach(server_id, 'volume-%d-%d' % (number, disk))

    # Breaking records

    def lose_attachment(self, volume_id: str) -> None:
        """Detach a volume behind Nova's back."""
        for attachment_id in self._of_volume.pop(volume_id, ()):
            self.attachments.pop(attachment_id, None)
        self.volumes[volume_id]['status'] = 'available'

    def half_move(self, volume_id: str) -> str:
        """Have a move end before it saves the new attachment of a volume.

        :returns: the new attachment
        """
        old, = self._of_volume[volume_id]
        server_id = self.attachments[old]['instance']
        self.lose_attachment(volume_id)
        self.volumes[volume_id]['status'] = 'reserved'
        return self.attachment('new one of ' + volume_id, server_id,
                               volume_id, 'reserved', False)

    def evacuate(self, server_id: str, host: str = 'compute2') -> None:
        """Have an evacuation die before it connects the volumes."""
        self.servers[server_id]['OS-EXT-SRV-ATTR:host'] = host

    def clean_up(self, server_id: str) -> None:
        """Have the plugin remove all mappings in a reboot."""
        self.reboot_events[server_id] = [
            'bdm_cleanup removed volume %s (volume-available)' % m['volumeId']
            for m in self.mappings[server_id]]
        self.mappings[server_id].clear()

    def lose_volume(self, volume_id: str) -> None:
        """Delete a volume behind Nova's back."""
        self.lose_attachment(volume_id)
        del self.volumes[volume_id]

    def lose_server(self, server_id: str) -> None:
        """Delete a server behind Cinder's back."""
        self.deleted[server_id] = dict(
            self.servers.pop(server_id), status='DELETED')
        del self.mappings[server_id]

    def remember(self, name: str) -> str:
        """Add a server that Nova deleted long ago."""
        self.deleted[uid(name)] = {'id': uid(name), 'status': 'DELETED'}
        return uid(name)

    def on(self, pattern: str, action: Callable[..., Any]) -> None:
        """Call an action before answering the requests that match.

        It may return a status and a body to answer with, or a function that
        writes the answer: see :mod:`.wire`.
        """
        self._rules.append((pattern, action))

    def trouble(self, method: str, path: str, what: Any) -> None:
        """Answer requests in another way from now on.

        :param path: of the request; a star at its end matches any suffix
        :param what: see :mod:`.wire`
        """
        pattern = '^%s [^?]*/v3/own%s' % (method, re.escape(path.rstrip('*')))
        if not path.endswith('*'):
            pattern += '([?]|$)'
        self._rules.insert(0, (pattern, lambda: what))

    def calm(self) -> None:
        """Remove what :meth:`on` and :meth:`trouble` added."""
        self._rules.clear()

    def asked(self, pattern: str) -> int:
        """Return how many requests match."""
        return sum(bool(re.search(pattern, str(r))) for r in self.requests)

    @property
    def paths(self) -> list[str]:
        """Return method and path of each request."""
        return ['%s %s' % (r.method, r.path) for r in self.requests]

    # Answering

    def answer(self, request: Request) -> Any:
        """Answer a request.

        :returns: a status and a body, or a function that writes the answer
        """
        with self._lock:
            self.requests.append(request)
            for pattern, action in list(self._rules):
                if re.search(pattern, str(request)):
                    answer = action()
                    if answer:
                        return answer
            return self.respond(request)

    def respond(self, request: Request) -> tuple[int, Any]:
        """Return the answer to a request when nothing is wrong."""
        if not self.token_is_valid:
            return 401, {'error': {'message': 'The token has expired'}}
        if '/compute/' in request.url:
            return self._nova(request)
        if '/placement/' in request.url:
            return self._placement(request)
        return self._cinder(request)

    def _placement(self, request: Request) -> tuple[int, Any]:
        if not request.is_admins:
            return 403, {'errors': [{'status': 403, 'title': 'Forbidden'}]}
        if not self.plugin_hosts:
            return 400, {'errors': [{'status': 400, 'title': 'Bad Request',
                                     'detail': 'No such trait(s)'}]}
        return 200, {'resource_providers': [
            {'uuid': uid(host), 'name': host} for host in self.plugin_hosts]}

    def _nova(self, request: Request) -> tuple[int, Any]:
        path, admin = request.path, request.is_admins
        if path == '/servers/detail':
            return self._list_servers(request.query, admin)
        if path == '/os-services':
            if not admin:
                return 403, {'forbidden': {'message': 'Policy'}}
            return 200, {'services': [
                *({'host': h, 'binary': 'nova-compute', 'status': s}
                  for s, hosts in (('enabled', self.hosts),
                                   ('UNKNOWN', self.silent_hosts))
                  for h in hosts), *self.services['nova']]}
        if path == '/os-migrations':
            if not admin:
                return 403, {'forbidden': {'message': 'Policy'}}
            return 200, {'migrations': [
                {'status': status, 'migration_type': 'live-migration'}
                for status in self.migrations.get(
                    request.query['instance_uuid'], ())]}
        return self._answer_of_server(request)

    def _answer_of_server(self, request: Request) -> tuple[int, Any]:
        path, admin = request.path, request.is_admins
        server_id, _, rest = path[len('/servers/'):].partition('/')
        server = self.servers.get(server_id)
        if server is None or not admin and server['tenant_id'] != 'own':
            return 404, {'itemNotFound': {'message': 'Instance'}}
        if request.method == 'DELETE':
            return 202, None
        if rest == 'os-volume_attachments':
            return 200, {'volumeAttachments': self._list_mappings(
                server_id, request.headers.get('OpenStack-API-Version'))}
        if rest == 'action':
            if 'reboot' in request.body:
                self.record(server_id, 'reboot')
            if 'os-resetState' in request.body:
                server.update({'status': 'ERROR',
                               'OS-EXT-STS:task_state': None})
            return 202, None
        if rest.startswith('os-instance-actions'):
            return self._actions(server_id, rest)
        return 200, {'server': self._server(server, admin)}

    def _list_mappings(self, server_id: str,
                       version: str | None) -> list[dict[str, Any]]:
        mappings = self.mappings[server_id]
        if version == 'compute 2.88':
            return [{'id': m['volumeId'], **{
                key: m[key] for key in ('volumeId', 'serverId', 'device')}}
                for m in mappings]
        return [m for m in mappings if m['attachment_id']]

    def _actions(self, server_id: str, rest: str) -> tuple[int, Any]:
        swaps = self.swaps.get(server_id, [])
        if '/req-reboot' in rest:
            return 200, {'instanceAction': {'events': [
                {'event': name, 'result': 'Success', 'host': 'compute1'}
                for name in self.reboot_events.get(
                    server_id, ('compute_reboot_instance',))]}}
        number = rest.partition('/req-swap-')[2]
        if number:
            return 200, {'instanceAction': {'events': swaps[int(number)]}}
        if '/' in rest:
            return 200, {'instanceAction': {'events': [
                {'event': name, 'result': None}
                for name in self.action_events.get(
                    rest.partition('/')[2], ())]}}
        return 200, {'instanceActions': [
            *self.actions.get(server_id, ()),
            {'action': 'reboot', 'request_id': 'req-reboot',
             'start_time': _stamp(_DAY)},
            *({'action': 'swap_volume', 'request_id': 'req-swap-%d' % n,
               'start_time': _stamp(_DAY * (n + 1))}
              for n in range(len(swaps)))]}

    def record(self, server_id: str, action: str, project: str = 'own',
               user: str = 'someone', events: Iterable[str] = ()) -> None:
        """Record an action of a server.

        :param events: their names, the newest first
        """
        found = self.actions.setdefault(server_id, [])
        request = 'req-%s-%d' % (action, len(found) + 1)
        self.action_events[request] = list(events)
        found.insert(0, {
            'action': action, 'start_time': _stamp(datetime.timedelta()),
            'request_id': request, 'project_id': project, 'user_id': user})

    def tell(self, volume_id: str, text: str) -> None:
        """Have Cinder tell users that a request has failed."""
        self.messages.insert(0, {
            'id': uid(text), 'resource_uuid': volume_id, 'user_message': text,
            'created_at': _stamp(-_DAY), 'request_id': 'req-message'})

    def fail_detach(self, server_id: str, volume_id: str,
                    age: datetime.timedelta = _DAY) -> None:
        """Have a detach end before Cinder deletes the attachment."""
        self.volumes[volume_id].update(status='detaching',
                                       updated_at=_stamp(age))
        self.record(server_id, 'detach_volume',
                    events=['compute_detach_volume'])
        self.actions[server_id][0]['start_time'] = _stamp(age)

    def interrupt(self, server_id: str, action: str = 'shelve',
                  task: str = 'shelving') -> None:
        """Have nova-compute end in an operation, and start again."""
        self.servers[server_id]['OS-EXT-STS:task_state'] = task
        self.record(server_id, action, events=(
            'bdm_cleanup interrupted ' + task,
            'compute_%s_instance' % action))

    def _server(self, server: dict[str, Any],
                admin: bool = True) -> dict[str, Any]:
        if server['id'] in self.silent_servers:
            return {'id': server['id'], 'status': 'UNKNOWN',
                    'tenant_id': server['tenant_id']}
        shown = {
            **server, 'OS-EXT-SRV-ATTR:hypervisor_hostname':
            server['OS-EXT-SRV-ATTR:host']} if admin else {
            key: value for key, value in server.items()
            if not key.startswith('OS-EXT-SRV-ATTR:')}
        return dict(shown, **{'os-extended-volumes:volumes_attached': [
            {'id': m['volumeId']} for m in self.mappings[server['id']]]})

    def _list_servers(self, query: Mapping[str, str],
                      admin: bool) -> tuple[int, Any]:
        if 'all_tenants' in query and not admin:
            return 403, {'forbidden': {'message': 'Policy'}}
        if query.get('deleted') == 'true':
            return 200, {'servers': [
                s for s in self.deleted.values() if s['id'] == query['uuid']]}
        try:
            name = re.compile(query.get('name', ''))
        except re.error:
            # Nova passes it to its database, and does not catch the error.
            return 500, {'computeFault': {'message': 'Unexpected API Error'}}
        shows_silent = not set(query) - {'all_tenants'}
        found = [s for s in reversed(list(self.servers.values()))
                 if (s['id'] not in self.silent_servers or shows_silent)
                 and ('all_tenants' in query or s['tenant_id'] == 'own')
                 and query.get('project_id') in (None, s['tenant_id'])
                 and query.get('host') in (
                     None, s['OS-EXT-SRV-ATTR:host'])
                 and name.search(s['name'])
                 and s['status'] != 'SOFT_DELETED']
        marker = query.get('marker')
        if marker and marker not in self.servers:
            return 400, {'badRequest': {
                'message': 'marker [%s] not found' % marker}}
        page, more = self._cut(found, query)
        answer: dict[str, Any] = {'servers': [self._server(s, admin)
                                               for s in page]}
        if more:
            answer['servers_links'] = [{'rel': 'next', 'href': 'somewhere'}]
        return 200, answer

    def _cut(self, found: list[dict[str, Any]],
             query: Mapping[str, str]
             ) -> tuple[list[dict[str, Any]], bool]:
        if 'marker' in query:
            place = next(n for n, f in enumerate(found)
                         if f['id'] == query['marker'])
            found = found[place + 1:]
        found = found[int(query.get('offset', 0)):]
        limit = min(self.page, int(query.get('limit', self.page)))
        return found[:limit], len(found) > limit

    def _cinder(self, request: Request) -> tuple[int, Any]:
        path, admin = request.path, request.is_admins
        if path == '/os-services':
            return 200, {'services': self.services['cinder']}
        if path == '/attachments' and request.method == 'POST':
            return self._reserve(request.body['attachment'])
        if path in ('/attachments', '/attachments/detail'):
            return self._list_attachments(path, request.query, admin)
        if path == '/messages':
            return 200, {'messages': [
                m for m in self.messages
                if m['resource_uuid'] == request.query['resource_uuid']]}
        if path in ('/volumes', '/volumes/detail'):
            return self._list_volumes(path, request.query, admin)
        kind, _, rest = path[1:].partition('/')
        name, _, action = rest.partition('/')
        things = self.attachments if kind == 'attachments' else self.volumes
        thing = things.get(urllib.parse.unquote(name))
        if thing is None or not (admin or self._project(
                thing.get('volume_id', thing['id'])) in ('own', None)):
            return 404, {'itemNotFound': {
                'code': 404, 'message': '%s could not be found.' % kind}}
        if request.method == 'DELETE':
            return 200, {'attachments': self._delete(name)}
        if action and kind == 'attachments':
            thing['status'] = 'attached'
            self.volumes[thing['volume_id']]['status'] = 'in-use'
            return 204, None
        if action:
            return self._act(name, request.body)
        if kind == 'attachments':
            return 200, {'attachment': {
                k: v for k, v in thing.items() if k != 'host'}}
        return 200, {'volume': self._volume(thing, admin)}

    def _reserve(self, asked: Mapping[str, str]) -> tuple[int, Any]:
        volume = self.volumes.get(asked['volume_uuid'])
        if volume is None:
            return 404, {'itemNotFound': {'code': 404, 'message': 'no volume'}}
        if volume['status'] not in ('available', 'in-use', 'reserved'):
            return 400, {'badRequest': {
                'code': 400, 'message': 'status must be available'}}
        volume['status'] = 'reserved'
        made = self.attachment('made for ' + volume['id'],
                               asked['instance_uuid'], volume['id'],
                               'reserved', False)
        return 200, {'attachment': self.attachments[made]}

    def _delete(self, attachment_id: str) -> list[Any]:
        gone = self.attachments.pop(attachment_id)
        if gone['connection_info']:
            self.driver.append(('terminate_connection', gone['volume_id']))
        self._settle(gone['volume_id'])
        return []

    def _act(self, volume_id: str, body: Any) -> tuple[int, Any]:
        (action, arguments), = body.items()
        self.driver.append((action, volume_id))
        if action == 'os-force_detach' and arguments['attachment_id']:
            self.attachments.pop(arguments['attachment_id'], None)
        if action == 'os-roll_detaching':
            self.volumes[volume_id]['status'] = 'in-use'
        elif action == 'os-reserve':
            self.volumes[volume_id]['status'] = 'attaching'
        else:
            self._settle(volume_id)
        return 202, None

    def _settle(self, volume_id: str) -> None:
        volume = self.volumes.get(volume_id, {})
        volume['status'] = 'in-use' if any(
            a['volume_id'] == volume_id and a['status'] == 'attached'
            for a in self.attachments.values()) else 'available'
        volume['updated_at'] = _stamp(datetime.timedelta())

    def _project(self, volume_id: str) -> Any:
        volume = self.volumes.get(volume_id, {})
        return volume.get('os-vol-tenant-attr:tenant_id')

    def _list_attachments(self, path: str, query: Mapping[str, str],
                          admin: bool) -> tuple[int, Any]:
        project = query.get('project_id')
        if project and not admin:
            return _invalid_filters(['project_id'])
        if not self.filters_projects:
            project = None
        if not admin or 'all_tenants' not in query:
            project = 'own'
        ids = list(self.attachments)
        if 'instance_id' in query:
            # MariaDB ignores case when it compares.
            ids = list(self._of_server.get(query['instance_id'].lower(), ()))
        if 'volume_id' in query:
            ids = list(self._of_volume.get(query['volume_id'], ()))
        found = [
            a for a in (self.attachments[i] for i in ids
                        if i in self.attachments)
            if ('instance_id' not in query or query['instance_id'].lower()
                == (a['instance'] or '').lower())
            and project in (None, self._project(a['volume_id']))]
        marker = query.get('marker')
        if marker and marker not in self.attachments:
            return 404, {'itemNotFound': {'message': 'marker'}}
        page, _ = self._cut(found, query)
        fields = ['id', 'instance', 'volume_id', 'status']
        if path == '/attachments/detail':
            fields += ['connection_info', 'attached_at']
        return 200, {'attachments': [{f: a[f] for f in fields}
                                     for a in page]}

    def _list_volumes(self, path: str, query: Mapping[str, str],
                      admin: bool) -> tuple[int, Any]:
        odd = set(query) - self.volume_filters - {
            'all_tenants', 'limit', 'marker', 'offset', 'sort'}
        if odd and not admin:
            return _invalid_filters(odd)
        project = query.get('project_id')
        if not admin or 'all_tenants' not in query:
            project = 'own'
        wanted = ast.literal_eval(query['id']) if 'id' in query else None
        found = [
            v for v in (self.volumes.values() if wanted is None else
                        [self.volumes[i] for i in wanted
                         if i in self.volumes])
            if query.get('status') in (None, v['status'])
            and query.get('provider_id') in (None, v.get('provider_id'))
            and project in (None, v.get('os-vol-tenant-attr:tenant_id'))]
        marker = query.get('marker')
        if marker and marker not in self.volumes:
            return 404, {'itemNotFound': {'message': 'marker'}}
        page, more = self._cut(found, query)
        answer: dict[str, Any] = {'volumes': [
            self._volume(v, admin) if path == '/volumes/detail'
            else {'id': v['id'], 'name': v['name'], 'links': []}
            for v in page]}
        if more:
            answer['volumes_links'] = [{'rel': 'next', 'href': 'somewhere'}]
        return 200, answer

    def _volume(self, volume: dict[str, Any], admin: bool) -> dict[str, Any]:
        records = [self.attachments[i]
                   for i in self._of_volume.get(volume['id'], ())
                   if i in self.attachments]
        shown = dict({'attachments': [
            {'server_id': a['instance'], 'attachment_id': a['id'],
             'host_name': a['host'] if admin else None,
             'attached_at': a['attached_at']}
            for a in records if a['status'] == 'attached'
            and a['volume_id'] == volume['id']]}, **volume)
        if not admin:
            del shown['migration_status']
        return shown


def _stamp(age: datetime.timedelta) -> str:
    moment = datetime.datetime.now(datetime.timezone.utc) - age
    return moment.strftime('%Y-%m-%dT%H:%M:%S.%f')


def _invalid_filters(names: Iterable[str]) -> tuple[int, Any]:
    return 400, {'badRequest': {
        'message': 'Invalid filters %s are found in query options.'
                   % ','.join(sorted(names))}}
