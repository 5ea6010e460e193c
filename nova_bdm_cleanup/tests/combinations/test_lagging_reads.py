# SPDX-License-Identifier: Apache-2.0
"""Hard reboots right after a change, while Cinder answers as before it.

A replica of Cinder's database lags, or another node of a Galera cluster.
"""

from __future__ import annotations

import dataclasses
import json
import re
import time
from typing import Any

import fixtures
from nova.virt.libvirt import driver
import testscenarios

from nova_bdm_cleanup.tests.cloud import proxy
from nova_bdm_cleanup.tests.functional import scenario

load_tests = testscenarios.load_tests_apply_scenarios

#: How long reads lag, and the option, in seconds.
LAG, SETTLE_TIME = 1.0, 4


class _Replica:
    """Cinder's records at one moment, which reads show until the lag ends.

    It ends some time after the first read, which may come late.

    :param cinder: a client that sees every project
    :param volumes: their ids
    """

    def __init__(self, cinder: Any, *volumes: str) -> None:
        self._volumes = {
            v: cinder.volumes.get(v).to_dict() for v in volumes}
        self._attachments = {
            a.id for v in volumes for a in cinder.attachments.list(
                search_opts={'all_tenants': '1', 'volume_id': v})}
        self._end: float | None = None
        #: The number of answers that were old ones.
        self.shown = 0

    def answer(self, request: proxy.Request, forward: proxy.Forward
               ) -> proxy.Answer:
        """Show old volumes, and not the attachments since; an action."""
        answer = forward()
        if self._end is None:
            self._end = time.monotonic() + LAG
        if answer.status != 200 or time.monotonic() > self._end:
            return answer
        body = json.loads(answer.body)
        before = json.dumps(body)
        if 'attachment' in body and self._is_new(body['attachment']):
            answer.status, body = 404, {
                'itemNotFound': {'code': 404, 'message': 'not found'}}
        if 'attachments' in body:
            body['attachments'] = [
                a for a in body['attachments'] if not self._is_new(a)]
        if 'volume' in body:
            body['volume'] = self._old(body['volume'])
        if 'volumes' in body:
            body['volumes'] = list(map(self._old, body['volumes']))
        self.shown += json.dumps(body) != before
        answer.body = json.dumps(body).encode()
        return answer

    def _is_new(self, record: Any) -> bool:
        return (record['volume_id'] in self._volumes
                and record['id'] not in self._attachments)

    def _old(self, record: Any) -> Any:
        return self._volumes.get(record['id'], record)


def _swap(record: driver.LibvirtDriver, guest: Any, disk: str, conf: Any,
          resize_to: int) -> None:
    """Replace a disk; the fake libvirt cannot copy."""
    guest.detach_device(guest.get_disk(disk), persistent=True)
    guest.attach_device(conf, persistent=True, live=True)


class LaggingReadsTestCase(scenario.ScenarioTestCase):

    #: A regular expression of the requests whose answers lag.
    path: str

    def setUp(self) -> None:
        super().setUp()
        self.set_options(settle_time=SETTLE_TIME)
        self.server = self.create_server(scenario.BOOT_DISK)

    def reboot_lagging(self, replica: _Replica) -> Any:
        """Reboot while reads of this kind are answered by a replica."""
        self.cloud.proxy.clear()
        self.cloud.proxy.on('GET', self.path, replica.answer)
        view = self.reboot(self.server)
        self.assertTrue(replica.shown)
        self.assertEqual([], self.journal())
        self.assertEqual([], self.changes())
        return view


class LaggingReadsTest(LaggingReadsTestCase):

    #: The requests whose answers lag.  If only those for attachments do, the
    #: volumes show that all is in order, and no attachment is read.
    scenarios = [(name, {'path': path}) for name, path in (
        ('all', '/(volumes|attachments)'),
        ('volumes', '/volumes'),
        ('lists', r'/(volumes|attachments)(/detail)?\?'))]

    def test_attached_disk_is_kept(self) -> None:
        volume = self.cloud.volume()
        replica = _Replica(self.cinder, volume)
        self.cloud.attach(self.server, volume)
        view = self.reboot_lagging(replica)
        self.assert_healthy(view, volume, *self.server.volumes)


class LaggingSwapTest(LaggingReadsTestCase):

    path = '/(volumes|attachments)'

    def test_swapped_disk_is_kept(self) -> None:
        old, = self.server.volumes
        new = self.cloud.volume()
        replica = _Replica(self.cinder, new)
        # Later releases of Nova swap volumes for Cinder only.
        self.cloud.proxy.on('GET', f'/volumes/{old}', proxy.rewrite(
            lambda body: {'volume': {**body['volume'],
                                     'migration_status': 'migrating'}}),
            nth=1)
        with fixtures.MockPatchObject(
                driver.LibvirtDriver, '_swap_volume', _swap):
            self.cloud.request(
                'PUT', f'/servers/{self.server.id}'
                f'/os-volume_attachments/{old}',
                {'volumeAttachment': {'volumeId': new}},
                by=dataclasses.replace(self.cloud.admin,
                                       project=self.cloud.owner.project))
        self.assertEqual('in-use', self.volume_status(new))
        view = self.reboot_lagging(replica)
        self.assert_healthy(view, new)


class JustDetachedTest(scenario.TwoDisks):

    def test_detached_disk_is_removed_after_a_wait(self) -> None:
        self.set_options(settle_time=SETTLE_TIME)
        self.cloud.lose_attachment(self.server, self.lost)
        view = self.reboot(self.server)
        self.check_removed(view)
        waiting, *others = self.log_lines(self.server)
        self.assertEqual(('INFO', 'waiting', self.lost), (
            waiting.level, waiting.event, waiting.volume))
        self.assertTrue(re.search(r' in [0-4]\.\d s: ', waiting.text))
        self.assertEqual(['removing', 'removed', 'finished'],
                         [line.event for line in others])
