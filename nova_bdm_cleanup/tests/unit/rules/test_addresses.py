# SPDX-License-Identifier: Apache-2.0
"""The rule of addresses: its table, and the findings that it changes."""

from __future__ import annotations

import testscenarios

from nova_bdm_cleanup import rules
from nova_bdm_cleanup.rules import addresses, facts, mappings, table
from nova_bdm_cleanup.rules.addresses import AddressFacts, Verdict
from nova_bdm_cleanup.rules.facts import Action, Claim, Claimant, Claims, Plan
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.rules.world import World
from nova_bdm_cleanup.tests.unit import base, make

load_tests = testscenarios.load_tests_apply_scenarios

#: Claims that count more than that this guest had the disk a moment ago.
STRONG = (Claimant.GUEST, Claimant.OPERATION, Claimant.OWN_ROW,
          Claimant.ANY_GUEST)
#: Those that count less.
WEAK = (Claimant.ROW, Claimant.ANY_ROW)

ELSEWHERE = 'Cinder connects the volume by another address'


def asked(*claimants, was_open=False, elsewhere='', connected=True):
    return AddressFacts(tuple(map(make.claim, claimants)), was_open,
                        elsewhere, connected)


#: id, the facts, the verdict.
VERDICTS = (
    ('free', asked(), Verdict.CONNECTED),
    ('free, and open', asked(was_open=True), Verdict.CONNECTED),
    ('free, and Cinder shows another', asked(elsewhere=ELSEWHERE),
     Verdict.OUT_OF_DATE),
    ('open, and Cinder shows another',
     asked(was_open=True, elsewhere=ELSEWHERE), Verdict.OUT_OF_DATE),
    *(('claimed by %s, %s' % (claimant, 'open' if was_open else 'not open'),
       asked(claimant, was_open=was_open),
       Verdict.CONNECTED if was_open and claimant in WEAK
       else Verdict.CLAIMED)
      for claimant in Claimant for was_open in (True, False)),
    ('claimed by a row, open, and Cinder does not connect it',
     asked(Claimant.ROW, was_open=True, connected=False), Verdict.CLAIMED),
    ('free, and Cinder does not connect it', asked(connected=False),
     Verdict.CONNECTED),
    *(('claimed by %s and %s, open' % (one, other),
       asked(one, other, was_open=True),
       Verdict.CONNECTED if {one, other} <= {*WEAK} else Verdict.CLAIMED)
      for one in Claimant for other in Claimant if one is not other),
)


class VerdictTest(base.TestCase):

    scenarios = base.scenarios(VERDICTS, 'asked', 'expected')

    def test_verdict_of_the_row(self):
        row = table.first(addresses.ADDRESSES.rows, self.asked)
        self.assertIs(self.expected, row.outcome)
        self.assertTrue(row.explain(self.asked))


class CoverageTest(base.TestCase):

    def test_every_row_has_a_test_above(self):
        tested = {id(table.first(addresses.ADDRESSES.rows, each))
                  for _, each, _ in VERDICTS}
        self.assertEqual([], [r.cell for r in addresses.ADDRESSES.rows
                              if id(r) not in tested])

    def test_every_claimant_is_strong_or_weak(self):
        self.assertEqual({*Claimant}, {*STRONG, *WEAK})
        for claimant in Claimant:
            self.assertIs(claimant in STRONG, make.claim(claimant).is_strong)


class ExplanationTest(base.TestCase):

    def test_the_strongest_claim_is_named(self):
        for claimants in ((Claimant.ROW, Claimant.GUEST),
                          (Claimant.GUEST, Claimant.ROW)):
            each = asked(*claimants)
            row = table.first(addresses.ADDRESSES.rows, each)
            self.assertEqual(
                'its address on this host may be that of another disk: the '
                'guest of server server-2 has it', row.explain(each))

    def test_each_claim_has_its_words(self):
        for claimant, words in (
                (Claimant.OPERATION, 'Cinder has just given it to server '
                 'server-2, for volume volume-2'),
                (Claimant.ROW, 'server server-2 has volume volume-2 there'),
                (Claimant.OWN_ROW,
                 'the mapping of volume volume-2 names it, too')):
            self.assertEqual(words, str(make.claim(claimant)))


