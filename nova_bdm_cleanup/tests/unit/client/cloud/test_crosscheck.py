# SPDX-License-Identifier: Apache-2.0
"""Inconsistencies between the lists of Nova and Cinder."""

from __future__ import annotations

import dataclasses
from typing import Any

from nova_bdm_cleanup.client.cloud import crosscheck
from nova_bdm_cleanup.client.cloud.nova import ComputeServer
from nova_bdm_cleanup.tests.unit import base, make


def server(name: str, *volumes: str, status: str = 'ACTIVE') -> ComputeServer:
    return ComputeServer(name, name, status, volumes=volumes)


class CrossCheckTest(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.books = crosscheck.CrossCheck()
        self.number = 0

    def fill(self, *servers: ComputeServer, **volumes: str) -> None:
        """Add servers, and volumes by their state."""
        self.books.add_servers(servers)
        for name, status in volumes.items():
            self.books.add_volumes([make.volume(id=name, status=status)])

    def attach(self, volume: str, server_id: Any, **fields: Any) -> None:
        self.number += 1
        self.books.add_attachments([make.attachment(**{
            'id': 'attachment-%d' % self.number, 'volume_id': volume,
            'server_id': server_id, **fields})])

    def suspects(self, thorough: bool = False) -> list[str]:
        return sorted(self.books.suspects(thorough))

    def test_consistent_server_is_no_suspect(self) -> None:
        self.fill(server('s1', 'v1', 'v2'), server('s2', 'v3'), server('s3'),
                  v1='in-use', v2='in-use', v3='in-use')
        for volume, name in (('v1', 's1'), ('v2', 's1'), ('v3', 's2')):
            self.attach(volume, name)
        self.assertEqual([], self.suspects())
        self.assertEqual(['s1', 's2'], self.suspects(thorough=True))
        self.assertEqual({}, self.books.strangers())
        self.assertEqual([], list(self.books.unreferenced_volumes()))
        self.assertEqual((3, 3, 3), self.books.size)
        # An attachment that Nova does not have.
        self.attach('v1', 's3')
        self.assertEqual(['s3'], self.suspects())
        self.assertEqual(['s1', 's2', 's3'], self.suspects(thorough=True))

    def test_task_may_have_been_interrupted(self) -> None:
        for name, volumes in (('s1', ('v1',)), ('s2', ())):
            self.books.add_servers([dataclasses.replace(
                server(name, *volumes), task_state='shelving')])
        self.books.add_servers([server('s3', 'v3'), dataclasses.replace(
            server('s4', 'v4', status='ERROR'), never_ran=True)])
        for volume, name in (('v1', 's1'), ('v3', 's3'), ('v4', 's4')):
            self.fill(**{volume: 'in-use'})
            self.attach(volume, name)
        self.assertEqual(['s1', 's4'], self.suspects())

    def test_claim_that_cinder_does_not_share(self) -> None:
        states: dict[str, dict[str, Any]] = {
            'none': {}, 'reserved': {'status': 'reserved'},
            'detaching': {'status': 'detaching'}, 'available': {},
            'missing': {}}
        for name, fields in states.items():
            self.fill(server(name, 'volume of ' + name))
            if name != 'missing':
                self.fill(**{'volume of ' + name: 'available'
                             if name == 'available' else 'in-use'})
            if name != 'none':
                self.attach('volume of ' + name, name, **fields)
        self.assertEqual(sorted(states), self.suspects())

    def test_volume_that_is_attached_twice(self) -> None:
        self.fill(server('s1', 'v1'), server('s2', 'v1'), v1='in-use')
        self.attach('v1', 's1')
        self.attach('v1', 's2')
        self.assertEqual([], self.suspects())
        self.attach('v1', 's2')
        self.assertEqual({'s2': ['attachment-2', 'attachment-3']},
                         self.books.suspects(False))

    def test_attached_is_not_in_order_while_a_server_is_shelved(self) -> None:
        self.fill(server('s1', 'v1', status='SHELVED_OFFLOADED'), v1='in-use')
        self.attach('v1', 's1')
        self.assertEqual(['s1'], self.suspects())

    def test_reserved_is_in_order_while_a_server_is_shelved(self) -> None:
        for name, status in (('shelved', 'SHELVED_OFFLOADED'),
                             ('runs', 'ACTIVE')):
            self.fill(server(name, 'v ' + name, status=status))
            self.fill(**{'v ' + name: 'reserved'})
            self.attach('v ' + name, name, status='reserved',
                        connected=False)
        self.assertEqual(['runs'], self.suspects())

    def test_volume_that_is_attached_to_another_host(self) -> None:
        for name, host, named, is_suspect in (
                ('here', 'compute-1', 'compute-1', False),
                ('domain', 'compute-1', 'Compute-1.example.org', False),
                ('elsewhere', 'compute-1', 'compute-2', True),
                ('offloaded', None, 'compute-2', False),
                ('unshown', 'compute-1', None, False)):
            self.books.add_servers([dataclasses.replace(
                server(name, 'v ' + name), host=host)])
            self.attach('v ' + name, name)
            # A multiattach volume is on the host of each server.
            self.books.add_volumes([make.volume(
                id='v ' + name, attached_to=(
                    make.attached_to('unknown', host='compute-3'),
                    make.attached_to(name, host=named)))])
            self.assertEqual(is_suspect, name in self.suspects(), name)

    def test_servers_that_nova_did_not_list(self) -> None:
        self.fill(server('s1', 'v1'), v1='in-use', v2='in-use')
        self.attach('v1', 's1')
        self.attach('v2', 'unknown')
        self.attach('v2', 'unknown')
        self.attach('v3', None)
        self.assertEqual({'v2': {'attachment-2': 'unknown',
                                 'attachment-3': 'unknown'}},
                         self.books.strangers())

    def test_volumes_that_no_server_has(self) -> None:
        self.fill(server('s1', 'claimed'), claimed='in-use',
                  attached='in-use', images='in-use', lonely='in-use',
                  stuck='attaching', nameless='reserved')
        self.attach('attached', 'gone')
        self.attach('images', None)
        self.attach('nameless', None)
        self.assertEqual(['lonely', 'nameless', 'stuck'],
                         sorted(self.books.unreferenced_volumes()))

    def test_claim_is_known_if_cinder_has_its_volume(self) -> None:
        self.fill(server('s1', 'v1', 'v2'), v3='in-use')
        self.assertIs(False, self.books.knows_claim)
        self.assertEqual(['v1', 'v2'], list(self.books.claims()))
        self.fill(v2='in-use')
        self.assertIs(True, self.books.knows_claim)

    def test_a_record_on_two_pages_counts_once(self) -> None:
        for _ in range(2):
            self.fill(server('s1', 'v1'), v1='in-use')
            self.number = 0
            self.attach('v1', 's1')
        self.assertEqual((1, 1, 1), self.books.size)
        self.assertEqual([], self.suspects())
