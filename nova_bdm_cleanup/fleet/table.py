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
"""Which call frees what hangs, and when none may.

Cinder checks next to nothing before it detaches.  So everything is checked
here: one pure function from the facts about a volume to the call for each of
its attachments, or to the reason why there is none.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
from typing import Any, FrozenSet, Mapping, Optional, Tuple, Union

from nova_bdm_cleanup import conf
from nova_bdm_cleanup.fleet.audit import host_of
from nova_bdm_cleanup.fleet.audit import TAKEN
from nova_bdm_cleanup.fleet.nova import Server
from nova_bdm_cleanup.model import Attachment
from nova_bdm_cleanup.model import Volume
from nova_bdm_cleanup import rules


class Call(str, enum.Enum):
    """The calls that keep the back end and Cinder's database in step."""

    def __str__(self) -> str:
        return self.value

    #: Unmaps the volume with the connector that Cinder stored.
    DELETE = 'attachment delete'

    #: Unmaps the volume with a connector that the operator gives.
    FORCE_DETACH = 'os-force_detach'

    #: The detach is over, and was not done: the volume is in use again.
    ROLL_DETACHING = 'os-roll_detaching'

    #: Nothing was ever mapped.
    UNRESERVE = 'os-unreserve'
    DETACH = 'os-detach'


class NeverConnected(enum.Enum):
    """The operator knows that no host was ever let in."""

    YES = 'none'


#: What ``nova-manage volume_attachment get_connector`` prints, or that there
#: is none.
Connector = Union[Mapping[str, Any], NeverConnected, None]


