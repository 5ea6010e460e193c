# SPDX-License-Identifier: Apache-2.0
"""Addresses, block devices and sessions, in a sysfs made of directories."""

from __future__ import annotations

import os

import fixtures
from hypothesis import given, strategies as st
import testscenarios
from testtools import matchers

from nova_bdm_cleanup.node import devices
from nova_bdm_cleanup.rules.facts import Source
from nova_bdm_cleanup.tests.unit import base

load_tests = testscenarios.load_tests_apply_scenarios

IQN = 'iqn.2010-10.org.openstack:array'
WWN = '500a098280feeba5'
NQN = 'nqn.2014-08.org.example:array'
PORTAL = '192.0.2.1:3260'
SECOND = '192.0.2.2:3260'
OTHER = 'iqn.2010-10.org.openstack:neighbour'
WWPN = '500a098280feeba5'


class DevicesTestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.root = self.tempdir()
        self.sys = os.path.join(self.root, 'sys')
        self.useFixture(fixtures.MockPatchObject(devices, 'SYSFS', self.sys))

    def write(self, path, text=None):
        path = os.path.join(self.sys, path)
        os.makedirs(path if text is None else os.path.dirname(path),
                    exist_ok=True)
        if text is not None:
            with open(path, 'w', encoding='utf-8') as file:
                file.write(text + '\n')
        return path

    def device(self, name):
        """Add a block device; return its path below /dev."""
        self.write('class/block/%s' % name)
        return '/dev/%s' % name

    def disk(self, name, unit, session='session1', target=IQN):
        """Add a SCSI disk behind an iSCSI target; return its path."""
        self.write('class/iscsi_session/%s/targetname' % session, target)
        return self._scsi(name, '%s/target3:0:0/3:0:0:%d' % (session, unit))

    def _scsi(self, name, path):
        path = self.write('devices/platform/host3/' + path)
        self.device(name)
        os.symlink(path, os.path.join(self.sys, 'class/block', name,
                                      'device'))
        return '/dev/%s' % name

    def mapper(self, name, uuid, *slaves):
        """Add a device of device mapper on top of other devices."""
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

    def test_disk_remains_until_its_device_is_gone(self):
        before = devices.volume_devices(self.info(self.disk('sdb', 5)))
        self.assertEqual({'sdb'}, set(before))
        self.assertEqual({'sdb'}, devices.remaining(before))
        self.remove('sdb')
        self.assertEqual(frozenset(), devices.remaining(before))
        # Another disk got its name.
        self.disk('sdb', 6)
        self.assertEqual(frozenset(), devices.remaining(before))

    def test_a_name_of_long_ago(self):
        # The host was rebooted since: another disk has the name.
        self.assertEqual({}, devices.volume_devices(self.info(self.disk(
            'sdb', 6))))
        self.assertEqual({}, devices.volume_devices(self.info(self.disk(
            'sdc', 5, 'session2', 'iqn.other'))))

    def test_disk_of_the_host_itself_is_not_found(self):
        path = self._scsi('sda', 'ata1/target0:0:0/0:0:0:5')
        self.assertEqual({}, devices.volume_devices(self.info(path)))

    def test_fibre_channel_disk_is_found_by_wwpn(self):
        self.write('class/fc_remote_ports/rport-3:0-1/port_name',
                   '0x' + WWPN.upper().replace('X', 'x'))
        path = self._scsi('sdb', 'rport-3:0-1/target3:0:0/3:0:0:5')
        before = devices.volume_devices({'data': {
            'target_wwn': [WWPN], 'target_lun': 5, 'device_path': path}})
        self.assertEqual({'sdb'}, devices.remaining(before))

    def test_lun_in_flat_space_is_found(self):
        before = devices.volume_devices(self.info(
            self.disk('sdb', 0x4000 + 300), target_lun=300))
        self.assertEqual({'sdb'}, set(before))


