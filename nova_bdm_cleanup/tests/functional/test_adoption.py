# SPDX-License-Identifier: Apache-2.0
"""A guest goes on, and its mappings take over the attachments it runs by."""

from __future__ import annotations

import json

import fixtures
from nova import objects
from nova.virt.libvirt import guest as libvirt_guest

from nova_bdm_cleanup.node import adoption, operations
from nova_bdm_cleanup.node.instance import NovaInstance
from nova_bdm_cleanup.openstack.cinder import Cinder
from nova_bdm_cleanup.rules.facts import Plan
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.tests.cloud import recorder
from nova_bdm_cleanup.tests.cloud.faults import (
    CALL,
    DEAD_BEFORE,
    Fault,
    LOST,
    REFUSED,
)
from nova_bdm_cleanup.tests.cloud.proxy import status
from nova_bdm_cleanup.tests.functional import aftermath
from nova_bdm_cleanup.tests.functional.commands import NO_WAITING
from nova_bdm_cleanup.tests.functional.moving import (
    HERE,
    live_migration,
    THERE,
)

_DELETE = 'DELETE /attachments/'

#: Nova's roll-back of a live migration deletes no attachment of the
#: destination.
FAILED_ROLLBACK = ('live-hypervisor', Fault(REFUSED, 1, _DELETE),
                   Fault(REFUSED, 2, _DELETE))


class AdoptionTestCase(aftermath.AftermathTestCase):
    """A server that a failed live migration has left on the first host."""

    @property
    def manager(self):
        return self.cloud.nova.computes[HERE].manager

    def adopt(self) -> Plan:
        return adoption.carry_out(self.manager, self.server.id)

    def own_attachment(self, volume: str) -> str:
        """Return the attachment of a volume to this host."""
        with self.cloud.cinder.database() as database:
            (found,), = database.execute(
                'SELECT id FROM volume_attachment WHERE volume_id = ? AND '
                'NOT deleted AND attached_host = ?', (volume, HERE))
        return found

    def check_adopted(self, *adopted: str) -> None:
        """Check that all is healthy, and that only records were changed."""
        self.check_disks()
        self.assertEqual([], [
            event for event in self.cloud.timeline()
            if event.party in (recorder.GUEST, recorder.HOST)])
        self.assertEqual(set(adopted), {
            line.volume for line in self.log_lines(self.server, 'adopted')})
        self.assertEqual([], self.log_lines(self.server, 'failed'))
        events = [each.event for each in self.cloud.look(self.server).actions]
        for volume in adopted:
            self.assertIn(
                f'bdm_cleanup adopted volume {volume} (half-moved)', events)
        self.check_disks_of_audit()

    def check_disks_of_audit(self) -> None:
        """Check that the audit has no finding of a disk."""
        self.assertEqual(set(), {*self.run_audit(
            *NO_WAITING, server=self.server)} - {None})

    def check_disks(self) -> None:
        """Check that the guest runs with all disks; Nova itself may have set
        the server to ERROR.
        """
        state = self.state()
        self.assertTrue(state.runs(), state)
        self.assertEqual(set(), {*state.problems()} - {'ERROR'}, state)

    def check_unchanged(self) -> None:
        self.assertEqual(self.damaged, self.state())
        self.assertEqual([], self.changes())
        self.assertEqual([], self.journal())
        self.assertEqual([], self.log_lines(self.server, 'adopted'))

    def differing(self, plan: Plan) -> dict[str, str]:
        """Return the parties that do not agree on the data disk."""
        finding, = (f for f in plan.findings if f.volume_id == self.data)
        return {answer.party: answer.words for answer in finding.parties
                if not answer.agrees}


class OldSwapTest(AdoptionTestCase):
    """A swap of any volume has failed long ago, and was rolled back."""

    def setUp(self):
        super().setUp()
        self.leave_damaged(*FAILED_ROLLBACK)
        context = self.cloud.nova.context()
        context.request_id = 'req-of-a-swap-long-ago'
        objects.InstanceAction.action_start(
            context, self.server.id, 'swap_volume', want_result=False)
        objects.InstanceActionEvent.event_start(
            context, self.server.id, 'compute_swap_volume',
            want_result=False, host=HERE)
        objects.InstanceActionEvent.event_finish_with_failure(
            context, self.server.id, 'compute_swap_volume',
            exc_val='injected', exc_tb='', want_result=False)

    def test_hard_reboot_keeps_the_disks(self):
        # The back end has given the other host other units.
        for volume in (self.server.root, self.data):
            row = self.cloud.row(self.server, volume)
            info = json.loads(row.connection_info)
            info['data']['target_lun'] = 7
            self.cloud.change_row(self.server, volume,
                                  connection_info=json.dumps(info))
            self.cloud.cinder.change_connection(
                row.attachment_id, {'target_lun': 7})
        self.cloud.reboot(self.server)
        self.assert_all_healthy()

    def test_repair_adopts(self):
        self.adopt()
        self.check_adopted(self.server.root, self.data)


