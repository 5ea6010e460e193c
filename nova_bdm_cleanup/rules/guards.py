# SPDX-License-Identifier: Apache-2.0
"""The guards, which withhold actions that the other tables ask for."""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import functools

from nova_bdm_cleanup.rules import facts
from nova_bdm_cleanup.rules.facts import Action, WitnessAnswer
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.rules.table import Outcome, Row, Table, Text
from nova_bdm_cleanup.rules.world import World

#: The guards that need only a look at Nova and Cinder.  Each row returns the
#: findings that it stops.
RULES: tuple[Row[Due, Outcome], ...] = (
    # It may be the wrong Cinder, or a restored database.
    Row('a volume is missing, and there are witnesses (other volumes of the '
        'server, of this host or of this cell), and Cinder knows none of '
        'those that it was asked for. Then nothing is removed',
        lambda due: (due.findings
                     if due.world.snapshot.witness is WitnessAnswer.UNKNOWN
                     and due.misses_a_volume else ()),
        Outcome(Reason.CINDER_SUSPECT, Action.WITHHOLD),
        'Cinder knows none of the requested volumes that must exist: is it '
        'the wrong region, or a restored database?'),

    # Cinder is asked for a witness only if it knows no volume of the server.
    Row('several volumes are missing, and the cell has no other volume. Then '
        'nothing is removed',
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

    # The guest may have either disk of the swap.  Only a person can tell which
    # attachment is the new one.
    Row('Nova has not recorded the end of a volume swap of the server; or it '
        'has recorded a failure, and Cinder has an attachment of the server '
        'that no mapping names',
        lambda due: due.findings if due.world.has_open_swap else (),
        Outcome(Reason.SWAP_INTERRUPTED, Action.WITHHOLD),
        'Nova has not completed a volume swap of the server'),

    Row('it is a mapping of a disk that Nova created (from an image, a '
        'snapshot or blank), or has the same volume as such a mapping, and '
        '``remove`` has no word ``created``',
        lambda due: [f for f in due.mappings
                     if not due.world.policy.remove_created
                     and due.world.is_created(f.volume_id)],
        Outcome(Reason.NOT_SELECTED, Action.WITHHOLD),
        'Nova created the disk, and [bdm_cleanup] remove has no word created'),

    Row('``remove`` does not select it',
        lambda due: [f for f in due.findings
                     if f.reason not in due.world.policy.remove],
        Outcome(Reason.NOT_SELECTED, Action.WITHHOLD),
        '[bdm_cleanup] remove does not select it'),

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

#: Why the cleaner withholds an action before it decides.
_BEFORE_THE_RULES: tuple[Text[Outcome], ...] = (
    Text('Cinder has not answered. Only its own, typed "not found" counts as '
         'gone; a time-out, an error, a proxy\'s page, an answer that does '
         'not parse and a truncated list prove nothing',
        Outcome(Reason.CINDER_UNKNOWN, Action.WITHHOLD),
        'Cinder gave no usable answer to the second look'),

    Text('no credentials show the volumes of the server: ``[cinder]`` has '
         'none, and the token of the user is of another project than the '
         'server; or those in ``[cinder]`` do not see all projects',
        Outcome(Reason.CANNOT_SEE_PROJECT, Action.WITHHOLD),
        'the credentials do not suffice for the second look'),

    Text('in an audit round, Cinder answers too slowly for a volume of the '
         'server, but answers for others',
        Outcome(Reason.NOT_LOOKED_AT, Action.WITHHOLD),
        'Cinder answers too slowly for a volume of the server'),
)

#: Why the cleaner withholds an action that no rule stops.
_AFTER_THE_RULES: tuple[Text[Outcome], ...] = (
    # Before it acts
    Text('the reboot is a soft one',
        Outcome(Reason.SOFT_REBOOT, Action.WITHHOLD),
        'a soft reboot keeps the old disks; reboot the server hard to clean '
        'it up'),

    Text('the server is no longer in a hard reboot on this host',
        Outcome(Reason.REBOOT_LOST, Action.WITHHOLD),
        'the server is no longer in a hard reboot on this host'),

    Text('the server is no longer being started, or has another task when the '
         'host boots',
        Outcome(Reason.START_LOST, Action.WITHHOLD),
        'the server is not being started on this host'),

    Text('the server is no longer being moved, shelved, unshelved or deleted, '
         'or has another task as well',
        Outcome(Reason.MOVE_LOST, Action.WITHHOLD),
        'the server is no longer in this operation on this host'),

    Text('it is not a reboot, and the guest runs. Only a reboot powers it off',
        Outcome(Reason.GUEST_RUNNING, Action.WITHHOLD),
        'the guest is not off; a hard reboot powers it off and cleans up'),

    Text('the mode is ``observe``',
        Outcome(Reason.OBSERVE_MODE, Action.WITHHOLD),
        '[bdm_cleanup] mode is observe; in mode enforce a hard reboot would '
        'remove it'),

    # It would be killed between two steps.
    Text('nova-compute is shutting down. A removal that has begun is finished',
        Outcome(Reason.SHUTTING_DOWN, Action.WITHHOLD),
        'nova-compute is shutting down; the next cleanup of the server '
        'removes it'),

    # The cleaner charges who can bring the trigger about.
    Text('within an hour, more mappings or more stale attachments of servers '
         'of this project would be removed on this host than '
         '``max_removals_per_hour``; or, at a boot of the host, more of all '
         'projects; or, in an evacuation, more of this server. Then nothing '
         'of that kind is removed',
        Outcome(Reason.OVER_LIMIT, Action.WITHHOLD),
        'the removals of one hour for this project (at a boot of the host: '
        'for all projects) would exceed [bdm_cleanup] max_removals_per_hour; '
        'nothing of this kind is removed'),

    Text('the plan cannot be written to the journal',
        Outcome(Reason.JOURNAL_UNWRITABLE, Action.WITHHOLD),
        'the removal cannot be recorded in the journal'),

    # When the guest is off
    Text('a second look does not find the same as the first, or a record of '
        'the disk has changed since then',
        Outcome(Reason.SECOND_LOOK_DIFFERS, Action.WITHHOLD),
        'the second look found something else'),

    Text('``timeout`` is over: of this cleanup, or of all cleanups of one '
        'start of nova-compute; or it leaves no time to wait until the '
        'records are ``settle_time`` old',
        Outcome(Reason.TIMED_OUT, Action.WITHHOLD),
        '[bdm_cleanup] timeout is exceeded; the next cleanup of the server '
        'tries again'),

    Text('Cinder requires a service token',
        Outcome(Reason.SERVICE_TOKEN_REQUIRED, Action.WITHHOLD),
        'Cinder requires a service token'),

    Text('an earlier step of the same disk failed',
        Outcome(Reason.STEP_FAILED, Action.WITHHOLD),
        'the second look was not possible'),
)

#: All guards, in the order in which they are checked, for the documentation.
GUARDS: Table[Row[Due, Outcome] | Text[Outcome]] = Table(
    ('A removal is withheld if', 'Reason'),
    (*_BEFORE_THE_RULES, *RULES, *_AFTER_THE_RULES))

#: Why an action is withheld, in plain words, where no finding says it.
WORDS: dict[Reason, str] = {
    **{rule.outcome.reason_for(None): rule.words for rule in RULES},
    # If a rule and the cleaner share a reason, the cleaner's words count.
    **{text.outcome.reason_for(None): text.words
       for text in (*_BEFORE_THE_RULES, *_AFTER_THE_RULES)}}


@dataclasses.dataclass
class Due:
    """The removals that no guard above stops."""

    #: The removals that the other tables ask for.
    findings: Sequence[facts.Finding]
    world: World
    #: The volume of at least one finding, due or not, is missing.
    misses_a_volume: bool

    @functools.cached_property
    def mappings(self) -> Sequence[facts.Finding]:
        return [f for f in self.findings if f.bdm]

    @functools.cached_property
    def attachments(self) -> Sequence[facts.Finding]:
        return [f for f in self.findings if f.attachment]


def withhold(findings: Sequence[facts.Finding], world: World) -> facts.Plan:
    """Apply each guard to the removals that no guard above stops."""
    misses_a_volume = any(f.reason is Reason.VOLUME_MISSING for f in findings)
    due = Due([f for f in findings if f.is_removal], world, misses_a_volume)
    stopped: dict[facts.Finding, Row[Due, Outcome]] = {}
    for guard in RULES:
        found = guard.holds(due)
        if found:
            stopped.update(dict.fromkeys(found, guard))
            due = Due([f for f in due.findings if f not in stopped], world,
                      misses_a_volume)
    return facts.Plan(tuple(
        f.withhold(stopped[f].outcome.reason_for(due), stopped[f].words)
        if f in stopped else f for f in findings))
