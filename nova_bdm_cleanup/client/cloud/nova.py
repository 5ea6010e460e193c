# SPDX-License-Identifier: Apache-2.0
"""Servers and their disks as the compute API shows them.

The API shows less than the rows that nova-compute sees: no boot indexes,
sources, ages or connections.  Missing values are filled in so that the rules
keep rather than remove.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
import dataclasses
import datetime
import itertools
import re
from typing import Any

from nova_bdm_cleanup.openstack import answers, errors
from nova_bdm_cleanup.openstack.answers import quoted
from nova_bdm_cleanup.openstack.api import Api
from nova_bdm_cleanup.rules import action_events, spelling
from nova_bdm_cleanup.rules.action_events import ActionEvent, Kind
from nova_bdm_cleanup.rules.facts import Bdm, ENDED_MIGRATIONS, Ending

#: Attachment and mapping ids are shown since 2.89, which Nova 25 has.
COMPUTE_MICROVERSION = '2.89'

#: The last version that lists mappings without an attachment id as well.
_LISTS_ALL = '2.88'

#: Nova shows a server of a cell that does not answer with this status.
_UNKNOWN = 'UNKNOWN'

#: The actions of Nova that start a guest on its host.
STARTS = ('reboot', 'start')

#: The states in which Nova accepts a detach, and asks the host for it.
_DETACHES = ('ACTIVE', 'PAUSED', 'SHUTOFF')

#: The most time between the request for a detach and Cinder's record of it.
_RECORDED_WITHIN = datetime.timedelta(minutes=1)

#: What ``openstack server set --state`` sets; a create fails to the first.
_RESET = ('ERROR', 'ACTIVE')

#: Nova's words for a host whose nova-compute does not run.
_NOT_UP = ('DOWN', 'UNKNOWN')

#: The actions of a timeline: each costs a request.
_PAST = 8

#: The actions that begin no operation.
_LOCKS = ('lock', 'unlock')


@dataclasses.dataclass(frozen=True)
class ComputeServer:
    """One server as the compute API shows it."""

    id: str
    name: str
    status: str
    project: str | None = None
    #: The user who created it.
    user: str | None = None
    #: None without the admin role, and while no host runs it.
    host: str | None = None
    #: The compute node of the host, as Placement names it.
    node: str | None = None
    task_state: str | None = None
    locked: bool = False
    volume_backed: bool = False
    root_device: str | None = None
    volumes: tuple[str, ...] = ()
    #: The reason that was given with the lock.
    locked_reason: str | None = None
    #: Whether nova-compute of its host runs; None without the admin role.  It
    #: may change at any time.
    host_status: str | None = dataclasses.field(default=None, compare=False)
    #: No host has it; every user is shown that.
    is_nowhere: bool = False
    #: Its create did not get as far as to start the guest.
    never_ran: bool = False
    #: When anything of it was changed last.
    updated_at: datetime.datetime | None = dataclasses.field(
        default=None, compare=False)

    @property
    def is_unknown(self) -> bool:
        """Return whether its cell is silent; only its existence is known."""
        return self.status == _UNKNOWN

    @property
    def is_shelved(self) -> bool:
        """Return whether no host has it; its volumes are only reserved."""
        return self.status == 'SHELVED_OFFLOADED'

    @property
    def has_guest(self) -> bool:
        """Return whether its guest is taken to be on its host, in memory.

        Only the node asks the hypervisor.
        """
        return self.status in ('ACTIVE', 'PAUSED')

    def reset(self) -> ComputeServer:
        """Return it as it is after its state has been set to error."""
        return dataclasses.replace(self, status='ERROR', task_state=None)

    @property
    def is_startable(self) -> bool:
        """Return whether Nova can start it where it is."""
        return not self.is_nowhere and not self.never_ran

    @property
    def is_lost(self) -> bool:
        """Return whether it cannot be started, and never will be.

        Nova refuses all but its delete, or fails half way.
        """
        return (not self.is_startable and not self.task_state
                and self.status in _RESET)

    @property
    def has_failed(self) -> bool:
        """Return whether an operation has failed, and a reboot starts it."""
        return (self.status == 'ERROR' and self.is_startable
                and not self.task_state)

    @property
    def is_host_down(self) -> bool:
        """Return whether Nova says that nova-compute of its host is down."""
        return self.host_status in _NOT_UP

    @property
    def is_being_deleted(self) -> bool:
        return self.task_state in ('deleting', 'soft-deleting')

    @property
    def may_lack_disks(self) -> bool:
        """Return whether its host may have no local disks of it any more.

        Their content is in an image then: Nova deletes them to offload it.
        """
        return (self.task_state == 'shelving_offloading'
                and not self.volume_backed)

    @property
    def task(self) -> str:
        """Return its task, or its status without one."""
        return self.task_state or self.status

    @property
    def is_busy(self) -> bool:
        """Return whether it has a task, so that it cannot be judged."""
        return bool(self.task_state) or self.status in (
            'BUILD', 'REBUILD', 'MIGRATING', 'RESIZE', 'REVERT_RESIZE',
            'VERIFY_RESIZE')


@dataclasses.dataclass(frozen=True)
class Disk:
    """One volume of a server, and its mapping as the API shows it."""

    volume_id: str
    bdm_uuid: str | None = None
    attachment_id: str | None = None
    device: str | None = None


@dataclasses.dataclass(frozen=True)
class InstanceAction:
    """One request to a server, as Nova has recorded it."""

    name: str
    request_id: str
    project: str | None
    user: str | None
    #: When it began.
    began: str
    began_at: datetime.datetime | None = None
    #: When an event of it began or ended last.
    changed_at: datetime.datetime | None = None
    #: Nova says that it failed; one that did not end is not one of them.
    has_failed: bool = False

    @property
    def took(self) -> float | None:
        """Return the seconds it took; None: it has failed, or Nova does not
        tell.
        """
        return (self.changed_at - self.began_at).total_seconds() if (
            self.began_at and self.changed_at and not self.has_failed
        ) else None


@dataclasses.dataclass(frozen=True)
class PastAction:
    """A request to a server, and how it ended."""

    action: InstanceAction
    ending: Ending
    #: The hosts that carried it out; none without the admin role.
    hosts: tuple[str, ...]
    #: The events that the plugin added to it.
    plugin_events: tuple[ActionEvent, ...] = ()

    @property
    def not_connected(self) -> dict[str, str]:
        """Return the volumes that it did not connect, with the reasons."""
        return {event.subject: event.reason for event in self.plugin_events
                if event.kind is Kind.NOT_CONNECTED and event.subject}


@dataclasses.dataclass(frozen=True)
class Lock:
    """The lock of a server, as far as Nova tells."""

    #: The credentials were of the project of the server: Nova then takes them
    #: for those of its owner, and all others for those of an administrator.
    is_owners: bool
    #: The user, the time and the given reason, in words.
    words: str


@dataclasses.dataclass(frozen=True)
class ComputeHosts:
    """The compute hosts of a cloud."""

    known: frozenset[str]
    #: Whether each service of Nova is down, by its name and host.
    services: Mapping[str, bool]
    #: Those of cells that do not answer: lists silently leave out the servers
    #: of such a cell.
    silent: tuple[str, ...]


class Nova:
    """The compute API."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def servers(self, all_projects: bool = False,
                project: str | None = None, host: str | None = None,
                name: str | None = None) -> Iterator[list[ComputeServer]]:
        """Yield the servers page by page."""
        is_wide = all_projects or project or host
        query = {key: value for key, value in (
            ('all_tenants', '1' if is_wide else None),
            ('project_id', project), ('host', host), ('name', name)) if value}
        # Without a marker or a limit, and only then, Nova also shows that
        # there are servers in cells that do not answer.
        for page in self._api.pages('/servers/detail', 'servers', query,
                                    follow_links=True):
            yield [_server(r) for r in page]

    def hosts(self) -> ComputeHosts:
        """Return the hosts where a nova-compute runs, or ran.

        :raises Refused: without the admin role
        """
        services = answers.records(self._api.get('/os-services'), 'services')
        status = {answers.text(r, 'host'): answers.text(r, 'status')
                  for r in services
                  if answers.text(r, 'binary') == 'nova-compute'}
        return ComputeHosts(
            frozenset(status), answers.services(services),
            tuple(sorted(h for h in status if status[h] == _UNKNOWN)))

    def server(self, server_id: str) -> ComputeServer | None:
        """Return a server; None: proved absent for these credentials.

        :raises Unanswered: when its cell does not answer
        """
        server = self._api.one('server', server_id, _server)
        if server is not None and server.is_unknown:
            raise errors.Unanswered('the cell of server %s does not answer'
                                    % server_id)
        return server

    def has_deleted(self, server_id: str) -> bool:
        """Return whether this Nova had a server and deleted it.

        Nova does not know a server whose rows were archived or purged.

        :raises Refused: without the admin role
        """
        body = self._api.get('/servers/detail', {
            'all_tenants': '1', 'deleted': 'true', 'uuid': server_id})
        return any(
            answers.identifier(r, 'id') == server_id
            and answers.text(r, 'status') == 'DELETED'
            for r in answers.records(body, 'servers'))

    def find(self, name_or_id: str, all_projects: bool) -> ComputeServer:
        """Return the server that an operator names.

        :raises BadInput: when there is none, or more than one
        """
        wanted = spelling.identifier(name_or_id)
        server = (self.server(wanted)
                  if all(c.isalnum() or c in '-_' for c in wanted) else None)
        if server is not None:
            return server
        # Nova's filter is a regular expression; only the same name counts.
        found = [s for page in self.servers(
            all_projects, name=re.escape(name_or_id))
            for s in page if s.name == name_or_id]
        if len(found) == 1:
            return found[0]
        if not found:
            raise errors.BadInput(
                'no server has the name or ID %s%s' % (
                    name_or_id, '' if all_projects else
                    '; by its name, a server of another project is only '
                    'found with --all-projects'))
        raise errors.BadInput(
            '%d servers are named %s; give one of their IDs: %s' % (
                len(found), name_or_id, ', '.join(s.id for s in found)))

    def disks(self, server: ComputeServer) -> tuple[Disk, ...] | None:
        """Return the volumes of a server; None when the server is gone."""
        try:
            shown = self._mappings(server.id)
            # Recent releases leave a mapping without an attachment id out of
            # this list, while the server itself names its volume: once for
            # each.
            if Counter(server.volumes) - Counter(d.volume_id for d in shown):
                every = self._mappings(server.id, _LISTS_ALL)
                shown += (Counter(map(_without_ids, every)) - Counter(
                    map(_without_ids, shown))).elements()
        except errors.NotFound:
            return None
        # It may have changed between the requests.
        known = {d.volume_id for d in shown}
        shown += [Disk(v) for v in dict.fromkeys(server.volumes)
                  if v not in known]
        return tuple(shown)

    def _mappings(self, server_id: str,
                  microversion: str | None = None) -> list[Disk]:
        """Return the disks in Nova's list of a server's attachments."""
        body = self._api.get('/servers/%s/os-volume_attachments'
                             % quoted(server_id), microversion=microversion)
        return [Disk(
            volume_id=answers.identifier(r, 'volumeId'),
            bdm_uuid=answers.optional_text(r, 'bdm_uuid'),
            attachment_id=answers.optional_identifier(r, 'attachment_id'),
            device=answers.optional_text(r, 'device'))
            for r in answers.records(body, 'volumeAttachments')]

    def lacks_root(self, server: ComputeServer) -> bool:
        """Return whether a rebuild has failed, and then a reboot: it may have
        deleted the local root disk, and only another rebuild makes one.
        """
        if not server.has_failed or server.volume_backed:
            return False
        names = [action.name for action in self.actions(server.id)
                 if action.name not in _LOCKS]
        later = list(itertools.takewhile('reboot'.__eq__, names))
        return bool(later) and names[len(later):][:1] == ['rebuild']

    def swaps(self, server_id: str) -> Ending:
        """Return the worst ending of the swaps of a server's volumes."""
        # Later versions give the newest thousand only.
        return max((
            self._ending(server_id, action)
            for action in self.actions(server_id, '2.1')
            if action.name == 'swap_volume'), default=Ending.SUCCESS)

    def _ending(self, server_id: str, action: InstanceAction) -> Ending:
        return _ending_of(self._events(server_id, action))

    def has_failed_detach(self, server: ComputeServer, volume_id: str,
                          since: datetime.datetime | None) -> bool:
        """Return whether Nova has begun a detach that did not succeed, and
        accepts another one.

        An action names no volume.

        :param since: when the volume became ``detaching``
        """
        root = spelling.device(server.root_device)
        if since is None or server.status not in _DETACHES or any(
                root and spelling.device(disk.device) == root
                for disk in self.disks(server) or ()
                if disk.volume_id == volume_id):
            return False
        return any(
            action.name == 'detach_volume' and action.began_at is not None
            and abs(action.began_at - since) <= _RECORDED_WITHIN
            and self._ending(server.id, action) is not Ending.SUCCESS
            for action in self.actions(server.id, '2.1')
        ) and self.swaps(server.id) is Ending.SUCCESS

    def is_migrated(self, server_id: str) -> bool:
        """Return whether a migration of a server is not over.

        :raises Refused: without the admin role
        """
        return any(answers.text(r, 'status') not in ENDED_MIGRATIONS
                   for r in self._migrations(server_id))

    def has_failed_live_migration(self, server_id: str) -> bool:
        """Return whether a live migration of a server was not completed.

        :raises Refused: without the admin role
        """
        return any(r.get('migration_type') == 'live-migration'
                   and r.get('status') != 'completed'
                   for r in self._migrations(server_id))

    def _migrations(self, server_id: str) -> list[Mapping[str, Any]]:
        # The newest thousand.
        return answers.records(self._api.get(
            '/os-migrations', {'instance_uuid': server_id}), 'migrations')

    def actions(self, server_id: str, microversion: str | None = None
                ) -> list[InstanceAction]:
        """Return the recorded requests to a server, the newest first."""
        body = self._api.get('/servers/%s/os-instance-actions'
                             % quoted(server_id), microversion=microversion)
        return [InstanceAction(
            answers.text(r, 'action'), answers.text(r, 'request_id'),
            answers.optional_text(r, 'project_id'),
            answers.optional_text(r, 'user_id'),
            (answers.optional_text(r, 'start_time') or '-').replace(
                'T', ' ')[:19],
            answers.moment(r, 'start_time'), answers.moment(r, 'updated_at'),
            answers.optional_text(r, 'message') == 'Error')
            for r in answers.records(body, 'instanceActions')]

    def past(self, server_id: str) -> list[PastAction]:
        """Return the last requests to a server, the newest first."""
        return [self._past(server_id, action)
                for action in self._operations(server_id)]

    def last_unsuccessful(self, server_id: str) -> PastAction | None:
        """Return the newest of the last requests that has not succeeded.

        Only the newest one is asked whether it has ended: that costs a
        request.  Nova knows none of a server that it has purged.
        """
        try:
            actions = self._operations(server_id)
        except errors.NotFound:
            return None
        newest = [self._past(server_id, action) for action in actions[:1]]
        failed = [PastAction(action, Ending.FAILURE, ())
                  for action in actions if action.has_failed]
        return next((each for each in newest + failed
                     if each.ending is not Ending.SUCCESS), None)

    def _operations(self, server_id: str) -> list[InstanceAction]:
        return [action for action in self.actions(server_id)
                if action.name not in _LOCKS][:_PAST]

    def _past(self, server_id: str, action: InstanceAction) -> PastAction:
        events = self._events(server_id, action)
        hosts = (answers.optional_text(e, 'host') for e in events)
        return PastAction(
            action, _ending_of(events),
            tuple(sorted(set(filter(None, hosts)))), _of_plugin(events))

    def was_interrupted(self, server: ComputeServer) -> bool:
        """Return whether nothing carries out the task of a server any more.

        The plugin records it when nova-compute starts.  What begins on the
        server later is a newer action, or another event.
        """
        for action in self.actions(server.id):
            if action.name not in _LOCKS:
                # The newest one is first.
                names = [answers.text(record, 'event') for record
                         in self._events(server.id, action)]
                return names[:1] == [
                    action_events.interrupted(server.task_state or '')]
        return False

    def lock(self, server: ComputeServer) -> Lock | None:
        """Return the lock of a server; None: it is not locked.

        Nova does not show who locked it, but records each request to lock it
        that was not in vain.  If it has no such record, the lock counts as an
        administrator's.
        """
        if not server.locked:
            return None
        try:
            actions = self.actions(server.id)
        except errors.Forbidden:
            actions = []
        found = next((a for a in actions if a.name == 'lock'), None)
        words = 'Nova has no record of who locked it'
        is_owners = False
        if found is not None:
            is_owners = found.project is not None and spelling.is_same(
                found.project, server.project or '')
            words = 'locked by %s (user %s) at %s' % (
                'its owner' if is_owners else 'an administrator',
                found.user or '-', found.began)
        if server.locked_reason:
            words += ', because: ' + server.locked_reason
        return Lock(is_owners, words)

    def plugin_events(self, server_id: str, action: InstanceAction
                      ) -> list[ActionEvent]:
        """Return the events that the plugin added to an action."""
        return list(_of_plugin(self._events(server_id, action)))

    def _events(self, server_id: str, action: InstanceAction
                ) -> list[Mapping[str, Any]]:
        body = self._api.get('/servers/%s/os-instance-actions/%s' % (
            quoted(server_id), quoted(action.request_id)))
        return answers.records(
            answers.record(body, 'instanceAction'), 'events')

    def reboot_hard(self, server_id: str) -> None:
        """Ask for a hard reboot; it is not over when this returns."""
        self._api.post('/servers/%s/action' % quoted(server_id),
                       {'reboot': {'type': 'HARD'}})

    def detach(self, server_id: str, volume_id: str) -> None:
        """Ask for a detach; it is not over when this returns."""
        self._api.delete('/servers/%s/os-volume_attachments/%s' % (
            quoted(server_id), quoted(volume_id)), 202)

    def set_error(self, server_id: str) -> None:
        """Set the state of a server to error; it has no task then."""
        self._api.post('/servers/%s/action' % quoted(server_id),
                       {'os-resetState': {'state': 'error'}})

    def stop(self, server_id: str) -> None:
        """Ask for a stop; it is not over when this returns."""
        self._api.post('/servers/%s/action' % quoted(server_id),
                       {'os-stop': None})