class AbsentTest(DevicesTestCase):
    """The device that an attach may have left when nova-compute died."""

    def test_only_the_unit_itself_counts(self):
        self.disk('sdb', 2)
        for address, expected in (((IQN, '2'), False), ((IQN, '3'), True),
                                  ((OTHER, '2'), True)):
            self.assertEqual(expected, devices.are_absent(
                frozenset([address, (OTHER, '9')])))

    def test_disk_without_an_address_is_absent(self):
        self.disk('sdb', 2)
        self.assertTrue(devices.are_absent(frozenset()))

    def test_kernel_that_shows_nothing_proves_nothing(self):
        self.assertFalse(devices.are_absent(frozenset([(IQN, '2')])))


class MapperTest(DevicesTestCase):

    def setUp(self):
        super().setUp()
        self.disk('sdb', 5)
        self.disk('sdc', 5, 'session2')
        self.path = self.mapper('dm-3', 'mpath-3600', 'sdb', 'sdc')

    def found(self, path, **data):
        """Return the names of the devices of the volume."""
        return set(devices.volume_devices(self.info(path, **data)))

    def lose_the_paths(self):
        for name in ('sdb', 'sdc'):
            self.remove(name)

    def test_map_and_all_its_paths_are_found(self):
        # By the map, by a path if the map was created later, and by the
        # address alone.
        for path in (self.path, '/dev/sdb', None):
            self.assertEqual({'dm-3', 'sdb', 'sdc'}, self.found(path), path)

    def test_map_without_paths_remains(self):
        # os-brick leaves this when forced while the map was held open.
        before = devices.volume_devices(self.info(self.path))
        self.lose_the_paths()
        self.assertEqual({'dm-3'}, devices.remaining(before))
        # The same at the next look, without any record of its volume.
        again = devices.volume_devices(self.info(self.path))
        self.assertEqual({'dm-3'}, devices.remaining(again))
        self.remove('dm-3')
        self.assertEqual(frozenset(), devices.remaining(again))

    def test_map_is_found_by_its_name(self):
        self.lose_the_paths()
        self.assertEqual({'dm-3'},
                         self.found('/dev/gone', multipath_id='3600'))

    def test_map_of_another_volume_is_not_found(self):
        self.lose_the_paths()
        self.disk('sdd', 6)
        other = self.mapper('dm-4', 'mpath-3700', 'sdd')
        self.assertEqual(set(), self.found(other))

    def test_map_of_a_name_that_another_volume_has_now_is_not_found(self):
        """An array may give a WWID again, and a row may be old."""
        self.lose_the_paths()
        self.remove('dm-3')
        self.disk('sdd', 6)
        other = self.mapper('dm-4', 'mpath-3600', 'sdd')
        for path in ('/dev/gone', other):
            self.assertEqual(set(), self.found(path, multipath_id='3600'))
        # A path of the volume comes back.
        self.disk('sde', 5, 'session3')
        self.assertEqual({'sde'}, self.found(other, multipath_id='3600'))
        self.mapper('dm-4', 'mpath-3600', 'sde')
        self.assertEqual({'dm-4', 'sdd', 'sde'},
                         self.found(other, multipath_id='3600'))

    def test_map_of_another_name_at_the_path_is_not_found(self):
        self.lose_the_paths()
        self.mapper('dm-5', 'CRYPT-LUKS1-abc', 'dm-3')
        for path in ('/dev/dm-3', '/dev/dm-5'):
            self.assertEqual(set(), self.found(path, multipath_id='3700'))

    def test_encryption_on_the_map_is_found(self):
        path = self.mapper('dm-5', 'CRYPT-LUKS1-abc', 'dm-3')
        self.assertEqual({'dm-5', 'dm-3', 'sdb', 'sdc'}, self.found(path))
        self.lose_the_paths()
        self.assertEqual({'dm-5', 'dm-3'}, self.found(path))
        self.remove('dm-3')
        self.assertEqual({'dm-5'}, self.found(path))

    def test_encryption_is_found_without_its_disk(self):
        path = self.mapper('dm-5', 'CRYPT-LUKS2-abc', 'sdb')
        slave = os.path.join(self.sys, 'class/block/dm-5/slaves/sdb')
        os.rmdir(slave)
        os.symlink('gone', slave)
        for name in ('dm-3', 'sdb', 'sdc'):
            self.remove(name)
        self.disk('sdb', 6)
        self.assertEqual({'dm-5'}, self.found(path))

    def test_path_of_another_target_is_found(self):
        # A discovery found it when the volume was connected.
        self.disk('sdd', 5, 'session3', 'iqn.other')
        self.mapper('dm-3', 'mpath-3600', 'sdd')
        self.assertEqual({'dm-3', 'sdb', 'sdc', 'sdd'}, self.found('/dev/sdb'))

    def test_device_on_top_of_the_map_is_found(self):
        self.mapper('dm-7', 'LVM-abc', 'dm-3')
        self.mapper('dm-8', 'LVM-def', 'dm-7')
        self.assertEqual({'dm-8', 'dm-7', 'dm-3', 'sdb', 'sdc'},
                         self.found(self.path))

    def test_device_on_disks_of_several_volumes_belongs_to_none(self):
        self.disk('sdd', 6)
        self.mapper('dm-7', 'LVM-abc', 'dm-3', 'sdd')
        self.mapper('dm-8', 'LVM-def', 'dm-7')
        self.assertEqual({'dm-3', 'sdb', 'sdc'}, self.found(self.path))


