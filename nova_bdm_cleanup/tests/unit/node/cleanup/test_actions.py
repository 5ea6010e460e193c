# SPDX-License-Identifier: Apache-2.0
"""The steps of one plan, one by one.

Whole plans, and the state after failures and crashes, are in test_cleaner.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import dataclasses
import os
import sys
from typing import Any

import fixtures
import testscenarios

from nova_bdm_cleanup.node.cleanup import actions, log_lines, triggers
from nova_bdm_cleanup.node.cleanup.ports import RebootLost, ShuttingDown
from nova_bdm_cleanup.node.store.journal import Journal
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.openstack.deadline import Deadline, TimedOut
from nova_bdm_cleanup.rules import decision, facts
from nova_bdm_cleanup.rules.action_events import Kind
from nova_bdm_cleanup.rules.facts import Action, Claimant
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.tests.unit import base, make, worlds
from nova_bdm_cleanup.tests.unit.node.cleanup import fakes

load_tests = testscenarios.load_tests_apply_scenarios


class ReasonTest(base.TestCase):
    """The reason code that is logged for each kind of failure."""

    scenarios = [(type(error).__name__, {'error': error, 'reason': reason})
                 for error, reason in (
        (TimedOut(), Reason.TIMED_OUT),
        (RebootLost(), Reason.REBOOT_LOST),
        (ShuttingDown(), Reason.SHUTTING_DOWN),
        (errors.ProjectHidden(), Reason.CINDER_UNKNOWN),
        (errors.ServiceTokenRequired(), Reason.SERVICE_TOKEN_REQUIRED),
        (errors.Unreachable(), Reason.CINDER_UNKNOWN),
        (errors.Refused(), Reason.CINDER_UNKNOWN),
        (errors.BadAnswer(), Reason.CINDER_UNKNOWN),
        (actions.NotBegun(), Reason.STEP_FAILED),
        (KeyError('a bug'), Reason.STEP_FAILED))]

    def test_error_has_its_reason_code(self):
        self.assertIs(self.reason, actions.reason_of(
            self.error, triggers.HARD_REBOOT))


class CountingTest(base.TestCase):
    """The claims of rows that Cinder is asked about."""

    def counted(self, claimant, attachment_id):
        """Return whether a row claims a disk, although Cinder denies it."""
        world = fakes.World([], [], [])
        world.is_denied = True
        disk = make.bdm()
        claims = actions.counting(
            fakes.Cinder(world), make.HOST, [disk],
            facts.Claims({disk.uuid: (make.claim(
                claimant, volume_id='volume-1',
                attachment_id=attachment_id),)}))
        return bool(claims.others[disk.uuid])

    def test_row_that_cinder_denies_claims_nothing(self):
        for claimant in (Claimant.ROW, Claimant.OWN_ROW):
            self.assertFalse(self.counted(claimant, 'attachment-2'))

    def test_rows_of_one_attachment_are_denied_alike(self):
        """Otherwise the driver would be given the disk by both."""
        self.assertTrue(self.counted(Claimant.OWN_ROW, 'attachment-1'))


class ActionsTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(base.NoSyncing())
        self.world = fakes.World(
            [make.root(), make.bdm()], [make.volume(status='available')],
            [make.attachment()])
        journal = self.world.journal(os.path.join(self.tempdir(), 'journal'))
        self.actions = actions.Actions(
            fakes.Host(self.world), fakes.Cinder(self.world),
            journal.begin({}, [], server=make.SERVER),
            log_lines.LogLines(None, 'req-1', triggers.HARD_REBOOT),
            triggers.HARD_REBOOT, Deadline(60), make.server(), lambda _: False,
            1, ('a', 'b'))
        self.world.timeline.clear()
        self.finding = facts.Finding(
            Reason.VOLUME_AVAILABLE, 'a sentence', bdm=make.bdm(),
            action=Action.REMOVE, dependent=(make.attachment(),))

    def test_a_failure_is_logged_without_its_exception(self):
        # While an exception is handled, oslo.log appends it to a warning.
        handled = []
        self.useFixture(fixtures.MockPatchObject(
            log_lines.LogLines, 'failed',
            lambda *_: handled.append(sys.exc_info()[0])))
        self.world.failing['power-off'] = RuntimeError('no libvirt')
        self.assertRaises(actions.StepFailed, self.actions.power_off)
        self.assertEqual([None], handled)

    def test_removal_is_logged_before_its_first_step(self):
        was_logged = []
        self.world.meanwhile['claims'] = (
            lambda: was_logged.append('event=removing' in self.log.output))
        self.actions.power_off()
        self.actions.carry_out(self.finding)
        self.assertEqual([True], was_logged)

    def test_a_crash_is_not_a_failure(self):
        self.actions.power_off()
        self.world.meanwhile['disconnect'] = sys.exit
        self.assertRaises(
            SystemExit, self.actions.carry_out, self.finding)
        self.assertNotIn('event=failed', self.log.output)


OWN = make.attachment()
SECOND = make.attachment(id='attachment-2')
RESERVED = make.attachment(status='reserved', connected=False)
ATTACHING = make.attachment(status='attaching')
FAILED = make.attachment(status='error_attaching', connected=False)
AWAY = {'hosts': {'attachment-1': make.OTHER_HOST}, 'is_here': True}

#: Each way to begin a reconnect: the attachments, the status of the volume,
#: what else there is, and the changes that end it.
SHAPES: tuple[tuple[str, list[facts.Attachment], str, dict[str, Any], str],
              ...] = (
    ('its own reserves the volume', [RESERVED], 'reserved', {},
     'disconnect name=1 connect=1 complete=1'),
    ('another one reserves it', [
        dataclasses.replace(RESERVED, id='attachment-2')], 'reserved', {},
     'disconnect name=2 connect=2 complete=2'),
    ('another one is attached here', [SECOND], 'in-use', {},
     'disconnect create name=new delete=2 connect=new complete=new'),
    ('its own reserves it, and another one is attached', [RESERVED, SECOND],
     'in-use', {}, 'disconnect name=1 delete=2 connect=1 complete=1'),
    ('its own is attached elsewhere', [OWN], 'in-use', AWAY,
     'disconnect create name=new delete=1 connect=new complete=new'),
    ('one is attaching, one is attached', [ATTACHING, SECOND], 'attaching',
     {'is_here': True}, 'disconnect delete=1 create name=new delete=2 '
     'connect=new complete=new'),
    ('the only one is attaching here', [ATTACHING], 'attaching', {},
     'disconnect complete=1 name=1'),
    ('the only one is attaching here by another address', [
        dataclasses.replace(ATTACHING, addresses=make.addresses('x'))],
     'attaching', {}, 'disconnect complete=1 create name=new delete=1 '
     'connect=new complete=new'),
    ('the only one is attaching elsewhere', [ATTACHING], 'attaching', AWAY,
     'disconnect complete=1 create name=new delete=1 connect=new '
     'complete=new'),
    ('several are attaching', [
        ATTACHING, dataclasses.replace(ATTACHING, id='attachment-2')],
     # The delete may have ended the connection of the other one.
     'attaching', {'is_here': True}, 'disconnect delete=2 complete=1 create '
     'name=new delete=1 connect=new complete=new'),
    ('several are attaching, and connect nothing', [
        ATTACHING, dataclasses.replace(FAILED, id='attachment-2')],
     'attaching', {}, 'disconnect delete=2 complete=1 create name=new '
     'delete=1 connect=new complete=new'),
    ('the only one has failed', [FAILED], 'reserved', {},
     'disconnect create name=new delete=1 connect=new complete=new'),
    ('a free root without any', [], 'available',
     {'bdm': make.bdm(boot_index=0)},
     'disconnect create name=new connect=new complete=new'),
    ('a disk by name', [dataclasses.replace(
        SECOND, addresses=frozenset())], 'in-use',
     {'bdm': make.bdm(addresses=frozenset())},
     'disconnect create name=new delete=2 connect=new complete=new'),
)


class StoppingWorld(fakes.World):
    """A world in which one call fails, counted from when that is set."""

    #: The number of the call; the change may be made all the same.
    stop_at = 0
    is_lost = False
    count = 0

    @contextlib.contextmanager
    def call(self, *what: str) -> Iterator[None]:
        if what[0].startswith('journal'):
            with super().call(*what):
                yield
            return
        self.count += 1
        is_it = self.count == self.stop_at
        if is_it and not self.is_lost:
            self.timeline.append((*what, 'failed'))
            raise RuntimeError('no luck')
        with super().call(*what):
            yield
        # A lock has no answer.
        if is_it and what[0] not in ('volume-lock', 'guard', 'announce'):
            raise RuntimeError('the answer is lost')


class ReconnectTestCase(base.TestCase):

    #: Why the driver must not connect the address in the mapping.
    address = ''
    trigger = triggers.HARD_REBOOT

    def setUp(self) -> None:
        super().setUp()
        self.useFixture(base.NoSyncing())
        self.path = os.path.join(self.tempdir(), 'journal')

    def begin(self, attachments, status='in-use', bdm=None, hosts=None,
              is_here=False, others=(), **volume):
        """Make a world with one half attached disk, and the guest off."""
        bdm = bdm or make.bdm()
        self.world = StoppingWorld(
            [*([] if bdm.is_root else [make.root()]), bdm],
            [make.volume(status=status, **volume)],
            [*attachments, *others], hosts=hosts)
        self.world.running = False
        self.world.is_awaited = True
        self.world.is_here = is_here
        return self.world

    def plan(self):
        return decision.decide(
            worlds.look(self.world, hidden=None), facts.Policy(), make.NOW)

    def decided(self):
        """Return the finding about the disk."""
        return next(f for f in self.plan().findings if f.bdm
                    and f.volume_id == 'volume-1')

    def carry_out(self, stop_at=0):
        """Carry the reconnect out; return the finding about what came of it.

        :param stop_at: the number of the call that fails
        """
        trigger = self.trigger
        finding = dataclasses.replace(self.decided(), address=self.address)
        self.assertTrue(finding.is_reconnect and finding.is_due, finding)
        journal = self.world.journal(self.path)
        self.actions = actions.Actions(
            fakes.Host(self.world), fakes.Cinder(self.world),
            journal.begin({}, [], server=make.SERVER),
            log_lines.LogLines(None, 'req-1', trigger), trigger,
            Deadline(60), self.world.server, lambda _: self.world.is_here, 1,
            ('a', 'b'))
        self.world.timeline.clear()
        self.world.count, self.world.stop_at = 0, stop_at
        ended = self.actions.carry_out(finding)
        self.actions.finish(0.0)
        self.world.stop_at = 0
        self.assertEqual([], self.world.violations)
        return ended

    @property
    def row(self):
        return next(b for b in self.world.rows.values()
                    if b.volume_id == 'volume-1')

    @property
    def left(self):
        """Return the ids of the attachments of the server."""
        return {a.id for a in self.world.ours('volume-1')}

    def assert_reconnected(self):
        only, = self.world.ours('volume-1')
        self.assertEqual(
            ('attached', True, make.HOST),
            (only.status, only.connected, self.world.host_of(only)))
        self.assertEqual((only.id, only.addresses),
                         (self.row.attachment_id, self.row.addresses))
        self.assertEqual('in-use', self.world.volumes['volume-1'].status)
        self.assertIs(Reason.HEALTHY, self.decided().reason)

    def changes(self):
        """Return the changes as the shapes above write them."""
        return ' '.join(
            what[0].partition('-attachment')[0] + (
                '' if what[0] in ('disconnect', 'create-attachment')
                else '=' + what[-1].replace('attachment-', '').replace(
                    'new-1', 'new'))
            for what in self.world.changes)


class ReconnectTest(ReconnectTestCase):
    """The steps of a reconnect, from each state in which it begins."""

    scenarios = base.scenarios(
        SHAPES, 'attachments', 'status', 'values', 'expected')

    def test_disk_has_one_attachment_to_this_host(self):
        self.begin(self.attachments, self.status, **self.values)
        ended = self.carry_out()
        self.assertIsNone(ended.withheld)
        self.assertEqual('', ended.address)
        self.assertIs(facts.InCinder.ATTACHED, ended.in_cinder)
        self.assertEqual(self.row, ended.bdm)
        self.assert_reconnected()
        # What Cinder has given is not here, so there is no second disconnect.
        self.assertEqual(self.expected, self.changes().replace(
            ' disconnect', ''))
        self.assertEqual(
            [Reason], [type(reason) for _, reason
                       in self.world.reported[Kind.RECONNECTED]])
        self.assertEqual((1, 0, 0, 1), (
            self.actions.reconnects, self.actions.removals,
            self.actions.deletions, self.actions.completed))
        entry, = Journal(self.path).entries()
        self.assertEqual('done', entry.outcome)

    def test_volume_is_read_before_each_change_in_cinder(self):
        self.begin(self.attachments, self.status, **self.values)
        self.carry_out()
        calls = [what[0] for what in self.world.timeline
                 if what[0] not in ('report reconnected', 'journal-append')]
        for number, name in enumerate(calls):
            if name in ('create-attachment', 'delete-attachment',
                        'complete-attachment'):
                self.assertIn('volume', calls[number - 2:number])
            if name == 'connect-attachment':
                self.assertEqual('volume', calls[number - 1])

    def test_state_that_changes_meanwhile_stops_it(self):
        changes = ({'status': 'detaching'}, {'status': 'extending'},
                   {'status': 'error'}, {'migration_status': 'migrating'})
        reads = None
        for change in changes:
            number = 0
            while reads is None or number < reads:
                world = self.begin(
                    self.attachments, self.status, **self.values)
                self._change_at(world, number, change)
                ended = self.carry_out()
                if ended.withheld is None:
                    # There are not so many reads.
                    reads = number
                    break
                self.assertIs(Reason.STEP_FAILED, ended.withheld)
                # It was the last call about the disk.
                self.assertEqual('volume', [
                    c for c in world.calls if c not in (
                        'journal-append', 'bdms')][-1])
                number += 1
        self.assertGreater(reads, 1)

    def _change_at(self, world, number, change):
        """Change the volume just before a read with this number."""
        def count():
            world.reads = getattr(world, 'reads', -1) + 1
            is_last = [what[0] for what in world.timeline
                       if what[0] != 'journal-append'][-1:] == [
                           'attachment']
            if is_last:
                # The look at what was completed decides over no write.
                world.reads -= 1
            if world.reads == number and not is_last:
                world.volumes['volume-1'] = dataclasses.replace(
                    world.volumes['volume-1'], **change)
            else:
                world.meanwhile['volume'] = count
        world.meanwhile['volume'] = count

    def test_each_failure_is_ended_by_the_next_reboot(self):
        for is_lost in (False, True):
            number = 1
            while True:
                world = self.begin(
                    self.attachments, self.status, **self.values)
                world.is_lost = is_lost
                ended = self.carry_out(number)
                if world.count < number:
                    break
                self._check_failure(world, ended, is_lost)
                number += 1
            self.assertGreater(number, 10)

    def _check_failure(self, world, ended, is_lost):
        what = [w for w in world.timeline if w[0] != 'journal-append']
        stopped = next((w for w in what if w[-1] == 'failed'), what[-1:])
        # The volume was never left to other servers.
        if self.attachments or 'create-attachment' in world.calls:
            self.assertNotEqual(
                set(), self.left | {''} if not self.attachments
                else self.left, stopped)
        if ended.withheld is None:
            # Only the event is missing.
            self.assertIn('report reconnected', world.calls)
        else:
            # Cinder was asked to end or to change a connection.
            asked = [w for w in what if w[0] == 'connect-attachment' or (
                w[0] == 'delete-attachment' and w[1] not in {
                    *world.made, *(a.id for a in self.attachments
                                   if a.only_reserves)})]
            self.assertEqual(
                bool(asked and self.row.addresses), bool(ended.address),
                what)
        if self.decided().reason is not Reason.HEALTHY:
            self.assertIsNone(self.carry_out().withheld)
        for finding in self.plan().due:
            # One that was made, and whose answer was lost, is stale now.
            self.assertIs(Reason.STALE_ATTACHMENT, finding.reason)
            self.assertIn(finding.attachment_id, world.made)
            world.drop(finding.attachment_id)
        self.assert_reconnected()


class InterferenceTest(ReconnectTestCase):
    """Changes by others during a reconnect."""

    def test_attachment_that_a_member_deletes_is_made_again(self):
        world = self.begin([SECOND])
        world.meanwhile['connect-attachment'] = lambda: world.drop('new-1')
        self.assertIsNone(self.carry_out().withheld)
        self.assertEqual('new-2', self.row.attachment_id)
        self.assert_reconnected()

    def test_attachment_that_is_deleted_twice_is_not_made_again(self):
        world = self.begin([SECOND])

        def drop_both():
            world.drop('new-1')
            world.meanwhile['connect-attachment'] = (
                lambda: world.drop('new-2'))

        world.meanwhile['connect-attachment'] = drop_both
        ended = self.carry_out()
        self.assertIs(Reason.STEP_FAILED, ended.withheld)
        self.assertIn('has not ended', ended.address)
        self.assertEqual(2, len(world.made))
        self.assertEqual(set(), self.left)

    def test_attachment_made_meanwhile_is_not_completed(self):
        world = self.begin([SECOND])
        world.meanwhile['own-attachments'] = (
            lambda: world.attachments.update({
                'attachment-9': make.attachment(id='attachment-9')}))
        ended = self.carry_out()
        self.assertIs(Reason.STEP_FAILED, ended.withheld)
        self.assertIn('attachment-9 of the volume was made meanwhile',
                      self.log.output)
        self.assertNotIn('complete-attachment', world.calls)
        self.assertIn('has not ended', ended.address)

    def test_list_that_shows_what_was_deleted_is_no_obstacle(self):
        world = self.begin([SECOND])
        world.meanwhile['own-attachments'] = (
            lambda: world.attachments.update({'attachment-2': SECOND}))
        self.assertIsNone(self.carry_out().withheld)

    def test_mapping_that_is_gone_gives_the_attachment_back(self):
        for call in ('name-attachment', 'connect-attachment',
                     'complete-attachment'):
            world = self.begin([SECOND])
            world.meanwhile[call] = lambda w=world: w.rows.pop('bdm-1')
            if call == 'complete-attachment':
                world.failing[call] = errors.Unreachable('no route')
            journal = self.carry_out()
            self.assertIsNotNone(journal.withheld)
            self.assertEqual([], [i for i in world.made
                                  if i in world.attachments])

    def test_rows_that_cannot_be_read_leave_the_attachment(self):
        world = self.begin([SECOND])
        world.failing.update({
            'connect-attachment': errors.Unreachable('no route'),
            'bdms': RuntimeError('no conductor')})
        self.assertIsNotNone(self.carry_out().withheld)
        self.assertEqual({'new-1'}, self.left)

    def shared(self, **failing):
        """Return the world of a volume that another server has, too."""
        world = self.begin([SECOND], multiattach=True, others=[
            make.attachment(id='attachment-8',
                            server_id=make.OTHER_SERVER)])
        world.failing.update({
            (name, 'attachment-2') if name == 'delete-attachment' else name:
            error for name, error in (
                (name.replace('_', '-'), error)
                for name, error in failing.items())})
        return world

    def test_shared_volume_is_not_left_reserved(self):
        for failing in ({'name_attachment': RuntimeError('no database')},
                        {'delete_attachment': errors.Conflict('no')},
                        {'delete_attachment': errors.Refused('no')}):
            world = self.shared(**failing)
            self.assertIsNotNone(self.carry_out().withheld)
            self.assertEqual({'attachment-2'}, self.left)
            self.assertEqual('in-use', world.volumes['volume-1'].status)

    def test_last_attachment_to_a_shared_volume_stays(self):
        """Without one, the next reboot would remove the mapping."""
        unreachable = errors.Unreachable('no route')
        for call in ('delete_attachment', 'connect_attachment',
                     'own_attachments', 'complete_attachment'):
            world = self.shared(**{call: unreachable})
            self.assertIs(Reason.CINDER_UNKNOWN, self.carry_out().withheld)
            self.assertIn('new-1', self.left)
            world.failing.clear()
            self.assertIsNone(self.carry_out().withheld)
            self.assert_reconnected()

    def test_attachment_that_was_made_last_is_given_back(self):
        world = self.begin([SECOND])

        def drop():
            world.drop('new-1')
            world.meanwhile['connect-attachment'] = (
                lambda: world.rows.pop('bdm-1'))

        world.meanwhile['connect-attachment'] = drop
        self.assertIsNotNone(self.carry_out().withheld)
        self.assertEqual({}, world.attachments)

    def test_new_attachment_that_stays_is_in_the_journal(self):
        world = self.shared(name_attachment=RuntimeError('no database'))
        world.failing['delete-attachment', 'new-1'] = (
            errors.Unreachable('no route'))
        self.carry_out()
        entry, = Journal(self.path).entries()
        self.assertEqual('partly', entry.outcome)
        self.assertIn(('delete-attachment', 'failed', 'new-1'), [
            (s.name, s.outcome, s.subject.get('attachment'))
            for s in entry.steps])

    def test_completed_attachment_of_another_host_stays(self):
        """Nobody has told that the guest is not there."""
        world = self.begin([ATTACHING], 'attaching', hosts=AWAY['hosts'])
        ended = self.carry_out()
        self.assertIs(Reason.STEP_FAILED, ended.withheld)
        self.assertIn('attachment attachment-1 connects host compute-2, and '
                      'the guest may be there', self.log.output)
        self.assertEqual({'attachment-1'}, self.left)
        self.assertEqual({}, world.made)

    def test_completed_attachment_keeps_the_verdict_on_its_address(self):
        """Cinder has not given it to this host just now."""
        for address in ('', 'another guest has it'):
            self.begin([ATTACHING], 'attaching')
            self.address = address
            self.assertEqual(address, self.carry_out().address)
            self.assert_reconnected()
            self.assertNotIn('opened-elsewhere', self.log.output)

    def test_address_that_another_guest_has_is_told(self):
        for claimant in (Claimant.GUEST, Claimant.ROW):
            world = self.begin([SECOND])
            claims = []

            def claimed(host, bdm, claims=claims, claimant=claimant):
                # Not that of the old address.
                claims.append(bdm)
                return [make.claim(claimant)] if len(claims) == 2 else []

            self.useFixture(fixtures.MockPatchObject(
                fakes.Host, '_claims_on', claimed))
            ended = self.carry_out()
            # Cinder has given it to this host.
            self.assertEqual((None, ''), (ended.withheld, ended.address))
            line = [line for line in self.log.output.splitlines()
                    if 'event=opened-elsewhere' in line][-1]
            self.assertIn('server-2', line)
            # A later start of Nova must not disconnect it.
            self.assertEqual(set(), world.noted)

    def test_stale_device_at_the_new_address_keeps_the_disk_out(self):
        world = self.begin([SECOND])

        def fail_later():
            world.meanwhile['disconnect'] = lambda: world.failing.update(
                disconnect=RuntimeError('/dev/sdc is still there'))

        world.meanwhile['disconnect'] = fail_later
        ended = self.carry_out()
        self.assertIs(Reason.STEP_FAILED, ended.withheld)
        self.assertIn('has not ended', ended.address)

    def test_deadline_withholds_a_reconnect(self):
        world = self.begin([SECOND])
        finding = self.decided()
        self.carry_out()
        self.assert_reconnected()
        world = self.begin([SECOND])
        self.actions.deadline = Deadline(-1)
        self.assertIs(Reason.TIMED_OUT,
                      self.actions.carry_out(finding).withheld)
        self.assertEqual([], world.changes)

    def test_reconnect_that_changed_nothing_leaves_no_entry(self):
        world = self.begin([SECOND])
        world.failing['claims'] = RuntimeError('no libvirt')
        self.assertIs(Reason.STEP_FAILED, self.carry_out().withheld)
        self.assertEqual((), Journal(self.path).entries())


UNSAVED = dataclasses.replace(RESERVED, id='attachment-2')

#: Each way to begin where the server comes to this host: the attachments, the
#: status of the volume, what else there is, and the changes.
ARRIVALS: tuple[tuple[str, list[facts.Attachment], str, dict[str, Any], str],
                ...] = (
    ('a free root without any', [], 'available',
     {'bdm': make.bdm(boot_index=0)}, 'create name=new'),
    ('another one reserves it', [UNSAVED], 'reserved', {}, 'name=2'),
    ('another one is attached', [SECOND], 'in-use', {}, 'name=2'),
    ('its own is attached, and another one reserves it', [OWN, UNSAVED],
     'in-use', {}, 'name=1 delete=2'),
    ('its own reserves it, and another one is attached', [RESERVED, SECOND],
     'in-use', {}, 'name=2 delete=1'),
    ('its own is attaching', [ATTACHING], 'attaching', {},
     'name=1 complete=1'),
    ('of a shared volume, its own is attached, and another one reserves it',
     [OWN, UNSAVED], 'reserved', {'multiattach': True}, 'name=1 delete=2'),
)


class ArrivalTest(ReconnectTestCase):
    """The steps where Nova connects the disks itself."""

    scenarios = base.scenarios(
        ARRIVALS, 'attachments', 'status', 'values', 'expected')
    trigger = triggers.UNSHELVE

    def begin(self, *args, **values):
        world = super().begin(*args, **{**values, 'is_here': True, 'hosts': {
            'attachment-1': make.OTHER_HOST,
            'attachment-2': make.OTHER_HOST}})
        world.connected.clear()
        world.server = make.server(host='', is_offloaded=True)
        return world

    def plan(self):
        return decision.decide(dataclasses.replace(
            worlds.look(self.world, hidden=None),
            guest=facts.Guest.ARRIVES), facts.Policy(), make.NOW)

    def assert_ready(self):
        """Check that Nova can connect the disk."""
        only, = self.world.ours('volume-1')
        self.assertEqual(only.id, self.row.attachment_id)
        self.assertIn((only.status, self.world.volumes['volume-1'].status), (
            ('reserved', 'reserved'), ('attached', 'in-use')))
        self.assertEqual((), self.plan().due)

    def test_mapping_names_the_only_attachment(self):
        self.begin(self.attachments, self.status, **self.values)
        ended = self.carry_out()
        self.assertIsNone(ended.withheld)
        self.assert_ready()
        self.assertEqual(self.expected, self.changes())
        self.assertIn('and Nova connects the disk', self.log.output)
        entry, = Journal(self.path).entries()
        self.assertEqual('done', entry.outcome)

    def test_each_failure_is_ended_by_the_next_arrival(self):
        for is_lost in (False, True):
            number = 1
            while True:
                world = self.begin(
                    self.attachments, self.status, **self.values)
                world.is_lost = is_lost
                self.carry_out(number)
                if world.count < number:
                    break
                # Otherwise any server could take the volume.
                if self.attachments or world.made:
                    self.assertNotEqual(set(), self.left)
                if self.decided().is_due:
                    self.assertIsNone(self.carry_out().withheld)
                for finding in self.plan().due:
                    self.assertIs(Reason.STALE_ATTACHMENT, finding.reason)
                    world.drop(finding.attachment_id)
                self.assert_ready()
                number += 1
            self.assertGreater(number, 3)


class GivenBackTest(ReconnectTestCase):
    """An attachment whose mapping is gone."""

    trigger = triggers.UNSHELVE
    plan = ArrivalTest.plan

    def test_new_attachment_is_given_back(self):
        world = self.begin([], 'available', bdm=make.bdm(boot_index=0))
        world.server = make.server(host='', is_offloaded=True)
        world.connected.clear()
        world.meanwhile['name-attachment'] = lambda: world.rows.pop('bdm-1')
        self.assertIsNotNone(self.carry_out().withheld)
        self.assertEqual(set(), self.left)