def applied(seen, **claims):
    """Return the plan of a look, with the verdict on each address."""
    return addresses.judged(
        make.decide(seen), mappings_of(seen), Claims(**claims))


def mappings_of(seen):
    return mappings.mappings_of(World(seen, facts.Policy(), make.NOW))


def claimed(claimant=Claimant.GUEST, uuid='bdm-1'):
    return {uuid: (make.claim(claimant),)}


HEALTHY = make.snapshot([make.bdm()], [make.volume()], [make.attachment()])
DANGLING = make.snapshot([make.bdm()], [make.volume(status='available')])


class ApplyTest(base.TestCase):

    def addresses_of(self, plan):
        return [f.address for f in plan.findings]

    def test_a_free_address_changes_nothing(self):
        self.assertEqual(make.decide(HEALTHY), applied(HEALTHY))

    def test_a_healthy_disk_whose_address_is_claimed_has_the_words(self):
        plan = applied(HEALTHY, others=claimed())
        self.assertEqual(
            ['its address on this host may be that of another disk: the '
             'guest of server server-2 has it'], self.addresses_of(plan))
        # What Cinder attaches has no other reason.
        self.assertIs(Reason.ADDRESS_CLAIMED, plan.findings[0].reason)
        # The line about the disk has the words.
        self.assertEqual('attached to this server',
                         plan.findings[0].explanation)

    def test_the_guest_that_had_it_keeps_it(self):
        for claimant, is_given in ((Claimant.ROW, True),
                                   (Claimant.GUEST, False)):
            plan = applied(HEALTHY, others=claimed(claimant),
                           open=frozenset(('bdm-1',)))
            self.assertEqual([is_given], [
                not address for address in self.addresses_of(plan)])

    def test_the_guest_keeps_no_disk_that_cinder_does_not_connect(self):
        reserved = make.attachment(status='reserved', connected=False)
        for seen, is_given in (
                (HEALTHY, True), (DANGLING, False),
                (make.snapshot([make.bdm()], [make.volume()], [reserved]),
                 False),
                # It may be the wrong Cinder.
                (make.snapshot([make.bdm()], missing=['volume-1'],
                               witness=facts.WitnessAnswer.UNKNOWN), True),
                (make.snapshot([make.bdm()], missing=['volume-1']), False)):
            finding, = applied(seen, others=claimed(Claimant.ROW),
                               open=frozenset(('bdm-1',))).findings
            self.assertIs(is_given, not finding.address, seen)

    def test_claims_on_another_disk_do_not_count(self):
        for claims in ({'others': claimed(uuid='bdm-2')},
                       {'others': claimed(Claimant.ROW),
                        'open': frozenset(('bdm-2',))}):
            self.assertEqual(
                'others' in claims and 'bdm-1' in claims['others'],
                bool(self.addresses_of(applied(HEALTHY, **claims))[0]))

    def test_the_addresses_of_another_host_are_out_of_date(self):
        for entry, own, words in (
                (make.attached_to(host=make.OTHER_HOST), make.attachment(),
                 'Cinder attaches the volume to host compute-2'),
                (make.attached_to(), make.attachment(
                    addresses=make.addresses('volume-9')), ELSEWHERE)):
            seen = make.snapshot(
                [make.bdm()], [make.volume(attached_to=(entry,))], [own])
            for claims in ({}, {'open': frozenset(('bdm-1',))}):
                self.assertEqual(
                    [words + ', so the address in its mapping is out of '
                     'date'], self.addresses_of(applied(seen, **claims)))

    def test_a_dangling_row_keeps_its_reason_and_its_removal(self):
        finding, = applied(DANGLING, others=claimed()).due
        self.assertEqual((Reason.VOLUME_AVAILABLE, Action.REMOVE),
                         (finding.reason, finding.action))
        self.assertTrue(finding.address)

    def test_the_rule_holds_for_a_root_disk(self):
        root = make.bdm(boot_index=0)
        seen = make.snapshot([root], [make.volume(status='available')],
                             roots=())
        finding, = applied(seen, others=claimed()).findings
        self.assertIs(Reason.ROOT_VOLUME_DANGLING, finding.reason)
        self.assertTrue(finding.address)

    def test_disk_without_an_address_has_no_verdict(self):
        for bdm in (make.bdm(addresses=frozenset()),
                    make.bdm(destination_type='local')):
            seen = make.snapshot([bdm], [make.volume()], [make.attachment()])
            self.assertEqual((), addresses.disks_of(seen.bdms))
            self.assertEqual(make.decide(seen),
                             applied(seen, others=claimed()))

    def test_disks_are_what_nova_connects_by_an_address(self):
        disks = make.bdm(), make.bdm(source_type='image', boot_index=0)
        self.assertEqual(disks, addresses.disks_of([
            make.root(), *disks, make.bdm(has_connection_info=False)]))


