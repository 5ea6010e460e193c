# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""The cloud itself: does it behave, and does it break as asked."""

from __future__ import annotations

import time

from cinderclient import exceptions
from keystoneauth1 import exceptions as ksa_exceptions
import requests
import testtools

from nova_bdm_cleanup.tests.cloud import fixture
from nova_bdm_cleanup.tests.cloud import identity
from nova_bdm_cleanup.tests.cloud import proxy
from nova_bdm_cleanup.tests.cloud import recorder
from nova_bdm_cleanup.tests.functional import base


class _CloudTestCase(base.FunctionalTestCase):

    THROUGH_API = True


class HealthyTest(_CloudTestCase):

    def test_hard_reboot_keeps_volumes(self):
        server = self.cloud.server(
            fixture.Disk(), fixture.Disk(multiattach=True, tag='data'),
            fixture.Disk(at_boot=True), root='volume')
        volumes = (server.root, *server.volumes)
        self.cloud.forget()
        self.cloud.reboot(server)
        view = self.cloud.look(server)
        self.assertEqual('ACTIVE', view.status)
        for volume in volumes:
            self.assert_healthy(view, volume)
        self.assertEqual('data', view.block_device(server.volumes[1]).tag)
        self.assertEqual(len(volumes), len(view.disks))
        self.assert_order(
            self.cloud.timeline(server.id, server.root),
            (recorder.GUEST, 'power off'), (recorder.HOST, 'disconnect'),
            (recorder.HOST, 'connect'), (recorder.GUEST, 'power on'))
        self.assertEqual('reboot', view.actions[-1].action)

    def test_volumes_that_nova_makes(self):
        server = self.cloud.server(
            fixture.Disk(source='image'), fixture.Disk(source='blank'),
            fixture.Disk(source='snapshot'))
        view = self.cloud.look(server)
        self.assertEqual(
            ['image', 'blank', 'snapshot'],
            [view.block_device(volume).source_type
             for volume in server.volumes])
        for volume in server.volumes:
            self.assert_healthy(view, volume)

    def test_detach(self):
        server = self.cloud.server(fixture.Disk())
        volume, = server.volumes
        self.cloud.detach(server, volume)
        view = self.cloud.look(server)
        self.assert_gone(view, volume)
        self.assertIsNotNone(view.removed_block_device(volume))
        self.assertEqual('available', view.volume_status(volume))
        self.assertEqual(
            ['terminate_connection', 'remove_export'],
            [call['call'] for call in
             self.cloud.cinder.driver_calls(volume)][-2:])

    def test_soft_reboot(self):
        server = self.cloud.server(fixture.Disk())
        self.cloud.forget()
        self.cloud.reboot(server, hard=False)
        self.assertEqual('ACTIVE', self.cloud.look(server).status)
        self.assertNotIn(
            'undefine', [event.what for event in self.cloud.timeline()])

    def test_two_servers_share_a_volume(self):
        first = self.cloud.server(fixture.Disk(multiattach=True))
        second = self.cloud.server()
        volume, = first.volumes
        self.cloud.attach(second, volume)
        for server in (first, second):
            self.assert_healthy(self.cloud.look(server), volume)
        self.assertEqual(2, len(self.cloud.attachments(volume)))


class IdentityTest(_CloudTestCase):

    def test_strangers_see_nothing(self):
        server = self.cloud.server(fixture.Disk())
        error = self.assertRaises(
            fixture.APIError, self.cloud.reboot, server,
            by=self.cloud.stranger)
        self.assertEqual(404, error.status)

    def test_user_token_reaches_cinder(self):
        server = self.cloud.server()
        self.cloud.forget()
        self.cloud.attach(server, self.cloud.volume())
        for request in self.cloud.proxy.requests:
            self.assertEqual(self.cloud.owner, request.caller)
            self.assertTrue(request.has_service_token)

    def test_cinder_asks_nova_before_it_lets_a_user_delete(self):
        server = self.cloud.server(fixture.Disk())
        attachment, = self.cloud.attachments(server.volumes[0])
        as_user = self.cloud.cinder.client(self.cloud.owner)
        error = self.assertRaises(
            exceptions.ClientException, as_user.attachments.delete,
            attachment.id)
        self.assertEqual(409, error.code)
        # One that Nova does not know may go.
        left = self.cloud.leave_attachment(server, self.cloud.volume())
        as_user.attachments.delete(left)

    def test_service_token_needs_the_role(self):
        client = self.cloud.cinder.client(self.cloud.owner, service=True)
        client.volumes.list()
        with testtools.ExpectedException(exceptions.Unauthorized):
            impostor = self.cloud.cinder.client(self.cloud.owner)
            impostor.client.session.auth._service = identity.Caller(
                'nova', 'service')
            impostor.volumes.list()


