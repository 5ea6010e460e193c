# SPDX-License-Identifier: Apache-2.0
"""The guards: the reasons to withhold a removal that the tables ask for."""

from __future__ import annotations

import dataclasses
from typing import Any

import testscenarios

from nova_bdm_cleanup.rules import facts
from nova_bdm_cleanup.rules.facts import Ending, WitnessAnswer
from nova_bdm_cleanup.rules.reasons import DANGLING, Reason, REMOVED
from nova_bdm_cleanup.tests.unit import base, make
from nova_bdm_cleanup.tests.unit.make import decide

load_tests = testscenarios.load_tests_apply_scenarios

STALE = make.attachment(id='attachment-9', volume_id='volume-9')
VOLUME_9 = make.volume(id='volume-9')
RESERVED: Any = {'status': 'reserved', 'connected': False}


def missing(count=1, attachments=(), **values):
    """Return a snapshot with this number of mappings of missing volumes."""
    gone = ['gone-%d' % n for n in range(count)]
    return make.snapshot(
        [make.bdm(uuid=name, volume_id=name, attachment_id=None)
         for name in gone], [VOLUME_9], attachments, gone, **values)


def created(source='blank', *others):
    """Return a snapshot with a mapping of a missing volume that Nova made."""
    return make.snapshot(
        [make.bdm(source_type=source), *others], missing=['volume-1'])


def available():
    return make.snapshot([make.bdm()], [make.volume(status='available')])


def elsewhere():
    return make.snapshot([make.bdm()], [make.volume(attached_to=(
        make.attached_to(make.OTHER_SERVER),))])


NONE_EXISTS: Any = {'witness': WitnessAnswer.NONE_EXISTS}

#: id, snapshot, policy, and for each removal the reason that withholds it,
#: or '-' if it is due.
LOOKS = (
    # The selection of the operator
    *(('remove %s, %s' % (allowed, reason), look,
       {'remove': frozenset([allowed])},
       '-' if reason is allowed else 'not-selected')
      for allowed in DANGLING for reason, look in (
          (Reason.VOLUME_MISSING, missing()),
          (Reason.VOLUME_AVAILABLE, available()),
          (Reason.ATTACHED_ELSEWHERE, elsewhere()))),
    ('stale attachments can be kept', make.snapshot([], [VOLUME_9], [STALE]),
     {'remove': REMOVED}, 'not-selected'),
    ('an attachment left out keeps no mapping', make.snapshot(
        [make.bdm()], [make.volume(status='available')],
        [make.attachment()]), {'remove': REMOVED}, '-'),

    # What Nova created
    *(('a missing disk that Nova created from %s, %s' % (source, policy),
       created(source), policy, expected)
      for source in ('blank', 'image', 'snapshot')
      for policy, expected in (
          ({}, 'not-selected'), ({'remove_created': True}, '-'),
          ({'remove_created': True, 'remove': frozenset()},
           'not-selected'))),
    *(('a second mapping of a disk that Nova created, %s' % is_selected,
       created('blank', make.bdm(uuid='bdm-2', attachment_id=None)),
       {'remove_created': is_selected}, expected)
      for is_selected, expected in (
          (False, 'not-selected not-selected'), (True, '- -'))),

    ('nothing is removed if an administrator has locked the server',
     missing(2, [STALE], is_locked=True), {},
     'server-locked server-locked server-locked'),

    # A swap of volumes that has not ended, or failed and left records
    *(('%s, with %d left' % (ending.name, len(left)),
       missing(1, left, swaps=ending),
       {}, ' '.join([expected] * (1 + len(left))))
      for ending, left, expected in (
          (Ending.SUCCESS, [STALE], '-'), (Ending.FAILURE, [], '-'),
          (Ending.FAILURE, [STALE], 'swap-interrupted'),
          (Ending.NONE, [], 'swap-interrupted'),
          (Ending.NONE, [STALE], 'swap-interrupted'))),
    ('a volume of another project is not left by a swap', make.snapshot(
        [make.bdm()], [make.volume(status='available'), make.volume(
            id='volume-9', project=make.OTHER_PROJECT)], [STALE],
        swaps=Ending.FAILURE), {}, '-'),

    # The limits
    ('as many as the limit', missing(3), {'max_removals': 3}, '- - -'),
    ('one more than the limit and none is removed', missing(4),
     {'max_removals': 3}, ' '.join(['over-limit'] * 4)),
    ('stale attachments are removed nevertheless', missing(2, [STALE]),
     {'max_removals': 1}, 'over-limit over-limit -'),
    ('what is not selected does not count', make.snapshot(
        [make.bdm(), *missing(2).bdms[1:]],
        [make.volume(status='available')], missing=['gone-0', 'gone-1']),
     {'max_removals': 1, 'remove': frozenset(
         [Reason.VOLUME_AVAILABLE])}, '- not-selected not-selected'),
)

