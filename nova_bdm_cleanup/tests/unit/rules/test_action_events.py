# SPDX-License-Identifier: Apache-2.0
"""The names of events: what is written is what is read."""

from __future__ import annotations

from nova_bdm_cleanup.rules import action_events
from nova_bdm_cleanup.rules.action_events import ActionEvent, Kind
from nova_bdm_cleanup.rules.facts import Action, Finding
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.tests.unit import base, make

VOLUME = '5b1d4f3a-0000-4000-8000-000000000001'
ATTACHMENT = '9f2c8d0e-0000-4000-8000-000000000002'


class NameTest(base.TestCase):

    def test_name_of_an_event_is_parsed_again(self) -> None:
        mapping = make.bdm(volume_id=VOLUME)
        for finding, subject in (
                (None, None),
                (Finding(Reason.VOLUME_MISSING, 'x', bdm=mapping), VOLUME),
                (Finding(Reason.DUPLICATE_MAPPING, 'x', bdm=mapping), VOLUME),
                (Finding(Reason.STALE_ATTACHMENT, 'x',
                         attachment=make.attachment(id=ATTACHMENT)),
                 ATTACHMENT)):
            for kind in Kind:
                name = action_events.name_of(
                    kind, finding, Reason.OVER_LIMIT)
                # Nova's column has room for 255 characters.
                self.assertLessEqual(len(name), 255)
                self.assertEqual(
                    ActionEvent(kind, subject, 'over-limit', 'compute-1'),
                    action_events.parse(name, 'compute-1'))

    def test_only_the_name_of_a_duplicate_names_the_mapping(self) -> None:
        """Say that the server keeps the volume."""
        mapping = make.bdm(volume_id=VOLUME)
        for reason, subject in (
                (Reason.DUPLICATE_MAPPING,
                 'mapping bdm-1 of volume %s' % VOLUME),
                (Reason.VOLUME_MISSING, 'volume %s' % VOLUME)):
            self.assertEqual(
                'bdm_cleanup removed %s (%s)' % (subject, reason),
                action_events.name_of(
                    Kind.REMOVED, Finding(reason, 'x', bdm=mapping), reason))

    def test_reconnect_names_volume_and_reason(self) -> None:
        finding = Finding(Reason.HALF_MOVED, 'x', action=Action.RECONNECT,
                          bdm=make.bdm(volume_id=VOLUME))
        name = 'bdm_cleanup reconnected volume %s (half-moved)' % VOLUME
        self.assertEqual(name, action_events.name_of(
            Kind.RECONNECTED, finding, finding.reason))
        self.assertEqual(
            ActionEvent(Kind.RECONNECTED, VOLUME, 'half-moved'),
            action_events.parse(name))

    def test_the_events_of_others_are_not_read(self) -> None:
        for name in ('compute_reboot_instance', '', 'bdm_cleanup',
                     'bdm_cleanup broke volume %s (stuck)' % VOLUME,
                     'bdm_cleanup removed volume %s' % VOLUME,
                     'x bdm_cleanup removed volume %s (stuck)' % VOLUME,
                     'bdm_cleanup removed volume %s (stuck) x' % VOLUME):
            self.assertIsNone(action_events.parse(name))
