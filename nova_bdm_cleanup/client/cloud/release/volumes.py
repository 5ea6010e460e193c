# SPDX-License-Identifier: Apache-2.0
"""A volume to release: its facts, and the call that may follow.

Cinder checks almost nothing before it detaches.  So everything is checked
here and in :mod:`attachments`: the rows of a table are checked in
order, and the first row that holds decides.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import datetime
from typing import Any, Callable, TypeVar

from nova_bdm_cleanup.client.cloud import commands
from nova_bdm_cleanup.client.cloud.findings import CloudFinding
from nova_bdm_cleanup.client.cloud.nova import ComputeServer
from nova_bdm_cleanup.rules.facts import Attachment, Policy, TAKEN, Volume
from nova_bdm_cleanup.rules.reasons import Code, Reason
from nova_bdm_cleanup.rules.table import Row, Table

Held = TypeVar('Held')


class Call(Code):
    """The calls that keep the back end and Cinder's database in step."""

    #: Unmaps the volume with the connector that Cinder stored.  For a record
    #: without a connector the back end is not told.
    DELETE = 'attachment delete'

    #: The same if Cinder died before it recorded the access of the host:
    #: it would not unmap a volume that is only reserved.
    COMPLETE_AND_DELETE = 'os-complete, attachment delete'

    #: Unmaps the volume with a connector that the operator gives.
    FORCE_DETACH = 'os-force_detach'

    #: The same for a volume without an attachment record in Cinder.
    TERMINATE = 'os-terminate_connection'

    #: The detach ended and did nothing: the volume is in use again.
    ROLL_DETACHING = 'os-roll_detaching'

    #: The same, and Nova detaches the volume once more.
    DETACH_AGAIN = 'os-roll_detaching, server remove volume'

    #: Nothing was ever mapped.
    UNRESERVE = 'os-unreserve'
    DETACH = 'os-detach'


@dataclasses.dataclass(frozen=True)
class Ruling:
    """The outcome of a row of a table: a call, or none."""

    #: None: no call is allowed, and the words of the row say why.
    call: Call | None = None
    #: The record is correct: there is nothing to release.
    is_settled: bool = False
    #: Returns the commands for an operator to run first.
    commands: Callable[[Any], tuple[str, ...]] = lambda held: ()

    def __str__(self) -> str:
        if self.call is None:
            return 'refused'
        return ('``%s``' if self.call.startswith('os-') else '%s') % self.call


@dataclasses.dataclass(frozen=True)
class Connector:
    """The operator's connector, if any, where Cinder kept none."""

    #: The output of ``nova-manage volume_attachment get_connector``.
    data: Mapping[str, Any] | None = None
    #: No host was ever given access.
    is_none: bool = False

    @property
    def host(self) -> str | None:
        return self.data.get('host') if self.data else None


@dataclasses.dataclass(frozen=True)
class Holder:
    """A server that attachments of a volume name."""

    #: None: Nova does not know it.
    server: ComputeServer | None = None
    #: This Nova says that it has deleted it.
    is_deleted: bool = False
    #: A host that has a volume of it and is not a compute host of this Nova,
    #: where this Nova never knew the server, or has purged it.
    elsewhere: str | None = None
    #: What an audit finds about it.
    findings: tuple[CloudFinding, ...] = ()
    #: Nova began to detach the volume, did not succeed, and may try again.
    has_failed_detach: bool = False


@dataclasses.dataclass(frozen=True)
class HeldVolume:
    """All facts about one volume."""

    volume: Volume
    attachments: tuple[Attachment, ...]
    #: The servers that attachments name, by id.
    holders: Mapping[str, Holder]
    #: The servers that have a mapping of the volume, in order.
    claimed_by: tuple[str, ...]
    connector: Connector
    #: The ages of young and stuck.
    policy: Policy
    #: The time of these facts.
    now: datetime.datetime
    attachment: Attachment | None = None

    @property
    def needs_look(self) -> bool:
        """Return whether another Nova may have the server."""
        return False

    @property
    def host(self) -> str | None:
        """Return the connected host, if Cinder tells it."""
        return (self.volume.host_of(self.attachment.id) if self.attachment
                else None)

    @property
    def may_never_have_been_connected(self) -> bool:
        """Return whether ``--connector none`` may be true."""
        return self.host is None

    @property
    def neighbours(self) -> list[Attachment]:
        """Return the other attachments of the volume."""
        return [a for a in self.attachments if a != self.attachment]

    # Words

    @property
    def wait(self) -> str:
        """Say when it will be old enough for its state; empty: it is."""
        return (self.wait_for_grace
                if self.volume.status in ('in-use', 'available')
                else self.wait_for_stuck)

    @property
    def wait_for_grace(self) -> str:
        """Say when it will no longer be young; empty: it is not."""
        return self._wait(self.policy.grace_period, '--grace-period')

    @property
    def wait_for_stuck(self) -> str:
        """Say when it will be stuck; empty: it is."""
        return self._wait(self.policy.stuck_after, '--stuck-after')

    def _wait(self, period: datetime.timedelta, option: str) -> str:
        since = self.volume.updated_at
        if since is None:
            return 'Cinder does not say since when'
        if self.now - since >= period:
            return ''
        # Up to the next whole second.
        end = since + period + datetime.timedelta(seconds=1)
        return 'wait until %s UTC (%s)' % (
            end.astimezone(datetime.timezone.utc).strftime(
                '%Y-%m-%d %H:%M:%S'), option)

    @property
    def why_unused(self) -> str:
        return ('the volume is %s, but neither a mapping nor an attachment '
                'names a server' % self.volume.status)

    # Commands

    @property
    def with_connector(self) -> tuple[str, ...]:
        """Return the commands that release it with a host's connector."""
        target = (self.attachment or self.volume).id
        found = commands.release_with_connector(target, self.host,
                                                self.policy)
        if self.may_never_have_been_connected:
            return (*found, commands.release_without_host(
                target, self.policy))
        return found