FIELDS = ('seen', 'policy', 'expected')


class GuardTest(base.TestCase):
    """The removals that the operator and the owner allow."""

    scenarios = base.scenarios(LOOKS, *FIELDS)

    def test_withheld_reasons_of_the_row(self):
        plan = decide(self.seen, **self.policy)
        self.assertEqual(self.expected, ' '.join(
            str(f.withheld or '-') for f in plan.findings))
        for finding in plan.findings:
            self.assertTrue(finding.is_removal)


class WitnessTest(GuardTest):
    """A Cinder that may be the wrong one, so no volume counts as missing."""

    scenarios = base.scenarios((
        ('a known witness', missing(2, witness=WitnessAnswer.KNOWN), {},
         '- -'),
        ('no witness exists, one missing volume is believed',
         missing(1, **NONE_EXISTS), {}, '-'),
        ('no witness exists, several missing', missing(2, **NONE_EXISTS),
         {}, 'cinder-suspect cinder-suspect'),
        ('two mappings of one volume count as one', make.snapshot(
            [make.bdm(), make.bdm(uuid='bdm-2', attachment_id=None)],
            missing=['volume-1'], **NONE_EXISTS), {}, '- -'),
        ('an unknown witness prevents every removal', missing(
            1, [STALE], witness=WitnessAnswer.UNKNOWN), {},
         'cinder-suspect cinder-suspect'),
        ('a snapshot proves nothing by default', facts.Snapshot(
            make.server(), missing().bdms, {'gone-0': None}, ()), {},
         'cinder-suspect'),
        *(('nothing missing needs no witness, %s' % answer, make.snapshot(
            [make.bdm()], [make.volume(status='available')],
            witness=answer), {}, '-') for answer in WitnessAnswer)), *FIELDS)


def half_moved(count: int = 1) -> dict[str, Any]:
    """Return a number of disks that would be reconnected."""
    ids = ['half-%d' % n for n in range(count)]
    return {
        'bdms': [make.bdm(uuid=i, volume_id=i, attachment_id=i) for i in ids],
        'volumes': [make.volume(id=i, status='reserved') for i in ids],
        'attachments': [make.attachment(id=i, volume_id=i, **RESERVED)
                        for i in ids]}


def together(one, other, **values):
    bdms, volumes, attachments, missing_ = (
        [*one.get(key, ()), *other.get(key, ())]
        for key in ('bdms', 'volumes', 'attachments', 'missing'))
    return make.snapshot(bdms, volumes, attachments, missing_, **values)


GONE = {'bdms': [make.bdm(uuid='the-gone', volume_id='gone',
                          attachment_id=None)], 'missing': ['gone']}