class AdoptionTest(AdoptionTestCase):

    def test_failed_rollback(self):
        self.leave_damaged(*FAILED_ROLLBACK)
        own = {volume: self.own_attachment(volume)
               for volume in (self.server.root, self.data)}
        self.adopt()
        self.check_adopted(self.server.root, self.data)
        view = self.cloud.look(self.server)
        self.assertEqual(own, {
            volume: view.block_device(volume).attachment_id
            for volume in own})
        entry, = self.journal()
        self.assertEqual(('done', 'repair', {'adopt'}), (
            entry.outcome, entry.record['trigger'],
            {action['kind'] for action in entry.record['actions']}))
        # Nova goes on with what the mapping has taken over.
        self.cloud.reboot(self.server)
        self.assert_all_healthy()
        self.cloud.detach(self.server, self.data)
        self.wait_until_quiet()
        self.assertTrue(self.state().disks['data'].is_free())

    def test_interrupted_live_migration(self):
        self.leave_damaged('live-hypervisor', Fault(DEAD_BEFORE, 1, _DELETE))
        self.adopt()
        self.check_adopted(self.server.root, self.data)

    def test_attachment_of_other_host_beside_healthy_one(self):
        """Without an outage for a record of another host."""
        self.leave_damaged('live', Fault(REFUSED, 1, _DELETE))
        self.server = self.moved(self.server)
        self.assertEqual('there', self.damaged.host)
        adoption.carry_out(
            self.cloud.nova.computes[THERE].manager, self.server.id)
        self.check_adopted()

    def moved(self, server):
        return aftermath.dataclasses.replace(server, host=THERE)

    def test_attachment_that_failed_destination_has_left(self):
        self.leave_damaged('live', Fault(LOST, 1, 'POST /attachments$'))
        volumes = {'root': self.server.root, 'data': self.data}
        name, = (name for name, disk in self.damaged.disks.items()
                 if disk.volume == 'attaching')
        self.adopt()
        self.check_adopted(volumes[name])

    def test_healthy_server_stays_as_it_is(self):
        self.server = self.healthy_server(disks=1)
        self.start_recording()
        self.assertEqual((), self.adopt().due)
        self.assertEqual([], self.changes())

    def test_crash_after_row_is_ended_by_next_run(self):
        self.leave_damaged(*FAILED_ROLLBACK)
        with fixtures.MockPatch(
                'nova_bdm_cleanup.openstack.cinder.Cinder.delete_attachment',
                side_effect=recorder.Crash):
            self.assertRaises(recorder.Crash, self.adopt)
        self.start_recording()
        self.adopt()
        self.check_disks()
        self.check_disks_of_audit()

    def test_crash_before_row_is_ended_by_next_run(self):
        self.leave_damaged(*FAILED_ROLLBACK)
        with fixtures.MockPatch(
                'nova_bdm_cleanup.node.instance.NovaInstance._take',
                side_effect=recorder.Crash):
            self.assertRaises(recorder.Crash, self.adopt)
        self.adopt()
        self.check_adopted(self.server.root, self.data)


class RebootTest(AdoptionTestCase):
    """In a hard reboot they are adopted before the guest goes off."""

    def test_guest_comes_back_by_the_same_attachments(self):
        """Another one would leave the device of the former one behind."""
        self.leave_damaged(*FAILED_ROLLBACK)
        own = {volume: self.own_attachment(volume)
               for volume in (self.server.root, self.data)}
        self.cloud.reboot(self.server)
        self.assert_all_healthy()
        view = self.cloud.look(self.server)
        self.assertEqual(own, {
            volume: view.block_device(volume).attachment_id
            for volume in own})
        self.assertEqual(set(own), {
            line.volume for line in self.log_lines(self.server, 'adopted')})
        self.assertEqual([], self.log_lines(self.server, 'reconnected'))
        entry, = self.journal()
        self.assertEqual(('done', 'before_reboot'), (
            entry.outcome, entry.record['trigger']))
        self.check_disks_of_audit()

    def test_refused_delete_is_ended_by_next_reboot(self):
        self.leave_damaged(*FAILED_ROLLBACK)
        self.cloud.proxy.on('DELETE', '/attachments/', status(500))
        self.cloud.reboot(self.server)
        state = self.state()
        for name in ('root', 'data'):
            self.assertEqual('attached here', state.disks[name].row)
            self.assertIn('here', state.disks[name].guests)
        self.cloud.proxy.clear()
        self.cloud.reboot(self.server)
        self.assert_all_healthy()


