# SPDX-License-Identifier: Apache-2.0
"""Connections that Cinder gives this host, and how long they count."""

from __future__ import annotations

import threading

import fixtures
from nova.virt.libvirt.driver import LibvirtDriver

from nova_bdm_cleanup.node import connections
from nova_bdm_cleanup.openstack import connection_info
from nova_bdm_cleanup.tests.cloud import fixture, proxy, recorder
from nova_bdm_cleanup.tests.functional import moving, scenario


def address_of(volume):
    """Return the address that Cinder's driver gives to a volume."""
    return (f'iqn.2026-01.test:{volume}', '1')


class ConnectionsTestCase(scenario.ScenarioTestCase):

    ARGUMENTS = {'plugin_options': {'mode': 'observe'}}

    @staticmethod
    def under_way(volume, shown=()):
        """Return what is under way of a volume.

        The boot of a server that was copied is remembered, too.
        """
        connections.forget_shown(shown, ())
        return [each for each in connections.given()
                if each.volume_id == volume]

    def look_before(self, party, what, subject, volume):
        """Look at what is under way just before a step of nova-compute.

        :returns: a list, which then has that
        """
        seen = []
        self.cloud.recorder.before(
            party, what, lambda: seen.extend(self.under_way(volume)), subject)
        return seen

    def shown(self, server):
        """Return what the rows of a server show."""
        return [(server.id, address)
                for row in self.cloud.nova.block_devices(server.id)
                if row.connection_info and not row.deleted
                for address in connection_info.addresses_in(
                    connection_info.parse_connection_info(row.connection_info))]

    def given(self, server, volume, attachment=None):
        if attachment is None:
            found, = [each for each in self.cloud.attachments(volume)
                      if each.server_id == server.id]
            attachment = found.id
        return connections.Given(server.id, volume, attachment,
                                 frozenset([address_of(volume)]))

    def check_shown(self, server, volume):
        """Check that the rows show what Cinder gave, and it is forgotten."""
        self.assertNotEqual([], self.under_way(volume))
        self.assertEqual([], self.under_way(volume, self.shown(server)))


class AttachTest(ConnectionsTestCase):

    def test_attach_is_under_way_until_the_row_shows_it(self):
        server = self.create_server()
        volume = self.cloud.volume()
        connecting = self.look_before(recorder.HOST, 'connect', volume, volume)
        plugging = self.look_before(
            recorder.GUEST, 'attach device', server.id, volume)
        self.cloud.attach(server, volume)
        expected = [self.given(server, volume)]
        self.assertEqual(expected, connecting)
        self.assertEqual(expected, plugging)
        self.check_shown(server, volume)

    def test_boot_is_under_way_until_the_row_shows_it(self):
        self.cloud.through_api = True
        volume = self.cloud.volume()
        seen = self.look_before(recorder.HOST, 'connect', volume, volume)
        server = self.create_server(
            fixture.Disk(volume=volume, at_boot=True))
        self.assertEqual([self.given(server, volume)], seen)
        self.check_shown(server, volume)

    def test_failed_attach_is_forgotten(self):
        server = self.create_server()
        volume = self.cloud.volume()
        seen = self.look_before(recorder.HOST, 'connect', volume, volume)
        self.cloud.recorder.before(
            recorder.HOST, 'connect', recorder.fail(ValueError()), volume)
        self.assertRaises(fixture.APIError, self.cloud.attach, server, volume)
        self.assertEqual([address_of(volume)], [
            address for given in seen for address in given.addresses])
        self.assertEqual([], self.under_way(volume))

    def test_failed_attach_stays_if_cinder_keeps_the_attachment(self):
        server = self.create_server()
        volume = self.cloud.volume()
        self.cloud.proxy.on('DELETE', '/attachments/', proxy.status(503))
        self.cloud.recorder.before(
            recorder.HOST, 'connect', recorder.fail(ValueError()), volume)
        self.assertRaises(fixture.APIError, self.cloud.attach, server, volume)
        self.assertEqual([self.given(server, volume)],
                         self.under_way(volume))
        self.cloud.proxy.clear()

    def test_detach_forgets(self):
        server = self.create_server()
        volume = self.cloud.volume()
        self.cloud.attach(server, volume)
        self.assertNotEqual([], self.under_way(volume))
        self.cloud.detach(server, volume)
        self.assertEqual([], self.under_way(volume))

    def test_swap_is_under_way_until_the_row_shows_it(self):
        server = self.create_server(scenario.BOOT_DISK)
        old, new = server.volumes[0], self.cloud.volume()
        seen = self.look_before(recorder.HOST, 'connect', new, new)
        self.cloud.swap(server, old, new)
        given, = seen
        self.assertEqual(
            (server.id, new, {address_of(new)}),
            (given.server, given.volume_id, given.addresses))
        self.assertEqual([], self.under_way(old))


