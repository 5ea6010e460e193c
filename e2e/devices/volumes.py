# SPDX-License-Identifier: Apache-2.0
"""A minimal Cinder for Nova and the plugin, over HTTP.

It keeps volumes and attachments in memory, and unmaps a volume when its
attachment is deleted, as Cinder's drivers do.  The functional tests have the
real Cinder; here the devices are real.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
import dataclasses
import json
from typing import Any
import urllib.parse
import uuid

from e2e.devices import storage
from nova_bdm_cleanup.tests.cloud import web

#: The project of Nova's own user.
SERVICE = 'service'


@dataclasses.dataclass
class Attached:
    """An attachment: a volume, a server, and the connection."""

    volume: str
    server: str
    host: str
    connection: dict[str, Any]
    #: Unmaps the volume from the host at the back end.
    terminate: Callable[[], None]
    status: str = 'attached'
    project: str = 'project'
    id: str = dataclasses.field(default_factory=lambda: str(uuid.uuid4()))


#: A connection, and what ends it at the back end.
Export = tuple[dict[str, Any], Callable[[], None]]


class Volumes:
    """The volume service."""

    def __init__(self) -> None:
        self.volumes: dict[str, dict[str, Any]] = {}
        self.attachments: dict[str, Attached] = {}
        #: What maps a volume to a host that is to be connected, by its id.
        self.exports: dict[str, Callable[[], Export]] = {}
        #: Method and path of every request that may change something.
        self.changes: list[str] = []
        #: The status that refuses each deletion of an attachment, if any.
        self.refuse: int | None = None
        self._is_silent = False
        service = self

        class Handler(web.Handler):
            def _handle(self) -> None:
                url = urllib.parse.urlsplit(self.path)
                status, answer = service._answer(
                    self.command, url.path,
                    dict(urllib.parse.parse_qsl(url.query)),
                    json.loads(self.body() or b'{}'))
                self.answer(status, b'' if answer is None
                            else json.dumps(answer).encode())

            do_GET = do_POST = do_PUT = do_DELETE = _handle

        self._server = web.Server(Handler)
        self.url = f'{self._server.url}/v3/{SERVICE}'
        #: Stop the service.
        self.stop = self._server.close

    def add(self, volume: storage.Volume, project: str = 'project',
            encryption: dict[str, Any] | None = None) -> None:
        """Register a volume."""
        self.volumes[volume.id] = {
            'project': project, 'encryption': encryption, 'status': None}

    def attach(self, volume: storage.Volume, server: str,
               connection: dict[str, Any], terminate: Callable[[], None],
               host: str = 'compute1', project: str = 'project') -> Attached:
        """Attach a volume registered with :meth:`add`."""
        connection = dict(connection, encrypted=bool(
            self.volumes[volume.id]['encryption']))
        attached = Attached(volume.id, server, host, connection, terminate,
                            project=project)
        self.attachments[attached.id] = attached
        return attached

    def delete(self, attached: Attached) -> None:
        """Delete an attachment; the back end unmaps the volume."""
        del self.attachments[attached.id]
        attached.terminate()

    def forge(self, attached: Attached) -> None:
        """Show a deleted attachment again, as a member can have it."""
        self.attachments[attached.id] = attached

    def reserve(self, volume: str, server: str) -> Attached:
        """Reserve a volume for a server."""
        attached = Attached(volume, server, '', {}, lambda: None, 'reserved',
                            self.volumes[volume]['project'])
        self.attachments[attached.id] = attached
        return attached

    def deny(self, attached: Attached) -> None:
        """Forget an attachment; the back end keeps the volume mapped."""
        del self.attachments[attached.id]

    def fall_silent(self) -> None:
        """Answer every request with 503 from now on."""
        self._is_silent = True

    def attachments_of(self, volume: str) -> list[Attached]:
        """Return the attachments of a volume."""
        return [one for one in self.attachments.values()
                if one.volume == volume]

    def status(self, volume: str) -> str:
        """Return the status of a volume: a case's, or its attachments'."""
        if self.volumes[volume]['status']:
            return str(self.volumes[volume]['status'])
        found = self.attachments_of(volume)
        if not found:
            return 'available'
        return ('in-use' if any(one.status == 'attached' for one in found)
                else found[0].status)

    def _answer(self, method: str, path: str, query: dict[str, str],
                body: dict[str, Any]) -> tuple[int, Any]:
        if self._is_silent:
            return 503, {'error': {'code': 503, 'message': 'by the test'}}
        parts = [part for part in path.split('/') if part]
        if parts in ([], ['v3']):
            return 200 if parts else 300, {'versions': [{
                'id': 'v3.0', 'status': 'CURRENT', 'version': '3.71',
                'min_version': '3.0', 'links': []}]}
        if method != 'GET':
            self.changes.append(f'{method} /{"/".join(parts[2:])}')
        kind, *rest = parts[2:]
        if kind == 'attachments':
            return self._answer_attachments(method, rest, query, body)
        if kind == 'volumes':
            return self._answer_volumes(method, rest, query)
        return 404, _missing('resource')

    def _answer_attachments(self, method: str, rest: list[str],
                            query: dict[str, str], body: dict[str, Any]
                            ) -> tuple[int, Any]:
        if method == 'POST' and not rest:
            wanted = body['attachment']
            return 200, {'attachment': self._attachment(self.reserve(
                wanted['volume_uuid'], wanted['instance_uuid']), detail=True)}
        if rest in ([], ['detail']):
            found = [one for one in self.attachments.values()
                     if query.get('instance_id') in (None, one.server)
                     and query.get('project_id') in (None, one.project)
                     and query.get('volume_id') in (None, one.volume)]
            if 'marker' in query:
                ids = [one.id for one in found]
                found = found[ids.index(query['marker']) + 1:]
            start = int(query.get('offset', 0))
            found = found[start:start + int(query.get('limit', 1000))]
            return 200, {'attachments': [
                self._attachment(one, detail=bool(rest)) for one in found]}
        attached = self.attachments.get(rest[0])
        if attached is None:
            return 404, _missing('attachment')
        if method == 'DELETE':
            if self.refuse:
                return self.refuse, {'error': {
                    'code': self.refuse, 'message': 'refused by the test'}}
            self.delete(attached)
            return 200, {'attachments': [
                self._attachment(one)
                for one in self.attachments_of(attached.volume)]}
        if method == 'POST':
            attached.status = 'attached'
            return 204, None
        if method == 'PUT' and attached.status == 'reserved':
            attached.host = body['attachment']['connector']['host']
            attached.connection, attached.terminate = self.exports[
                attached.volume]()
            attached.status = 'attaching'
        return 200, {'attachment': self._attachment(attached, detail=True)}

    def _answer_volumes(self, method: str, rest: list[str],
                        query: dict[str, str]) -> tuple[int, Any]:
        if rest == ['detail']:
            wanted = ast.literal_eval(query['id']) if 'id' in query \
                else list(self.volumes)
            return 200, {'volumes': [self._volume(one) for one in wanted
                                     if one in self.volumes]}
        if rest[0] not in self.volumes:
            return 404, _missing('volume')
        if rest[1:] == ['encryption']:
            return 200, self.volumes[rest[0]]['encryption'] or {}
        if method == 'POST':
            return 202, {}
        return 200, {'volume': self._volume(rest[0])}

    def _volume(self, volume: str) -> dict[str, Any]:
        known = self.volumes[volume]
        return {
            'id': volume, 'name': volume, 'status': self.status(volume),
            'size': 1, 'multiattach': False, 'bootable': 'false',
            'encrypted': bool(known['encryption']), 'metadata': {},
            'availability_zone': 'nova', 'volume_type': None,
            'snapshot_id': None, 'description': None,
            'created_at': '2026-01-01T00:00:00.000000',
            'updated_at': '2026-01-01T00:00:00.000000',
            'migration_status': None, 'os-vol-host-attr:host': 'array',
            'os-vol-mig-status-attr:migstat': None,
            'os-vol-tenant-attr:tenant_id': known['project'],
            'shared_targets': True, 'service_uuid': SERVICE,
            'attachments': [
                {'id': volume, 'volume_id': volume, 'server_id': one.server,
                 'attachment_id': one.id, 'host_name': one.host,
                 'device': '/dev/vdb', 'attached_at': None}
                for one in self.attachments_of(volume)
                if one.status == 'attached']}

    @staticmethod
    def _attachment(attached: Attached,
                    detail: bool = False) -> dict[str, Any]:
        record: dict[str, Any] = {
            'id': attached.id, 'volume_id': attached.volume,
            'instance': attached.server, 'status': attached.status}
        if detail:
            record.update(
                attach_mode='rw', attached_at='2026-01-01T00:00:00.000000',
                detached_at=None, connection_info=attached.connection)
        return record


def _missing(what: str) -> dict[str, Any]:
    return {'itemNotFound': {'code': 404,
                             'message': f'{what} could not be found.'}}
