# SPDX-License-Identifier: Apache-2.0
"""Nova, Cinder and a hypervisor in memory, behind the two interfaces.

The world behaves like the real services where it matters.  The search's model
of Cinder, which the functional tests compare with the real one, computes a
volume's status after a delete.  A plain delete of a legacy attachment leaves
the volume mapped.  A guest that starts opens every disk that
has a mapping.  Every call is in the timeline.  A test can make every call
fail, or make another change happen just before it.

:attr:`World.violations` records each forbidden event when it happens.
"""

from __future__ import annotations

import collections
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
import contextlib
import dataclasses
from typing import Any, Callable

from nova_bdm_cleanup.node.cleanup import log_lines
from nova_bdm_cleanup.node.cleanup.ports import (
    AttachmentGone,
    InstancePort,
    RebootLost,
)
from nova_bdm_cleanup.node.store.database import Database
from nova_bdm_cleanup.node.store.journal import Journal
from nova_bdm_cleanup.openstack import cinder, errors
from nova_bdm_cleanup.rules import facts
from nova_bdm_cleanup.rules.action_events import Kind
from nova_bdm_cleanup.rules.facts import Answers
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.tests.simulation import cinder as model
from nova_bdm_cleanup.tests.unit import make

#: The calls that change something.
_CHANGES = ('power-off', 'disconnect', 'destroy', 'delete-attachment',
            'create-attachment', 'name-attachment', 'connect-attachment',
            'complete-attachment', 'roll-detaching-back')


