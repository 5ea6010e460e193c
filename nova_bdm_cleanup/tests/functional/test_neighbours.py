# SPDX-License-Identifier: Apache-2.0
"""Claims of other servers: a claimed disk stays connected, and is not given.

Each test has one source of the claim only, where that is possible: the guest
of a neighbour, a row of Nova, or Cinder's answer in an operation under way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fixtures
from nova.compute import resource_tracker
from nova.virt.libvirt.driver import LibvirtDriver

from nova_bdm_cleanup.tests.cloud import proxy, recorder
from nova_bdm_cleanup.tests.functional import moving, scenario, sharing
from nova_bdm_cleanup.tests.functional.moving import HERE, THERE


class DisconnectTest(sharing.SharingTestCase):
    """The device of a disk that dangles."""

    def setUp(self):
        super().setUp()
        self.cloud.lose_attachment(self.server, self.volume)
        self.set_unit(self.server, 5)

    def check_disconnected(self):
        view = self.reboot(self.server)
        self.assert_removed(view, self.volume, 'volume-available')
        self.assertEqual(['disconnect'], self.host_steps(self.volume))

    def check_stays(self, words):
        """Check that the mapping goes, and the device stays."""
        view = self.reboot(self.server)
        self.assertIsNone(view.block_device(self.volume))
        self.assertFalse(view.has_disk(self.volume))
        self.assertEqual([], self.host_steps(self.volume))
        left, = self.log_lines(self.server, 'still-connected')
        self.assertIn(words, left.text)

    def act(self, action):
        self.cloud.act(self.neighbour, {action: None}, by=self.cloud.admin)

    def check_guest_keeps_it(self, words):
        """Check it by the guest alone: as while a server is moved away, the
        neighbour's row has the address on the other host.
        """
        self.set_unit(self.neighbour, 5)
        sharing.write_row(
            self.cloud, self.neighbour, self.theirs, target_lun=6)
        self.check_stays(words)

    def test_device_goes_if_the_neighbour_has_another_unit(self):
        self.set_unit(self.neighbour, 6)
        self.check_disconnected()

    def test_device_of_a_running_guest_stays(self):
        self.check_guest_keeps_it('has it')

    def test_device_of_a_paused_guest_stays(self):
        self.act('pause')
        self.check_guest_keeps_it('has it')

    def test_device_of_a_suspended_guest_stays(self):
        self.act('suspend')
        self.set_unit(self.neighbour, 5)
        self.check_stays('has volume %s there' % self.theirs)

    def test_names_in_the_domain_of_a_suspended_guest_claim_nothing(self):
        """Since a boot of the host they are those of other devices."""
        self.act('suspend')
        self.set_unit(self.neighbour, 5)
        sharing.write_row(
            self.cloud, self.neighbour, self.theirs, target_lun=6)
        self.check_disconnected()

    def test_device_of_a_rescued_server_stays(self):
        """Its guest does not have the disk until it is unrescued."""
        self.cloud.act(self.neighbour, {'rescue': {}}, by=self.cloud.admin)
        self.assertFalse(self.cloud.look(self.neighbour).has_disk(self.theirs))
        self.set_unit(self.neighbour, 5)
        self.check_stays('has volume %s there' % self.theirs)

    def test_device_of_a_server_that_lists_omit_stays(self):
        self.cloud.stop(self.neighbour)
        self.set_unit(self.neighbour, 5)
        self.cloud.change(
            self.neighbour, vm_state='soft-delete', hidden=True)
        self.check_stays('has volume %s there' % self.theirs)

    def test_device_goes_if_cinder_denies_the_row(self):
        self.cloud.stop(self.neighbour)
        self.set_unit(self.neighbour, 5)
        self.cloud.lose_attachment(self.neighbour, self.theirs)
        self.check_disconnected()

    def test_device_stays_if_cinder_does_not_answer_about_the_row(self):
        self.cloud.stop(self.neighbour)
        self.set_unit(self.neighbour, 5)
        row = self.cloud.row(self.neighbour, self.theirs)
        self.cloud.lose_attachment(self.neighbour, self.theirs)
        self.cloud.proxy.on(
            'GET', f'/attachments/{row.attachment_id}', proxy.status(503))
        self.check_stays('has volume %s there' % self.theirs)

    def test_device_goes_if_the_neighbour_has_moved_away(self):
        """On the other host the address is another disk's."""
        self.cloud.lose_power(self.neighbour)
        self.set_unit(self.neighbour, 5)
        self.cloud.change(self.neighbour, host='elsewhere')
        self.check_disconnected()


