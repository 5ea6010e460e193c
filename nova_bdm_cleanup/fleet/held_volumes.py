# SPDX-License-Identifier: Apache-2.0
"""Which call releases a volume that has no attachment, and when none may."""

from __future__ import annotations

from collections.abc import Sequence
import datetime
from typing import Any

from nova_bdm_cleanup.fleet.release_facts import (
    Call,
    Connector,
    NO_CONNECTOR,
    Outcome,
    REFUSED,
    ReleaseFacts,
    SETTLED,
)
from nova_bdm_cleanup.rules.facts import Attachment, TAKEN, Volume
from nova_bdm_cleanup.rules.table import Row, Table

#: What Cinder would not check, with an attachment or without.
VOLUME_ROWS: tuple[Row[Any, Outcome], ...] = (

    Row('(the volume) is marked ``bdm_cleanup=keep``',
        lambda v: v.volume.keep,
        REFUSED,
        'the volume is marked bdm_cleanup=keep'),

    Row('(the volume) is being migrated',
        lambda v: v.volume.is_migrating,
        REFUSED,
        'the volume is being migrated ({it.volume.migration_status})'),

    Row('(the volume) is in another state than ``in-use``, ``reserved``, '
        '``attaching``, ``detaching``, ``available``',
        lambda v: v.volume.status not in (*TAKEN, 'available'),
        REFUSED,
        'the volume is {it.volume.status}'),
)

HELD_VOLUMES: Table[Row[HeldVolume, Outcome]] = Table(
    ('The volume has no attachment, and', 'call'), (

    *VOLUME_ROWS,

    # The back end may be ahead of Cinder's database, which cannot tell.
    Row('is ``available``, and ``--connector FILE`` is not given',
        lambda v: v.is_available and not v.connector.host,
        SETTLED,
        'the volume is available, and nothing in Cinder holds it; if a host '
        'has it mapped all the same, only the back end shows it: then give '
        '--connector with the output of "nova-manage volume_attachment '
        'get_connector --json" on that host'),

    # Nothing tells an attach that is under way from one that died, nor what
    # of it the host and the guest have.
    Row('is ``attaching``, and a server has a mapping of it: an attach that '
        'makes no attachment (before Queens)',
        lambda v: v.claimed_by and v.volume.status == 'attaching',
        REFUSED,
        'server {it.claimed_by[0]} has a mapping of the volume, which is '
        'attaching without an attachment, as before Queens. If nothing is '
        'under way any more, a person must end it: see "stuck" in the '
        'runbook'),

    Row('a server has a mapping of it',
        lambda v: v.claimed_by,
        REFUSED,
        'server {it.claimed_by[0]} has a mapping of the volume: openstack '
        'bdm show {it.claimed_by[0]}'),

    Row('changed within ``--grace-period`` (``in-use``, ``available``) or '
        '``--stuck-after``',
        lambda v: v.may_be_under_way,
        REFUSED,
        'the volume is {it.volume.status}, and not for long: {it.wait}'),

    Row('``--connector`` is not given',
        lambda v: v.connector == NO_CONNECTOR,
        REFUSED,
        '{it.why_unused}, and {it.wanted}'),

    # Reserved for as long as that takes, so that nobody attaches it to the
    # same host meanwhile.
    Row('is ``available``, and ``--connector FILE`` is given: it is reserved, '
        'and the back end unmaps it',
        lambda v: v.is_available,
        Outcome(Call.TERMINATE),
        'the volume is available, and no server has it; host '
        '{it.connector.host} is taken off it'),

    Row('``--connector FILE`` is given',
        lambda v: v.connector.host,
        Outcome(Call.FORCE_DETACH),
        '{it.why_unused}'),

    Row('is ``attaching``, and ``--connector none`` is given',
        lambda v: v.volume.status == 'attaching',
        Outcome(Call.UNRESERVE),
        '{it.why_unused}'),

    Row('``--connector none`` is given',
        lambda v: True,
        Outcome(Call.DETACH),
        '{it.why_unused}'),
))


class HeldVolume:
    """What the table may ask about a volume."""

    attachment: Attachment | None = None
    #: The host that is connected, where Cinder tells it.
    host: str | None = None
    #: Another Nova may have the server.
    needs_look: bool = False
    #: The other attachments of the volume.
    neighbours: Sequence[Attachment] = ()

    def __init__(self, facts: ReleaseFacts) -> None:
        self._facts = facts
        self.volume: Volume = facts.volume
        self.connector: Connector = facts.connector
        self.claimed_by: Sequence[str] = sorted(facts.claimed_by)
        #: Nothing has happened to it since.
        self.is_young: bool = facts.policy.is_young(
            self.volume.updated_at, facts.now)
        self.is_stuck: bool = facts.policy.is_stuck(
            self.volume.updated_at, facts.now)

    @property
    def is_available(self) -> bool:
        return self.volume.status == 'available'

    @property
    def is_at_rest(self) -> bool:
        return self.volume.status in ('in-use', 'available')

    @property
    def may_be_under_way(self) -> bool:
        return self.is_young if self.is_at_rest else not self.is_stuck

    # Words

    @property
    def wait(self) -> str:
        """When it will be old enough."""
        return self.wait_for_grace if self.is_at_rest else self.wait_for_stuck

    @property
    def wait_for_grace(self) -> str:
        return self._wait(self._facts.policy.grace_period, '--grace-period')

    @property
    def wait_for_stuck(self) -> str:
        return self._wait(self._facts.policy.stuck_after, '--stuck-after')

    def _wait(self, period: datetime.timedelta, option: str) -> str:
        if self.volume.updated_at is None:
            return 'Cinder does not say since when'
        # Up to the next whole second.
        end = self.volume.updated_at + period + datetime.timedelta(seconds=1)
        return 'wait until %s UTC (%s)' % (
            end.astimezone(datetime.timezone.utc).strftime(
                '%Y-%m-%d %H:%M:%S'), option)

    @property
    def why_unused(self) -> str:
        return ('the volume is %s, and neither Nova nor an attachment says '
                'by whom' % self.volume.status)

    @property
    def wanted(self) -> str:
        return ('Cinder kept no connector: give --connector with the output '
                'of "nova-manage volume_attachment get_connector --json" on '
                + ('host ' + self.host if self.host else
                   'the host that had the volume, or --connector none if no '
                   'host ever had it'))
