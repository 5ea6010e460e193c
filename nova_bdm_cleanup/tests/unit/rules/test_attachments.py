# SPDX-License-Identifier: Apache-2.0
"""The table of the attachments, row by row."""

from __future__ import annotations

import dataclasses
from typing import Any

import testscenarios

from nova_bdm_cleanup.rules import attachments, facts, mappings, table
from nova_bdm_cleanup.rules.facts import Policy
from nova_bdm_cleanup.rules.world import World
from nova_bdm_cleanup.tests.unit import base, make
from nova_bdm_cleanup.tests.unit.make import decide

load_tests = testscenarios.load_tests_apply_scenarios


STALE = make.attachment(id='attachment-9', volume_id='volume-9')
VOLUME_9 = make.volume(id='volume-9')
SECOND = dataclasses.replace(STALE, volume_id='volume-1')
RESERVED: Any = {'status': 'reserved', 'connected': False}
ATTACHING = {'status': 'attaching', 'connected': False}


def beside(attachment, *volumes, **values):
    """Return a look at an attachment and a healthy disk."""
    return make.snapshot(
        [make.bdm()],
        [make.volume(attached_to=(make.attached_to(),)), *volumes],
        [make.attachment(), attachment], **values)


def stale(**values):
    return beside(dataclasses.replace(STALE, **values), VOLUME_9)


def of_volume(**values):
    """Return a look at an attachment of a volume with these values."""
    return beside(STALE, dataclasses.replace(VOLUME_9, **values))


def while_another_is(**values):
    return beside(STALE, VOLUME_9, make.volume(id='volume-8', **values))


def second(host=None, own_host=make.HOST, own=(), **values):
    """Return a look at a second attachment of a healthy volume.

    It has the hosts that Cinder tells, and the initiators of the back end.
    """
    further = dataclasses.replace(SECOND, **values)
    return make.snapshot(
        [make.bdm()], [make.volume(attached_to=(
            make.attached_to(host=own_host),
            make.attached_to(attachment_id=further.id, host=host)))],
        [make.attachment(initiators=frozenset(own)), further])


def evacuated(host):
    """Return a second attachment of a disk that is evacuated."""
    return dataclasses.replace(
        second(host, make.OTHER_HOST), guest=facts.Guest.ARRIVES,
        server=make.server(host='', former_host=make.HOST))


