# SPDX-License-Identifier: Apache-2.0
"""The records of a snapshot, indexed by volume and by attachment."""

from __future__ import annotations

from collections.abc import Iterable
import dataclasses
from typing import Any

from nova_bdm_cleanup.rules import facts
from nova_bdm_cleanup.rules.world import World
from nova_bdm_cleanup.tests.unit import base, make

FOREIGN = make.volume(project=make.OTHER_PROJECT)
ROOT = make.root()


def world(*args: Any, **values: Any) -> World:
    return World(make.snapshot(*args, **values), facts.Policy(), make.NOW)


def uuids(bdms: Iterable[facts.Bdm]) -> list[str]:
    return [b.uuid for b in bdms]


class MappingsTest(base.TestCase):

    def test_connected_mappings_come_first_then_by_device_and_uuid(
            self) -> None:
        bdms = [make.bdm(uuid=uuid, device_name=device,
                         has_connection_info=connected)
                for uuid, device, connected in (
                    ('7', '/dev/vdb', False), ('6', None, False),
                    ('5', '/dev/vdc', True), ('4', '/dev/vdb', True),
                    ('3', '/dev/vdb', True), ('2', None, True))]
        self.assertEqual(['2', '3', '4', '5', '6', '7'],
                         uuids(world(bdms, roots=()).bdms))

    def test_the_mappings_of_a_volume_are_in_that_order(self) -> None:
        found = world([
            make.bdm(uuid='3', device_name='/dev/vdc'),
            make.bdm(uuid='2', volume_id='volume-2'),
            make.bdm(uuid='1', attachment_id='attachment-2')])
        self.assertEqual({'volume-1': ['1', '3'], 'volume-2': ['2']},
                         {v: uuids(b) for v, b in found.bdms_of.items()})
        self.assertEqual(
            {'attachment-1': ['2', '3'], 'attachment-2': ['1']},
            {a: uuids(b) for a, b in found.carriers_of.items()})

    def test_a_mapping_that_names_neither_is_in_neither_index(self) -> None:
        found = world([make.bdm(volume_id=None, attachment_id='')])
        self.assertEqual(({}, {}), (found.bdms_of, found.carriers_of))
        self.assertIn('bdm-1', uuids(found.bdms))

    def test_server_has_a_root_if_a_mapping_may_be_root(self) -> None:
        data = make.bdm(boot_index=1)
        for roots, has_root in (
                ((), False), ([data], False), ([data, ROOT], True),
                ([make.bdm(may_be_root=True)], True),
                # None is not the first to boot from.
                ([make.bdm(boot_index=None)], False)):
            self.assertIs(has_root, world(roots=roots).has_root)


class AttachmentsTest(base.TestCase):

    def test_an_attachment_is_unaccounted_if_no_mapping_names_it(
            self) -> None:
        own, other = make.attachment(), make.attachment(id='attachment-9')
        found = world([make.bdm()], [make.volume()], [own, other])
        self.assertEqual([other], found.unaccounted)
        self.assertEqual({own.id: own, other.id: other}, found.attachments)

    def test_attachments_to_other_servers_are_not_ours(self) -> None:
        self.assertEqual({}, world([make.bdm()], [make.volume()], [
            make.attachment(server_id=make.OTHER_SERVER),
            make.attachment(id='attachment-2', server_id=None)]).ours_of)

    def test_ours_are_sorted_by_id(self) -> None:
        found = world([make.bdm()], [make.volume()], [
            make.attachment(id='attachment-%s' % n) for n in '213'])
        self.assertEqual(
            ['attachment-1', 'attachment-2', 'attachment-3'],
            [a.id for a in found.ours_of['volume-1']])

    def test_named_attachment_of_a_foreign_volume_is_ours(self) -> None:
        own, other = make.attachment(), make.attachment(id='attachment-9')
        found = world([make.bdm()], [FOREIGN], [own, other])
        self.assertEqual({other.id}, found.foreign)
        self.assertEqual({'volume-1': [own]}, found.ours_of)

    def test_attachment_named_by_a_mapping_is_never_foreign(self) -> None:
        self.assertEqual(set(), world(
            [make.bdm()], [FOREIGN], [make.attachment()]).foreign)


class VolumeTest(base.TestCase):

    def test_a_volume_that_cinder_does_not_show_is_absent(self) -> None:
        volume = make.volume()
        found = world(volumes=[volume], missing=['gone'])
        self.assertIs(volume, found.volume('volume-1'))
        for name in ('gone', 'unknown', '', None):
            self.assertIs(facts.ABSENT, found.volume(name))


class IsMovingTest(base.TestCase):

    def test_a_volume_that_is_detached_or_migrated_moves_the_server(
            self) -> None:
        for values, is_moving in (
                ({}, False), ({'status': 'available'}, False),
                ({'status': 'attaching'}, False),
                ({'status': 'detaching'}, True),
                ({'status': 'retyping'}, True),
                ({'status': 'maintenance'}, True),
                ({'migration_status': 'migrating'}, True),
                ({'migration_status': 'success'}, False)):
            found = world([make.bdm()], [
                make.volume(id='volume-2'), make.volume(**values)])
            self.assertIs(is_moving, bool(found.moving), values)

    def test_a_missing_volume_does_not_move_the_server(self) -> None:
        self.assertFalse(world([make.bdm()], missing=['volume-1']).moving)

    def test_a_foreign_volume_moves_the_server_only_with_a_mapping(
            self) -> None:
        volume = make.volume(status='detaching', project=make.OTHER_PROJECT)
        for bdms, is_moving in (([], False), ([make.bdm()], True)):
            self.assertIs(is_moving, bool(world(bdms, [volume]).moving))
        self.assertTrue(world(volumes=[
            make.volume(status='detaching')]).moving)

    def test_without_a_mapping_only_a_detach_is_over_under_the_lock(
            self) -> None:
        for values, is_moving in (
                ({'status': 'detaching'}, False),
                ({'status': 'detaching', 'migration_status': 'migrating'},
                 True),
                ({'status': 'retyping'}, True)):
            seen = dataclasses.replace(
                make.snapshot(volumes=[make.volume(**values)]),
                holds_lock=True)
            self.assertIs(is_moving, bool(World(
                seen, facts.Policy(), make.NOW).moving), values)


class MayHaveSwappedTest(base.TestCase):

    def test_a_failed_swap_may_have_left_an_attachment(self) -> None:
        own = make.attachment()
        other = make.attachment(id='attachment-9', volume_id='volume-9')
        for volume, attachments, expected in (
                (make.volume(id='volume-9'), [own], False),
                (make.volume(id='volume-9'), [own, other], True),
                # A swap connects another volume.
                (make.volume(id='volume-9'), [own, dataclasses.replace(
                    other, volume_id=own.volume_id)], False),
                (dataclasses.replace(FOREIGN, id='volume-9'), [own, other],
                 False)):
            self.assertIs(expected, world(
                [make.bdm()], [make.volume(), volume], attachments,
                swaps=facts.Ending.FAILURE).may_have_swapped)

    def test_another_swap_has_left_nothing(self) -> None:
        for ending in (facts.Ending.SUCCESS, facts.Ending.NONE):
            self.assertFalse(world(
                [], [make.volume()], [make.attachment()],
                swaps=ending).may_have_swapped)