class AdviceTest(base.TestCase):
    """The advice on manual steps for remaining devices."""

    def advice(self, **left):
        names = {name.replace('_', '-'): identity
                 for name, identity in left.items()}
        return devices.removal_advice(
            frozenset(names), {**names, 'sdz': 'gone'})

    def test_advice_for_a_map_removes_the_map(self):
        self.assertEqual(
            '/dev/dm-3 is still there after it was disconnected; by hand: '
            '`dmsetup message /dev/dm-3 0 fail_if_no_path` ends the wait for '
            'a path, and `multipath -f /dev/dm-3` removes it once it is '
            'unused', self.advice(dm_3='mpath-3600'))

    def test_advice_for_a_disk_deletes_its_device(self):
        self.assertEqual(
            '/dev/sdb is still there after it was disconnected; by hand: '
            '`echo 1 > /sys/block/sdb/device/delete`',
            self.advice(sdb='%s:5' % IQN))

    def test_advice_goes_from_top_to_bottom(self):
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

    def test_connection_without_device_has_no_devices(self):
        for info in ({}, {'data': None}, {'data': {}},
                     {'data': {'name': 'pool/image'}},
                     {'data': {'device_path': '/var/lib/nova/mnt/volume-1'}},
                     self.info('/dev/sdx'),
                     self.info('/dev/gone', multipath_id='3600')):
            self.assertEqual({}, devices.volume_devices(info))
        self.assertEqual(frozenset(), devices.remaining({}))