#: id, the look, and the finding about the attachment; "!": it is deleted.
STALE_ROWS = (
    ('only reserved', stale(**RESERVED), 'stale-attachment!'),
    ('only reserved, for a volume in order', beside(dataclasses.replace(
        SECOND, **RESERVED)), 'stale-attachment!'),
    ('connected without a mapping', stale(), 'stale-attachment!'),
    ('connected but not attached without a mapping',
     stale(status='attaching'), 'stale-attachment!'),
    ('legacy without a mapping', stale(connected=False),
     'legacy-attachment'),
    ('attaching and not connected yet', stale(**ATTACHING),
     'operation-in-flight'),
    ('of another server', stale(server_id=make.OTHER_SERVER), 'cross-wired'),
    ('of no server', stale(server_id=None), 'cross-wired'),
    ('of a volume that Cinder does not know',
     beside(STALE, missing=['volume-9']), 'status-contradiction'),
    ('of a volume that is busy', of_volume(status='error'), 'volume-busy'),
    ('of a volume that is deleted right now', of_volume(status='deleting'),
     'volume-busy'),
    ('while its own volume is being detached', of_volume(status='detaching'),
     'operation-in-flight'),
    ('while a volume is retyped', while_another_is(status='retyping'),
     'operation-in-flight'),
    ('while a volume is in maintenance',
     while_another_is(status='maintenance'), 'operation-in-flight'),
    ('while a volume migrates',
     while_another_is(migration_status='migrating'), 'operation-in-flight'),
    ('a second of a healthy volume, no host known', second(),
     'duplicate-attachment'),
    ('a second of a healthy volume, of this host', second(make.HOST),
     'duplicate-attachment'),
    ('a second of a healthy volume, of another host',
     second(make.OTHER_HOST), 'stale-attachment!'),
    # Up to Nova 26 a host could be renamed, and Cinder keeps its old name.
    *(('a second of a healthy volume, of this host by the name %s' % name,
       second(name), 'duplicate-attachment')
      for name in ('compute-1.example.org', 'COMPUTE-1', 'Compute-1.local')),
    ('a second of a healthy volume, of a host with another initiator',
     second(make.OTHER_HOST, own=('5002', '5003'),
            initiators=frozenset(('5001',))), 'stale-attachment!'),
    ('a second of a healthy volume, by the same initiator, whatever its host '
     'is called', second(make.OTHER_HOST, own=('5002', '5003'),
                         initiators=frozenset(('5001', '5002'))),
     'duplicate-attachment'),
    # A guest whose live migration failed may run on the other host.
    ('a second of a volume that is attached on another host',
     second(make.HOST, make.OTHER_HOST), ''),
    ('a second of a volume that is healthy on an unknown host',
     second(make.OTHER_HOST, None), 'duplicate-attachment'),
    *(('a second of a disk that is evacuated, of host %s' % host,
       evacuated(host), expected) for host, expected in (
           (make.HOST, 'stale-attachment!'),
           ('compute-3', 'duplicate-attachment'),
           (None, 'duplicate-attachment'))),
    ('a legacy second of a healthy volume', second(connected=False),
     'legacy-attachment'),
    ('reserved yet connected, a second of a healthy volume',
     second(status='reserved'), 'duplicate-attachment'),
    ('while Nova lists no root disk', beside(STALE, VOLUME_9, roots=()),
     'status-contradiction'),
    *(('%s, seen with the credentials of the project only' % values, beside(
        dataclasses.replace(STALE, **values), VOLUME_9, sees_all=False),
       'cannot-see-project') for values in ({}, RESERVED)),
    ('of a volume of another project', of_volume(project=make.OTHER_PROJECT),
     ''),
    ('of a volume of an unknown project', of_volume(project=None),
     'cannot-see-project'),
    # Attachments that a row of the mappings decides
    ('of a volume whose mapping is in flight', make.snapshot(
        [make.bdm()], [make.volume(status='detaching')],
        [make.attachment(), SECOND]), ''),
    # It is why the volume is reserved, and the disk is healthy without it.
    ('of a reserved volume whose mapping is healthy', make.snapshot(
        [make.bdm()], [make.volume(status='reserved')],
        [make.attachment(), SECOND]), 'duplicate-attachment'),
    ('that reserves the volume of a healthy mapping', make.snapshot(
        [make.bdm()], [make.volume(status='reserved')],
        [make.attachment(), make.attachment(
            id='attachment-2', status='reserved', connected=False)]),
     'stale-attachment!'),
    ('of a volume whose mapping is older than Queens', make.snapshot(
        [make.bdm(attachment_id=None)],
        [make.volume(attached_to=(make.attached_to(),))],
        [make.attachment(connected=False)]), ''),
    # Without a mapping, no detach is under way while Nova's lock is held.
    ('while its own volume is being detached under the lock',
     dataclasses.replace(of_volume(status='detaching'), holds_lock=True),
     'stale-attachment!'),
    ('left by a swap that is ended', dataclasses.replace(make.snapshot(
        [make.bdm()], [make.volume(status='detaching'), VOLUME_9],
        [make.attachment(), dataclasses.replace(STALE, **RESERVED)],
        swaps=facts.Ending.FAILURE), holds_lock=True), ''),
    *(('of a volume that is %s and that an image mapping has' % status,
       make.snapshot([], [make.volume(status=status)],
                     [make.attachment(), *more],
                     roots=[make.bdm(source_type='image', boot_index=0)]), '')
      for status, more in (('in-use', ()), ('detaching', (SECOND,)))),
)


class AttachmentsTest(base.TestCase):
    """Each row of the second table: attachments that no mapping carries."""

    scenarios = base.scenarios(STALE_ROWS, 'seen', 'expected')

    def test_finding_of_the_row(self):
        found = [f for f in decide(self.seen).findings if not f.bdm]
        self.assertEqual(self.expected,
                         make.reasons_in(facts.Plan(tuple(found))))


class CoverageTest(base.TestCase):

    def test_every_row_has_a_test_above(self):
        tested = set()
        for _name, seen, _expected in STALE_ROWS:
            world = World(seen, Policy(), make.NOW)
            found = mappings.mappings_of(world)
            tested.update(id(table.first(
                attachments.ATTACHMENTS.rows,
                attachments.AttachmentFacts(a, found, world)))
                for a in world.unaccounted)
        self.assertEqual([], [r.cell for r in attachments.ATTACHMENTS.rows
                              if id(r) not in tested])


