# SPDX-License-Identifier: Apache-2.0
"""Ways to end a finding about a server: one table for all commands.

The lightest safe way comes first.  What hinders it is in :mod:`findings`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable

from nova_bdm_cleanup.client.cloud import commands
from nova_bdm_cleanup.client.cloud.inspection import Inspection, Interruption
from nova_bdm_cleanup.client.cloud.nova import ComputeServer
from nova_bdm_cleanup.rules.facts import Finding, Volume
from nova_bdm_cleanup.rules.reasons import Reason, RECONNECTED, Remedy, REMOVED
from nova_bdm_cleanup.rules.table import first, Row, Table

#: The states of a server whose guest may run.
_MAY_RUN = ('ACTIVE', 'PAUSED', 'ERROR')


@dataclasses.dataclass(frozen=True)
class Case:
    """A finding, and the server that it is about."""

    finding: Finding
    seen: Inspection

    @property
    def server(self) -> ComputeServer:
        return self.seen.server

    @property
    def volume(self) -> Volume | None:
        return self.seen.volumes.get(self.finding.volume_id or '')

    @property
    def is_in(self) -> str:
        """Return the state of the volume; empty: it does not exist."""
        return self.volume.status if self.volume else ''

    @property
    def ends_by_unshelve(self) -> bool:
        """Return whether it is of a disk that no host has, and that the next
        unshelve removes or connects.
        """
        reason = self.finding.reason
        if not self.seen.is_offloaded:
            return False
        if reason is Reason.ROOT_VOLUME_DANGLING:
            return self.is_in == 'available'
        return (reason in (*RECONNECTED, *REMOVED)
                # Its mapping comes first.
                or reason is Reason.STALE_ATTACHMENT
                and self.finding.volume_id in self.server.volumes)

    @property
    def is_idle(self) -> bool:
        """Return whether it is a stale attachment that no guest uses."""
        attachment = self.finding.attachment
        return (self.finding.reason is Reason.STALE_ATTACHMENT
                and attachment is not None
                and (attachment.only_reserves or self.seen.is_offloaded
                     or attachment.id in self.seen.of_other_hosts)
                and not self.seen.needs_reboot
                # The limit is only for reboots.
                and self.finding.withheld in (None, Reason.OVER_LIMIT))

    # Words

    @property
    def effect_of_unshelve(self) -> str:
        return ('removes the mapping' if self.finding.reason in REMOVED
                else 'ends it')

    @property
    def repair(self) -> str:
        return commands.repair(self.server.id, self.server.host)

    # Commands

    @property
    def delete(self) -> tuple[str, ...]:
        server = self.server
        return (
            *((commands.list_events(server.id),) if server.task_state else ()),
            # Nova ignores a delete while another one is in progress.
            *((commands.set_error(server.id),) if server.is_being_deleted
              else ()), commands.delete(server.id))

    @property
    def rebuild(self) -> tuple[str, ...]:
        """Return the command that makes local disks of a shelved image."""
        return ((commands.rebuild_from_shelved(self.server),)
                if self.server.may_lack_disks else ())

    @property
    def reset(self) -> tuple[str, ...]:
        return (commands.list_events(self.server.id),
                commands.set_error(self.server.id),
                commands.reboot(self.server.id), *self.rebuild)

    @property
    def set_status(self) -> tuple[str, ...]:
        return (commands.set_in_use(self.finding.volume_id or ''),)

    @property
    def stop(self) -> tuple[str, ...]:
        return () if self.seen.is_offloaded else (
            commands.stop(self.server.id),)


def _none(facts: Any) -> tuple[str, ...]:
    return ()


@dataclasses.dataclass(frozen=True)
class Way:
    """The way to end a finding."""

    #: None: the usual one of its reason.
    remedy: Remedy | None
    #: The commands for a person to run, if known.
    steps: Callable[[Any], tuple[str, ...]] = _none
    #: The same for the documentation.
    shown: str = ''

    def __str__(self) -> str:
        return '%s%s' % (
            '``%s``' % self.remedy if self.remedy else 'as usual',
            self.shown and ': ' + self.shown)


_AS_FOUND = '{it.finding.explanation}'

WAYS: Table[Row[Case, Way]] = Table(('The finding', 'Ended by'), (

    Row('is of a server that only a delete ends',
        lambda c: c.seen.ends_by_delete,
        Way(Remedy.PERSON, lambda c: c.delete, '``server delete``'),
        _AS_FOUND),

    Row('is of a server whose operation may have been interrupted, and '
        'nothing proves it',
        lambda c: c.seen.interruption is Interruption.POSSIBLE,
        Way(Remedy.PERSON, lambda c: c.reset,
            'reset the state and reboot'), _AS_FOUND),

    Row('is ``interrupted``, or ``swap-interrupted``',
        lambda c: c.finding.reason in (Reason.INTERRUPTED,
                                       Reason.SWAP_INTERRUPTED),
        Way(Remedy.CLEAN, lambda c: c.rebuild), _AS_FOUND),

    # Nova rebuilds no server with a disk that is not connected.
    Row('is ``server-in-error`` after a rebuild and then a reboot have '
        'failed, and is the only one of its server',
        lambda c: c.finding.reason is Reason.SERVER_IN_ERROR
        and c.seen.lacks_root and len(c.seen.findings) == 1,
        Way(Remedy.PERSON, lambda c: (commands.rebuild(c.server.id),),
            '``server rebuild``'), _AS_FOUND),

    Row('is ``server-in-error``',
        lambda c: c.finding.reason is Reason.SERVER_IN_ERROR,
        Way(Remedy.CLEAN), _AS_FOUND),

    Row('is of a disk that no host has, and that the next unshelve removes '
        'or connects',
        lambda c: c.ends_by_unshelve,
        Way(Remedy.PERSON, lambda c: (commands.unshelve(c.server.id),),
            '``server unshelve``'),
        _AS_FOUND + '; the next unshelve {it.effect_of_unshelve}, on a host '
        'with the word move in [bdm_cleanup] triggers'),

    # What takes no disk away comes first.
    Row('is perhaps only of a wrong status, and a reboot removes the mapping',
        lambda c: c.finding in c.seen.of_status and c.finding.is_removal,
        Way(Remedy.PERSON, lambda c: c.set_status,
            '``volume set --state in-use``'),
        _AS_FOUND + '. If the server should not keep it, a hard reboot takes '
        'it away'),

    Row('is perhaps only of a wrong status',
        lambda c: c.finding in c.seen.of_status,
        Way(Remedy.PERSON, lambda c: c.set_status,
            '``volume set --state in-use``'), _AS_FOUND),

    Row('is a ``stale-attachment`` that only reserves the volume, is of a '
        'server that no host has, or connects another host; and only '
        '``over-limit``, if anything, withholds its deletion',
        lambda c: c.is_idle,
        Way(Remedy.RELEASE), _AS_FOUND),

    # A reboot would start another guest of it.
    Row('is ``half-moved`` and reconnected, after a live migration that was '
        'not completed; no operation was interrupted',
        lambda c: c.finding.is_reconnect and c.finding.is_due
        and c.seen.may_be_elsewhere and not c.seen.is_interrupted
        and c.finding.reason is Reason.HALF_MOVED,
        Way(Remedy.REPAIR),
        _AS_FOUND + '; the command needs no outage, and if the guest does not '
        'run on this host with the disk, it changes nothing'),

    Row('is reconnected, and its guest may run',
        lambda c: c.finding.is_reconnect and c.finding.is_due
        and c.finding.reason in RECONNECTED and c.server.status in _MAY_RUN,
        Way(Remedy.CLEAN),
        _AS_FOUND + '; without an outage, if all agree, {it.repair}'),

    Row('is reconnected',
        lambda c: c.finding.is_reconnect and c.finding.is_due,
        Way(Remedy.CLEAN), _AS_FOUND),

    Row('is ``reserved-only``, ``half-moved`` or ``attachment-mismatch``, or '
        'a ``duplicate-mapping``, and a rule keeps it; or it is ``stuck``, '
        'and its volume is not ``detaching``: an attach or a move',
        lambda c: c.finding.reason in RECONNECTED
        or c.finding.reason is Reason.DUPLICATE_MAPPING
        and not c.finding.is_removal
        or c.finding.reason is Reason.STUCK and c.is_in != 'detaching',
        # "nova-manage volume_attachment refresh" may disconnect the disk of
        # another server, or fail and lose the connection information.
        Way(Remedy.PERSON), _AS_FOUND),

    Row('is ``volume-busy`` in a state that Cinder never ends by itself',
        lambda c: c.finding.reason is Reason.VOLUME_BUSY
        and c.volume and c.volume.is_out_of_order,
        Way(Remedy.PERSON, lambda c: (commands.explain(c.finding.reason),),
            'the runbook'), _AS_FOUND),

    Row('is ``root-volume-dangling``, and its volume is ``available``',
        lambda c: c.finding.reason is Reason.ROOT_VOLUME_DANGLING
        and c.is_in == 'available',
        Way(None, lambda c: (
            *commands.new_attachment(c.server, c.finding.volume_id or ''),
            commands.start(c.server.id)), 'a new attachment'), _AS_FOUND),

    # There is no volume to return to it.
    Row('is ``root-volume-dangling``',
        lambda c: c.finding.reason is Reason.ROOT_VOLUME_DANGLING,
        Way(None, lambda c: (*c.stop, commands.explain(c.finding.reason)),
            'the runbook'), _AS_FOUND),

    Row('is anything else', lambda c: True, Way(None), _AS_FOUND),
))


def way_of(finding: Finding, seen: Inspection
           ) -> tuple[Remedy | None, tuple[str, ...], str]:
    """Return the remedy of a finding, the steps of a person, and the
    explanation.

    :returns: None as the remedy: the usual one of the reason
    """
    case = Case(finding, seen)
    row = first(WAYS.rows, case)
    steps = row.outcome.steps(case)
    if seen.is_interrupted and case.rebuild:
        # After the reboot, before all else.
        steps = case.rebuild
    return row.outcome.remedy, steps, row.explain(case)