#: id, the look, the policy, and what withholds the reconnect and the removal.
RECONNECTS = (
    ('nothing', together(half_moved(), GONE), {}, '- -'),
    ('the option', together(half_moved(), GONE), {'reconnect': False},
     'not-selected -'),
    ('removals that are not selected', together(half_moved(), GONE),
     {'remove': frozenset()}, '- not-selected'),
    ('a limit of removals', together(half_moved(), GONE),
     {'max_removals': 0}, '- over-limit'),
    ('more than the limit', make.snapshot(**half_moved(count=9)),
     {'max_removals': 8}, ' '.join('-' * 9)),
    ('an administrator', together(half_moved(), GONE, is_locked=True), {},
     'server-locked server-locked'),
    ('a swap without an end', together(
        half_moved(), GONE, swaps=Ending.NONE), {},
     'swap-interrupted swap-interrupted'),
    ('a Cinder that may be the wrong one', together(
        half_moved(), GONE, witness=WitnessAnswer.UNKNOWN), {},
     'cinder-suspect cinder-suspect'),
    ('a disk that Nova created', make.snapshot(
        [make.bdm(source_type='image', boot_index=0)],
        [make.volume(status='reserved')], [make.attachment(**RESERVED)],
        roots=()), {}, '-'),
)


class ReconnectGuardTest(base.TestCase):
    """The reconnects that the operator and the owner allow."""

    scenarios = base.scenarios(RECONNECTS, *FIELDS)

    def test_withheld_reasons_of_the_row(self):
        plan = decide(self.seen, **self.policy)
        self.assertEqual(self.expected, ' '.join(
            str(f.withheld or '-') for f in plan.findings))
        self.assertTrue(plan.findings[0].is_reconnect)

    def test_reconnects_count_as_no_removal(self):
        plan = decide(self.seen, **self.policy)
        self.assertEqual(
            (sum(f.is_removal for f in plan.due), 0),
            (plan.removals, plan.deletions))


class OptionTest(base.TestCase):

    def test_option_is_named(self):
        finding, = decide(make.snapshot(**half_moved()),
                          reconnect=False).findings
        self.assertEqual('[bdm_cleanup] reconnect is false', finding.obstacle)


def stale(count, **values):
    return tuple(dataclasses.replace(STALE, id='stale-%03d' % n, **values)
                 for n in range(count))


class AttachmentLimitTest(base.TestCase):
    """The limit of stale attachments, separate from that of mappings."""

    def test_attachments_over_the_limit_all_stay(self):
        for values in ({}, RESERVED):
            for count, due in ((8, 8), (9, 0), (300, 0)):
                plan = decide(make.snapshot(
                    [], [VOLUME_9], stale(count, **values)))
                self.assertEqual(due, len(plan.due))
                self.assertEqual(count, len(plan.findings))
                self.assertEqual({Reason.OVER_LIMIT} if not due else {None},
                                 {f.withheld for f in plan.findings})

    def test_attachments_left_by_a_mapping_do_not_count(self):
        dependent = [make.attachment(id='left-%03d' % n) for n in range(300)]
        plan = decide(make.snapshot(
            [make.bdm()], [make.volume(status='available'), VOLUME_9],
            [make.attachment(), *dependent, *stale(8)]))
        mapping = plan.due[0]
        self.assertEqual(301, len(mapping.dependent))
        self.assertEqual((1, 9), (plan.removals, len(plan.due)))

    def test_neither_kind_withholds_the_other(self):
        for mappings, attachments, due in ((9, 8, 8), (8, 9, 8), (9, 9, 0)):
            plan = decide(missing(mappings, stale(attachments)))
            self.assertEqual(due, len(plan.due))
            self.assertEqual(8 if mappings == 8 else 0, plan.removals)

    def test_the_words_name_the_kind(self):
        plan = decide(missing(9, stale(9)))
        self.assertEqual(
            {'more mappings than [bdm_cleanup] max_removals would be removed; '
             'none is removed',
             'more stale attachments than [bdm_cleanup] max_removals would be '
             'deleted; none is deleted'},
            {f.obstacle for f in plan.findings})