class ClaimedTest(AdoptionTestCase):
    """A task state keeps Nova's API from beginning anything meanwhile."""

    def setUp(self):
        super().setUp()
        self.leave_damaged('live-hypervisor', Fault(DEAD_BEFORE, 1, _DELETE))
        self.assertEqual('active', self.damaged.status)

    def in_the_middle(self, action):
        """Do something before the first attachment is deleted."""
        delete = Cinder.delete_attachment

        def act_and_delete(cinder, *args, **kwargs):
            action()
            return delete(cinder, *args, **kwargs)

        return fixtures.MockPatchObject(
            Cinder, 'delete_attachment', act_and_delete)

    def test_live_migration_does_not_begin_meanwhile(self):
        refused = []

        def migrate():
            refused.append(self.assertRaises(
                aftermath.fixture.APIError, self.begin, self.server,
                live_migration(THERE)).status)

        with self.in_the_middle(migrate):
            self.adopt()
        self.assertEqual([409, 409], refused)
        self.check_adopted(self.server.root, self.data)

    def test_nova_compute_that_dies_goes_on_at_its_start(self):
        def die():
            raise recorder.Crash

        # A process that has died releases nothing.
        with self.in_the_middle(die), fixtures.MockPatchObject(
                NovaInstance, 'release'):
            self.assertRaises(recorder.Crash, self.adopt)
        self.assertEqual('migrating', self.state().task_state)
        self.cloud.restart_compute(HERE)
        self.wait_until(lambda: not self.state().problems())
        self.check_disks_of_audit()

    def test_task_state_that_was_reset_ends_it(self):
        def reset():
            self.cloud.change(self.server, task_state=None)

        with self.in_the_middle(reset):
            plan = self.adopt()
        self.assertEqual(1, len(plan.due))
        self.assertIn(Reason.MOVE_LOST, {f.withheld for f in plan.findings})