@dataclasses.dataclass(frozen=True)
class Facts:
    """All that is known about one volume."""

    volume: Volume
    attachments: Tuple[Attachment, ...]
    #: The servers that attachments name; None: Nova does not know it.
    servers: Mapping[str, Optional[Server]]
    #: The servers that have a mapping of the volume.
    claimed_by: FrozenSet[str]
    #: Attachments of existing servers that the rules call stale.
    stale: FrozenSet[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class Step:
    """What happens to one attachment, or to a volume without any."""

    volume: str
    explanation: str
    attachment: Optional[Attachment] = None
    host: Optional[str] = None
    since: Optional[datetime.datetime] = None
    #: None: nothing may be done, and the explanation says why.
    call: Optional[Call] = None
    connector: Optional[Mapping[str, Any]] = None
    #: The state of the volume afterwards.
    expected: str = ''

    @property
    def attachment_id(self) -> Optional[str]:
        return self.attachment.id if self.attachment else None

    @property
    def server(self) -> Optional[str]:
        return self.attachment.server_id if self.attachment else None

    @property
    def key(self) -> Tuple[Optional[str], ...]:
        """What makes it the same step after another look."""
        return (self.volume, self.attachment_id,
                str(self.call) if self.call else None)


def decide(facts: Facts, connector: Connector, policy: conf.Policy,
           now: datetime.datetime) -> Tuple[Step, ...]:
    """What to do with a volume: one step for each of its attachments.

    :param facts: fresh ones
    :param connector: for what Cinder kept no connector of
    :param policy: what is young and what is stuck
    :param now: the time of the facts
    """
    table = _Table(facts, connector, policy, now)
    return tuple(table.attachment(a) for a in facts.attachments) or (
        table.volume(),)


class _Table:
    """The facts about one volume, and the rows of the table over them."""

    def __init__(self, facts: Facts, connector: Connector,
                 policy: conf.Policy, now: datetime.datetime) -> None:
        self._facts = facts
        self._volume = facts.volume
        self._connector = connector
        self._policy = policy
        self._age = (now - facts.volume.updated_at
                     if facts.volume.updated_at else None)

    # A volume with attachments

    def attachment(self, attachment: Attachment) -> Step:
        """One attachment of the volume."""

        def refuse(why: str) -> Step:
            return self._step(why, attachment)

        why = self._unfit(TAKEN + ('available',))
        if why:
            return refuse(why)
        if attachment.volume_id != self._volume.id:
            return refuse('the attachment is of volume %s'
                          % attachment.volume_id)
        if not attachment.server_id:
            return refuse('the attachment names no server: something else '
                          'than Nova uses the volume')
        server = self._facts.servers[attachment.server_id]
        if server is not None:
            return self._of_server(attachment, server)
        if attachment.status != 'attached' and not self._is_old(
                self._policy.grace_period):
            return refuse('it has just been made: its server may be being '
                          'created')
        return self._unmap(attachment, 'Nova does not know server %s'
                           % attachment.server_id)

    def _of_server(self, attachment: Attachment, server: Server) -> Step:
        """An attachment of a server that exists."""
        if server.is_busy:
            return self._step('server %s is changing (%s)' % (
                server.id, server.task_state or server.status), attachment)
        if server.keep:
            return self._step('server %s is marked bdm_cleanup=keep'
                              % server.id, attachment)
        if server.id in self._facts.claimed_by:
            return self._of_mapping(attachment, server)
        if (self._volume.status == 'detaching'
                and attachment.status == 'attached'):
            return self._half_detached(attachment, server)
        if attachment.id not in self._facts.stale:
            return self._step(
                'server %s exists, and it is not certain that the attachment '
                'is stale: openstack bdm show %s' % (server.id, server.id),
                attachment)
        if attachment.connected or attachment.is_legacy:
            if server.host:
                # Taking a disk away below a guest hands its data to the
                # next server that gets the same device.
                return self._step(
                    'host %s may have the volume open; a hard reboot removes '
                    'it in the safe order: openstack bdm clean %s' % (
                        server.host, server.id), attachment)
        elif not self._is_old(self._policy.grace_period):
            return self._step('it has just been made', attachment)
        return self._unmap(attachment, 'server %s has no mapping of the '
                           'volume' % server.id)

    def _of_mapping(self, attachment: Attachment, server: Server) -> Step:
        """Nova still has the disk."""
        if attachment.status != 'attached' and not server.is_shelved:
            return self._half_attached(attachment, server)
        if (self._volume.status != 'detaching'
                or attachment.status != 'attached'):
            return self._step('server %s has the volume; nothing hangs'
                              % server.id, attachment)
        if not self._is_old(self._policy.stuck_after):
            return self._step('the volume is being detached', attachment)
        return self._step(
            'the detach failed in Nova, and server %s still has the disk'
            % server.id, attachment, call=Call.ROLL_DETACHING,
            expected='in-use')

    def _half_attached(self, attachment: Attachment,
                       server: Server) -> Step:
        """Nova has a mapping that was never connected, or is no more.

        An attach leaves that behind, which nobody misses, and so does a
        failed move of the server, which must get its disk back.
        """
        if any(a.server_id == server.id and a.status == 'attached'
               for a in self._facts.attachments):
            return self._step(
                'server %s has the volume by another attachment: openstack '
                'bdm show %s' % (server.id, server.id), attachment)
        if not self._is_old(self._policy.stuck_after):
            return self._step('the volume is being attached', attachment)
        return self._step(
            'server %s has a mapping of the volume, and the attachment is '
            'only %s: an attach or a move of the server ended half way. Stop '
            'the server and have Nova attach the volume anew with '
            '"nova-manage volume_attachment refresh"; then detach it, if the '
            'server is not to have it' % (server.id, attachment.status),
            attachment)

    def _half_detached(self, attachment: Attachment,
                       server: Server) -> Step:
        """Nova has no mapping any more, but the guest may have the disk.

        To delete the attachment would take it away below the guest.  What
        can is a hard reboot, to which the attachment of a volume that is
        being detached is none of its business, and of one in use is stale.
        """
        if not self._is_old(self._policy.stuck_after):
            return self._step('the volume is being detached', attachment)
        if server.locked:
            return self._step('server %s is locked: an administrator may be '
                              'at work' % server.id, attachment)
        return self._step(
            'the detach ended half way, and server %s has no mapping of the '
            'volume; once the volume is in use again, the attachment is '
            'stale, and %s' % (
                server.id,
                'a hard reboot removes it in the safe order: openstack bdm '
                'clean %s' % server.id if server.host else
                'can be released'),
            attachment, call=Call.ROLL_DETACHING, expected='in-use')

    def _unmap(self, attachment: Attachment, explanation: str) -> Step:
        """What becomes of an attachment that nobody uses."""
        why = self._neighbours(attachment)
        if why:
            return self._step('%s, but %s' % (explanation, why), attachment)
        left = any(a.status == 'attached' for a in self._facts.attachments
                   if a.id != attachment.id)
        expected = 'in-use' if left else 'available'
        if attachment.connected or attachment.status == 'reserved':
            return self._step(explanation, attachment, call=Call.DELETE,
                              expected=expected)
        if not attachment.is_legacy:
            return self._step(
                '%s, but the attachment is %s without a connection: what '
                'that means is not known' % (explanation, attachment.status),
                attachment)
        if len(self._facts.attachments) > 1:
            return self._step(
                '%s, but Cinder kept no connector of it, and the volume has '
                'other attachments' % explanation, attachment)
        if not isinstance(self._connector, Mapping):
            return self._step('%s, but %s' % (
                explanation, _wanted(self._host(attachment))), attachment)
        host = self._host(attachment)
        if host and host != self._connector.get('host'):
            return self._step(
                '%s, but the connector is of host %s and the attachment of '
                'host %s' % (explanation, self._connector.get('host'), host),
                attachment)
        return self._step(explanation, attachment, call=Call.FORCE_DETACH,
                          connector=self._connector, expected=expected)

    def _neighbours(self, attachment: Attachment) -> str:
        """Why the other users of the volume forbid it."""
        others = [a for a in self._facts.attachments if a.id != attachment.id]
        for other in others:
            alive = not other.server_id or self._facts.servers[
                other.server_id] is not None
            if alive and other.status != 'attached':
                # Cinder would compute a new state below the operation.
                return ('attachment %s of the volume is %s'
                        % (other.id, other.status))
        for server_id in sorted(self._facts.claimed_by):
            if server_id == attachment.server_id:
                continue
            if not self._volume.multiattach or all(
                    a.server_id != server_id for a in others):
                return 'server %s has a mapping of the volume' % server_id
        return ''

    # A volume without attachments

    def volume(self) -> Step:
        """A volume that is taken, and no attachment says by whom."""
        volume = self._volume
        why = self._unfit(TAKEN)
        if why:
            return self._step(why)
        explanation = ('the volume is %s, and neither Nova nor an attachment '
                       'says by whom' % volume.status)
        if self._facts.claimed_by:
            server = min(self._facts.claimed_by)
            return self._step(
                'server %s has a mapping of the volume: openstack bdm show '
                '%s' % (server, server))
        limit = (self._policy.grace_period if volume.status == 'in-use'
                 else self._policy.stuck_after)
        if not self._is_old(limit):
            return self._step('the volume is %s, and not for long'
                              % volume.status)
        if isinstance(self._connector, NeverConnected):
            return self._step(
                explanation, expected='available',
                call=Call.UNRESERVE if volume.status == 'attaching'
                else Call.DETACH)
        if self._connector is None:
            return self._step('%s, and %s' % (explanation, _wanted(None)))
        return self._step(explanation, call=Call.FORCE_DETACH,
                          connector=self._connector, expected='available')

    # Both

    def _unfit(self, states: Tuple[str, ...]) -> str:
        """Why the volume itself forbids everything."""
        volume = self._volume
        if volume.keep:
            return 'the volume is marked bdm_cleanup=keep'
        if volume.migration_status not in rules.SETTLED_MIGRATION:
            return 'the volume is being migrated (%s)' % (
                volume.migration_status)
        if volume.status not in states:
            return 'the volume is %s' % volume.status
        return ''

    def _is_old(self, limit: datetime.timedelta) -> bool:
        return self._age is not None and self._age >= limit

    def _host(self, attachment: Attachment) -> Optional[str]:
        return host_of(attachment, self._volume)

    def _step(self, explanation: str,
              attachment: Optional[Attachment] = None,
              call: Optional[Call] = None,
              connector: Optional[Mapping[str, Any]] = None,
              expected: str = '') -> Step:
        return Step(
            volume=self._volume.id, explanation=explanation,
            attachment=attachment,
            host=self._host(attachment) if attachment else None,
            since=self._volume.updated_at, call=call, connector=connector,
            expected=expected)


def _wanted(host: Optional[str]) -> str:
    return ('Cinder kept no connector: give --connector with the output of '
            '"nova-manage volume_attachment get_connector --json" on %s'
            % ('host ' + host if host else 'the host that had the volume, or '
               '--connector none if no host ever had it'))


def selected(steps: Tuple[Step, ...],
             attachment_id: Optional[str]) -> Tuple[Step, ...]:
    """The steps that a target stands for.

    A volume stands for all its attachments that hang: its healthy ones are
    not the operator's concern, unless there are no others.
    """
    if attachment_id is not None:
        return tuple(s for s in steps if s.attachment_id == attachment_id)
    return tuple(s for s in steps if s.call) or steps