class World:
    """One server, its disks, and the changes that others make to them.

    :param bdms: Nova's rows of the server
    :param volumes: Cinder's volumes, without their lists of attachments
    :param attachments: Cinder's attachments, of other servers too
    :param hosts: the hosts of attachments that connect another host
    :param neighbours: volumes that other guests on this host have
    """

    def __init__(self, bdms: Sequence[facts.Bdm] = (),
                 volumes: Sequence[facts.Volume] = (),
                 attachments: Sequence[facts.Attachment] = (),
                 neighbours: Sequence[str] = (),
                 hosts: Mapping[str, str] | None = None) -> None:
        self.server = make.server()
        self.rebooting = True
        self.rows = {b.uuid: b for b in bdms}
        #: Nova's soft-deleted rows of the server.
        self.deleted: list[facts.Bdm] = []
        self.volumes = {v.id: v for v in volumes}
        self.attachments = {a.id: a for a in attachments}
        self.neighbours = set(neighbours)
        #: Volumes whose address on this host is in another server's row.
        self.reused: set[str] = set()
        #: Cinder denies those rows; None: it does not answer.
        self.is_denied: bool | None = False
        #: Volumes for whose address the hypervisor does not answer.
        self.undecided: set[str] = set()
        #: Volumes that stay connected for a later start of Nova.
        self.noted: set[str | None] = set()
        #: Volumes whose disconnect is announced.
        self.announced: set[str | None] = set()
        #: The attaches of mappings, by uuid.
        self.attaches: dict[str, facts.Attach] = {}
        #: How Nova's swaps of volumes ended, and when the last one began.
        self.swaps = facts.Ending.SUCCESS
        self.last_swap = 0.0
        #: The disks of the guest, by mapping.
        self.sources: dict[str, facts.Source] = {}
        #: Volumes whose lock is held.
        self.guarded: set[str] = set()
        #: Volumes whose lock in a delete is held.
        self.locked_volumes: set[str] = set()
        #: Volumes that Cinder was told to detach from the server.
        self.told: set[str] = set()
        self.hosts = dict(hosts or {})
        #: Whether there are more attachments than Cinder shows.
        self.is_cut = False
        #: Volumes of other servers on this host that Cinder ought to know.
        self.witnesses: tuple[str, ...] = ()
        self.running = True
        #: Whether the guest is certainly on this host only.
        self.is_here = False
        #: What this host has of each disk.
        self.on_host = facts.OnHost()
        #: The mappings whose disks this guest does not have.
        self.left_out: set[str] = set()
        #: The attachments that the cleanup has made, and the addresses that
        #: Cinder has answered for them.
        self.made: dict[str, frozenset[facts.Address]] = {}
        #: Whether nova-compute is shutting down.
        self.shutting_down = False
        #: Whether its shutdown waits for the cleanup.
        self.is_awaited = False
        #: Whether the cleanup holds the lock of the server.
        self.locked = False
        #: Volumes that are connected to this host for the server.
        self.connected = {b.volume_id for b in bdms if b.has_connection_info}
        #: Attachments through which the back end maps a volume to a host.
        self.mapped = {a.id for a in attachments
                       if a.connected or a.is_legacy}

        self.timeline: list[tuple[str, ...]] = []
        self.violations: list[str] = []
        #: The events of the instance action, by kind.
        self.reported: dict[Kind, list[tuple[
            facts.Finding | None, Reason]]] = {kind: [] for kind in Kind}
        #: Calls by name, or by name and subject, that raise.
        self.failing: dict[object, Exception] = {}
        #: Actions that happen once, just before the call of that name.
        self.meanwhile: dict[str, Callable[[], None]] = {}

    def __repr__(self) -> str:
        return 'World(%s)' % ', '.join(map(repr, (
            self.server, list(self.rows.values()),
            list(self.volumes.values()), list(self.attachments.values()),
            self.neighbours, self.hosts)))

    # Faults

    @contextlib.contextmanager
    def call(self, *what: str) -> Iterator[None]:
        """Run one call: let it fail if told to, and add it to the timeline."""
        happens = self.meanwhile.pop(what[0], None)
        if happens:
            happens()
        for key in (what[0], what):
            if key in self.failing:
                self.timeline.append((*what, 'failed'))
                raise self.failing[key]
        yield
        self.timeline.append(what)
        if what[0] in _CHANGES and not self.is_awaited:
            self.violation('no shutdown waits for %s', what)

    @property
    def calls(self) -> list[str]:
        """Return the names in the timeline."""
        return [what[0] for what in self.timeline]

    @property
    def changes(self) -> list[tuple[str, ...]]:
        """Return the calls in the timeline that changed something."""
        return [what for what in self.timeline if what[0] in _CHANGES]

    def violation(self, text: str, *args: object) -> None:
        self.violations.append(text % args)

    # State

    def volume(self, volume_id: str) -> facts.Volume | None:
        """Return a volume with its list, which has attached records only."""
        volume = self.volumes.get(volume_id)
        return volume and dataclasses.replace(volume, attached_to=tuple(
            facts.AttachedServer(a.server_id, a.id, self.host_of(a))
            for a in self.attachments.values()
            if a.volume_id == volume_id and a.status == 'attached'))

    def host_of(self, attachment: facts.Attachment) -> str:
        return self.hosts.get(attachment.id, self.server.host)

    def ours(self, volume_id: str | None) -> list[facts.Attachment]:
        """Return Cinder's attachments of a volume to the server."""
        return [a for a in self.attachments.values()
                if a.volume_id == volume_id
                and a.server_id == self.server.uuid]

    def state(self) -> tuple[object, ...]:
        """Return the state of Nova, Cinder, the back end and the host."""
        return (frozenset(self.rows.values()),
                frozenset((v.id, v.status) for v in self.volumes.values()),
                frozenset(self.attachments.values()),
                frozenset(self.mapped), frozenset(self.connected))

    def serves(self, row: facts.Bdm) -> bool:
        """Return whether a row is unconnected and another has its disk."""
        return not row.has_connection_info and any(
            b.volume_id == row.volume_id and b.has_connection_info
            and b.attachment_id in self.mapped
            for b in self.rows.values())

    # Changes by others

    def drop(self, attachment_id: str) -> None:
        """Delete an attachment, with the search's model of Cinder."""
        gone = self.attachments[attachment_id]
        if gone.volume_id in self.volumes:
            with self.records(gone.volume_id) as records:
                records.delete(attachment_id)
        del self.attachments[attachment_id]

    @contextlib.contextmanager
    def records(self, volume_id: str) -> Iterator[model.Cinder]:
        """Yield the search's model of Cinder, which sets a volume's status."""
        volume = self.volumes[volume_id]
        records = model.Cinder()
        records.volumes[volume.id] = model.Volume(
            volume.id, volume.project or '', volume.status,
            volume.multiattach, migration_status=volume.migration_status)
        records.attachments = {
            a.id: model.Attachment(
                a.id, a.volume_id, a.server_id, a.status,
                self.host_of(a) if a.connected else None)
            for a in self.attachments.values() if a.volume_id == volume.id}
        try:
            yield records
        except model.NotFound as exc:
            raise errors.NotFound(str(exc)) from exc
        except model.CinderError as exc:
            raise errors.Conflict(str(exc)) from exc
        self.set_status(volume.id, records.volumes[volume.id].status)

    def change(self, attachment_id: str, **values: Any) -> None:
        self.attachments[attachment_id] = dataclasses.replace(
            self.attachments[attachment_id], **values)

    def set_status(self, volume_id: str, status: str) -> None:
        self.volumes[volume_id] = dataclasses.replace(
            self.volumes[volume_id], status=status)

    def reboot(self, without: Container[str] = ()) -> None:
        """Start the guest with every disk that has a mapping, as Nova does.

        :param without: the mappings that it is not given
        """
        self.running = True
        given = [b for b in self.rows.values()
                 if b.has_connection_info and b.uuid not in without]
        self.connected = {b.volume_id for b in given}
        for row in given:
            answer = self.made.get(row.attachment_id or '', row.addresses)
            if row.addresses != answer:
                self.violation('%s by an address that Cinder did not answer',
                               row)
        for volume_id in self.connected & self.told:
            if not self.ours(volume_id):
                self.violation('%s connected again after Cinder was told',
                               volume_id)

    def restart(self) -> None:
        """Remove all faults, and reboot again."""
        self.failing = {}
        self.reboot()

    def journal(self, path: str) -> Journal:
        """Return a real journal, whose writes may fail as well."""
        return _Journal(self, path)