class DifferingTest(AdoptionTestCase):
    """If one party does not agree, nothing is done, and it is said which."""

    def setUp(self):
        super().setUp()
        self.leave_damaged(*FAILED_ROLLBACK)

    def check_differs(self, *parties: str) -> str:
        plan = self.adopt()
        differing = self.differing(plan)
        self.assertEqual(set(parties), set(differing))
        self.assertNotIn(self.data, {f.volume_id for f in plan.due})
        disk = self.state().disks['data']
        self.assertEqual(self.damaged.disks['data'].row, disk.row)
        return ' '.join(differing.values())

    def test_cinder_shows_no_attachment_here(self):
        self.cinder.attachments.delete(self.own_attachment(self.data))
        self.damaged = self.state()
        self.check_differs('Cinder', 'kernel', 'guest')

    def test_cinder_shows_two_attachments_here(self):
        """A member of the project has forged one."""
        forged = self.cloud.create_attachment(
            self.server, self.data, by=self.cloud.owner, host=HERE,
            initiator='iqn.2026-01.test:forged')
        before = self.cloud.attachments(self.data)
        words = self.check_differs('Cinder', 'kernel', 'guest')
        self.assertIn(forged, words)
        self.assertEqual(before, self.cloud.attachments(self.data))

    def test_cinder_names_another_address(self):
        """A member has forged the only attachment to this host."""
        own = self.own_attachment(self.data)
        self.cloud.cinder.change_connection(own, {'target_lun': 7})
        self.check_differs('kernel', 'guest')

    def test_address_is_that_of_a_device_of_a_neighbour(self):
        neighbour = self.create_server(
            aftermath.fixture.Disk(at_boot=True), name='neighbour', host=HERE)
        data = self.cloud.row(neighbour, neighbour.volumes[0])
        data = aftermath.json.loads(data.connection_info)['data']
        self.cloud.cinder.change_connection(
            self.own_attachment(self.data),
            {key: data[key] for key in ('target_iqn', 'target_lun')})
        words = self.check_differs('guest')
        self.assertIn('another one', words)

    def test_kernel_has_no_device(self):
        for host in (HERE, THERE):
            self.cloud.nova.connected[host].pop(self.data, None)
        self.check_differs('kernel', 'guest')

    def test_guest_has_no_such_disk(self):
        domain = self.cloud.domain(self.server)
        domain._def['devices']['disks'] = [
            disk for disk in domain._def['devices']['disks']
            if self.data not in (disk['source'] or '')]
        self.check_differs('guest')

    def test_guest_is_being_migrated(self):
        job = libvirt_guest.JobInfo(type=1)
        with fixtures.MockPatchObject(
                libvirt_guest.Guest, 'get_job_info', lambda guest: job):
            words = self.check_differs('guest')
        self.assertIn('migrated', words)

    def test_server_has_a_task(self):
        self.cloud.change(self.server, task_state='migrating')
        words = self.check_differs('Nova')
        self.assertIn('migrating', words)

    def test_migration_is_open(self):
        objects.Migration(
            self.cloud.nova.context(), instance_uuid=self.server.id,
            source_compute=HERE, dest_compute=THERE,
            migration_type='live-migration', status='preparing').create()
        words = self.check_differs('Nova')
        self.assertIn('preparing', words)
        # Its nova-compute has been restarted.
        operations.PROCESS_BEGAN = aftermath_now()
        self.start_recording()
        self.adopt()
        self.check_adopted(self.server.root, self.data)

    def test_administrator_has_locked_the_server(self):
        self.cloud.change(self.server, locked=True, locked_by='admin')
        plan = self.adopt()
        self.assertEqual((), plan.due)
        self.check_unchanged()

    def test_cinder_is_silent_between_two_looks(self):
        proxy = self.cloud.proxy
        # The first look at what is not in order takes two.
        proxy.on('GET', '/attachments/detail', status(503), nth=3)
        plan = self.adopt()
        self.assertEqual((), plan.due)
        proxy.clear()
        self.check_unchanged()


class GuestElsewhereTest(AdoptionTestCase):

    def test_guest_that_runs_on_other_host(self):
        """nova-compute dies before the server is the other host's."""
        self.leave_damaged(
            'live', Fault(DEAD_BEFORE, 1, 'disconnect', CALL, HERE))
        self.assertIn(('there', True), self.damaged.guests)
        plan = self.adopt()
        self.assertEqual((), plan.due)
        self.check_unchanged()
        self.assertEqual({'guest'}, {'guest'} & set(self.differing(plan)))

    def test_server_of_other_host(self):
        self.leave_damaged(*FAILED_ROLLBACK)
        self.assertRaises(
            adoption.NotHere, adoption.carry_out,
            self.cloud.nova.computes[THERE].manager, self.server.id)
        self.check_unchanged()


def aftermath_now():
    return aftermath.fixture.datetime.datetime.now(
        aftermath.fixture.datetime.timezone.utc)


class AtOnceTest(AdoptionTestCase):
    """With the plugin on the source these states do not occur."""

    def switch_plugin_off(self) -> None:
        """Play the operation with the plugin."""

    def check_at_once(self, operation: str, *faults: Fault) -> None:
        self.leave(operation, *faults)
        self.wait_until(lambda: not {*self.state().problems()} - {'ERROR'})
        self.check_disks()
        self.assertNotEqual([], self.log_lines(self.server, 'adopted'))
        entry, = self.journal()
        self.assertEqual('rollback', entry.record['trigger'])

    def test_failed_rollback(self):
        self.set_options(triggers=[])
        self.check_at_once(*FAILED_ROLLBACK)

    def test_live_migration_that_nova_gives_up_at_its_start(self):
        self.set_options(triggers=[])
        self.check_at_once(
            'live-hypervisor', Fault(DEAD_BEFORE, 1, _DELETE))

    def test_nothing_is_done_without_the_option(self):
        self.set_options(reconnect=False)
        before = self.leave(*FAILED_ROLLBACK)
        self.wait_until(lambda: bool(self.log_lines(
            self.server, 'withheld')))
        self.assertEqual(before, self.state())
        self.assertEqual([], self.journal())

    def test_nothing_is_done_in_mode_observe(self):
        self.set_options(mode='observe')
        before = self.leave(*FAILED_ROLLBACK)
        self.assertEqual([], self.log_lines(self.server))
        self.assertEqual(before, self.state())