def _of_plugin(events: Iterable[Mapping[str, Any]]
               ) -> tuple[ActionEvent, ...]:
    found = (action_events.parse(answers.text(record, 'event'),
                                 answers.optional_text(record, 'host'))
             for record in events)
    return tuple(event for event in found if event is not None)


def _ending_of(events: Iterable[Mapping[str, Any]]) -> Ending:
    return Ending.of(answers.optional_text(event, 'result')
                     for event in events)


def mappings_of(server: ComputeServer,
                disks: tuple[Disk, ...]) -> tuple[Bdm, ...]:
    """Return the mappings; each unknown value is the cautious one."""
    root = spelling.device(server.root_device)
    roots = {d.volume_id for d in disks
             if root and spelling.device(d.device) == root}
    # Only administrators are shown the root device.
    is_hidden = server.volume_backed and len(roots) != 1
    found = [Bdm(
        uuid=name,
        # Not shown.  nova-compute keeps a disk that Nova created from an
        # image or a snapshot.
        source_type='volume', destination_type='volume',
        volume_id=d.volume_id, attachment_id=d.attachment_id,
        boot_index=0 if d.volume_id in roots and not is_hidden else None,
        may_be_root=is_hidden,
        device_name=d.device,
        # A mapping with an attachment ID is not of an attach that has just
        # begun: the volume was reserved before.
        has_connection_info=d.attachment_id is not None)
        for name, d in zip(_names(disks), disks)]
    if not server.volume_backed:
        # The API lists volumes only, but the image tells the root.
        found.insert(0, Bdm(uuid='image', source_type='image',
                            destination_type='local', boot_index=0))
    return tuple(found)