class TwiceTest(base.TestCase):
    """Two mappings of one attachment: one server gets the disk once."""

    def given(self, *mappings, opened=(), claimant=None, **other):
        """Return the mappings whose addresses are connected."""
        rival = make.claim(Claimant.OWN_ROW, server=make.SERVER, **{
            'volume_id': 'volume-1', 'attachment_id': 'attachment-1',
            **other})
        more = (make.claim(claimant),) if claimant else ()
        claims = Claims({b.uuid: (rival, *more) for b in mappings},
                        frozenset(opened))
        seen = make.snapshot(mappings, [make.volume()], [make.attachment()])
        by_uuid = mappings_of(seen)
        plans = (addresses.judged(make.decide(seen), by_uuid, claims),
                 addresses.without_cinder(
                     seen.bdms, claims, Reason.TIMED_OUT))
        for plan in plans:
            self.assertEqual(2, len(plan.findings))
        given, without_cinder = (
            [f.bdm.uuid for f in plan.findings if not f.address]
            for plan in plans)
        self.assertEqual(given, without_cinder)
        return given

    def pair(self, **values):
        return (make.bdm(uuid='newer', created_at=make.ago(60), **values),
                make.bdm(uuid='older', created_at=make.ago(61), **values))

    def test_the_guest_keeps_the_disk_that_it_had_open(self):
        newer, older = self.pair()
        for opened in ('newer', 'older'):
            for both in ((newer, older), (older, newer)):
                self.assertEqual([opened], self.given(
                    *both, opened=[opened]))

    def test_otherwise_the_older_mapping_is_given(self):
        newer, older = self.pair()
        for both in ((newer, older), (older, newer)):
            for opened in ((), ('newer', 'older')):
                self.assertEqual(['older'], self.given(*both, opened=opened))

    def test_one_is_given_if_neither_tells_its_age(self):
        self.assertEqual(['1'], self.given(*(
            make.bdm(uuid=uuid, created_at=None) for uuid in '21')))

    def test_mapping_that_tells_its_age_is_given(self):
        self.assertEqual(['2'], self.given(
            make.bdm(uuid='1', created_at=None), make.bdm(uuid='2')))

    def test_a_guest_of_another_server_has_it(self):
        self.assertEqual([], self.given(
            *self.pair(), opened=('newer', 'older'), claimant=Claimant.GUEST))

    def test_a_mapping_of_another_attachment_may_be_another_disk(self):
        for other in ({'attachment_id': 'attachment-2'},
                      {'volume_id': 'volume-2'}):
            self.assertEqual([], self.given(*self.pair(), **other))

    def test_mapping_of_another_address_is_no_rival(self):
        pair = [make.bdm(uuid=uuid, addresses=make.addresses(uuid))
                for uuid in ('1', '2')]
        claims = Claims({b.uuid: (Claim(
            Claimant.OWN_ROW, make.SERVER, b.volume_id, b.attachment_id),)
            for b in pair})
        self.assertEqual(['', ''], [
            f.address for f in addresses.without_cinder(
                pair, claims, Reason.TIMED_OUT).findings])


