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
"""Two looks compared, and when a witness is needed."""

from __future__ import annotations

import dataclasses

from nova_bdm_cleanup import model
from nova_bdm_cleanup import rules
from nova_bdm_cleanup.model import Policy
from nova_bdm_cleanup.model import Reason
from nova_bdm_cleanup.tests.unit import base
from nova_bdm_cleanup.tests.unit import make

STALE = make.attachment(id='attachment-9', volume_id='volume-9')
VOLUME_9 = make.volume(id='volume-9')


def decide(snapshot, now=make.NOW, **policy):
    return rules.decide(snapshot, Policy(**policy), now)


class WitnessTest(base.TestCase):
    """When Cinder has to prove that it is the right one."""

    def needed(self, *args, **kwargs):
        return rules.needs_witness(make.snapshot(*args, **kwargs))

    def test_only_when_a_volume_is_missing(self):
        self.assertFalse(self.needed())
        self.assertFalse(self.needed([make.bdm()], [make.volume()]))
        self.assertTrue(self.needed([make.bdm()], missing=['volume-1']))

    def test_a_volume_of_another_mapping_is_enough(self):
        for project in (make.PROJECT, make.OTHER_PROJECT, None):
            self.assertFalse(self.needed(
                [make.bdm(), make.bdm(uuid='bdm-2', volume_id='volume-2')],
                [make.volume(id='volume-2', project=project)],
                missing=['volume-1']))

    def test_so_is_one_of_the_project_that_names_the_server(self):
        for project, needed in ((make.PROJECT, False),
                                (make.OTHER_PROJECT, True), (None, True)):
            self.assertEqual(needed, self.needed(
                [make.bdm()], [dataclasses.replace(
                    VOLUME_9, project=project)], [STALE],
                missing=['volume-1']))
        self.assertTrue(self.needed(
            [make.bdm()], [dataclasses.replace(VOLUME_9, project=None)],
            [STALE], missing=['volume-1'], project=None))


class ConfirmTest(base.TestCase):
    """A second look can only take away."""

    def setUp(self):
        super().setUp()
        self.bdm = make.bdm()
        self.left_over = make.attachment()
        self.look = make.snapshot(
            [self.bdm], [make.volume(status='available'), VOLUME_9],
            [self.left_over, STALE])
        self.first = decide(self.look)
        self.assertEqual(2, len(self.first.due))

    def confirm(self, **changes):
        second = decide(dataclasses.replace(self.look, **changes))
        return rules.confirm(self.first, second)

    def with_attachments(self, **changes):
        return self.confirm(attachments=(
            dataclasses.replace(self.left_over, **changes), STALE))

    def with_bdm(self, **changes):
        return self.confirm(bdms=(
            make.root(), dataclasses.replace(self.bdm, **changes)))

    def assertOnlyTheStaleOneIsLeft(self, plan):
        self.assertEqual([Reason.STALE_ATTACHMENT],
                         [f.reason for f in plan.due])
        [refused] = [f for f in plan.findings if not f.is_due]
        self.assertEqual(Reason.SECOND_LOOK_DIFFERS, refused.withheld)

    def assertNotRemoved(self, plan):
        self.assertEqual([], [f for f in plan.due if f.bdm])

    def test_the_same_again_changes_nothing(self):
        self.assertEqual(self.first, self.confirm())

    def test_another_reason(self):
        self.assertOnlyTheStaleOneIsLeft(self.confirm(
            volumes={'volume-1': make.volume(), 'volume-9': VOLUME_9}))

    def test_another_reason_to_do_the_same(self):
        self.first = decide(dataclasses.replace(
            self.look, attachments=(STALE,)))
        self.assertOnlyTheStaleOneIsLeft(self.confirm(
            attachments=(STALE,),
            volumes={'volume-1': None, 'volume-9': VOLUME_9}))

    def test_another_attachment_in_the_mapping(self):
        # A swap or "nova-manage volume_attachment refresh" came in between.
        self.assertOnlyTheStaleOneIsLeft(
            self.with_bdm(attachment_id='attachment-2'))

    def test_another_volume_in_the_mapping(self):
        self.assertOnlyTheStaleOneIsLeft(
            self.with_bdm(volume_id='volume-2'))

    def test_a_mapping_that_has_become_connected(self):
        self.assertOnlyTheStaleOneIsLeft(
            self.with_bdm(has_connection_info=False))

    def test_a_mapping_that_has_become_the_root(self):
        self.assertOnlyTheStaleOneIsLeft(self.with_bdm(boot_index=0))

    def test_a_mapping_that_is_gone(self):
        self.assertOnlyTheStaleOneIsLeft(self.confirm(bdms=(make.root(),)))

    def test_a_mapping_that_is_another_row(self):
        self.assertOnlyTheStaleOneIsLeft(self.with_bdm(uuid='bdm-2'))

    def test_an_attachment_that_has_changed(self):
        for change in ({'status': 'reserved'}, {'connected': False},
                       {'server_id': make.OTHER_SERVER}):
            self.assertNotRemoved(self.with_attachments(**change))

    def test_an_attachment_more(self):
        self.assertNotRemoved(self.confirm(attachments=(
            self.left_over, STALE, make.attachment(id='attachment-2'))))

    def test_an_attachment_less(self):
        self.assertOnlyTheStaleOneIsLeft(self.confirm(attachments=(STALE,)))

    def test_a_stale_attachment_that_is_gone(self):
        plan = self.confirm(attachments=(self.left_over,))
        self.assertEqual([Reason.VOLUME_AVAILABLE],
                         [f.reason for f in plan.due])

    def test_a_stale_attachment_that_became_connected(self):
        reserved = dataclasses.replace(
            STALE, status='reserved', connected=False)
        first = decide(dataclasses.replace(
            self.look, attachments=(reserved,)))
        second = decide(dataclasses.replace(self.look, attachments=(STALE,)))
        plan = rules.confirm(first, second)
        self.assertNotIn(Reason.STALE_ATTACHMENT,
                         [f.reason for f in plan.due])

    def test_what_only_the_second_look_finds_waits(self):
        only = decide(dataclasses.replace(
            self.look, attachments=(self.left_over,)))
        self.assertEqual(only, rules.confirm(only, self.first))

    def test_a_second_look_that_withholds_everything(self):
        for second in (self.first.withhold(Reason.REBOOT_LOST),
                       self.first.withhold(Reason.CINDER_SUSPECT),
                       model.Plan()):
            self.assertEqual((), rules.confirm(self.first, second).due)

    def test_a_second_look_that_withholds_says_why(self):
        plan = rules.confirm(
            self.first, self.first.withhold(Reason.REBOOT_LOST))
        self.assertEqual([Reason.REBOOT_LOST] * 2,
                         [f.withheld for f in plan.findings])

    def test_a_second_look_that_withholds_says_what_stands_in_the_way(self):
        second = rules.decide(self.look, Policy(max_attachments=0), make.NOW)
        plan = rules.confirm(self.first, second)
        [refused] = [f for f in plan.findings if not f.is_due]
        self.assertIn('max_attachments', refused.obstacle)