class WaitTest(ConnectionsTestCase):
    """A disconnect from the address that Cinder gives in the meantime."""

    def test_attach_waits_for_the_disconnect_of_its_address(self):
        server = self.create_server()
        volume = self.cloud.volume()
        announced, seen = threading.Event(), []

        def disconnect():
            with connections.disconnecting(frozenset([address_of(volume)])):
                announced.set()
                self.wait_until(lambda: bool(self.under_way(volume)))
                seen.append('disconnected')

        disconnecting = threading.Thread(target=disconnect)

        def begin():
            disconnecting.start()
            self.assertTrue(announced.wait(fixture.TIMEOUT))

        self.cloud.recorder.before(recorder.REQUEST, 'PUT', begin,
                                   '/attachments/')
        self.cloud.recorder.before(
            recorder.HOST, 'connect', lambda: seen.append('connect'), volume)
        self.cloud.attach(server, volume)
        disconnecting.join(fixture.TIMEOUT)
        self.assertEqual(['disconnected', 'connect'], seen)


class StartTest(moving.MoveTestCase):
    """A guest that is started with a disk that Cinder does not connect."""

    def check_attach_waits(self, server, held, begin):
        """Check that an attach to a neighbour waits for a start.

        :param held: the step of the start that waits
        :param begin: begins the start
        """
        neighbour = self.healthy_server(root='image', disks=0)
        volume = self.cloud.volume()
        begin()
        held.wait_until_reached()
        waiting, of_others = threading.Event(), connections._of_others

        def look(threads):
            waiting.set()
            return of_others(threads)

        self.useFixture(fixtures.MockPatchObject(
            connections, '_of_others', look))
        self.cloud.request(
            'POST', f'/servers/{neighbour.id}/os-volume_attachments',
            {'volumeAttachment': {'volumeId': volume}})
        self.assertTrue(waiting.wait(fixture.TIMEOUT))
        self.assertEqual(['reserved'], [
            each.status for each in self.cloud.attachments(volume)])
        held.end()
        self.cloud.cinder.wait(volume, 'in-use')
        self.cloud.wait_until_idle(server)

    def test_attach_waits_for_a_reboot(self):
        server = self.healthy_server(disks=0)
        self.cloud.lose_attachment(server, server.root)
        self.check_attach_waits(
            server, self.hold(LibvirtDriver, 'reboot'),
            lambda: self.begin(server, {'reboot': {'type': 'HARD'}}))

    def test_attach_waits_for_a_start(self):
        server = self.healthy_server(disks=0)
        self.cloud.stop(server)
        self.cloud.lose_attachment(server, server.root)
        self.check_attach_waits(
            server, self.hold(LibvirtDriver, 'power_on'),
            lambda: self.begin(server, {'os-start': None}))


class MoveTest(ConnectionsTestCase):

    ARGUMENTS = {
        'hosts': (moving.HERE, moving.THERE), 'casts': True,
        'plugin_options': {'mode': 'observe'}}

    def test_live_migration_is_under_way_before_its_guest(self):
        server = self.create_server(scenario.BOOT_DISK, host=moving.HERE)
        volume, = server.volumes
        old, = self.cloud.attachments(volume)
        seen = self.look_before(recorder.HOST, 'connect', volume, volume)
        self.cloud.act(server, moving.live_migration(moving.THERE),
                       by=self.cloud.admin)
        new, = self.cloud.attachments(volume)
        self.assertNotEqual(old.id, new.id)
        self.assertEqual([self.given(server, volume)], seen)
        self.check_shown(server, volume)

    def test_resize_is_under_way_before_its_guest(self):
        server = self.create_server(scenario.BOOT_DISK, host=moving.HERE)
        volume, = server.volumes
        seen = self.look_before(recorder.HOST, 'connect', volume, volume)
        self.cloud.act(server, {'migrate': None}, by=self.cloud.admin)
        self.assertEqual([self.given(server, volume)], seen)
        self.check_shown(server, volume)
