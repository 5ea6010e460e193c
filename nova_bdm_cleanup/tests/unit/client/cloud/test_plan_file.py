# SPDX-License-Identifier: Apache-2.0
"""Plan files: validation, and comparison with the present state."""

from __future__ import annotations

import dataclasses
import datetime
import io
import json
import os
from typing import Any
from unittest import mock

from nova_bdm_cleanup.client.cloud import plan_file
from nova_bdm_cleanup.client.cloud.findings import CloudFinding
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.rules.reasons import Reason, Remedy
from nova_bdm_cleanup.tests.unit import base, make

#: A row as an audit prints it.
ROW = {'Server': 'server-1', 'Host': 'compute-1', 'Volume': 'volume-1',
       'Attachment': 'attachment-1', 'Device': '/dev/vdb',
       'Reason': 'volume-available', 'Since': '2026-03-14T02:00:00Z',
       'Action': 'openstack bdm clean server-1', 'Remedy': 'clean'}
FINDING = CloudFinding(
    Reason.VOLUME_AVAILABLE, '', server='server-1', host='compute-1',
    volume='volume-1', attachment='attachment-1', since=make.ago(3600),
    instead=Remedy.CLEAN)


class ReaderTest(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.path = os.path.join(self.tempdir(), 'plan.json')

    def read(self, content: Any, *chosen: Any) -> tuple[CloudFinding, ...]:
        with open(self.path, 'w', encoding='utf-8') as file:
            file.write(content if isinstance(content, str)
                       else json.dumps(content))
        return plan_file.read_plan(self.path, *chosen)

    def test_findings_are_chosen_by_number_and_host(self) -> None:
        rows = [{**ROW, 'Volume': 'volume-%d' % number, 'Host': host}
                for number, host in enumerate(
                    ('compute-1', 'compute-2', 'compute-2.example.org'), 1)]
        cases: tuple[tuple[Any, str], ...] = (
            (((), None), '123'), (((3, 1), None), '13'),
            (((), 'COMPUTE-2'), '23'), (((1, 2), 'compute-2'), '2'))
        for chosen, volumes in cases:
            self.assertEqual(
                ['volume-' + number for number in volumes],
                [i.volume for i in self.read(rows, *chosen)])
        refused: tuple[tuple[Any, str], ...] = (
            (((0,), None), 'it has no finding 0, but 3'),
            (((2, 4), None), 'it has no finding 4, but 3'),
            (((), 'compute-9'), 'no chosen finding is of host compute-9'),
            (((1,), 'compute-2'), 'no chosen finding is of host compute-2'))
        for chosen, words in refused:
            exc = self.assertRaises(errors.BadInput, self.read, rows,
                                    *chosen)
            self.assertEqual('plan file %s: %s' % (self.path, words),
                             str(exc))

    def test_remedy_of_the_plan_is_kept(self) -> None:
        look, finding = self.read([
            {**ROW, 'Remedy': 'look'},
            {**ROW, 'Reason': 'volume-unreferenced', 'Remedy': 'release',
             'Server': None, 'Attachment': None, 'Since': None}])
        self.assertEqual(dataclasses.replace(FINDING, instead=Remedy.PERSON),
                         look)
        self.assertEqual(
            (Reason.VOLUME_UNREFERENCED, None, None, None, Remedy.RELEASE),
            (finding.reason, finding.server, finding.attachment, finding.since,
             finding.remedy))

    def test_ids_are_read_in_one_form(self) -> None:
        uuid = '6f1c7d2e-9b3a-4c58-a0de-5b7f1e2c3d4a'
        [finding] = self.read([{**ROW, 'Server': uuid.upper(),
                              'Volume': '{%s}' % uuid,
                              'Attachment': uuid.replace('-', '')}])
        self.assertEqual((uuid, uuid, uuid),
                         (finding.server, finding.volume, finding.attachment))

    def test_dash_reads_standard_input(self) -> None:
        with mock.patch('sys.stdin', io.StringIO(json.dumps([ROW]))):
            self.assertEqual((FINDING,), plan_file.read_plan('-'))
        with mock.patch('sys.stdin', io.StringIO('')):
            exc = self.assertRaises(errors.BadInput, plan_file.read_plan, '-')
        self.assertIn('plan of standard input: Expecting value', str(exc))

    def test_unreadable_plan_is_refused_with_its_problem(self) -> None:
        """Refuse a missing file, a file that is no plan, and bad rows."""
        exc = self.assertRaises(errors.BadInput, plan_file.read_plan,
                                self.path)
        self.assertIn('No such file', str(exc))
        for words, content in (
                ('Expecting value', ''), ('Expecting value', 'Server,Host'),
                ('Expecting property name', '[{'),
                # An earlier plan format.
                ('not a list of findings', {
                    'format': 'nova-bdm-cleanup plan'}),
                ('not a list of findings', '7'), ('has no "Server"', [7]),
                *(('has no "%s"' % field, [{
                    k: v for k, v in ROW.items() if k != field}])
                  for field in ROW if field not in ('Action', 'Device')),
                ('unknown reason odd', [{**ROW, 'Reason': 'odd'}]),
                ("'odd' is not a valid Remedy", [{**ROW, 'Remedy': 'odd'}]),
                ('"Server" is not a text', [{**ROW, 'Server': 7}]),
                ('yesterday', [{**ROW, 'Since': 'yesterday'}])):
            exc = self.assertRaises(errors.BadInput, self.read, content)
            for part in (words, 'plan file ' + self.path,
                         '"openstack bdm audit -f json"'):
                self.assertIn(part, str(exc))


class ChangesTest(base.TestCase):

    def test_fractions_of_a_second_are_no_change(self) -> None:
        since = make.ago(3600)
        self.assertFalse(plan_file.has_changed(
            FINDING, since.replace(microsecond=7)))
        for other in (since + datetime.timedelta(seconds=1), None):
            self.assertTrue(plan_file.has_changed(FINDING, other))
