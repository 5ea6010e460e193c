# SPDX-License-Identifier: Apache-2.0
"""Tests of the cloud: its normal behaviour, and its faults on request."""

from __future__ import annotations

from cinderclient import exceptions
from keystoneauth1 import exceptions as ksa_exceptions
import requests
import testtools

from nova_bdm_cleanup.tests.cloud import (
    cinder,
    fixture,
    identity,
    proxy,
    recorder,
)
from nova_bdm_cleanup.tests.functional import base


class _CloudTestCase(base.FunctionalTestCase):

    THROUGH_API = True


class IdentityTest(_CloudTestCase):

    def test_user_deletes_attachment(self):
        server = self.cloud.server(fixture.Disk())
        attachment, = self.cloud.attachments(server.volumes[0])
        as_user = self.cloud.cinder.client(self.cloud.owner)
        error = self.assertRaises(
            exceptions.ClientException, as_user.attachments.delete,
            attachment.id)
        self.assertEqual(409, error.code)
        # Cinder deletes one that Nova does not know.
        left = self.cloud.create_attachment(server, self.cloud.volume())
        as_user.attachments.delete(left)

    def test_service_token_without_role(self):
        client = self.cloud.cinder.client(self.cloud.owner, service=True)
        client.volumes.list()
        with testtools.ExpectedException(exceptions.Unauthorized):
            impostor = self.cloud.cinder.client(self.cloud.owner)
            impostor.client.session.auth._service = identity.Caller(
                'nova', 'service')
            impostor.volumes.list()


class ProxyTest(_CloudTestCase):
    """Tests of the proxy: its faults, and the requests it records."""

    def setUp(self):
        super().setUp()
        self.volume = self.cloud.volume()
        self.client = cinder.client(self.cloud.proxy.url, self.cloud.owner)

    def test_broken_answer_raises(self):
        for action in (proxy.reset(), proxy.lose_answer(), proxy.truncate(),
                       proxy.garbage(), proxy.html(), proxy.status(500)):
            self.cloud.proxy.on('GET', '/volumes/', action)
            # The exception depends on the layer that detects it.
            self.assertRaises(
                (exceptions.ClientException, ksa_exceptions.ClientException,
                 AttributeError, TypeError),
                self.client.volumes.get, self.volume)

    def test_lost_answer_is_of_a_completed_request(self):
        self.cloud.proxy.on('DELETE', '/volumes/', proxy.lose_answer())
        self.assertRaises(ksa_exceptions.ConnectFailure,
                          self.client.volumes.delete, self.volume)
        self.cloud.cinder.wait(self.volume, None)

    def test_hang_ends_with_the_cloud(self):
        rule = self.cloud.proxy.on('GET', '/volumes/', self.cloud.proxy.hang)
        self.assertRaises(
            requests.Timeout, requests.get,
            f'{self.cloud.proxy.url}/v3/volumes/{self.volume}', timeout=0.3)
        self.assertEqual(1, rule.matched)


class ResetTest(_CloudTestCase):
    """Tests of copies, and of the reset of the cloud."""

    CLOUD = {'plugin': True, 'hosts': ('compute1', 'compute2')}
    DISKS = (fixture.Disk(tag='data'), fixture.Disk(at_boot=True),
             fixture.Disk(multiattach=True))

    def _describe(self, server: fixture.Server) -> str:
        """Return the description of a server, the same for its copies."""
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
        # Cinder does not order records created at the same time.
        return '\n'.join(sorted(text.splitlines()))

    def test_copies_equal_originals(self):
        for root in ('image', 'volume'):
            servers = []
            for self.cloud.through_api in (True, False):
                servers.append(self.cloud.server(*self.DISKS, root=root,
                                              host='compute2'))
            original, copy = servers
            self.assertEqual(self._describe(original),
                             self._describe(copy))
            self.assert_healthy(self.cloud.look(copy), *copy.volumes)

    def test_operations_on_copy(self):
        self.cloud.through_api = False
        server = self.cloud.server(*self.DISKS)
        self.cloud.reboot(server)
        self.cloud.stop(server)
        self.cloud.start(server)
        volume = self.cloud.volume()
        self.cloud.attach(server, volume)
        self.assert_healthy(self.cloud.look(server), *server.volumes, volume)

    def test_reset_removes_everything(self):
        before = self.cloud.owner
        server = self.cloud.server(*self.DISKS)
        self.cloud.stop(server)
        self.cloud.create_attachment(server, self.cloud.volume())
        self.cloud.proxy.on('*', '', proxy.status(500))
        self.cloud.proxy.latency = 0.1
        self.cloud.use_wrong_cinder()
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
        self.assert_healthy(view, *kept)
