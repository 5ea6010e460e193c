# SPDX-License-Identifier: Apache-2.0
"""Disconnects that were suppressed: their notes, and when they are done."""

from __future__ import annotations

import os
import stat
from unittest import mock

import fixtures

from nova_bdm_cleanup.node import connections, late_disconnects
from nova_bdm_cleanup.node.store import disconnects
from nova_bdm_cleanup.node.store.database import StoreError
from nova_bdm_cleanup.node.store.disconnects import SuppressedDisconnects
from nova_bdm_cleanup.tests.unit import base
from nova_bdm_cleanup.tests.unit.node import test_devices

IQN, PORTAL = test_devices.IQN, test_devices.PORTAL
WWID = 'naa.6001405abcdef'


class NotesTestCase(test_devices.DevicesTestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(base.NoSyncing())
        self.path = os.path.join(self.root, 'store', 'store')
        self.boot('first')
        self.notes = SuppressedDisconnects(self.path, 'compute1')
        self.lun('sdb')

    def boot(self, name):
        """Have the host boot."""
        path = os.path.join(self.root, 'boot_id')
        with open(path, 'w', encoding='ascii') as file:
            file.write(name + '\n')
        self.useFixture(fixtures.MockPatchObject(
            disconnects, 'BOOT_ID', path))

    def lun(self, name, wwid=WWID, unit=5, session='session1'):
        """Add a disk of an array; return its path."""
        path = self.disk(name, unit, session)
        if wwid:
            self.write('class/block/%s/device/wwid' % name, wwid)
        return path

    def info(self, path=None, **data):
        return super().info(
            path, target_portal=PORTAL, volume_id='volume', **data)

    def note(self, server='server', volume='volume', **data):
        self.notes.note(server, volume, self.info('/dev/sdb', **data))
        return self.notes.pending()


class NotesTest(NotesTestCase):

    def test_note_comes_back_without_secrets(self):
        note, = self.note(
            auth_method='CHAP', auth_username='chap', auth_password='secret',
            discovery_auth_password='secret', encrypted=True)
        self.assertEqual(('server', 'volume', {'sdb': WWID}),
                         (note.server, note.volume, note.identities))
        self.assertEqual(
            {'driver_volume_type': 'iscsi', 'data': {
                'target_iqn': IQN, 'target_lun': 5, 'target_portal': PORTAL,
                'device_path': '/dev/sdb', 'volume_id': 'volume'}},
            note.connection_info)
        with open(self.path, 'rb') as file:
            content = file.read()
        for word in (b'secret', b'CHAP', b'chap'):
            self.assertNotIn(word, content)
        self.assertEqual(0o600, stat.S_IMODE(os.stat(self.path).st_mode))

    def test_nothing_is_noted_without_a_device(self):
        self.remove('sdb')
        self.assertEqual((), self.note())
        self.assertFalse(os.path.exists(self.path))

    def test_device_without_identity_is_not_noted(self):
        """Its address would also be that of the next volume."""
        self.lun('sdc', wwid=None, session='session2')
        self.assertEqual((), self.note())

    def test_map_is_noted_by_its_uuid(self):
        self.mapper('dm-3', 'mpath-3600', 'sdb')
        note, = self.note()
        self.assertEqual({'sdb': WWID, 'dm-3': 'mpath-3600'},
                         note.identities)

    def test_notes_of_an_earlier_boot_go(self):
        self.note()
        self.boot('second')
        self.assertEqual((), self.notes.pending())
        self.boot('first')
        self.assertEqual((), self.notes.pending())

    def test_done_note_goes(self):
        first, = self.note()
        _, second = self.note('other')
        self.notes.done(first)
        self.assertEqual((second,), self.notes.pending())

    def test_disk_is_noted_once(self):
        self.assertEqual(1, len(self.note()))
        self.assertEqual(1, len(self.note()))

    def test_volume_may_be_unknown(self):
        note, = self.note(volume=None)
        self.assertIsNone(note.volume)
        self.notes.done(note)
        self.assertEqual((), self.notes.pending())

    def test_notes_of_another_host_stay(self):
        other = SuppressedDisconnects(self.path, 'compute2')
        self.note()
        self.assertEqual((), other.pending())
        other.note('server', 'volume', self.info('/dev/sdb'))
        other.done(other.pending()[0])
        self.assertEqual(1, len(self.notes.pending()))

    def test_oldest_notes_go(self):
        self.useFixture(fixtures.MockPatchObject(
            disconnects, '_MAX_NOTES', 3))
        for number in range(5):
            self.note('server-%d' % number)
        self.assertEqual(['server-2', 'server-3', 'server-4'], [
            note.server for note in self.notes.pending()])

    def test_damaged_note_is_an_error(self):
        self.note()
        base.sql(self.path, "UPDATE suppressed SET connection = '['")
        self.assertRaises(StoreError, self.notes.pending)


class CarryOutTest(NotesTestCase):

    def setUp(self):
        super().setUp()
        self.note()
        #: The servers whose disks were disconnected, and by what.
        self.done = []
        self.claims = frozenset()

    def carry_out(self, error=None, left=False, has_time=True):
        """Start nova-compute; return how many notes it leaves."""
        def claimed(addresses):
            # No server gets the address between the check and the disconnect.
            (_, announced), = connections._disconnects
            self.assertEqual(addresses, announced)
            return bool(addresses & self.claims)

        def disconnect(note, connection_info):
            self.assertEqual(1, len(connections._disconnects))
            self.done.append((note.server, connection_info['data']))
            if error:
                raise error
            if not left:
                self.remove('sdb')

        late_disconnects.carry_out(
            self.notes, claimed, disconnect, lambda: has_time)
        self.assertEqual([], connections._disconnects)
        return len(self.notes.pending())

    def check_left(self, words):
        """Check that nothing is disconnected, and the note goes."""
        self.assertEqual(0, self.carry_out())
        self.assertEqual([], self.done)
        self.assertIn(words, self.log.output)

    def test_device_without_a_claim_is_disconnected(self):
        self.assertEqual(0, self.carry_out())
        (server, data), = self.done
        # Only by the target that this host has.
        self.assertEqual(('server', [IQN], [5]), (
            server, data['target_iqns'], data['target_luns']))
        self.assertIn('volume volume, which server server had, is now '
                      'disconnected', self.log.output)

    def test_claimed_device_stays(self):
        self.claims = frozenset([(IQN, '5')])
        self.check_left('another server has their address')

    def test_device_that_is_gone_needs_nothing(self):
        self.remove('sdb')
        self.check_left('are gone')

    def test_later_volume_of_the_address_stays(self):
        self.write('class/block/sdb/device/wwid', 'naa.another')
        self.check_left('of another volume')

    def test_another_device_at_the_address_stays(self):
        self.lun('sdc', 'naa.another', session='session2')
        self.check_left('of another volume')

    def test_device_below_another_stays(self):
        self.mapper('dm-5', 'LVM-abc', 'sdb')
        self.check_left('on top of them')

    def test_device_below_a_nameless_one_stays(self):
        self.device('md0')
        self.write('class/block/sdb/holders/md0')
        self.check_left('on top of them')

    def test_map_of_multipath_does_not_hold_its_paths(self):
        self.mapper('dm-3', 'mpath-3600', 'sdb')
        self.note()
        self.carry_out(left=True)
        self.assertEqual(1, len(self.done))

    def test_failed_disconnect_is_tried_again(self):
        self.assertEqual(1, self.carry_out(ValueError('busy')))
        self.assertIn('not disconnected from this host yet: busy',
                      self.log.output)
        self.assertEqual(0, self.carry_out())

    def test_device_that_remains_is_tried_again(self):
        self.assertEqual(1, self.carry_out(left=True))
        self.assertIn('/dev/sdb is still there', self.log.output)

    def test_note_without_time_stays(self):
        self.assertEqual(1, self.carry_out(has_time=False))
        self.assertEqual([], self.done)

    def test_note_stays_if_the_claims_cannot_be_read(self):
        disconnect = mock.Mock()
        late_disconnects.carry_out(
            self.notes, mock.Mock(side_effect=OSError('no answer')),
            disconnect, lambda: True)
        self.assertEqual([], disconnect.mock_calls)
        self.assertEqual(1, len(self.notes.pending()))

    def test_one_failure_does_not_keep_the_others(self):
        self.notes.note('other', 'volume', self.info('/dev/sdb'))
        seen = []

        def disconnect(note, connection_info):
            seen.append(note.server)
            raise ValueError

        late_disconnects.carry_out(
            self.notes, lambda addresses: False, disconnect, lambda: True)
        self.assertEqual(['server', 'other'], seen)
