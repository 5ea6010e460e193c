# SPDX-License-Identifier: Apache-2.0
"""The guards, which withhold actions that the other tables ask for."""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import functools

from nova_bdm_cleanup.rules import facts
from nova_bdm_cleanup.rules.facts import Action, Guest, WitnessAnswer
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.rules.table import Outcome, Row, Table, Text
from nova_bdm_cleanup.rules.world import World

#: The guards that need only a look at Nova and Cinder.  Each row returns the
#: findings that it stops.
RULES: tuple[Row[Due, Outcome], ...] = (
    # It may be the wrong Cinder, or a restored database.
    Row('a volume is missing, and there are witnesses (other volumes of the '
        'server, of this host or of this cell), and Cinder knows none of '
        'those that it was asked for. Then nothing is changed',
        lambda due: (due.findings
                     if due.world.snapshot.witness is WitnessAnswer.UNKNOWN
                     and due.misses_a_volume else ()),
        Outcome(Reason.CINDER_SUSPECT, Action.WITHHOLD),
        'Cinder knows none of the requested volumes that must exist: is it '
        'the wrong region, or a restored database?'),

    # Cinder is asked for a witness only if it knows no volume of the server.
    Row('several volumes are missing, and the cell has no other volume. Then '
        'nothing is changed',
        lambda due: (due.findings
                     if due.world.snapshot.witness is WitnessAnswer.NONE_EXISTS
                     and due.misses_a_volume
                     and len(due.world.bdms_of) > 1 else ()),
        Outcome(Reason.CINDER_SUSPECT, Action.WITHHOLD),
        'Cinder knows no volume of this cell: is it the wrong region, or a '
        'restored database?'),

    Row('an administrator has locked the server, and it is not evacuated',
        lambda due: due.findings if due.world.server.is_locked else (),
        Outcome(Reason.SERVER_LOCKED, Action.WITHHOLD),
        'an administrator has locked the server; only an administrator can '
        'unlock it'),

    # The guest may have either disk of the swap.
    Row('a volume swap of the server may be under way; or one has failed, '
        'Cinder has an attachment of the server that no mapping names, and '
        'it is not known which disks the guest had. The end of a half done '
        'swap itself is not withheld',
        lambda due: [f for f in due.findings if due.has_open_swap
                     and f.reason is not Reason.SWAP_INTERRUPTED],
        Outcome(Reason.SWAP_INTERRUPTED, Action.WITHHOLD),
        'Nova has not completed a volume swap of the server'),

    Row('the guest goes on (``nova-bdm-cleanup repair``, or after a live '
        'migration), and it is no adoption, and not the deletion of another '
        'attachment of a disk that its guest has by the own one of the '
        'mapping',
        lambda due: [f for f in due.findings
                     if due.world.snapshot.guest is Guest.GOES_ON
                     and not f.is_agreed],
        Outcome(Reason.GUEST_RUNNING, Action.WITHHOLD),
        'the guest goes on with its disks; a hard reboot would act on it'),

    Row('it is a mapping of a disk that Nova created (from an image, a '
        'snapshot or blank), or has the same volume as such a mapping, and '
        '``remove`` has no word ``created``',
        lambda due: [f for f in due.mappings
                     if not due.world.policy.remove_created
                     and due.world.is_created(f.volume_id)],
        Outcome(Reason.NOT_SELECTED, Action.WITHHOLD),
        'Nova created the disk, and [bdm_cleanup] remove has no word created'),

    Row('it is a removal, and ``remove`` does not select it',
        lambda due: [f for f in due.findings if f.is_removal
                     and f.reason not in due.world.policy.remove],
        Outcome(Reason.NOT_SELECTED, Action.WITHHOLD),
        '[bdm_cleanup] remove does not select it'),

    Row('it is a reconnect, or an adoption after a live migration, and '
        '``reconnect`` is false',
        lambda due: [f for f in due.findings
                     if (f.is_reconnect or f.is_adoption)
                     and not due.world.policy.reconnect],
        Outcome(Reason.NOT_SELECTED, Action.WITHHOLD),
        '[bdm_cleanup] reconnect is false'),

    Row('it is a mapping, and more mappings than ``max_removals`` would be '
        'removed. Then none is removed',
        lambda due: (
            due.mappings
            if len(due.mappings) > due.world.policy.max_removals else ()),
        Outcome(Reason.OVER_LIMIT, Action.WITHHOLD),
        'more mappings than [bdm_cleanup] max_removals would be removed; none '
        'is removed'),

    # Counted apart from mappings: members of a project can make any number of
    # attachments, and must not block the removal of a mapping by them.
    Row('it is a stale attachment, and more of them than ``max_removals`` '
        'would be deleted. Then none is deleted. Attachments that are deleted '
        'with a mapping do not count',
        lambda due: (
            due.attachments
            if len(due.attachments) > due.world.policy.max_removals else ()),
        Outcome(Reason.OVER_LIMIT, Action.WITHHOLD),
        'more stale attachments than [bdm_cleanup] max_removals would be '
        'deleted; none is deleted'),
)

#: All guards, for the documentation: the rules in the order in which they are
#: checked, and then the reasons of the cleaner.
GUARDS: Table[Row[Due, Outcome] | Text[Outcome]] = Table(
    ('A removal, a reconnect or an adoption is withheld if', 'Reason'),
    (*RULES, *(Text(reason.words, Outcome(reason, Action.WITHHOLD))
               for reason in Reason if reason.words)))


@dataclasses.dataclass
class Due:
    """The changes that no guard above stops."""

    #: The changes that the other tables ask for.
    findings: Sequence[facts.Finding]
    world: World
    #: The volume of at least one finding, due or not, is missing.
    misses_a_volume: bool
    #: A swap is under way, or the guest may have either of its disks.
    has_open_swap: bool

    @functools.cached_property
    def mappings(self) -> Sequence[facts.Finding]:
        """Return the removals of mappings."""
        return [f for f in self.findings if f.bdm and f.is_removal]

    @functools.cached_property
    def attachments(self) -> Sequence[facts.Finding]:
        return [f for f in self.findings if f.attachment]


def withhold(findings: Sequence[facts.Finding], world: World,
             has_open_swap: bool) -> facts.Plan:
    """Apply each guard to the changes that no guard above stops."""
    due = Due([f for f in findings if f.is_change], world,
              any(f.reason is Reason.VOLUME_MISSING for f in findings),
              has_open_swap)
    stopped: dict[facts.Finding, Row[Due, Outcome]] = {}
    for guard in RULES:
        found = guard.holds(due)
        if found:
            stopped.update(dict.fromkeys(found, guard))
            due = dataclasses.replace(due, findings=[
                f for f in due.findings if f not in stopped])
    return facts.Plan(tuple(
        f.withhold(stopped[f].outcome.reason_for(due), stopped[f].words)
        if f in stopped else f for f in findings))