class ConfigurationTest(_CloudTestCase):

    CLOUD = None

    def test_without_service_token(self):
        cloud = self.start_cloud(service_token=False)
        cloud.server(fixture.Disk())
        self.assertFalse(any(request.has_service_token
                             for request in cloud.proxy.requests))

    def test_without_credentials_of_its_own(self):
        cloud = self.start_cloud(cinder_credentials=False)
        server = cloud.server(fixture.Disk())
        cloud.reboot(server)
        self.assert_healthy(cloud.look(server), server.volumes[0])

    def test_two_hosts(self):
        cloud = self.start_cloud(hosts=('compute1', 'compute2'))
        for host in ('compute1', 'compute2'):
            server = cloud.server(fixture.Disk(), host=host)
            self.assertEqual(host, server.host)
            view = cloud.look(server)
            self.assert_healthy(view, server.volumes[0])
            info = view.block_device(server.volumes[0]).connection_info
            self.assertEqual(host, info['data']['initiator_host'])


class BreakTest(_CloudTestCase):

    def test_lose_attachment(self):
        server = self.cloud.server(fixture.Disk(), fixture.Disk())
        lost, kept = server.volumes
        self.cloud.lose_attachment(server, lost)
        view = self.cloud.look(server)
        self.assertEqual('available', view.volume_status(lost))
        self.assertEqual((), view.attachments_of(lost))
        self.assertIsNotNone(view.block_device(lost))
        self.assertTrue(view.has_disk(lost))
        self.assertIn(lost, view.connected)
        self.assert_healthy(view, kept)

    def test_lose_volume(self):
        server = self.cloud.server(fixture.Disk())
        volume, = server.volumes
        self.cloud.lose_volume(server, volume)
        view = self.cloud.look(server)
        self.assertIsNone(view.volume_status(volume))
        self.assertIsNotNone(view.block_device(volume))
        self.assertTrue(view.has_disk(volume))

    def test_reset_status(self):
        server = self.cloud.server(fixture.Disk())
        volume, = server.volumes
        self.cloud.reset_status(volume)
        view = self.cloud.look(server)
        self.assertEqual('available', view.volume_status(volume))
        self.assertEqual(1, len(view.attachments_of(volume)))

    def test_give_away(self):
        server = self.cloud.server(fixture.Disk())
        volume, = server.volumes
        other = self.cloud.give_away(server, volume)
        view = self.cloud.look(server)
        self.assertIsNotNone(view.block_device(volume))
        self.assertEqual((), view.attachments_of(volume))
        self.assertEqual(
            [other.id], [attachment.server_id for attachment in
                         view.volumes[volume].attachments])
        self.assert_healthy(self.cloud.look(other), volume)

    def test_leave_attachments(self):
        server = self.cloud.server()
        reserved, connected, legacy = (self.cloud.volume() for _ in range(3))
        self.cloud.leave_attachment(server, reserved, connected=False)
        self.cloud.leave_attachment(server, connected)
        self.cloud.leave_legacy_attachment(server, legacy)
        view = self.cloud.look(server)
        found = {each.volume_id: (each.status, each.is_connected)
                 for each in view.attachments}
        self.assertEqual({reserved: ('reserved', False),
                          connected: ('attached', True),
                          legacy: ('attached', False)}, found)
        self.assertEqual('reserved', view.volume_status(reserved))
        self.assertEqual('in-use', view.volume_status(legacy))

    def test_several_attachments_of_one_volume(self):
        server = self.cloud.server(fixture.Disk())
        volume, = server.volumes
        self.cloud.leave_attachment(server, volume, host='compute9')
        self.cloud.leave_attachment(server, volume, connected=False)
        self.assertEqual(3, len(self.cloud.look(server).attachments))

    def test_metadata(self):
        volume = self.cloud.volume()
        server = self.cloud.server()
        self.cloud.attach(server, volume)
        self.cloud.set_metadata(volume, bdm_cleanup='keep')
        self.assertEqual(
            {'bdm_cleanup': 'keep'},
            self.cloud.look(server).volumes[volume].metadata)

    def test_another_region(self):
        server = self.cloud.server(fixture.Disk())
        self.cloud.lose_cinder()
        error = self.assertRaises(
            fixture.APIError, self.cloud.attach, server, server.volumes[0])
        self.assertEqual(404, error.status)
        self.cloud.find_cinder()
        self.cloud.detach(server, server.volumes[0])

    def test_driver_fault(self):
        server = self.cloud.server(fixture.Disk())
        volume, = server.volumes
        self.cloud.cinder.break_driver('terminate_connection', volume)
        self.assertRaises(exceptions.ClientException,
                          self.cloud.lose_attachment, server, volume)
        self.cloud.cinder.mend_driver()
        self.cloud.lose_attachment(server, volume)