class AdoptedDiskTest(DevicesTestCase):
    """The devices and guests of disks that are adopted."""

    def disks(self, *sources, more=''):
        return list(devices.disks_in_domain(
            '<domain><devices>%s</devices></domain>' % ''.join(
                '<disk>%s%s<serial>VOLUME-%d</serial></disk>' % (
                    source, more, number)
                for number, source in enumerate(sources))))

    def test_device_at_an_address_is_that_of_the_kernel(self):
        self.disk('sdb', 5)
        self.disk('sdc', 6)
        self.write('class/block/nvme0n1/device/subsysnqn', NQN)
        self.write('class/block/nvme0n1/nsid', '7')
        for address, expected in (((IQN, '5'), {'sdb'}), ((IQN, '7'), set()),
                                  ((NQN, '7'), {'nvme0n1'})):
            self.assertEqual(expected, devices.devices_at(
                frozenset([address])))
        self.assertEqual(set(), devices.devices_at(frozenset()))

    def test_disk_has_the_addresses_below_its_device(self):
        self.disk('sdb', 5)
        self.disk('sdc', 5, session='session2', target=OTHER)
        path = self.mapper('dm-0', 'mpath-3600', 'sdb', 'sdc')
        disk, = self.disks('<source dev="%s"/>' % path)
        self.assertEqual(
            (path, {(IQN, '5'), (OTHER, '5')}, False),
            (disk.source.path, disk.source.addresses,
             disk.is_copied))

    def test_disk_without_address_has_the_name_of_its_back_end(self):
        network, file = self.disks(
            '<source protocol="rbd" name="volumes/volume-1"/>',
            '<source file="/var/lib/nova/mnt/5a/volume-2"/>')
        self.assertEqual(('volumes/volume-1', None),
                         (network.source.name, network.source.path))
        self.assertEqual('volume-2', file.source.name)

    def test_disk_that_is_copied_is_told(self):
        disk, = self.disks('<source dev="/dev/sdb"/>', more='<mirror/>')
        self.assertTrue(disk.is_copied)

    def test_disk_without_serial_or_source_is_left_out(self):
        self.assertEqual([], list(devices.disks_in_domain(
            '<domain><devices><disk><source dev="/dev/sda"/></disk>'
            '<disk><serial>1</serial></disk></devices></domain>')))