class Host(InstancePort):
    """Nova and the hypervisor of a world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def server(self) -> facts.Server | None:
        with self._world.call('server'):
            return self._world.server if self._world.rebooting else None

    def bdms(self) -> tuple[facts.Bdm, ...]:
        with self._world.call('bdms'):
            return tuple(self._world.rows.values())

    def former(self, attachment: facts.Attachment) -> facts.Bdm | None:
        with self._world.call('former', attachment.id):
            return next((b for b in self._world.deleted
                         if b.attachment_id == attachment.id
                         and b.has_connection_info), None)

    def witnesses(self) -> Iterable[str]:
        with self._world.call('witnesses'):
            return self._world.witnesses

    def swaps(self) -> facts.Ending:
        with self._world.call('swaps'):
            return self._world.swaps

    def last_swap(self) -> float:
        with self._world.call('last-swap'):
            return self._world.last_swap

    def sources(self) -> Mapping[str, facts.Source]:
        # Asked in each cleanup; of the fake guest mostly nothing is known.
        if 'sources' in self._world.failing:
            raise self._world.failing['sources']
        return self._world.sources

    def attaches(self, bdms: Sequence[facts.Bdm]
                 ) -> Mapping[str, facts.Attach]:
        with self._world.call('attaches'):
            return {bdm.uuid: self._world.attaches.get(
                bdm.uuid, facts.Attach.UNKNOWN) for bdm in bdms}

    def absent(self, attachments: Sequence[facts.Attachment]
               ) -> frozenset[str]:
        with self._world.call('absent'):
            return frozenset(a.id for a in attachments
                             if a.volume_id not in self._world.connected)

    def guest_is_here(self) -> bool:
        with self._world.call('guest-is-here'):
            return self._world.is_here

    def left_out(self, proved: Mapping[str, float]) -> frozenset[str]:
        with self._world.call('left-out'):
            return frozenset(self._world.left_out - proved.keys())

    def on_host(self, bdm: facts.Bdm, attachment: facts.Attachment | None
                ) -> facts.OnHost:
        with self._world.call('on-host', bdm.uuid):
            return self._world.on_host

    def is_off(self) -> bool:
        with self._world.call('is-off'):
            return not self._world.running

    def is_shutting_down(self) -> bool:
        return self._world.shutting_down

    @contextlib.contextmanager
    def awaited(self) -> Iterator[None]:
        self._world.is_awaited = True
        try:
            yield
        finally:
            self._world.is_awaited = False

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        with self._world.call('lock'):
            pass
        self._world.locked = True
        try:
            yield
        finally:
            self._world.locked = False

    def prepare(self) -> None:
        with self._world.call('prepare'):
            if not self._world.running:
                self._world.violation('prepared too late')

    def claim(self) -> None:
        with self._world.call('claim'):
            if not self._world.rebooting:
                raise RebootLost('not in a hard reboot any more')

    def power_off(self) -> None:
        with self._world.call('power-off'):
            self._world.running = False

    def claims(self, disks: Sequence[facts.Bdm]) -> facts.Claims:
        world = self._world
        with world.call('claims', *(b.volume_id or '' for b in disks)):
            return facts.Claims(
                {bdm.uuid: tuple(self._claims_on(bdm)) for bdm in disks},
                frozenset(bdm.uuid for bdm in disks
                          if world.running and bdm.addresses
                          and bdm.volume_id in world.connected))

    def _claims_on(self, bdm: facts.Bdm) -> Iterator[facts.Claim]:
        world, volume_id = self._world, bdm.volume_id or ''
        if _is_new(bdm):
            return
        if volume_id in world.neighbours:
            yield make.claim(volume_id=volume_id)
        if volume_id in world.reused:
            yield make.claim(facts.Claimant.ROW)
        if volume_id in world.undecided:
            yield facts.Claim(facts.Claimant.ANY_GUEST)

    @contextlib.contextmanager
    def disconnecting(self, bdm: facts.Bdm) -> Iterator[None]:
        with self._world.call('announce', bdm.volume_id or ''):
            self._world.announced.add(bdm.volume_id)
        try:
            yield
        finally:
            self._world.announced.discard(bdm.volume_id)

    def hold_up(self) -> None:
        with self._world.call('hold-up'):
            pass

    def note(self, bdm: facts.Bdm) -> None:
        with self._world.call('note', bdm.volume_id or ''):
            self._world.noted.add(bdm.volume_id)

    @contextlib.contextmanager
    def volume_lock(self, volume_id: str) -> Iterator[None]:
        with self._world.call('volume-lock', volume_id):
            if volume_id in self._world.guarded:
                self._world.violation('the locks of %s in the wrong order',
                                      volume_id)
            self._world.locked_volumes.add(volume_id)
        try:
            yield
        finally:
            self._world.locked_volumes.discard(volume_id)

    @contextlib.contextmanager
    def guard(self, volume_id: str) -> Iterator[None]:
        with self._world.call('guard', volume_id):
            self._world.guarded.add(volume_id)
        try:
            yield
        finally:
            self._world.guarded.discard(volume_id)

    def disconnect(self, bdm: facts.Bdm) -> bool:
        with self._world.call('disconnect', bdm.uuid):
            if _is_new(bdm):
                return False
            was_here = bdm.volume_id in self._world.connected
            self._take_away(bdm.volume_id)
        return was_here

    def tidy(self, bdm: facts.Bdm) -> None:
        with self._world.call('tidy', bdm.uuid):
            if bdm.uuid in self._world.rows:
                self._world.violation('tidied up before %s was gone', bdm.uuid)

    def forget(self, attachment: facts.Attachment) -> None:
        """Only nova-compute remembers anything."""

    def name_attachment(self, bdm: facts.Bdm, attachment_id: str) -> facts.Bdm:
        world = self._world
        with world.call('name-attachment', bdm.uuid, attachment_id):
            named = world.attachments.get(attachment_id)
            if named not in world.ours(bdm.volume_id):
                world.violation('%s names %s', bdm, named)
            return self._changed(bdm, attachment_id=attachment_id)

    def release(self) -> None:
        with self._world.call('release'):
            pass

    def take_over(self, bdm: facts.Bdm, attachment: facts.Attachment,
                  is_multiattach: bool) -> facts.Bdm:
        with self._world.call('take-over', attachment.id):
            self._check(bdm)
            return self._changed(bdm, attachment_id=attachment.id,
                                 addresses=attachment.addresses)

    def connect(self, bdm: facts.Bdm, is_multiattach: bool,
                attachment: facts.Attachment | None = None) -> facts.Bdm:
        world = self._world
        attachment_id = attachment.id if attachment else (
            bdm.attachment_id or '')
        with world.call('connect-attachment', attachment_id):
            if attachment_id not in world.attachments:
                raise AttachmentGone(attachment_id)
            volume_id = world.attachments[attachment_id].volume_id
            self._check_locks(volume_id)
            if attachment is None:
                self._check(bdm)
            with world.records(volume_id) as records:
                records.connect(attachment_id, world.server.host)
            # The back end has given the address before to another volume.
            answer = bdm.addresses and make.addresses('again ' + volume_id)
            world.change(attachment_id, status='attaching', connected=True,
                         addresses=answer)
            world.hosts.pop(attachment_id, None)
            world.mapped.add(attachment_id)
            world.made[attachment_id] = answer
            return self._changed(
                bdm, addresses=answer, is_multiattach=is_multiattach,
                has_connection_info=True, volume_id=volume_id,
                attachment_id=attachment_id)

    def connect_unnamed(self, attachment: facts.Attachment) -> facts.Bdm:
        world = self._world
        with world.call('connect-attachment', attachment.id):
            if attachment.id not in world.attachments:
                raise AttachmentGone(attachment.id)
            bdm = make.bdm(uuid=attachment.id, attachment_id=attachment.id,
                           volume_id=attachment.volume_id)
            self._check_locks(attachment.volume_id)
            world.change(attachment.id, status='attaching', connected=True)
            return bdm

    def _check(self, bdm: facts.Bdm) -> None:
        world, volume_id = self._world, bdm.volume_id
        if (volume_id in world.connected
                and volume_id not in world.neighbours | world.noted):
            world.violation('%s connected again while it is still connected',
                            volume_id)
        if bdm.attachment_id != world.rows[bdm.uuid].attachment_id:
            world.violation('%s does not name what is connected', bdm)

    def _check_locks(self, volume_id: str | None) -> None:
        world = self._world
        if world.running:
            world.violation('%s connected again under a running guest',
                            volume_id)
        if volume_id not in world.locked_volumes & world.guarded:
            world.violation('%s connected again without the lock', volume_id)

    def _changed(self, bdm: facts.Bdm, **values: Any) -> facts.Bdm:
        """Change a row, as if it were saved."""
        if bdm.uuid not in self._world.rows:
            raise LookupError('mapping %s is gone' % bdm.uuid)
        row = dataclasses.replace(self._world.rows[bdm.uuid], **values)
        self._world.rows[bdm.uuid] = row
        return row

    def destroy(self, bdm: facts.Bdm) -> None:
        world = self._world
        with world.call('destroy', bdm.uuid):
            row = world.rows.get(bdm.uuid)
            if row is None:
                return
            if row.is_root or not row.is_volume:
                world.violation('removed %s', row)
            if (row.volume_id in world.connected
                    and row.volume_id not in world.neighbours | world.noted
                    and not world.serves(row)):
                world.violation('mapping %s went while it was connected',
                                row.uuid)
            world.deleted.append(world.rows.pop(bdm.uuid))

    def row(self, bdm: facts.Bdm) -> Mapping[str, Any]:
        values = dataclasses.asdict(self._world.rows[bdm.uuid])
        return {**values, 'instance_uuid': self._world.server.uuid,
                'created_at': str(bdm.created_at)}

    def describe(self) -> Mapping[str, Any]:
        return {'server': self._world.server.uuid,
                'host': self._world.server.host}

    def report(self, kind: Kind, finding: facts.Finding | None,
               reason: Reason) -> None:
        with self._world.call('report ' + kind.value):
            self._world.reported[kind].append((finding, reason))

    def _take_away(self, volume_id: str | None) -> None:
        world = self._world
        if not {volume_id} <= world.guarded & world.locked_volumes:
            world.violation('%s disconnected without the lock', volume_id)
        if world.running:
            world.violation('%s disconnected from a running guest', volume_id)
        if volume_id not in world.announced:
            world.violation('%s disconnected without notice', volume_id)
        if volume_id in world.neighbours:
            world.violation('%s disconnected from a neighbour', volume_id)
        if volume_id in world.reused and not world.is_denied:
            world.violation('the volume that took the place of %s was '
                            'disconnected', volume_id)
        world.connected.discard(volume_id)


def _is_new(bdm: facts.Bdm) -> bool:
    """Return whether nobody had the address of a mapping before."""
    return bool(bdm.addresses) and not (
        bdm.addresses & make.addresses(bdm.volume_id))


class Cinder(cinder.Cinder):
    """The Cinder of a world: the requests of a cleanup.

    :param service_token: whether deletes are sent with a service token
    """

    def __init__(self, world: World, service_token: bool = True) -> None:
        self._world = world
        self._service_token = service_token

    def look(self, server_id: str, bdms: Sequence[facts.Bdm],
             project: str | None = None, named: Sequence[str] = (),
             closely: bool = False) -> Answers:
        world = self._world
        with world.call('look'):
            carried = {b.attachment_id for b in bdms}
            attachments = tuple(
                a for a in world.attachments.values()
                if a.server_id == server_id or a.id in carried)
            volumes = {b.volume_id for b in bdms if b.volume_id}
            volumes.update(a.volume_id for a in attachments)
            return Answers({v: world.volume(v) for v in sorted(volumes)},
                           attachments, world.is_cut)

    def ask_for_witness(self, volumes: Iterable[str]) -> facts.WitnessAnswer:
        asked = list(volumes)
        if not asked:
            return facts.WitnessAnswer.NONE_EXISTS
        with self._world.call('ask-for-witness'):
            return (facts.WitnessAnswer.KNOWN
                    if any(v in self._world.volumes for v in asked)
                    else facts.WitnessAnswer.UNKNOWN)

    def denies(self, claim: facts.Claim, host: str,
               addresses: frozenset[facts.Address]) -> bool:
        with self._world.call('denies', claim.volume_id or ''):
            if self._world.is_denied is None:
                raise errors.Unreachable('no route')
            return self._world.is_denied

    def volume(self, volume_id: str) -> facts.Volume | None:
        with self._world.call('volume', volume_id):
            return self._world.volume(volume_id)

    def attachment(self, attachment_id: str) -> facts.Attachment | None:
        with self._world.call('attachment', attachment_id):
            return self._world.attachments.get(attachment_id)

    def own_attachments(self, server_id: str,
                        volume_id: str) -> list[facts.Attachment]:
        with self._world.call('own-attachments', volume_id):
            return self._world.ours(volume_id)

    def create_attachment(self, server_id: str, volume_id: str) -> str:
        world = self._world
        with world.call('create-attachment', volume_id):
            self._check_write(volume_id)
            new = 'new-%d' % (1 + len(world.made))
            with world.records(volume_id) as records:
                records.reserve(volume_id, server_id)
            world.attachments[new] = make.attachment(
                id=new, volume_id=volume_id, server_id=server_id,
                status='reserved', connected=False)
            world.made[new] = frozenset()
            return new

    def complete_attachment(self, attachment_id: str) -> None:
        world = self._world
        with world.call('complete-attachment', attachment_id):
            attachment = world.attachments.get(attachment_id)
            if attachment is None:
                raise errors.NotFound('no attachment %s' % attachment_id)
            self._check_write(attachment.volume_id)
            if attachment.only_reserves:
                world.violation('%s completed, which connects nothing',
                                attachment_id)
            with world.records(attachment.volume_id) as records:
                records.complete(attachment_id)
            world.change(attachment_id, status='attached')

    def roll_detaching_back(self, volume_id: str) -> None:
        with self._world.call('roll-detaching-back', volume_id):
            if self._world.volumes[volume_id].status != 'detaching':
                raise errors.BadRequest('%s is not detaching' % volume_id)
            self._world.set_status(volume_id, 'in-use')

    def _check_write(self, volume_id: str) -> None:
        volume = self._world.volumes[volume_id]
        if volume.is_migrating or volume.status not in (
                'available', *facts.TAKEN) or volume.status == 'detaching':
            self._world.violation('attachments of %s changed', volume)
        if volume_id not in self._world.locked_volumes:
            self._world.violation('attachments of %s changed without the lock',
                                  volume_id)

    def delete_attachment(self, attachment_id: str,
                          complete: bool = False) -> bool:
        with self._world.call('delete-attachment', attachment_id):
            if complete:
                self._world.change(attachment_id, status='attached')
            return self._delete(attachment_id)

    def _delete(self, attachment_id: str) -> bool:
        world = self._world
        attachment = world.attachments.get(attachment_id)
        if attachment is None:
            return False
        # Cinder asks Nova, unless a service token tells it not to.
        named = any(b.attachment_id == attachment_id
                    for b in world.rows.values())
        if attachment.connected and named and not self._service_token:
            raise errors.ServiceTokenRequired(
                'Cinder answered 409; set send_service_user_token')
        self._check(attachment)
        if attachment.volume_id not in world.locked_volumes:
            world.violation('%s deleted without the lock', attachment_id)
        world.drop(attachment_id)
        world.told.add(attachment.volume_id)
        # Cinder assumes that a reserved attachment was never connected.
        if attachment.connected and attachment.status != 'reserved':
            world.mapped.discard(attachment_id)
        return True

    def _check(self, attachment: facts.Attachment) -> None:
        world = self._world
        if attachment.server_id != world.server.uuid:
            world.violation('attachment %s of another server deleted',
                            attachment.id)
        if world.running:
            world.violation('attachment %s deleted under a running guest',
                            attachment.id)
        self._check_kept(attachment, [
            b for b in world.rows.values()
            if attachment.id == b.attachment_id
            or b.volume_id == attachment.volume_id])
        if (attachment.id in world.mapped
                and attachment.volume_id in world.connected
                and attachment.volume_id
                not in world.neighbours | world.noted
                and world.host_of(attachment) == world.server.host):
            world.violation('attachment %s deleted while connected',
                            attachment.id)

    def _check_kept(self, attachment: facts.Attachment,
                    rows: Sequence[facts.Bdm]) -> None:
        """Check that no disk is lost whose mapping stays."""
        world = self._world
        left = [a for a in world.ours(attachment.volume_id)
                if a != attachment]
        volume = world.volumes.get(attachment.volume_id)
        is_shared = volume is not None and volume.multiattach
        if any(b.attachment_id == attachment.id or not b.attachment_id
               for b in rows) and not left and not is_shared:
            world.violation('attachment %s deleted before its mapping',
                            attachment.id)
        serving = [a for a in left if a.status == 'attached'
                   and world.host_of(a) == world.server.host]
        if (rows and not serving and not world.is_here
                and not attachment.only_reserves
                and attachment.status != 'error_attaching'
                and attachment.id not in world.made
                and (attachment.status != 'attached'
                     or world.host_of(attachment) != world.server.host)):
            world.violation('attachment %s deleted, which may serve the guest '
                            'elsewhere', attachment.id)


class Counters(log_lines.Counters):
    """Counters by reason code and trigger."""

    def __init__(self) -> None:
        self.removals: collections.Counter[tuple[str, str]] = (
            collections.Counter())
        self.reconnects: collections.Counter[tuple[str, str]] = (
            collections.Counter())
        self.adoptions: collections.Counter[tuple[str, str]] = (
            collections.Counter())
        self.refusals: collections.Counter[tuple[str, str]] = (
            collections.Counter())
        self.cinder_seconds: dict[str, list[float]] = (
            collections.defaultdict(list))

    def count_removal(self, reason: str, trigger: str) -> None:
        self.removals[str(reason), trigger] += 1

    def count_reconnect(self, reason: str, trigger: str) -> None:
        self.reconnects[str(reason), trigger] += 1

    def count_adoption(self, reason: str, trigger: str) -> None:
        self.adoptions[str(reason), trigger] += 1

    def count_refusals(self, reason: str, trigger: str,
                       number: int = 1) -> None:
        self.refusals[str(reason), trigger] += number

    def add_cinder_seconds(self, trigger: str, seconds: float) -> None:
        self.cinder_seconds[trigger].append(seconds)


class _Journal(Journal):
    """A journal whose every change is a call of the world."""

    def __init__(self, world: World, path: str) -> None:
        super().__init__(path, 4 * 1024 * 1024)
        self._database = _Database(world, path, 4 * 1024 * 1024)


class _Database(Database):

    def __init__(self, world: World, path: str, max_bytes: int) -> None:
        super().__init__(path, max_bytes)
        self._world = world

    def write(self, *args: Any) -> Any:
        # An append keeps its own entry; a begin has no entry to keep yet.
        with self._world.call('journal-append' if args[2:]
                              else 'journal-begin'):
            return super().write(*args)