def row(cell: str, holds: Callable[[Held], Any], words: str,
        call: Call | None = None, is_settled: bool = False,
        commands: Callable[[Held], tuple[str, ...]] = lambda held: ()
        ) -> Row[Held, Ruling]:
    """Return a row of these tables; most rows refuse."""
    return Row(cell, holds, Ruling(call, is_settled, commands), words)


#: The checks that Cinder omits, with or without an attachment.
VOLUME_ROWS: tuple[Row[Any, Ruling], ...] = (

    row('(the volume) is being migrated',
        lambda v: v.volume.is_migrating,
        'the volume is being migrated ({it.volume.migration_status})'),

    row('(the volume) is in another state than ``in-use``, ``reserved``, '
        '``attaching``, ``detaching``, ``available``',
        lambda v: v.volume.status not in (*TAKEN, 'available'),
        'a volume that is {it.volume.status} cannot be released'),
)

HELD_VOLUMES: Table[Row[HeldVolume, Ruling]] = Table(
    ('The volume has no attachment, and', 'Call'), (

    *VOLUME_ROWS,

    # The back end may be ahead of Cinder's database, which cannot tell.
    row('is ``available``, and ``--connector FILE`` is not given',
        lambda v: (v.volume.status == 'available'
                   and not v.connector.host),
        'the volume is available, and nothing in Cinder holds it. If the back '
        'end shows that a host has it mapped, release it with the connector '
        'of that host',
        is_settled=True,
        commands=lambda v: commands.release_with_connector(
            v.volume.id, None, v.policy)),

    # No record tells an attach under way from one that died, nor what the
    # host and the guest have of it.
    row('is ``attaching``, and a server has a mapping of it: an attach that '
        'makes no attachment (before Queens)',
        lambda v: v.claimed_by and v.volume.status == 'attaching',
        'server {it.claimed_by[0]} has a mapping of the volume, which is '
        'attaching without an attachment, as before Queens. If no operation '
        'is in progress, an operator must end the attach',
        commands=lambda v: (commands.explain(Reason.STUCK),)),

    row('a server has a mapping of it',
        lambda v: v.claimed_by,
        'server {it.claimed_by[0]} has a mapping of the volume',
        commands=lambda v: (commands.show(v.claimed_by[0]),)),

    row('changed within ``--grace-period`` (``in-use``, ``available``) or '
        '``--stuck-after``',
        lambda v: v.wait,
        'the volume is {it.volume.status}, perhaps only for a short time: '
        '{it.wait}'),

    row('``--connector`` is not given',
        lambda v: v.connector == Connector(),
        '{it.why_unused}. Cinder has no connector of it; give that of its '
        'host',
        commands=lambda v: v.with_connector),

    # Reserved during the call, so that it is not attached to the same host
    # meanwhile.
    row('is ``available``, and ``--connector FILE`` is given: it is reserved, '
        'and the back end unmaps it',
        lambda v: v.volume.status == 'available',
        'the volume is available, and no server has a mapping of it; the back '
        'end ends the access of host {it.connector.host}',
        Call.TERMINATE),

    row('``--connector FILE`` is given',
        lambda v: v.connector.host,
        '{it.why_unused}',
        Call.FORCE_DETACH),

    row('is ``attaching``, and ``--connector none`` is given',
        lambda v: v.volume.status == 'attaching',
        '{it.why_unused}',
        Call.UNRESERVE),

    row('``--connector none`` is given',
        lambda v: True,
        '{it.why_unused}',
        Call.DETACH),
))