class GuestTest(DevicesTestCase):
    """The disks that a domain of libvirt names."""

    def disk_xml(self, source, more=''):
        return '<disk type="block"><source %s/>%s</disk>' % (source, more)

    def named(self, *disks):
        return devices.addresses_in_domain(
            '<domain id="1"><devices>%s<interface><source dev="/dev/sdb"/>'
            '</interface></devices></domain>' % ''.join(disks))

    def setUp(self):
        super().setUp()
        self.disk('sdb', 5)
        self.disk('sdc', 6, 'session2', OTHER)
        self.write('class/fc_remote_ports/rport-3:0-1/port_name', '0x' + WWPN)
        self._scsi('sdd', 'rport-3:0-1/target3:0:0/3:0:0:7')

    def test_guest_has_what_its_disks_name(self):
        self.assertEqual(
            {(IQN, '5'), (WWPN, '7')},
            self.named(self.disk_xml('dev="/dev/sdb" index="1"'),
                       self.disk_xml('dev="/dev/sdd"'),
                       self.disk_xml('file="/var/lib/nova/disk"'),
                       self.disk_xml('protocol="rbd" name="pool/image"'),
                       '<disk type="file" device="cdrom"/>'))

    def test_file_name_that_is_a_device_counts(self):
        self.assertEqual({(IQN, '5')},
                         self.named(self.disk_xml('file="/dev/sdb"')))

    def test_guest_has_its_mirror_and_its_backing_chain(self):
        for element in ('mirror', 'backingStore'):
            nested = self.disk_xml(
                'file="/overlay"', '<%s type="block"><source dev="/dev/sdb"/>'
                '<backingStore><source dev="/dev/sdc"/></backingStore></%s>'
                % (element, element))
            self.assertEqual({(IQN, '5'), (OTHER, '6')}, self.named(nested))

    def test_source_of_each_disk_by_its_device(self):
        def disk(device, source, more=''):
            return '<disk><source %s/><target dev="%s"/>%s</disk>' % (
                source, device, more)

        named = '/dev/disk/by-path/ip-%s-iscsi-%s-lun-5' % (PORTAL, IQN)
        xml = '<domain><devices>%s</devices></domain>' % ''.join((
            disk('vda', 'protocol="rbd" name="pool/image"'),
            disk('vdb', 'dev="/dev/sdb"',
                 '<mirror><source dev="/dev/sdc"/></mirror>'),
            disk('vdc', 'file="/var/lib/nova/mnt/12/volume-1"'),
            disk('vdd', 'dev="%s"' % named),
            '<disk device="cdrom"><target dev="hda"/></disk>'))
        found = {
            'vda': Source(name='pool/image'),
            'vdb': Source(frozenset([(IQN, '5')]), path='/dev/sdb'),
            'vdc': Source(name='volume-1',
                          path='/var/lib/nova/mnt/12/volume-1'),
            'vdd': Source(frozenset([(IQN, '5')]), path=named)}
        self.assertEqual(found, devices.sources_in_domain(xml, True))
        # The device of a guest that is off may be another one's.
        found['vdb'] = Source(path='/dev/sdb')
        self.assertEqual(found, devices.sources_in_domain(xml, False))

    def test_guest_has_what_is_below_a_map(self):
        self.mapper('dm-3', 'mpath-3600', 'sdb', 'sdd')
        self.mapper('dm-5', 'CRYPT-LUKS1-abc', 'dm-3')
        for name in ('dm-3', 'dm-5'):
            self.assertEqual(
                {(IQN, '5'), (WWPN, '7')},
                self.named(self.disk_xml('dev="/dev/%s"' % name)))

    def test_link_is_followed(self):
        link = os.path.join(self.root, 'by-id')
        os.symlink('/dev/sdb', link)
        self.assertEqual({(IQN, '5')}, devices.path_addresses(link))

    def test_name_of_a_device_that_is_gone_tells_its_address(self):
        for path, expected in (
                ('ip-%s-iscsi-%s-lun-5' % (PORTAL, IQN), {(IQN, '5')}),
                ('pci-0000:05:00.2-ip-[2001:db8::1]:3260-iscsi-%s-lun-5'
                 % IQN.upper(), {(IQN, '5')}),
                ('ip-%s-iscsi-%s-lun-0x012c000000000000' % (PORTAL, IQN),
                 {(IQN, '300')}),
                ('pci-0000:05:00.2-fc-0x%s-lun-7' % WWPN, {(WWPN, '7')}),
                ('fc-0x%s-lun-7' % WWPN, {(WWPN, '7')}),
                ('ccw-0.0.3c40-zfcp-0x%s:0x412c000000000000' % WWPN,
                 {(WWPN, '300'), (WWPN, str(0x412c))}),
                ('pci-0000:00:1f.2-ata-1', set()), ('volume-1', set())):
            self.assertEqual(expected, devices.path_addresses(
                '/dev/disk/by-path/' + path), path)

    def test_guest_that_opens_the_session_itself_has_the_unit(self):
        self.assertEqual({(IQN, '5')}, self.named(
            '<disk type="network"><source protocol="iscsi" name="%s/5">'
            '<host name="192.0.2.1" port="3260"/></source></disk>' % IQN))

    def test_another_device_of_the_name_is_no_disk_of_the_volume(self):
        self.assertEqual(set(), self.named(self.disk_xml('dev="/dev/sdx"')))

    def nvme(self, name, parent):
        self.device(name)
        self.write('class/block/%s/nsid' % name, '3')
        controller = self.write('devices/virtual/%s' % parent)
        self.write('devices/virtual/%s/subsysnqn' % parent, NQN.upper())
        os.symlink(controller, os.path.join(
            self.sys, 'class/block', name, 'device'))
        return '/dev/' + name

    def test_nvme_namespace_has_an_address(self):
        # With and without multipath in the kernel.
        for name, parent in (('nvme0n1', 'nvme-subsystem/nvme-subsys0'),
                             ('nvme1n1', 'nvme-fabrics/ctl/nvme1')):
            self.assertEqual({(NQN, '3')}, self.named(self.disk_xml(
                'dev="%s"' % self.nvme(name, parent))))

    def test_nvme_namespace_is_not_waited_for(self):
        """Cinder removes those of a shared subsystem later."""
        path = self.nvme('nvme0n1', 'nvme-subsystem/nvme-subsys0')
        self.assertEqual({}, devices.volume_devices({'data': {
            'target_nqn': NQN, 'ns_id': 3, 'device_path': path}}))


