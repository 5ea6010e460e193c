# SPDX-License-Identifier: Apache-2.0
"""Whether a disk is still there, on kernels made of directories."""

from __future__ import annotations

import os

import fixtures
from testtools import matchers

from nova_bdm_cleanup.node import devices
from nova_bdm_cleanup.tests.unit import base

IQN = 'iqn.2010-10.org.openstack:array'
WWPN = '500a098280feeba5'


class DevicesTestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.root = self.tempdir()
        self.sys = os.path.join(self.root, 'sys')
        self.useFixture(fixtures.MockPatchObject(devices, 'SYS', self.sys))

    def write(self, path, text=None):
        path = os.path.join(self.sys, path)
        os.makedirs(path if text is None else os.path.dirname(path),
                    exist_ok=True)
        if text is not None:
            with open(path, 'w', encoding='utf-8') as file:
                file.write(text + '\n')
        return path

    def device(self, name):
        """A block device; returns its path below /dev."""
        self.write('class/block/%s' % name)
        return '/dev/%s' % name

    def disk(self, name, unit, session='session1', target=IQN):
        """A SCSI disk behind an iSCSI target."""
        self.write('class/iscsi_session/%s/targetname' % session, target)
        return self._scsi(name, '%s/target3:0:0/3:0:0:%d' % (session, unit))

    def _scsi(self, name, path):
        path = self.write('devices/platform/host3/' + path)
        self.device(name)
        os.symlink(path, os.path.join(self.sys, 'class/block', name,
                                      'device'))
        return '/dev/%s' % name

    def mapper(self, name, uuid, *slaves):
        """What device mapper makes of other devices."""
        self.device(name)
        self.write('class/block/%s/dm/uuid' % name, uuid)
        self.write('class/block/%s/slaves' % name)
        for slave in slaves:
            self.write('class/block/%s/slaves/%s' % (name, slave))
            self.write('class/block/%s/holders/%s' % (slave, name))
        return '/dev/%s' % name

    def remove(self, name):
        os.rename(os.path.join(self.sys, 'class/block', name),
                  os.path.join(self.root, name))
        for other in os.listdir(os.path.join(self.sys, 'class/block')):
            for kind in ('slaves', 'holders'):
                path = os.path.join(self.sys, 'class/block', other, kind,
                                    name)
                if os.path.exists(path):
                    os.rmdir(path)

    def info(self, path, **data):
        return {'driver_volume_type': 'iscsi', 'data': {
            'target_iqn': IQN, 'target_lun': 5, 'device_path': path, **data}}


class DiskTest(DevicesTestCase):

    def test_until_it_is_gone(self):
        before = devices.found_for(self.info(self.disk('sdb', 5)))
        self.assertEqual({'sdb'}, set(before))
        self.assertEqual({'sdb'}, devices.left(before))
        self.remove('sdb')
        self.assertEqual(frozenset(), devices.left(before))
        # Its name was given to another.
        self.disk('sdb', 6)
        self.assertEqual(frozenset(), devices.left(before))

    def test_a_name_of_long_ago(self):
        # The host was booted since: another disk has the name.
        self.assertEqual({}, devices.found_for(self.info(self.disk('sdb', 6))))
        self.assertEqual({}, devices.found_for(self.info(self.disk(
            'sdc', 5, 'session2', 'iqn.other'))))

    def test_a_disk_of_the_host_itself(self):
        path = self._scsi('sda', 'ata1/target0:0:0/0:0:0:5')
        self.assertEqual({}, devices.found_for(self.info(path)))

    def test_fibre_channel(self):
        self.write('class/fc_remote_ports/rport-3:0-1/port_name',
                   '0x' + WWPN.upper().replace('X', 'x'))
        path = self._scsi('sdb', 'rport-3:0-1/target3:0:0/3:0:0:5')
        before = devices.found_for({'data': {
            'target_wwn': [WWPN], 'target_lun': 5, 'device_path': path}})
        self.assertEqual({'sdb'}, devices.left(before))

    def test_a_unit_in_flat_space(self):
        before = devices.found_for(self.info(
            self.disk('sdb', 0x4000 + 300), target_lun=300))
        self.assertEqual({'sdb'}, set(before))