class CrashTest(_CloudTestCase):

    def test_restart_resumes_a_reboot(self):
        server = self.cloud.server(fixture.Disk())
        self.cloud.interrupt_reboot(server)
        self.cloud.forget()
        self.cloud.restart_compute()
        view = self.cloud.look(server)
        self.assertEqual(('ACTIVE', None), (view.status, view.task_state))
        self.assertIn('power on', [event.what for event in
                                   self.cloud.timeline(server.id)])
        self.assert_healthy(view, server.volumes[0])

    def test_crash_leaves_everything_as_it_was(self):
        server = self.cloud.server(fixture.Disk())
        volume, = server.volumes
        self.cloud.recorder.before(recorder.HOST, 'disconnect',
                                   recorder.crash)
        self.cloud.reboot_until_crash(server)
        view = self.cloud.look(server)
        self.assertEqual('reboot_started_hard', view.task_state)
        self.assertFalse(view.is_running)
        self.assertIn(volume, view.connected)
        self.cloud.restart_compute()
        view = self.cloud.look(server)
        self.assertEqual(('ACTIVE', True), (view.status, view.is_running))
        self.assert_healthy(view, volume)


class ProxyTest(_CloudTestCase):

    def setUp(self):
        super().setUp()
        self.volume = self.cloud.volume()
        self.client = self.cloud.cinder.client(
            self.cloud.owner, url=self.cloud.proxy.url)
        self.cloud.forget()

    def test_requests_are_recorded(self):
        self.client.volumes.get(self.volume)
        request, = self.cloud.proxy.requests
        self.assertEqual(
            ('GET', f'/v3/{self.cloud.owner.project}/volumes/{self.volume}',
             200, False),
            (request.method, request.path, request.status,
             request.has_service_token))
        self.assertIn('3.60', request.microversion)

    def test_nth_request(self):
        self.cloud.proxy.on('GET', '/volumes/', proxy.status(503), nth=2)
        self.client.volumes.get(self.volume)
        error = self.assertRaises(exceptions.ClientException,
                                  self.client.volumes.get, self.volume)
        self.assertEqual(503, error.code)
        self.client.volumes.get(self.volume)

    def test_delay(self):
        self.cloud.proxy.on('GET', '/volumes/', proxy.delay(0.3))
        started = time.monotonic()
        self.client.volumes.get(self.volume)
        self.assertGreaterEqual(time.monotonic() - started, 0.3)

    def test_broken_answers(self):
        for action in (proxy.reset(), proxy.lose_answer(), proxy.truncate(),
                       proxy.garbage(), proxy.html(), proxy.status(500)):
            self.cloud.proxy.on('GET', '/volumes/', action)
            # Which one depends on the layer that notices.
            self.assertRaises(
                (exceptions.ClientException, ksa_exceptions.ClientException,
                 AttributeError, TypeError),
                self.client.volumes.get, self.volume)

    def test_lost_answer_of_a_request_that_was_done(self):
        self.cloud.proxy.on('DELETE', '/volumes/', proxy.lose_answer())
        self.assertRaises(ksa_exceptions.ConnectFailure,
                          self.client.volumes.delete, self.volume)
        self.cloud.cinder.wait_deleted(self.volume)

    def test_hang_ends_with_the_cloud(self):
        rule = self.cloud.proxy.on('GET', '/volumes/', self.cloud.proxy.hang)
        self.assertRaises(
            requests.Timeout, requests.get,
            f'{self.cloud.proxy.url}/v3/volumes/{self.volume}', timeout=0.3)
        self.assertEqual(1, rule.matched)

    def test_cut_list(self):
        self.cloud.volume()
        self.cloud.proxy.on('GET', '/volumes/detail', proxy.keep_first(1))
        self.assertEqual(1, len(self.client.volumes.list()))
        self.cloud.proxy.clear()
        self.assertEqual(2, len(self.client.volumes.list()))

    def test_rewrite(self):
        def lie(body):
            body['volume']['status'] = 'error'
            return body

        self.cloud.proxy.on('GET', '/volumes/', proxy.rewrite(lie))
        self.assertEqual('error',
                         self.client.volumes.get(self.volume).status)

    def test_hooks(self):
        order = []
        self.cloud.proxy.on('GET', '/volumes/', proxy.after(
            lambda: order.append(len(self.cloud.proxy.requests))))
        self.client.volumes.get(self.volume)
        self.assertEqual([1], order)