def _names(disks: Iterable[Disk]) -> Iterator[str]:
    """Yield what identifies each mapping; the API omits some IDs."""
    count: Counter[str] = Counter()
    for disk in disks:
        name = disk.bdm_uuid or 'volume ' + disk.volume_id
        count[name] += 1
        yield name if count[name] == 1 else '%s (%d)' % (name, count[name])


def _without_ids(disk: Disk) -> Disk:
    return Disk(disk.volume_id, device=disk.device)


def _server(record: Mapping[str, Any]) -> ComputeServer:
    known = ComputeServer(
        id=answers.identifier(record, 'id'),
        name=str(record.get('name') or ''),
        status=answers.text(record, 'status'),
        project=answers.optional_text(record, 'tenant_id'),
        user=answers.optional_text(record, 'user_id'))
    return known if known.is_unknown else dataclasses.replace(
        known,
        host=answers.optional_text(record, 'OS-EXT-SRV-ATTR:host'),
        node=answers.optional_text(
            record, 'OS-EXT-SRV-ATTR:hypervisor_hostname'),
        task_state=answers.optional_text(record, 'OS-EXT-STS:task_state'),
        locked=record.get('locked') is True,
        locked_reason=answers.optional_text(record, 'locked_reason'),
        host_status=answers.optional_text(record, 'host_status'),
        is_nowhere=record.get('hostId') == '',
        never_ran=record.get('OS-SRV-USG:launched_at', '') is None,
        updated_at=answers.moment(record, 'updated'),
        volume_backed=not record.get('image'),
        root_device=answers.optional_text(
            record, 'OS-EXT-SRV-ATTR:root_device_name'),
        volumes=tuple(
            answers.identifier(a, 'id') for a in answers.records(
                record, 'os-extended-volumes:volumes_attached')))
