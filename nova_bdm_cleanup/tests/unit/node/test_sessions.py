# SPDX-License-Identifier: Apache-2.0
"""What os-brick is told, on kernels made of directories."""

from __future__ import annotations

import os

import fixtures
from hypothesis import given, strategies as st
import testscenarios

from nova_bdm_cleanup.node import devices, sessions
from nova_bdm_cleanup.tests.unit import base
from nova_bdm_cleanup.tests.unit.node import test_devices

load_tests = testscenarios.load_tests_apply_scenarios

IQN = test_devices.IQN
PORTAL = '192.0.2.1:3260'
SECOND = '192.0.2.2:3260'
OTHER = 'iqn.2010-10.org.openstack:neighbour'


class SessionsTestCase(test_devices.DevicesTestCase):

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
        """The targets that os-brick gets; None: nothing is to be done."""
        narrowed = sessions.narrowed(info, devices.found_for(info).keys())
        if narrowed is None:
            return None
        data = narrowed['data']
        return list(zip(data['target_portals'], data['target_iqns'],
                        data['target_luns']))


class TargetsTest(SessionsTestCase):
    """The targets that os-brick gets, by the sessions of the host."""

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

    def test_targets(self):
        for number, session in self.there.items():
            self.session(number, *session)
        # A session may be left whose disk is gone already.
        self.assertEqual(self.expected, self.told(self.info(**self.data)))
        for number, session in self.there.items():
            self.disk('sd%d' % number, 5, 'session%d' % number, *session[:1])
        self.assertEqual(self.expected, self.told(
            self.info('/dev/sd1', **self.data)))


class NarrowedTest(SessionsTestCase):

    def test_a_target_that_a_discovery_has_found(self):
        second = IQN + ':port2'
        self.session(1)
        self.session(2, second, SECOND)
        self.disk('sdb', 5)
        self.disk('sdc', 5, 'session2', second)
        self.assertEqual([(PORTAL, IQN, 5)], self.told(self.info()))
        self.mapper('dm-3', 'mpath-3600', 'sdb', 'sdc')
        self.assertEqual([(PORTAL, IQN, 5), (SECOND, second, 5)],
                         self.told(self.info()))

    def test_iser(self):
        self.session(1, OTHER)
        self.assertIsNone(self.told(dict(self.info(),
                                         driver_volume_type='iser')))

    def test_nothing_but_a_map_is_left(self):
        path = self.mapper('dm-3', 'mpath-3600')
        self.assertEqual([(PORTAL, IQN, 5)], self.told(self.info(path)))

    def test_all_else_is_as_it_was(self):
        self.session(1)
        self.disk('sdb', 5)
        info = dict(self.info('/dev/sdb', encrypted=True), serial='volume')
        before = dict(info, data=dict(info['data']))
        narrowed = sessions.narrowed(info, {'sdb'})
        self.assertEqual(before, info)
        self.assertEqual('volume', narrowed['serial'])
        for name in ('target_portals', 'target_iqns', 'target_luns'):
            del narrowed['data'][name]
        self.assertEqual(before, narrowed)


class PathTest(SessionsTestCase):
    """The name of a device may be that of another volume by now."""

    def path(self, path):
        narrowed = sessions.narrowed(self.info(path), {'sdb', 'dm-1'})
        return narrowed['data'].get('device_path')

    def setUp(self):
        super().setUp()
        self.session(1)
        self.disk('sdb', 5)
        self.disk('sdc', 5, 'session2', OTHER)

    def test_whose_it_is(self):
        for path, expected in (
                ('/dev/sdb', '/dev/sdb'), ('/dev/sdx', '/dev/sdx'),
                ('/dev/sdc', None), (None, None)):
            self.assertEqual(expected, self.path(path), path)

    def test_a_link(self):
        link = os.path.join(self.root, 'os-brick+dev+sdb')
        for target, path in (('/dev/dm-1', link), ('/dev/sdc', None),
                             ('/dev/gone', link)):
            os.symlink(target, link)
            self.assertEqual(path, self.path(link))
            os.remove(link)


class AsBeforeTest(SessionsTestCase):
    """What nobody can judge here is left to os-brick, as it is."""

    def check(self, info):
        self.assertEqual(info, sessions.narrowed(info, frozenset()))

    def test_what_cannot_be_judged(self):
        without = self.info()
        del without['data']['target_iqn']
        for info in (
                dict(self.info(), driver_volume_type='fibre_channel'),
                {'driver_volume_type': 'rbd', 'data': {'name': 'a/b'}},
                {'driver_volume_type': 'iscsi'}, without):
            self.check(info)

    def test_no_sysfs(self):
        self.useFixture(fixtures.MockPatchObject(
            devices, 'SYS', os.path.join(self.root, 'nowhere')))
        self.check(self.info())


NAMES = st.sampled_from([IQN, IQN.upper(), OTHER, 'iqn.third'])
PORTALS = st.sampled_from([PORTAL, SECOND, '[2001:db8::1]:3260'])
UNITS = st.integers(0, 2)


class AllKindsTest(SessionsTestCase):

    @given(told=st.lists(st.tuples(PORTALS, NAMES, UNITS), min_size=1,
                         max_size=3),
           live=st.lists(st.tuples(NAMES, st.none() | PORTALS), max_size=4),
           is_listed=st.booleans())
    def test_its_own_targets_and_no_others(self, told, live, is_listed):
        self.useFixture(fixtures.MockPatchObject(
            devices, 'SYS', os.path.join(self.tempdir(), 'sys')))
        self.sys = devices.SYS
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