class SessionsTestCase(DevicesTestCase):

    def setUp(self):
        super().setUp()
        self.device('vda')

    def session(self, number, target=IQN, portal=PORTAL):
        self.write('class/iscsi_session/session%d/targetname' % number,
                   target)
        self.write('class/iscsi_connection/connection%d:0' % number)
        if portal:
            address, _, port = portal.rpartition(':')
            for name, text in (('address', address.strip('[]')),
                               ('port', port)):
                self.write('class/iscsi_connection/connection%d:0/'
                           'persistent_%s' % (number, name), text)

    def info(self, path=None, **data):
        return super().info(path, target_portal=PORTAL, **data)

    def told(self, info):
        """Return the targets that os-brick gets; None: nothing to do."""
        narrowed = devices.narrow_connection_info(
            info, devices.volume_devices(info).keys())
        if narrowed is None:
            return None
        data = narrowed['data']
        return list(zip(data['target_portals'], data['target_iqns'],
                        data['target_luns']))


class TargetsTest(SessionsTestCase):
    """The targets that os-brick gets, according to the host's sessions."""

    _TWO = {'target_portals': [PORTAL, SECOND],
            'target_iqns': [IQN, IQN + '2'], 'target_luns': [5, 6]}

    scenarios = base.scenarios((
        ('no session', {}, {}, None),
        ('no session of it', {1: (OTHER,)}, {}, None),
        ('none of its paths', {1: (OTHER,)}, _TWO, None),
        ('its only session', {1: (OTHER,), 2: ()}, {}, [(PORTAL, IQN, 5)]),
        ('one of two paths', {3: (IQN + '2', SECOND)}, _TWO,
         [(SECOND, IQN + '2', 6)]),
        ('both paths', {1: (), 3: (IQN + '2', SECOND)}, _TWO,
         [(PORTAL, IQN, 5), (SECOND, IQN + '2', 6)]),
        ('one unit for all targets', {1: ()},
         {'target_portals': [PORTAL], 'target_iqns': [IQN]},
         [(PORTAL, IQN, 5)]),
        ('a portal that a discovery has found',
         {1: (), 2: (IQN, SECOND)}, {},
         [(PORTAL, IQN, 5), (SECOND, IQN, 5)]),
        # os-brick compares the name with what iscsiadm prints.
        ('another spelling of the target', {1: ()},
         {'target_iqn': IQN.upper()}, [(PORTAL, IQN, 5)]),
        ('ipv6', {1: (IQN, '[2001:db8::1]:3260')}, {},
         [('[2001:db8::1]:3260', IQN, 5)]),
        ('a session that does not tell its portal', {1: (IQN, None)}, {},
         [(PORTAL, IQN, 5)])), 'there', 'data', 'expected')

    def test_os_brick_gets_the_targets_with_a_session(self):
        for number, session in self.there.items():
            self.session(number, *session)
        # A session may remain after its disk is gone.
        self.assertEqual(self.expected, self.told(self.info(**self.data)))
        for number, session in self.there.items():
            self.disk('sd%d' % number, 5, 'session%d' % number, *session[:1])
        self.assertEqual(self.expected, self.told(
            self.info('/dev/sd1', **self.data)))


class NarrowedTest(SessionsTestCase):

    def test_discovered_target_of_the_map_is_added(self):
        second = IQN + ':port2'
        self.session(1)
        self.session(2, second, SECOND)
        self.disk('sdb', 5)
        self.disk('sdc', 5, 'session2', second)
        self.assertEqual([(PORTAL, IQN, 5)], self.told(self.info()))
        self.mapper('dm-3', 'mpath-3600', 'sdb', 'sdc')
        self.assertEqual([(PORTAL, IQN, 5), (SECOND, second, 5)],
                         self.told(self.info()))

    def test_iser_connection_is_not_narrowed(self):
        self.session(1, OTHER)
        self.assertIsNone(self.told(dict(self.info(),
                                         driver_volume_type='iser')))

    def test_nothing_but_a_map_is_left(self):
        path = self.mapper('dm-3', 'mpath-3600')
        self.assertEqual([(PORTAL, IQN, 5)], self.told(self.info(path)))

    def test_only_the_targets_are_changed(self):
        self.session(1)
        self.disk('sdb', 5)
        info = dict(self.info('/dev/sdb', encrypted=True), serial='volume')
        before = dict(info, data=dict(info['data']))
        narrowed = devices.narrow_connection_info(info, {'sdb'})
        self.assertEqual(before, info)
        self.assertEqual('volume', narrowed['serial'])
        for name in ('target_portals', 'target_iqns', 'target_luns'):
            del narrowed['data'][name]
        self.assertEqual(before, narrowed)


