# SPDX-License-Identifier: Apache-2.0
"""Which volumes a host could take for each other."""

from __future__ import annotations

import testscenarios

from nova_bdm_cleanup.plugin import addresses
from nova_bdm_cleanup.tests.unit import base

load_tests = testscenarios.load_tests_apply_scenarios

IQN = 'iqn.2010-10.org.openstack:array'
WWN = '500a098280feeba5'
NQN = 'nqn.2014-08.org.example:array'


def of(**data):
    return addresses.named_by({'driver_volume_type': 'any', 'data': data})


class SameTest(base.TestCase):
    """The next volume got the number of the one before."""

    scenarios = [(name, {'one': one, 'other': other})
                 for name, one, other in (
        ('iscsi', {'target_iqn': IQN, 'target_lun': 5},
         {'target_iqn': IQN.upper(), 'target_lun': '5'}),
        ('iscsi, one path and several',
         {'target_iqn': IQN, 'target_lun': 5},
         {'target_iqns': ['iqn.other', IQN], 'target_luns': [5, 5]}),
        ('fibre channel', {'target_wwn': [WWN, 'f00'], 'target_lun': 1},
         {'target_wwn': WWN, 'target_lun': 1}),
        ('fibre channel, lists',
         {'target_wwns': ['f00', WWN], 'target_luns': [2, 1]},
         {'target_wwn': [WWN], 'target_lun': 1}),
        ('nvme', {'target_nqn': NQN, 'ns_id': 3},
         {'nqn': NQN, 'ns_id': 3}))]

    def test_same(self):
        self.assertTrue(of(**self.one) & of(**self.other))


class OtherTest(base.TestCase):

    def test_another_number(self):
        self.assertFalse(of(target_iqn=IQN, target_lun=5)
                         & of(target_iqn=IQN, target_lun=6))

    def test_another_target(self):
        self.assertFalse(of(target_iqn=IQN + ':volume-1', target_lun=0)
                         & of(target_iqn=IQN + ':volume-2', target_lun=0))

    def test_names_are_not_reused(self):
        for data in ({'name': 'volumes/volume-1'}, {'export': 'a:/b'},
                     {'device_path': '/dev/sdb'},
                     {'target_nqn': NQN, 'vol_uuid': 'u'}):
            self.assertEqual(frozenset(), of(**data))

    def test_what_is_no_connection_information(self):
        for info in ({}, {'data': None}, {'data': []}, {'data': {}},
                     {'data': {'target_iqn': None, 'target_lun': None}}):
            self.assertEqual(frozenset(), addresses.named_by(info))

    def test_lists_of_one_length_belong_together(self):
        ours = of(target_iqns=['a', 'b'], target_luns=[1, 2])
        self.assertEqual({('a', '1'), ('b', '2')}, ours)
        self.assertFalse(ours & of(target_iqns=['a', 'b'],
                                   target_luns=[2, 1]))
        self.assertFalse(ours & of(target_iqn='b', target_lun=1))

    def test_what_stands_once_belongs_to_the_first_of_the_lists(self):
        self.assertEqual(
            {('a', '1'), ('b', '2')},
            of(target_iqn='a', target_lun=1, target_iqns=['a', 'b'],
               target_luns=[1, 2]))

    def test_one_unit_behind_several_targets(self):
        self.assertEqual(
            {('a', '1'), ('b', '1')},
            of(target_wwn=['A', 'B'], target_lun=1, target_wwns=['a', 'b']))

    def test_lists_of_different_lengths(self):
        # Rather an address too many than one too few.
        self.assertEqual(6, len(of(target_wwns=['a', 'b', 'c'],
                                   target_luns=[1, 2])))


class ParseTest(base.TestCase):

    def test_connection_information(self):
        self.assertEqual({'data': {'a': 1}}, addresses.parse(
            '{"data": {"a": 1}}'))

    def test_nothing_that_anybody_could_connect_by(self):
        for text in (None, '', 'null', '[]', '5', '{', 'no JSON'):
            self.assertEqual({}, addresses.parse(text))
