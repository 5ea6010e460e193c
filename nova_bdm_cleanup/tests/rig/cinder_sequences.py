# SPDX-License-Identifier: Apache-2.0
"""Call sequences for Cinder, run by the model and by a real Cinder.

A call is a tuple of its name and its arguments.  Volumes, servers and
attachments have short names in a sequence; each side has ids of its own.  A
call that creates an attachment gives it a name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import dataclasses
import json
import random
import uuid

from cinderclient import exceptions as cinder_exceptions

from nova_bdm_cleanup.tests.cloud import cinder, identity
from nova_bdm_cleanup.tests.simulation import cinder as model

#: A volume without and one with multiattach.
ONE, MANY = 'single', 'multi'
VOLUMES = (ONE, MANY)
#: A name of no volume and no attachment.
MISSING = 'missing'

Call = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class State:
    """State of a volume."""

    status: str | None
    project: str | None = None
    #: Name, status, server and host of each attachment.
    attachments: frozenset[tuple[str, str, str, str | None]] = frozenset()
    #: The hosts that the back end exports the volume to.
    hosts: frozenset[str] = frozenset()


def _attached(name: str, volume: str, server: str, host: str) -> list[Call]:
    return [('reserve', name, volume, server), ('connect', name, host),
            ('complete', name)]


#: States that an administrator can give a volume.
_STATES = ('available', 'reserved', 'attaching', 'in-use', 'detaching',
           'maintenance', 'error', 'error_deleting', 'creating')


def _in_states(*before: Call) -> list[Call]:
    """Make, update and complete attachments of a volume in each state.

    :param before: calls that attach it as ``a``
    """
    calls: list[Call] = []
    for status in _STATES:
        for call in (('reserve', 'b', ONE, 's'), ('connect', 'a', 'here'),
                     ('complete', 'a')):
            calls += [*before, ('reset_status', ONE, status), call,
                      ('delete', 'b'), ('delete', 'a'),
                      ('reset_attached', ONE)]
    return calls


#: Call sequences by their subject.
SEQUENCES: Mapping[str, Sequence[Call]] = {
    'each state, reserved': _in_states(('reserve', 'a', ONE, 's')),
    'each state, attaching': _in_states(
        ('reserve', 'a', ONE, 's'), ('connect', 'a', 'here')),
    'each state, attached': _in_states(*_attached('a', ONE, 's', 'here')),
    'each state, without an attachment': [
        call for status in _STATES for call in (
            ('reset_status', ONE, status), ('reserve', 'a', ONE, 's'),
            ('delete', 'a'), ('reset_attached', ONE))],
    'reconnected here': [
        *_attached('a', ONE, 's', 'here'), ('reserve', 'b', ONE, 's'),
        ('connect', 'b', 'here'), ('delete', 'a'), ('connect', 'b', 'here'),
        ('complete', 'b'), ('begin_detaching', ONE), ('delete', 'b')],
    'reconnected from another host': [
        *_attached('a', ONE, 's', 'there'), ('reserve', 'b', ONE, 's'),
        ('delete', 'a'), ('connect', 'b', 'here'), ('complete', 'b')],
    'one of two reservations is used': [
        ('reserve', 'a', ONE, 's'), ('reserve', 'b', ONE, 's'),
        ('connect', 'b', 'here'), ('connect', 'a', 'here'), ('delete', 'a'),
        ('connect', 'b', 'here'), ('complete', 'b')],
    'a reservation beside one that is attaching': [
        ('reserve', 'a', ONE, 's'), ('reserve', 'b', ONE, 's'),
        ('connect', 'b', 'there'), ('reserve', 'c', ONE, 's'),
        ('connect', 'a', 'here'), ('delete', 'b'), ('connect', 'a', 'here'),
        ('complete', 'a')],
    'completed to see its host': [
        ('reserve', 'a', ONE, 's'), ('connect', 'a', 'there'),
        ('reserve', 'b', ONE, 's'), ('complete', 'a'),
        ('reserve', 'b', ONE, 's'), ('delete', 'a'), ('connect', 'b', 'here'),
        ('complete', 'b')],
    'reconnected while it is shared': [
        *_attached('a', MANY, 's', 'there'), *_attached(
            'b', MANY, 't', 'here'),
        ('reserve', 'c', MANY, 's'), ('begin_detaching', MANY),
        ('delete', 'a'), ('connect', 'c', 'here'), ('begin_detaching', MANY),
        ('complete', 'c'), ('begin_detaching', MANY)],
    'a reservation of a shared volume is given back': [
        *_attached('b', MANY, 't', 'here'), ('reserve', 'c', MANY, 's'),
        ('delete', 'c'), ('begin_detaching', MANY)],
    'reconnected when free': [
        *_attached('a', ONE, 's', 'here'), ('reset_status', ONE, 'available'),
        ('reserve', 'b', ONE, 's'), ('delete', 'a'), ('connect', 'b', 'here'),
        ('complete', 'b')],
    'detached while it is reconnected': [
        *_attached('a', ONE, 's', 'there'), ('reserve', 'b', ONE, 's'),
        ('begin_detaching', ONE), ('delete', 'a'), ('begin_detaching', ONE),
        ('connect', 'b', 'here'), ('complete', 'b')],
    'attach and detach': [
        *_attached('a', ONE, 's', 'here'), ('begin_detaching', ONE),
        ('delete', 'a')],
    'a detach is rolled back': [
        ('roll_detaching', ONE), *_attached('a', ONE, 's', 'here'),
        ('begin_detaching', ONE), ('begin_detaching', ONE),
        ('roll_detaching', ONE), ('roll_detaching', ONE)],
    'an attach is rolled back': [
        ('reserve', 'a', ONE, 's'), ('delete', 'a'),
        ('reserve', 'b', ONE, 's'), ('connect', 'b', 'here'),
        ('delete', 'b')],
    'complete without a connector': [
        ('reserve', 'a', ONE, 's'), ('complete', 'a'),
        ('begin_detaching', ONE), ('delete', 'a')],
    'connected twice': [
        ('reserve', 'a', ONE, 's'), ('connect', 'a', 'here'),
        ('connect', 'a', 'here'), ('complete', 'a'), ('connect', 'a', 'here'),
        ('begin_detaching', ONE), ('delete', 'a')],
    'connected to another host': [
        *_attached('a', ONE, 's', 'here'), ('connect', 'a', 'there'),
        ('complete', 'a'), ('delete', 'a')],
    'another server is refused': [
        *_attached('a', ONE, 's', 'here'), ('reserve', 'b', ONE, 't'),
        ('create', 'b', ONE, 't', 'there'), ('delete_volume', ONE),
        ('transfer', ONE, 'other')],
    'the same server again': [
        ('reserve', 'a', ONE, 's'), ('reserve', 'b', ONE, 's'),
        ('reserve', 'c', ONE, 't'), ('connect', 'a', 'here'),
        ('reserve', 'c', ONE, 's'), ('complete', 'a'),
        ('reserve', 'c', ONE, 's'), ('connect', 'c', 'there'),
        ('connect', 'b', 'here'), ('delete', 'c'), ('delete', 'a'),
        ('delete', 'b')],
    'a move to another host': [
        *_attached('a', ONE, 's', 'here'),
        ('create', 'b', ONE, 's', 'there'), ('begin_detaching', ONE),
        ('complete', 'b'), ('delete', 'a'), ('begin_detaching', ONE)],
    'a move is rolled back': [
        *_attached('a', ONE, 's', 'here'),
        ('create', 'b', ONE, 's', 'there'), ('delete', 'b'),
        ('begin_detaching', ONE)],
    'twice to one host': [
        *_attached('a', ONE, 's', 'here'), ('create', 'b', ONE, 's', 'here'),
        ('complete', 'b'), ('delete', 'a'), ('delete', 'b')],
    'two servers': [
        *_attached('a', MANY, 's', 'here'), ('reserve', 'b', MANY, 't'),
        ('begin_detaching', MANY), ('reserve', 'c', MANY, 'u'),
        ('connect', 'b', 'there'), ('begin_detaching', MANY),
        ('complete', 'b'), ('begin_detaching', MANY), ('delete', 'b'),
        ('delete', 'a')],
    'two servers of one host': [
        *_attached('a', MANY, 's', 'here'), *_attached('b', MANY, 't', 'here'),
        ('delete', 'a'), ('delete', 'b')],
    'the second is only reserved': [
        *_attached('a', MANY, 's', 'here'), ('reserve', 'b', MANY, 't'),
        ('delete', 'b'), ('reserve', 'b', MANY, 's'), ('delete', 'a'),
        ('reserve', 'c', MANY, 't'), ('delete', 'b')],
    'status reset to available': [
        *_attached('a', ONE, 's', 'here'), ('reset_status', ONE, 'available'),
        ('begin_detaching', ONE), ('delete_volume', ONE),
        ('reserve', 'b', ONE, 't'), ('connect', 'b', 'there'),
        ('reset_status', ONE, 'in-use'), ('begin_detaching', ONE),
        ('delete', 'a'), ('connect', 'b', 'there')],
    'transferred with an attachment': [
        *_attached('a', ONE, 's', 'here'), ('reset_status', ONE, 'available'),
        ('transfer', ONE, 'other'), ('delete', 'a'),
        ('transfer', ONE, 'third')],
    'deleted with a reservation': [
        ('reserve', 'a', ONE, 's'), ('delete_volume', ONE),
        ('reset_status', ONE, 'available'), ('delete_volume', ONE),
        ('delete', 'a')],
    'deleted while exported': [
        ('reserve', 'a', ONE, 's'), ('connect', 'a', 'here'),
        ('reset_status', ONE, 'available'), ('delete_volume', ONE),
        ('complete', 'a')],
    'detached in the records only': [
        *_attached('a', ONE, 's', 'here'), ('reset_attached', ONE),
        ('reserve', 'b', ONE, 't'), ('reset_attached', ONE),
        ('reset_attached', ONE), ('delete_volume', ONE)],
    'refused resets of the status': [
        ('reset_status', ONE, 'in-use'), ('reset_status', ONE, 'deleting'),
        ('reserve', 'a', ONE, 's'), ('reset_status', ONE, 'in-use'),
        ('begin_detaching', ONE), ('reset_status', ONE, 'detaching'),
        ('roll_detaching', ONE), ('reset_status', ONE, 'reserved')],
    'force-detached': [
        *_attached('a', ONE, 's', 'here'), ('force_detach', ONE, 'a', 'here')],
    'force-detached while attaching': [
        ('reserve', 'a', ONE, 's'), ('connect', 'a', 'here'),
        ('force_detach', ONE, 'a', 'here')],
    'one of two force-detached': [
        *_attached('a', MANY, 's', 'here'), ('reserve', 'b', MANY, 't'),
        ('connect', 'b', 'there'), ('force_detach', MANY, 'a', 'here'),
        ('force_detach', MANY, 'b', 'there')],
    'force-detached without an attachment': [
        *_attached('a', ONE, 's', 'here'), ('reset_attached', ONE),
        ('force_detach', ONE, 'a', 'here'), ('reset_status', ONE, 'detaching'),
        ('force_detach', ONE, 'a', 'here')],
    'missing volumes and attachments': [
        ('reserve', 'a', MISSING, 's'), ('connect', MISSING, 'here'),
        ('complete', MISSING), ('delete', MISSING),
        ('begin_detaching', MISSING), ('roll_detaching', MISSING),
        ('reset_status', MISSING, 'available'), ('reset_attached', MISSING),
        ('transfer', MISSING, 'other'), ('delete_volume', MISSING),
        ('create', 'a', MISSING, 's', 'here'),
        ('force_detach', MISSING, MISSING, 'here')],
}


def random_sequence(rng: random.Random, length: int) -> list[Call]:
    """Return a sequence of random calls."""
    names = ['a', 'b', 'c']
    servers = ['s', 't']
    hosts = ['here', 'there']
    calls: list[Call] = []
    for _ in range(length):
        volume = rng.choice(VOLUMES)
        name, host = rng.choice(names), rng.choice(hosts)
        calls.append(rng.choice([
            ('reserve', name, volume, rng.choice(servers)),
            ('reserve', name, volume, rng.choice(servers)),
            ('create', name, volume, rng.choice(servers), host),
            ('connect', name, host), ('connect', name, host),
            ('complete', name), ('complete', name),
            ('delete', name),
            ('begin_detaching', volume), ('roll_detaching', volume),
            ('reset_status', volume, rng.choice(['available', 'in-use'])),
            ('force_detach', volume, name, host), ('reset_attached', volume),
            ('transfer', volume, rng.choice(['other', 'third'])),
        ]))
    # Only at the end: later calls on a deleted volume are all refused.
    return [*calls, *(('delete_volume', volume) for volume in VOLUMES)]


class Model:
    """Calls on the model; each returns the status of a refusal, or None."""

    def __init__(self) -> None:
        self._cinder = model.Cinder()
        for volume in VOLUMES:
            self._cinder.create_volume(volume, 'owner', volume == MANY)
        self._ids: dict[str, str] = {}

    def call(self, name: str, *arguments: str) -> int | None:
        given = [self._ids.get(a, a) for a in arguments]
        try:
            if name in ('reserve', 'create'):
                self._ids[arguments[0]] = getattr(self._cinder, name)(
                    *arguments[1:])
            elif name == 'delete_volume':
                self._cinder.begin_deleting(*given)
                self._cinder.delete_volume(*given)
            else:
                getattr(self._cinder, name)(*given)
        except model.CinderError as exc:
            return exc.status
        return None

    def state(self, volume: str) -> State:
        record = self._cinder.volumes.get(volume)
        hosts = frozenset(
            host for host, units in self._cinder.back_end.exports.items()
            if volume in units.values())
        if record is None:
            return State(None, hosts=hosts)
        names = {value: name for name, value in self._ids.items()}
        return State(record.status, record.project, frozenset(
            (names.get(a.id, '?'), a.status, a.server, a.host)
            for a in self._cinder.of_volume(volume)), hosts)


#: Calls whose only argument is the id of an attachment or a volume.
_MANAGERS: Mapping[str, str] = {
    'complete': 'attachments', 'delete': 'attachments',
    'begin_detaching': 'volumes', 'roll_detaching': 'volumes'}


class Real:
    """Calls on a real Cinder."""

    def __init__(self, record: cinder.Cinder) -> None:
        self._cinder = record
        self._owner = identity.Caller('owner', f'project-{uuid.uuid4().hex}')
        self._client = record.client(identity.NOVA, service=True)
        owner = record.client(self._owner)
        self._volumes = {
            ONE: owner.volumes.create(1).id,
            MANY: owner.volumes.create(
                1, volume_type=cinder.MULTIATTACH_TYPE).id}
        for volume in self._volumes.values():
            record.wait(volume, 'available')
        self._names = {value: name for name, value in self._volumes.items()}
        self._servers: dict[str, str] = {}
        #: Ids of volumes and attachments by name.
        self._ids = dict(self._volumes)
        #: Exports, as pairs of a volume and a host.
        self._units: set[tuple[str, str]] = set()
        #: Position in the log of the back end.
        self._log_position = (record.state / 'driver.log').stat().st_size
        #: The hosts of each volume's attachments, at the last look.
        self._hosts: dict[str, list[str | None]] = {
            volume: [] for volume in VOLUMES}

    def call(self, name: str, *arguments: str) -> int | None:
        refusal = None
        try:
            if name in _MANAGERS:
                getattr(getattr(self._client, _MANAGERS[name]), name)(
                    self._id(*arguments))
            else:
                getattr(self, f'_{name}')(*arguments)
        except cinder_exceptions.ClientException as exc:
            refusal = exc.code
        self._read_driver_log()
        return refusal

    def _read_driver_log(self) -> None:
        """Follow the calls of the back end, as the LVM driver does.

        The export of a multiattach volume stays as long as the host has
        another attachment.
        """
        path = self._cinder.state / 'driver.log'
        with open(path) as log:
            log.seek(self._log_position)
            calls = [json.loads(line) for line in log.readlines()]
            self._log_position = log.tell()
        for call in calls:
            volume, host = self._names.get(call['volume']), call['host']
            if call['call'] == 'initialize_connection':
                self._units.add((volume, host))
            elif call['call'] == 'terminate_connection' and not (
                    volume == MANY and self._hosts[volume].count(host) > 1):
                self._units.discard((volume, host))
            elif call['call'] == 'delete_volume':
                self._units = {u for u in self._units if u[0] != volume}

    def _id(self, name: str) -> str:
        return self._ids.get(name) or str(uuid.uuid4())

    def _server(self, server: str) -> str:
        return self._servers.setdefault(server, str(uuid.uuid4()))

    @staticmethod
    def _connector(host: str) -> dict[str, str]:
        return {'host': host, 'ip': '192.0.2.1',
                'initiator': f'iqn.2026-01.test:{host}'}

    def _create(self, name: str, volume: str, server: str,
                host: str | None = None) -> None:
        self._ids[name] = self._client.attachments.create(
            self._id(volume), self._connector(host) if host else None,
            self._server(server))['id']

    _reserve = _create

    def _connect(self, name: str, host: str) -> None:
        self._client.attachments.update(
            self._id(name), self._connector(host))

    def _reset_status(self, volume: str, status: str) -> None:
        self._client.volumes.reset_state(self._id(volume), status)

    def _reset_attached(self, volume: str) -> None:
        self._client.volumes.reset_state(
            self._id(volume), 'available', attach_status='detached')

    def _transfer(self, volume: str, project: str) -> None:
        transfer = self._client.transfers.create(self._id(volume))
        caller = dataclasses.replace(self._owner, project=project)
        self._cinder.client(caller).transfers.accept(
            transfer.id, transfer.auth_key)

    def _force_detach(self, volume: str, name: str, host: str) -> None:
        self._client.volumes._action(
            'os-force_detach', self._id(volume), {
                'attachment_id': self._id(name),
                'connector': self._connector(host)})

    def _delete_volume(self, volume: str) -> None:
        self._client.volumes.delete(self._id(volume))
        self._cinder.wait(self._id(volume), None)

    def state(self, volume: str) -> State:
        hosts = frozenset(h for v, h in self._units if v == volume)
        # There are hundreds of reads, and the API would need 100 ms for each.
        with self._cinder.database() as database:
            found = database.execute(
                'SELECT status, project_id FROM volumes WHERE id = ?'
                ' AND NOT deleted', (self._volumes[volume],)).fetchone()
            rows = database.execute(
                'SELECT id, attach_status, instance_uuid, connector FROM'
                ' volume_attachment WHERE volume_id = ? AND NOT deleted',
                (self._volumes[volume],)).fetchall()
        names = {value: name for name, value in self._ids.items()}
        servers = {value: name for name, value in self._servers.items()}
        attachments = frozenset(
            (names.get(attachment, '?'), status, servers[server],
             json.loads(connector)['host'] if connector else None)
            for attachment, status, server, connector in rows)
        self._hosts[volume] = [host for _, _, _, host in attachments]
        if found is None:
            return State(None, None, attachments, hosts)
        status, project = found
        return State(
            status, 'owner' if project == self._owner.project else project,
            attachments, hosts)