class PathTest(SessionsTestCase):
    """Device names that may now belong to another volume."""

    def path(self, path):
        narrowed = devices.narrow_connection_info(
            self.info(path), {'sdb', 'dm-1'})
        return narrowed['data'].get('device_path')

    def setUp(self):
        super().setUp()
        self.session(1)
        self.disk('sdb', 5)
        self.disk('sdc', 5, 'session2', OTHER)

    def test_device_name_of_another_volume_is_dropped(self):
        for path, expected in (
                ('/dev/sdb', '/dev/sdb'), ('/dev/sdx', '/dev/sdx'),
                ('/dev/sdc', None), (None, None)):
            self.assertEqual(expected, self.path(path), path)

    def test_link_to_another_volume_is_dropped(self):
        link = os.path.join(self.root, 'os-brick+dev+sdb')
        for target, path in (('/dev/dm-1', link), ('/dev/sdc', None),
                             ('/dev/gone', link)):
            os.symlink(target, link)
            self.assertEqual(path, self.path(link))
            os.remove(link)


class AsBeforeTest(SessionsTestCase):
    """Connection info that cannot be judged, passed to os-brick unchanged."""

    def check(self, info):
        self.assertEqual(
            info, devices.narrow_connection_info(info, frozenset()))

    def test_unknown_connection_is_unchanged(self):
        without = self.info()
        del without['data']['target_iqn']
        for info in (
                dict(self.info(), driver_volume_type='fibre_channel'),
                {'driver_volume_type': 'rbd', 'data': {'name': 'a/b'}},
                {'driver_volume_type': 'iscsi'}, without):
            self.check(info)

    def test_connection_is_unchanged_without_sysfs(self):
        self.useFixture(fixtures.MockPatchObject(
            devices, 'SYSFS', os.path.join(self.root, 'nowhere')))
        self.check(self.info())


NAMES = st.sampled_from([IQN, IQN.upper(), OTHER, 'iqn.third'])
PORTALS = st.sampled_from([PORTAL, SECOND, '[2001:db8::1]:3260'])
UNITS = st.integers(0, 2)


class AllKindsTest(SessionsTestCase):

    @given(told=st.lists(st.tuples(PORTALS, NAMES, UNITS), min_size=1,
                         max_size=3),
           live=st.lists(st.tuples(NAMES, st.none() | PORTALS), max_size=4),
           is_listed=st.booleans())
    def test_only_targets_of_the_volume_remain(self, told, live, is_listed):
        self.useFixture(fixtures.MockPatchObject(
            devices, 'SYSFS', os.path.join(self.tempdir(), 'sys')))
        self.sys = devices.SYSFS
        self.device('vda')
        for number, (name, portal) in enumerate(live, 1):
            self.session(number, name, portal)
        portals, names, units = map(list, zip(*told))
        info = {'driver_volume_type': 'iscsi', 'data': {
            'target_portals': portals, 'target_iqns': names,
            'target_luns': units} if is_listed else {
            'target_portal': portals[0], 'target_iqn': names[0],
            'target_lun': units[0]}}
        own = {(name.lower(), unit)
               for _, name, unit in (told if is_listed else told[:1])}
        is_here = any(name.lower() in {n for n, _ in own}
                      for name, _ in live)
        found = self.told(info)
        self.assertEqual(is_here, found is not None)
        if found is not None:
            spelt = {name for name, _ in live}
            self.assertTrue(found)
            for _, name, unit in found:
                self.assertIn((name.lower(), unit), own)
                self.assertIn(name, spelt)