FOREIGN = dataclasses.replace(VOLUME_9, project=make.OTHER_PROJECT)
ADMINS = make.volume(project=make.OTHER_PROJECT)

#: id, the look, and the findings; "!": it is removed.
LOOKS = (
    *(('every mapping of the volume must be of this host, %s' % host,
       make.snapshot(
           [make.bdm(), make.bdm(uuid='bdm-2', attachment_id='attachment-2')],
           [make.volume(attached_to=(
               make.attached_to(), make.attached_to(
                   attachment_id='attachment-2', host=host),
               make.attached_to(attachment_id='attachment-9',
                                host=make.OTHER_HOST)))],
           [make.attachment(), make.attachment(id='attachment-2'), SECOND]),
       expected)
      for host, expected in (
          (make.HOST, 'healthy healthy stale-attachment!'),
          (None, 'healthy healthy duplicate-attachment'),
          (make.OTHER_HOST, 'healthy half-moved'))),
    ('several stale attachments of one volume all go', make.snapshot(
        [], [VOLUME_9], [STALE, dataclasses.replace(
            STALE, id='attachment-8')]),
     'stale-attachment! stale-attachment!'),

    # Records of another project on a volume of its own
    # Eight of them once kept a dangling disk forever.
    ('it does not count', make.snapshot(
        [make.bdm()], [make.volume(status='available'), FOREIGN],
        [dataclasses.replace(STALE, id='foreign-%d' % n)
         for n in range(99)]), 'volume-available!'),
    ('its volume does not move the server', make.snapshot(
        [], [VOLUME_9, dataclasses.replace(
            FOREIGN, id='volume-8', status='detaching')],
        [STALE, dataclasses.replace(
            STALE, id='foreign', volume_id='volume-8')]), 'stale-attachment!'),
    ('the volume of a mapping moves the server whosever it is', make.snapshot(
        [make.bdm()], [VOLUME_9, dataclasses.replace(
            ADMINS, status='detaching')], [make.attachment(), STALE]),
     'operation-in-flight operation-in-flight'),
    # An administrator may attach a volume of another project.
    ('what a mapping names is never foreign', make.snapshot(
        [make.bdm()], [ADMINS], [make.attachment()]), 'healthy'),
    *((name + ' is left alone, %s' % values, make.snapshot(
        [make.bdm()], volumes, [make.attachment(), dataclasses.replace(
            its, **values)]), 'healthy')
      for name, volumes, its in (
          ('what is on a volume without a mapping',
           [make.volume(), FOREIGN], STALE),
          ('a second one of a mapped volume', [ADMINS], SECOND))
      for values in ({}, {'connected': False}, RESERVED,
                     {'status': 'reserved'}, ATTACHING,
                     {'status': 'attaching'})),
    *(('whose it is must be known, %s %s' % (server, project),
       beside(STALE, dataclasses.replace(VOLUME_9, project=project),
              project=server),
       'healthy cannot-see-project')
      for server, project in ((make.PROJECT, None), (None, make.PROJECT),
                              (None, None))),
)


class ForeignTest(base.TestCase):
    """Several attachments, and the records of another project."""

    scenarios = base.scenarios(LOOKS, 'seen', 'expected')

    def test_findings_of_the_row(self):
        self.assertEqual(self.expected, make.reasons_in(decide(self.seen)))


def of_host(host):
    return of_volume(attached_to=(
        make.attached_to(attachment_id='attachment-9', host=host),))


class DeletionTest(base.TestCase):
    """The deletion of an attachment."""

    def test_only_a_device_of_this_host_is_disconnected(self):
        """Disconnect only a device that may be left on this host."""
        no_mapping = 'no block device mapping of the server'
        for look, disconnect, words in (
                (of_host(make.HOST), True, no_mapping),
                (of_host(make.HOST.upper()), True, no_mapping),
                # Its address may belong to another disk on this host.
                (stale(), False, no_mapping),
                (of_host(make.OTHER_HOST), False, no_mapping),
                (stale(**RESERVED), False, 'only reserves'),
                # The healthy mapping of the same volume is connected here.
                (second(make.OTHER_HOST), False, 'another host')):
            [finding] = decide(look).due
            self.assertEqual(disconnect, finding.disconnect)
            self.assertIn(words, finding.explanation)