class AnewTest(_CloudTestCase):
    """What every test relies upon: copies, and a cloud that looks new."""

    CLOUD = {'plugin': True, 'hosts': ('compute1', 'compute2')}
    DISKS = (fixture.Disk(tag='data'), fixture.Disk(at_boot=True),
             fixture.Disk(multiattach=True))

    def _described(self, server: fixture.Server) -> str:
        """Everything about a server, in words that fit its copies too."""
        view = self.cloud.look(server)
        words = {server.id: 'server',
                 self.cloud.domain(server).name(): 'guest'}
        for row in view.block_devices:
            words[row.uuid] = f'row {row.device}'
            if row.volume_id:
                words[row.volume_id] = f'volume {row.device}'
                words[row.attachment_id] = f'attachment {row.device}'
        for action in view.actions:
            words[action.request_id] = 'request'
        described = [
            *map(repr, (*view.block_devices, *view.disks, *view.attachments,
                        *view.actions, *view.volumes.values())),
            view.status, str(view.is_running),
            *self.cloud.domain(server).XMLDesc(0).splitlines()]
        text = '\n'.join(described)
        for name, word in words.items():
            text = text.replace(name, word)
        # Cinder gives no order to what was made at once.
        return '\n'.join(sorted(text.splitlines()))

    def test_copies_are_like_originals(self):
        for root in ('image', 'volume'):
            made = []
            for self.cloud.through_api in (True, False):
                made.append(self.cloud.server(*self.DISKS, root=root,
                                              host='compute2'))
            original, copy = made
            self.assertEqual(self._described(original),
                             self._described(copy))
            view = self.cloud.look(copy)
            for volume in copy.volumes:
                self.assert_healthy(view, volume)

    def test_copies_bear_what_originals_do(self):
        self.cloud.through_api = False
        server = self.cloud.server(*self.DISKS)
        self.cloud.reboot(server)
        self.cloud.stop(server)
        self.cloud.start(server)
        volume = self.cloud.volume()
        self.cloud.attach(server, volume)
        view = self.cloud.look(server)
        for each in (*server.volumes, volume):
            self.assert_healthy(view, each)

    def test_nothing_is_left(self):
        before = self.cloud.owner
        server = self.cloud.server(*self.DISKS)
        self.cloud.stop(server)
        self.cloud.leave_attachment(server, self.cloud.volume())
        self.cloud.proxy.on('*', '', proxy.status(500))
        self.cloud.proxy.latency = 0.1
        self.cloud.lose_cinder()
        self.cloud.recorder.before(recorder.GUEST, 'power on', recorder.crash)
        self.cloud.cinder.break_driver('create_export')
        self.cloud.switch_plugin_off()
        self.cloud.reset(restart=True)

        self.assertNotEqual(before, self.cloud.owner)
        for table in ('volumes', 'volume_attachment'):
            with self.cloud.cinder.database() as database:
                self.assertEqual([], database.execute(
                    f'SELECT * FROM {table}').fetchall())  # noqa: S608
        self.assertEqual([], self.cloud.request(
            'GET', '/servers?all_tenants=1', by=self.cloud.admin)['servers'])
        for host in self.cloud.hosts:
            self.assertEqual([], self.cloud.nova.domains(host))
        self.assertEqual([], self.cloud.timeline())
        self.assertEqual([], self.cloud.cinder.driver_calls())
        server = self.cloud.server(*self.DISKS)
        lost, *kept = server.volumes
        self.cloud.lose_attachment(server, lost)
        self.cloud.reboot(server)
        view = self.cloud.look(server)
        self.assert_gone(view, lost)
        for volume in kept:
            self.assert_healthy(view, volume)