class AttachTest(sharing.SharingTestCase):
    """An attach or a swap of the neighbour: Nova saves the address last."""

    def setUp(self):
        super().setUp()
        # Otherwise a thread that waits for os-brick's lock, which it has
        # itself: the attach and the reboot are in one here.
        self.useFixture(fixtures.MonkeyPatch(
            'os_brick.initiator.utils.ISCSI_SUPPORTS_MANUAL_SCAN', True))
        self.new = self.cloud.volume()
        self.done = 0

    def during(self, act: Callable[[], object]) -> Callable[..., None]:
        """Return a callback that acts, and checks that the neighbour keeps
        what it has just connected.
        """
        def callback(*args: Any, **kwargs: Any) -> None:
            self.start_recording()
            act()
            self.assertEqual(1, self.cloud.nova.connected[HERE][self.new])
            self.done += 1

        return callback

    def attach(self, act):
        """Act while the disk is connected, and no row shows it."""
        self.cloud.recorder.before(
            recorder.GUEST, 'attach device', self.during(act))
        self.cloud.attach(self.neighbour, self.new)
        self.assertEqual(1, self.done)
        self.assert_healthy(self.look(self.neighbour), self.new)

    def reboot_without_the_disk(self):
        self.cloud.reboot(self.server)
        self.assertFalse(self.look(self.server).has_disk(self.volume))

    def test_kept_disk_is_not_given(self):
        sharing.give(self.cloud, self.server, self.volume, self.new)
        self.attach(self.reboot_without_the_disk)
        line, = self.log_lines(self.server, 'not-connected')
        self.assertIn('Cinder has just given it', line.text)

    def test_kept_disk_is_not_given_if_cinder_does_not_answer(self):
        sharing.give(self.cloud, self.server, self.volume, self.new)

        def reboot():
            self.silence()
            self.reboot_without_the_disk()
            self.cloud.proxy.clear()

        self.attach(reboot)

    def test_removed_disk_is_not_disconnected(self):
        sharing.give(self.cloud, self.server, self.volume, self.new)
        self.cloud.lose_attachment(self.server, self.volume)
        self.attach(self.reboot_without_the_disk)
        left, = self.log_lines(self.server, 'still-connected')
        self.assertIn('Cinder has just given it', left.text)

    def test_delete_of_a_server_does_not_disconnect(self):
        sharing.give(self.cloud, self.server, self.volume, self.new)
        self.attach(lambda: self.cloud.delete(self.server))

    def test_kept_disk_is_not_given_during_a_long_swap(self):
        """Libvirt shows the new disk only as a mirror."""
        sharing.give(self.cloud, self.server, self.volume, self.new)
        self.useFixture(fixtures.MockPatchObject(
            LibvirtDriver, '_swap_volume',
            self.during(self.reboot_without_the_disk)))
        self.cloud.swap(self.neighbour, self.theirs, self.new)
        self.assertEqual(1, self.done)


class ArrivalTest(moving.MoveTestCase):
    """A neighbour on its way to this host: it is there before its guest."""

    def setUp(self):
        super().setUp()
        self.neighbour = self.healthy_server(root='image', disks=1)
        self.theirs, = self.neighbour.volumes
        self.server = self.create_server(scenario.BOOT_DISK, host=THERE)
        self.volume, = self.server.volumes
        sharing.give(self.cloud, self.server, self.volume, self.theirs)

    def check_not_given(self, owner, name, action, is_evacuated=False):
        """Check it while the neighbour arrives.

        :param owner: the owner of the method that has to wait
        :param name: its name
        :param is_evacuated: its former host still has its disks
        """
        held = self.hold(owner, name)
        self.begin(self.neighbour, action)
        held.wait_until_reached()
        self.begin(self.server, {'reboot': {'type': 'HARD'}})
        self.wait_until(lambda: self.cloud.nova.instance(
            self.server.id).task_state is None)
        self.assertFalse(self.look(self.server).has_disk(self.volume))
        held.end()
        self.cloud.wait_until_idle(self.neighbour)
        self.check_moved(self.neighbour, None, connected_before=is_evacuated)
        line, = self.log_lines(self.server, 'not-connected')
        self.assertIn('Cinder has just given it', line.text)

    def test_live_migration_with_a_slow_port(self):
        self.check_not_given(
            LibvirtDriver, 'live_migration', moving.live_migration(THERE))

    def test_unshelve(self):
        self.shelve(self.neighbour)
        self.go_down()
        self.check_not_given(
            resource_tracker.ResourceTracker, 'instance_claim',
            {'unshelve': None})

    def test_evacuation(self):
        self.go_down()
        self.check_not_given(
            LibvirtDriver, 'spawn', moving.EVACUATION, is_evacuated=True)