class MapperTest(DevicesTestCase):

    def setUp(self):
        super().setUp()
        self.disk('sdb', 5)
        self.disk('sdc', 5, 'session2')
        self.path = self.mapper('dm-3', 'mpath-3600', 'sdb', 'sdc')

    def found(self, path, **data):
        """The names of the devices of the volume."""
        return set(devices.found_for(self.info(path, **data)))

    def lose_the_paths(self):
        for name in ('sdb', 'sdc'):
            self.remove(name)

    def test_all_of_it(self):
        # By the map, by a path when the map was made later, and by its
        # address alone.
        for path in (self.path, '/dev/sdb', None):
            self.assertEqual({'dm-3', 'sdb', 'sdc'}, self.found(path), path)

    def test_a_map_that_lost_its_paths(self):
        # What os-brick leaves when it was forced and the map was held open.
        before = devices.found_for(self.info(self.path))
        self.lose_the_paths()
        self.assertEqual({'dm-3'}, devices.left(before))
        # And so at the next look, when nothing tells whose it was.
        again = devices.found_for(self.info(self.path))
        self.assertEqual({'dm-3'}, devices.left(again))
        self.remove('dm-3')
        self.assertEqual(frozenset(), devices.left(again))

    def test_a_map_that_is_found_by_its_name_only(self):
        self.lose_the_paths()
        self.assertEqual({'dm-3'},
                         self.found('/dev/gone', multipath_id='3600'))

    def test_a_map_of_another_volume(self):
        self.lose_the_paths()
        self.disk('sdd', 6)
        other = self.mapper('dm-4', 'mpath-3700', 'sdd')
        self.assertEqual(set(), self.found(other))

    def test_encryption_on_top_of_it(self):
        path = self.mapper('dm-5', 'CRYPT-LUKS1-abc', 'dm-3')
        self.assertEqual({'dm-5', 'dm-3', 'sdb', 'sdc'}, self.found(path))
        self.lose_the_paths()
        self.assertEqual({'dm-5', 'dm-3'}, self.found(path))
        self.remove('dm-3')
        self.assertEqual({'dm-5'}, self.found(path))

    def test_encryption_that_lost_a_disk_whose_name_is_anothers(self):
        path = self.mapper('dm-5', 'CRYPT-LUKS2-abc', 'sdb')
        slave = os.path.join(self.sys, 'class/block/dm-5/slaves/sdb')
        os.rmdir(slave)
        os.symlink('gone', slave)
        for name in ('dm-3', 'sdb', 'sdc'):
            self.remove(name)
        self.disk('sdb', 6)
        self.assertEqual({'dm-5'}, self.found(path))

    def test_a_path_at_a_target_that_is_not_named(self):
        # A discovery has found it when the volume was connected.
        self.disk('sdd', 5, 'session3', 'iqn.other')
        self.mapper('dm-3', 'mpath-3600', 'sdd')
        self.assertEqual({'dm-3', 'sdb', 'sdc', 'sdd'}, self.found('/dev/sdb'))

    def test_what_else_is_made_of_it(self):
        # Whatever uses disks of several volumes is not one of them.
        self.disk('sdd', 6)
        self.mapper('dm-7', 'LVM-abc', 'dm-3', 'sdd')
        self.assertEqual({'dm-7', 'dm-3', 'sdb', 'sdc'}, self.found(self.path))


class AdviceTest(base.TestCase):
    """What is to be done by hand about what is left."""

    def advice(self, **left):
        names = {name.replace('_', '-'): identity
                 for name, identity in left.items()}
        return devices.advice(frozenset(names), {**names, 'sdz': 'gone'})

    def test_a_map_without_paths(self):
        self.assertEqual(
            '/dev/dm-3 is still there after it was disconnected; by hand: '
            '`dmsetup message /dev/dm-3 0 fail_if_no_path` ends what waits '
            'for a path, and `multipath -f /dev/dm-3` removes it once nothing '
            'uses it', self.advice(dm_3='mpath-3600'))

    def test_a_disk(self):
        self.assertEqual(
            '/dev/sdb is still there after it was disconnected; by hand: '
            '`echo 1 > /sys/block/sdb/device/delete`',
            self.advice(sdb='%s:5' % IQN))

    def test_from_the_top_to_the_bottom(self):
        text = self.advice(sdb='%s:5' % IQN, dm_3='mpath-3600',
                           dm_5='CRYPT-LUKS1-abc')
        self.assertIn('/dev/dm-3, /dev/dm-5, /dev/sdb are still', text)
        self.assertThat(
            [text.index(command) for command in (
                'dmsetup remove /dev/dm-5', 'multipath -f /dev/dm-3',
                'sdb/device/delete')],
            matchers.AfterPreprocessing(
                lambda found: found == sorted(found), matchers.Equals(True)))


class NoDeviceTest(DevicesTestCase):

    def test_nothing_to_look_for(self):
        for info in ({}, {'data': None}, {'data': {}},
                     {'data': {'name': 'pool/image'}},
                     {'data': {'device_path': '/var/lib/nova/mnt/volume-1'}},
                     self.info('/dev/sdx'),
                     self.info('/dev/gone', multipath_id='3600')):
            self.assertEqual({}, devices.found_for(info))
        self.assertEqual(frozenset(), devices.left({}))