class ClaimedSinceTest(base.TestCase):
    """A later question about the disks that Cinder does not connect."""

    ROOT = make.snapshot([make.bdm(boot_index=0)],
                         [make.volume(status='available')], roots=())

    def test_only_disks_that_are_given_are_asked_about(self):
        reserved = make.attachment(status='reserved', connected=False)
        for seen, claims, disks in (
                (self.ROOT, {}, ['bdm-1']),
                (self.ROOT, {'others': claimed()}, []),
                (HEALTHY, {}, []),
                (DANGLING, {}, []),
                (make.snapshot([make.bdm()], [make.volume()], [reserved]), {},
                 ['bdm-1'])):
            self.assertEqual(disks, [bdm.uuid for bdm in rules.unconnected(
                applied(seen, **claims))])

    def test_any_claim_takes_such_a_disk(self):
        plan = applied(self.ROOT)
        for claimant in Claimant:
            finding, = addresses.claimed_since(
                plan, Claims(claimed(claimant))).findings
            self.assertIn(str(make.claim(claimant)), finding.address)
            self.assertEqual({'bdm-1'}, {*rules.not_given(Plan((finding,)))})
        for others in ({}, {'bdm-1': ()}, claimed(uuid='bdm-2')):
            self.assertEqual(
                plan, addresses.claimed_since(plan, Claims(others)))


class WithoutCinderTest(base.TestCase):
    """Cinder is silent: only claims decide."""

    def test_nothing_is_removed_and_only_claimed_disks_have_words(self):
        bdms = [make.bdm(), make.bdm(uuid='bdm-2'), make.root()]
        plan = addresses.without_cinder(
            bdms, Claims(claimed(Claimant.ANY_GUEST)), Reason.TIMED_OUT)
        self.assertEqual(
            [('bdm-1', True), ('bdm-2', False)],
            [(f.bdm.uuid, bool(f.address)) for f in plan.findings])
        self.assertEqual({Reason.TIMED_OUT},
                         {f.reason for f in plan.findings})
        self.assertEqual((), plan.due)

    def test_the_words_tell_what_was_not_read(self):
        for claimant, words in (
                (Claimant.ANY_GUEST, 'the hypervisor does not tell which '
                 'guest has it'),
                (Claimant.ANY_ROW,
                 'Nova does not tell which mappings name it')):
            finding, = addresses.without_cinder(
                [make.bdm()], Claims({'bdm-1': (Claim(claimant),)}),
                Reason.CINDER_UNKNOWN).findings
            self.assertIn(words, finding.address)


class ReconnectTest(base.TestCase):
    """The addresses of disks that are reconnected, and of others."""

    def look(self, *others, status='', claimant=Claimant.OWN_ROW):
        """Return the plan where two mappings name one address.

        :param others: more attachments of the first volume
        :param status: that of the first volume
        """
        both = make.addresses('volume-1')
        half = make.bdm(attachment_id='unknown')
        whole = make.bdm(
            uuid='bdm-2', volume_id='volume-2', attachment_id='attachment-2',
            device_name='/dev/vdc', addresses=both)
        own = make.attachment(id='attachment-2', volume_id='volume-2',
                              addresses=both)
        seen = make.snapshot(
            [half, whole], [make.volume(status=status or (
                'reserved' if others else 'in-use')),
                            make.volume(id='volume-2')], [own, *others])
        return applied(seen, others={
            a.uuid: (Claim(claimant, make.SERVER, b.volume_id,
                           b.attachment_id),)
            for a, b in ((half, whole), (whole, half))})

    def test_mapping_to_reconnect_claims_nothing_of_the_server(self):
        plan = self.look(make.attachment(
            id='attachment-3', status='reserved', connected=False))
        half, = plan.due
        self.assertTrue(half.is_reconnect)
        self.assertTrue(half.address)
        self.assertEqual([''], [f.address for f in plan.findings
                                if not f.is_due])

    def test_mapping_that_stays_as_it_is_claims_its_address(self):
        self.assertTrue(all(f.address for f in self.look().findings))

    def test_mapping_that_is_removed_claims_its_address(self):
        plan = self.look(status='available')
        self.assertTrue(plan.due[0].is_removal)
        self.assertTrue(all(f.address for f in plan.findings))

    def test_guest_with_a_disk_to_reconnect_claims_its_address(self):
        plan = self.look(make.attachment(
            id='attachment-3', status='reserved', connected=False),
            claimant=Claimant.GUEST)
        self.assertTrue(all(f.address for f in plan.findings))
