# SPDX-License-Identifier: Apache-2.0
"""The addresses in connection information, of any driver of Cinder."""

from __future__ import annotations

import testscenarios

from nova_bdm_cleanup.openstack.connection_info import (
    addresses_in,
    name_in,
    parse_connection_info,
    path_in,
)
from nova_bdm_cleanup.tests.unit import base

load_tests = testscenarios.load_tests_apply_scenarios

IQN = 'iqn.2010-10.org.openstack:array'
WWN = '500a098280feeba5'
NQN = 'nqn.2014-08.org.example:array'


class AddressesTest(base.TestCase):

    scenarios = [(name, {'data': data, 'expected': set(expected)})
                 for name, data, *expected in (
        ('iscsi', {'target_iqn': IQN.upper(), 'target_lun': '5'}, (IQN, '5')),
        ('iscsi, several paths',
         {'target_iqns': ['iqn.other', IQN], 'target_luns': [5, 5]},
         ('iqn.other', '5'), (IQN, '5')),
        ('fibre channel', {'target_wwn': [WWN, 'f00'], 'target_lun': 1},
         (WWN, '1'), ('f00', '1')),
        ('fibre channel, one', {'target_wwn': WWN, 'target_lun': 1},
         (WWN, '1')),
        ('nvme', {'target_nqn': NQN, 'ns_id': 3}, (NQN, '3')),
        ('nvme, otherwise', {'nqn': NQN, 'ns_id': 3}, (NQN, '3')),
        ('fibre channel, spelt otherwise',
         {'target_wwns': ['0x' + WWN.upper(), '50:0A:09:82:80:FE:EB:A6'],
          'target_lun': 1}, (WWN, '1'), (WWN[:-1] + '6', '1')),
        ('fibre channel, a list of units', {
            'target_wwn': ['a', 'b'], 'target_lun': 1, 'target_luns': [1, 2]},
         ('a', '1'), ('b', '2')),
        ('lists of one length belong together',
         {'target_wwns': ['f00', WWN], 'target_luns': [2, 1]},
         ('f00', '2'), (WWN, '1')),
        ('what stands once belongs to the first of the lists',
         {'target_iqn': 'a', 'target_lun': 1, 'target_iqns': ['a', 'b'],
          'target_luns': [1, 2]}, ('a', '1'), ('b', '2')),
        ('one unit behind several targets',
         {'target_wwn': ['A', 'B'], 'target_lun': 1,
          'target_wwns': ['a', 'b']}, ('a', '1'), ('b', '1')),
        ('rather an address too many than one too few',
         {'target_wwns': ['a', 'b', 'c'], 'target_luns': [1, 2]},
         *((target, unit) for target in 'abc' for unit in '12')),
        # Names are not reused.
        ('a name', {'name': 'volumes/volume-1'}),
        ('a share', {'export': 'a:/b'}),
        ('a path', {'device_path': '/dev/sdb'}),
        ('a uuid', {'target_nqn': NQN, 'vol_uuid': 'u'}),
        ('an nguid', {'nqn': NQN, 'volume_nguid': 'u'}),
        ('nothing', {}),
        ('empty', {'target_iqn': None, 'target_lun': None}),
        ('none', None),
        ('a list', []))]

    def test_connection_data_gives_its_addresses(self):
        self.assertEqual(self.expected, addresses_in(
            {'driver_volume_type': 'any', 'data': self.data}))


class NameTest(base.TestCase):

    def test_only_some_back_ends_name_a_volume(self):
        for kind, expected in (('rbd', 'pool/v'), ('nfs', 'pool/v'),
                               ('iscsi', None), (None, None)):
            self.assertEqual(expected, name_in(
                {'driver_volume_type': kind, 'data': {'name': 'pool/v'}}))

    def test_invalid_name_or_path_is_none(self):
        for data in (None, [], {}, {'name': 5, 'device_path': 5},
                     {'name': '', 'device_path': ''}):
            info = {'driver_volume_type': 'rbd', 'data': data}
            self.assertEqual((None, None), (name_in(info), path_in(info)))
        self.assertEqual('/dev/sdb', path_in(
            {'data': {'device_path': '/dev/sdb'}}))


class ParseTest(base.TestCase):

    def test_json_text_is_parsed(self):
        self.assertEqual({'data': {'a': 1}}, parse_connection_info(
            '{"data": {"a": 1}}'))

    def test_unusable_text_gives_no_connection(self):
        for text in (None, '', 'null', '[]', '5', '{', 'no JSON'):
            self.assertEqual({}, parse_connection_info(text), text)
