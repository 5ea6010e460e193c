# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""Plan files: written once, read with distrust, compared with today."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
from typing import Any

from nova_bdm_cleanup import errors
from nova_bdm_cleanup.fleet import plan_file
from nova_bdm_cleanup.fleet.issues import FleetReason
from nova_bdm_cleanup.fleet.issues import Issue
from nova_bdm_cleanup.fleet.issues import Remedy
from nova_bdm_cleanup.model import Reason
from nova_bdm_cleanup.tests.unit import base
from nova_bdm_cleanup.tests.unit import make

ISSUES = (
    Issue(Reason.VOLUME_AVAILABLE, 'Cinder says "available"', 'server-1',
          'web', 'own', 'compute-1', 'volume-1', 'attachment-1', '/dev/vdb',
          make.ago(60)),
    Issue(Reason.VOLUME_MISSING, 'gone', 'server-1', volume='volume-2',
          withheld=Reason.OPTED_OUT),
    Issue(FleetReason.USED_BY_NOBODY, 'nobody', volume='volume-3'))


class PlanFileCase(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.path = os.path.join(self.tempdir(), 'plan.json')

    def write(self, *issues: Issue, incomplete: bool = False) -> None:
        with plan_file.PlanWriter(self.path) as writer:
            writer.write(issues, incomplete, make.NOW)

    def content(self) -> Any:
        with open(self.path, encoding='utf-8') as file:
            return json.load(file)


class WriterTest(PlanFileCase):

    def test_comes_back_as_written(self) -> None:
        self.write(*ISSUES)
        self.assertEqual(ISSUES, plan_file.read_plan(self.path).issues)

    def test_says_what_it_is(self) -> None:
        self.write(incomplete=True)
        self.assertEqual({
            'format': 'nova-bdm-cleanup plan', 'version': 1,
            'created': '2026-03-14T03:00:00+00:00', 'complete': False,
            'findings': []}, self.content())

    def test_for_nobody_else_to_read(self) -> None:
        self.write()
        self.assertEqual(0o600, os.stat(self.path).st_mode & 0o777)

    def test_never_overwrites(self) -> None:
        self.write(*ISSUES)
        exc = self.assertRaises(
            errors.BadInput, plan_file.PlanWriter, self.path)
        self.assertIn('File exists', str(exc))
        self.assertEqual(3, len(self.content()['findings']))

    def test_not_left_behind_unwritten(self) -> None:
        def fail() -> None:
            with plan_file.PlanWriter(self.path):
                raise KeyboardInterrupt

        self.assertRaises(KeyboardInterrupt, fail)
        self.assertFalse(os.path.exists(self.path))


class ReaderTest(PlanFileCase):

    def assert_bad(self, words: str, content: str) -> None:
        with open(self.path, 'w', encoding='utf-8') as file:
            file.write(content)
        exc = self.assertRaises(
            errors.BadInput, plan_file.read_plan, self.path)
        self.assertIn(words, str(exc))
        self.assertIn(self.path, str(exc))

    def test_each_command_gets_its_own(self) -> None:
        self.write(*ISSUES)
        plan = plan_file.read_plan(self.path)
        self.assertEqual(ISSUES[:1], plan.of(Remedy.CLEAN))
        self.assertEqual(ISSUES[1:2], plan.of(Remedy.PERSON))
        self.assertEqual(ISSUES[2:], plan.of(Remedy.RELEASE))

    def test_no_file(self) -> None:
        exc = self.assertRaises(
            errors.BadInput, plan_file.read_plan, self.path)
        self.assertIn('No such file', str(exc))

    def test_not_a_plan(self) -> None:
        for content in ('{}', '[]', '{"format": "other"}'):
            self.assert_bad('not written by', content)
        self.assert_bad('Expecting value', '')

    def test_of_another_version(self) -> None:
        self.assert_bad('it is of version 2', json.dumps({
            'format': 'nova-bdm-cleanup plan', 'version': 2,
            'findings': []}))

    def test_damaged(self) -> None:
        self.write(*ISSUES)
        plan = self.content()
        for field, value, words in (
                ('reason', 'odd', 'unknown reason odd'),
                ('server', 7, '"server" is no text'),
                ('withheld', 'odd', 'odd'),
                ('since', 'yesterday', 'yesterday')):
            finding = dict(plan['findings'][0], **{field: value})
            self.assert_bad(words, json.dumps(dict(plan, findings=[finding])))
            del finding[field]
            self.assert_bad("it has no '%s'" % field,
                            json.dumps(dict(plan, findings=[finding])))


class DifferencesTest(base.TestCase):

    def differences(self, **fields: Any) -> Any:
        return plan_file.differences(
            ISSUES[:1], [dataclasses.replace(ISSUES[0], **fields)])

    def test_none(self) -> None:
        self.assertEqual([], plan_file.differences(ISSUES, ISSUES[::-1]))
        # Words and names say nothing about the facts.
        self.assertEqual([], self.differences(explanation='', server_name=''))

    def test_no_longer_found(self) -> None:
        gone = ['volume volume-1 (volume-available) is no longer found']
        self.assertEqual(gone, plan_file.differences(ISSUES[:1], []))
        for fields in ({'reason': Reason.VOLUME_MISSING},
                       {'server': 'server-2'}, {'volume': 'volume-2'},
                       {'attachment': None}):
            self.assertEqual(gone, self.differences(**fields))

    def test_changed_since(self) -> None:
        later = ISSUES[0].since + datetime.timedelta(microseconds=1)
        self.assertIn('has changed at', self.differences(since=later)[0])
        self.assertIn('has changed at', self.differences(since=None)[0])

    def test_on_another_host(self) -> None:
        self.assertEqual(
            ['volume volume-1 (volume-available) is now on host compute-2'],
            self.differences(host='compute-2'))
