# SPDX-License-Identifier: Apache-2.0
"""The tables of the mappings, row by row."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import testscenarios

from nova_bdm_cleanup.rules import decision, disks, facts, mappings, table
from nova_bdm_cleanup.rules.facts import Action, Attach, Guest, InGuest, Policy
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.rules.world import World
from nova_bdm_cleanup.tests.unit import base, make
from nova_bdm_cleanup.tests.unit.make import decide

load_tests = testscenarios.load_tests_apply_scenarios


BDM = make.bdm()
RESERVING: Any = {'status': 'reserved', 'connected': False}
YOUNG = make.bdm(attachment_id=None, has_connection_info=False,
                 created_at=make.ago(10))
UNCONNECTED = dataclasses.replace(YOUNG, created_at=make.ago(86400))
#: Nova has not connected it yet.
UNCONNECTED_YET = dataclasses.replace(UNCONNECTED,
                                      attachment_id='attachment-1')
PRE_QUEENS = make.bdm(attachment_id=None)
OWN = make.attachment()
SECOND = make.attachment(id='attachment-2')
RESERVED = make.attachment(status='reserved', connected=False)
#: Made by a move that did not save it in the mapping.
UNSAVED = dataclasses.replace(RESERVED, id='attachment-2')
AVAILABLE = make.volume(status='available')
#: The addresses of two paths to one disk.
PATHS = (('target-1', '1'), ('target-2', '1'))
DETACHING = make.volume(status='detaching')
#: The volume and the attachment that a swap gets.
SECOND_VOLUME = make.volume(id='volume-2', status='attaching')
NEW = make.attachment(id='attachment-2', volume_id='volume-2',
                      status='attaching')
#: Entries of the volume's attachment list.
HERE = make.attached_to()
ELSEWHERE = make.attached_to(make.OTHER_SERVER, 'attachment-2')
BY_A_HOST = make.attached_to(None, 'attachment-2')


def seen(bdms, volume, *attachments, **values):
    """Return a look at mappings of one volume; None: it does not exist."""
    return make.snapshot(
        bdms, [volume] if volume else [], attachments,
        missing=() if volume else ['volume-1'], **values)


def of(volume, *attachments, bdm=BDM):
    return seen([bdm], volume, *attachments)


def in_state(status, *attachments, bdm=BDM, **values):
    return of(make.volume(status=status, **values), *attachments, bdm=bdm)


def listed(*entries, bdm=BDM, own=(), **values):
    """Return a look at a volume with these entries in its list."""
    return of(make.volume(attached_to=entries, **values), *own, bdm=bdm)


def attach(ending, look):
    """Return a look at a disk whose attach ended in a way."""
    return dataclasses.replace(
        look, attaches={'bdm-1': ending}, guest_is_here=True)


def swapped(volume=DETACHING, further=SECOND_VOLUME,
            record=NEW, swaps=facts.Ending.FAILURE, holds_lock=True,
            bdm=BDM, own=(OWN,), had=None, is_here=True, more=(),
            guest=Guest.STARTS):
    """Return a look at a disk whose swap for another volume ended half way.

    :param had: the disk that the guest had in its place; None: not known
    :param own: the attachments of its volume
    :param more: other attachments
    """
    return dataclasses.replace(
        make.snapshot([bdm], [v for v in (volume, further) if v],
                      [*own, *([record] if record else ()), *more],
                      swaps=swaps),
        holds_lock=holds_lock, guest_is_here=is_here,
        guest=guest,
        sources={'bdm-1': had} if had else None)


#: The disk of the mapping, that of the swap, and another one.
OLD_DISK, NEW_DISK, OTHER_DISK = (
    facts.Source(make.addresses(volume))
    for volume in ('volume-1', 'volume-2', 'volume-3'))


#: id, the look at one mapping, and the finding; "!": it is removed; "+": it is
#: reconnected.
ROWS = (
    ('a volume that does not exist', of(None), 'volume-missing!'),
    ('a missing volume with an attachment', of(None, OWN),
     'status-contradiction'),
    ('an available volume and a young mapping: an attach begins',
     of(AVAILABLE, bdm=YOUNG), 'attach-in-flight'),
    *(('%s volume and an unconnected mapping whose attach is %s'
       % (status, ending.value), attach(
           ending, in_state(status, RESERVED, bdm=UNCONNECTED_YET)), expected)
      for ending, status, expected in (
          (Attach.FAILED, 'reserved', 'never-attached!'),
          (Attach.FAILED, 'attaching', 'never-attached!'),
          (Attach.FAILED, 'in-use', 'never-attached!'),
          (Attach.FAILED, 'detaching', 'operation-in-flight'),
          (Attach.UNKNOWN, 'reserved', 'operation-in-flight'))),
    *(('an attach that died in Cinder\'s answer, absent: %s' % sorted(absent),
       dataclasses.replace(attach(Attach.FAILED, in_state(
           'attaching', make.attachment(status='attaching'),
           bdm=dataclasses.replace(
               UNCONNECTED_YET, attachment_id='attachment-1'))),
           absent=frozenset(absent)), expected)
      for absent, expected in (
          ({'attachment-1'}, 'never-attached!'),
          # nova-compute may have connected it.
          (set(), 'stuck'), ({'attachment-2'}, 'stuck'))),
    ('an available volume and a young mapping whose attach has failed',
     attach(Attach.FAILED, of(AVAILABLE, bdm=YOUNG)), 'volume-available!'),
    ('a reserved volume and a young mapping whose attach has failed',
     attach(Attach.FAILED, in_state('reserved', bdm=YOUNG)),
     'never-attached!'),
    ('attached, without connection information; the attach has failed',
     attach(Attach.FAILED, of(
         make.volume(), OWN, bdm=UNCONNECTED_YET)), 'status-contradiction'),
    ('a reserved root disk without connection information',
     attach(Attach.FAILED, in_state('reserved', RESERVED, bdm=(
         dataclasses.replace(UNCONNECTED_YET, boot_index=0)))),
     'root-volume-dangling'),
    ('a missing volume and a young mapping: an attach begins',
     of(None, bdm=YOUNG), 'attach-in-flight'),
    ('a reserved volume and a young mapping: an attach begins',
     in_state('reserved', RESERVED, bdm=YOUNG), 'attach-in-flight'),
    ('an available volume and a connected mapping, however young',
     of(AVAILABLE, bdm=make.bdm(created_at=make.ago(1))),
     'volume-available!'),
    ('an available volume without attachment', of(AVAILABLE),
     'volume-available!'),
    ('an available volume and an old unconnected mapping',
     of(AVAILABLE, bdm=UNCONNECTED), 'volume-available!'),
    ('an available volume with an attachment left over', of(AVAILABLE, OWN),
     'volume-available!'),
    ('an available volume with another attachment left over',
     of(AVAILABLE, SECOND), 'volume-available!'),
    ('an available volume that lists an attachment of ours',
     listed(HERE, status='available'), 'status-contradiction'),
    # Cinder begins a transfer only of an available volume.
    ('a volume in a transfer, without attachment',
     in_state('awaiting-transfer'), 'volume-available!'),
    ('a volume in a transfer, and before Queens',
     in_state('awaiting-transfer', bdm=PRE_QUEENS), 'volume-available!'),
    ('a volume in a transfer, with an attachment of ours',
     in_state('awaiting-transfer', OWN), 'volume-busy'),
    ('a volume in a transfer, with another attachment of ours',
     in_state('awaiting-transfer', SECOND), 'volume-busy'),
    ('a volume in a transfer that lists an attachment of ours',
     listed(HERE, status='awaiting-transfer'), 'volume-busy'),
    ('an in-use volume with its own attachment', of(make.volume(), OWN),
     'healthy'),
    *(('attached, and the volume lists host %s' % host, listed(
        make.attached_to(host=host), own=[OWN]), expected)
      for host, expected in (
          (make.HOST, 'healthy'), (make.HOST.upper(), 'healthy'),
          (None, 'healthy'), (make.OTHER_HOST, 'half-moved'))),
    *(('attached, %s' % words, of(
        make.volume(), make.attachment(addresses=frozenset(shown)),
        bdm=make.bdm(addresses=frozenset(kept))), expected)
      for words, kept, shown, expected in (
          ('by another address', PATHS[:1], PATHS[1:], 'half-moved'),
          ('by some of its paths', PATHS, PATHS[1:], 'healthy'),
          ('by a name in the mapping', (), PATHS, 'healthy'),
          ('by an address that Cinder does not tell', PATHS, (), 'healthy'))),
    ('attached to another host, and others change the multiattach volume',
     listed(make.attached_to(host=make.OTHER_HOST), own=[OWN],
            status='attaching', multiattach=True), 'half-moved'),
    ('an attached volume that Nova does not connect',
     of(make.volume(), OWN, bdm=make.bdm(has_connection_info=False)),
     'status-contradiction'),
    ('an in-use volume although others are attached as well',
     listed(HERE, ELSEWHERE, own=[OWN], multiattach=True), 'healthy'),
    *(('another server changes a multiattach volume, %s' % status,
       in_state(status, OWN, multiattach=True), 'healthy')
      for status in ('detaching', 'reserved', 'attaching')),
    ('a detaching multiattach volume without our attachment has to wait',
     in_state('detaching', multiattach=True), 'operation-in-flight'),
    ('an attachment that is not attached: a move ended half way',
     of(make.volume(), make.attachment(status='attaching')), 'half-moved'),
    ('an attachment that is not attached yet: an attach is under way',
     of(make.volume(), make.attachment(status='attaching'),
        bdm=UNCONNECTED_YET), 'operation-in-flight'),
    ('the attachment missing and another one attached, perhaps elsewhere',
     of(make.volume(), SECOND), 'attachment-mismatch'),
    ('the attachment missing and another one attached here',
     listed(make.attached_to(attachment_id='attachment-2'), own=[SECOND]),
     'attachment-mismatch+'),
    ('the attachment reserved and another one attached, perhaps elsewhere',
     of(make.volume(), RESERVED, SECOND), 'attachment-mismatch'),
    ('the attachment reserved and another one attached here',
     listed(make.attached_to(attachment_id='attachment-2'),
            own=[RESERVED, SECOND]), 'attachment-mismatch+'),
    ('only the list of the volume names this server: a person decides',
     listed(make.attached_to(attachment_id='attachment-2')),
     'attachment-mismatch'),
    ('the list names this server without an id: a person decides',
     listed(make.attached_to(attachment_id=None)), 'attachment-mismatch'),
    ('a volume attached to another server only', listed(ELSEWHERE),
     'attached-elsewhere!'),
    ('a multiattach volume attached to other servers only', listed(
        ELSEWHERE, make.attached_to('server-3', 'attachment-3'),
        multiattach=True), 'attached-elsewhere!'),
    ('a volume attached to another server and to us by another record',
     listed(ELSEWHERE, make.attached_to(attachment_id='attachment-3'),
            multiattach=True), 'attachment-mismatch'),
    ('an in-use volume of no server', of(make.volume()),
     'status-contradiction'),
    ('an in-use volume of a host and no server', listed(BY_A_HOST),
     'status-contradiction'),
    ('attached to another server and to a host', listed(BY_A_HOST, ELSEWHERE),
     'attached-elsewhere!'),
    ('only reserved, and Nova has connected it: a shelve ended half way',
     in_state('reserved', RESERVED), 'reserved-only+'),
    ('only reserved, and others use the multiattach volume',
     listed(ELSEWHERE, own=[RESERVED], multiattach=True), 'reserved-only+'),
    ('only reserved, and Nova has not connected it: an attach',
     in_state('reserved', RESERVED, bdm=UNCONNECTED_YET),
     'operation-in-flight'),
    *(('its own is gone and what no mapping names reserves it, %s' % status,
       in_state(status, UNSAVED), expected)
      for status, expected in (
          ('reserved', 'half-moved+'), ('attaching', 'half-moved+'),
          ('in-use', 'half-moved+'),
          # Somebody detaches it, or did.
          ('detaching', 'half-moved'))),
    ('the same for two hours',
     in_state('reserved', UNSAVED, updated_at=make.ago(7200)), 'half-moved+'),
    ('the same of a multiattach volume that others use',
     listed(ELSEWHERE, own=[UNSAVED], multiattach=True), 'half-moved+'),
    ('the same of the root disk',
     in_state('reserved', UNSAVED, bdm=make.bdm(boot_index=0)), 'half-moved+'),
    ('two of them, since the repair died as well', in_state(
        'reserved', UNSAVED, dataclasses.replace(UNSAVED, id='attachment-3')),
     'half-moved+'),
    # The reset of the state offers the volume to every server.
    ('the same, and the volume was reset to available',
     of(AVAILABLE, UNSAVED), 'volume-available!'),
    ('its own is gone and another one is being connected',
     in_state('attaching', dataclasses.replace(
         UNSAVED, status='attaching', connected=True)),
     'half-moved+'),
    ('its own is gone, one reserves it, and one is attached: detaching',
     in_state('detaching', UNSAVED, make.attachment(id='attachment-3')),
     'operation-in-flight'),
    ('its own is gone, and Nova never connected it: an attach died',
     in_state('reserved', UNSAVED, bdm=UNCONNECTED_YET),
     'operation-in-flight'),
    ('before Queens, and one reserves it',
     in_state('reserved', UNSAVED, bdm=PRE_QUEENS), 'half-moved'),
    ('a reserved volume has to wait', in_state('reserved'),
     'operation-in-flight'),
    *(('a volume that is %s by another attachment' % status,
       in_state(status, OWN), 'healthy')
      for status in ('attaching', 'reserved')),
    *(('an attaching volume has to wait, %s' % name, dataclasses.replace(
        in_state('attaching', own, bdm=bdm),
        server=make.server(is_busy=is_busy)), 'operation-in-flight')
      for name, own, bdm, is_busy in (
          ('Nova works on the server', OWN, BDM, True),
          ('Nova works on the server, and it is not attached',
           make.attachment(status='attaching'), BDM, True),
          ('Nova has not connected it', make.attachment(status='attaching'),
           UNCONNECTED_YET, False))),
    ('in use by an attachment under way, and Nova works on the server',
     dataclasses.replace(
         of(make.volume(), make.attachment(status='attaching')),
         server=make.server(is_busy=True)), 'operation-in-flight'),
    ('a detaching volume has to wait, its attachment in order',
     in_state('detaching', OWN), 'operation-in-flight'),
    ('a volume that says detaching for too long',
     in_state('detaching', OWN, updated_at=make.ago(3600)), 'stuck'),
    ('a volume of unknown age',
     in_state('detaching', updated_at=None), 'operation-in-flight'),
    ('a volume under migration',
     in_state('available', migration_status='migrating'), 'volume-busy'),
    ('a migration that Cinder has no known word for',
     in_state('in-use', OWN, migration_status='unheard-of'), 'volume-busy'),
    ('a migration that ended does not matter',
     in_state('available', migration_status='success'), 'volume-available!'),
    ('a migration that failed does not matter',
     in_state('in-use', OWN, migration_status='error'), 'healthy'),
    *(('the attachment belongs to %s' % words, of(
        volume, make.attachment(**values)), 'cross-wired')
      for words, volume, values in (
          ('another server', AVAILABLE, {'server_id': make.OTHER_SERVER}),
          ('no server', make.volume(), {'server_id': None}),
          ('another volume', make.volume(), {'volume_id': 'volume-2'}))),
    *(('before Queens, %s' % words, look, found)
      for words, look, found in (
          ('this server in the list of the volume', listed(
              HERE, bdm=PRE_QUEENS, own=[make.attachment(connected=False)]),
           'healthy'),
          ('the list names another host', listed(
              make.attached_to(host=make.OTHER_HOST), bdm=PRE_QUEENS),
           'half-moved'),
          ('only other servers in the list', listed(
              ELSEWHERE, bdm=PRE_QUEENS), 'attached-elsewhere!'),
          ('no server in the list', of(make.volume(), bdm=PRE_QUEENS),
           'status-contradiction'),
          ('available', of(AVAILABLE, bdm=PRE_QUEENS), 'volume-available!'),
          ('missing', of(None, bdm=PRE_QUEENS), 'volume-missing!'),
          ('a multiattach volume that others change', listed(
              HERE, bdm=PRE_QUEENS, status='attaching', multiattach=True),
           'healthy'))),
    ('never connected, and the list names this server: a person decides',
     listed(HERE, bdm=UNCONNECTED), 'attachment-mismatch'),
    ('never connected, and its volume in the use of somebody unknown',
     of(make.volume(), bdm=UNCONNECTED), 'status-contradiction'),
    *(('a volume that is %s' % status, in_state(status, OWN), 'volume-busy')
      for status in ('creating', 'deleting', 'error', 'error_deleting',
                     'maintenance', 'retyping', 'extending', 'uploading',
                     'backing-up', 'restoring-backup',
                     'downloading', 'AVAILABLE', 'unheard-of')),
)


class MappingsTest(base.TestCase):
    """Each row of the first table."""

    scenarios = base.scenarios(ROWS, 'seen', 'expected')

    def test_finding_of_the_row(self):
        [finding] = [f for f in decide(self.seen).findings if f.bdm]

        self.assertEqual(self.expected,
                         make.reasons_in(facts.Plan((finding,))))
        self.assertIs(self.seen.bdms[-1], finding.bdm)
        self.assertTrue(finding.explanation)
        is_removed = self.expected.endswith('!')
        is_reconnected = self.expected.endswith('+')
        self.assertEqual(
            (is_removed, is_reconnected, is_removed or is_reconnected),
            (finding.is_removal, finding.is_reconnect, finding.disconnect))
        self.assertEqual(
            {*self.seen.attachments} if finding.is_due else set(),
            {*finding.dependent, finding.first} - {None})


def young(age, **values):
    return dataclasses.replace(YOUNG, created_at=make.ago(age), **values)


def begun(age):
    return make.volume(status='attaching', updated_at=make.ago(age))


GONE = make.bdm(uuid='bdm-2', attachment_id=None)
SECONDS = {'grace_period': datetime.timedelta(seconds=300),
           'stuck_after': datetime.timedelta(seconds=120)}

#: A second mapping of a healthy disk.
SPARE = make.bdm(uuid='bdm-2', device_name='/dev/vdc', attachment_id=None,
                 has_connection_info=False)


def spare(second=SPARE, first=None, own=None, more=(), **volume):
    first = first or BDM
    return seen([first, second], make.volume(**volume),
                own or OWN, *more,
                roots=() if first.is_root else (make.root(),))


#: An attachment made by the project that the volume was transferred to.
FORGED = make.attachment(id='forged')


def transferred(bdm=None, *attachments, host=make.OTHER_HOST, listed=(),
                **volume):
    return seen(
        [bdm or BDM],
        make.volume(project=make.OTHER_PROJECT, attached_to=(*listed, *(
            make.attached_to(attachment_id=a.id, host=host)
            for a in attachments if a.status == 'attached')), **volume),
        *attachments)


#: id, the look, the policy, and the findings.
TIMES = (
    ('young until the last second', seen([young(299)], AVAILABLE), SECONDS,
     'attach-in-flight'),
    ('old from then on', seen([young(300)], AVAILABLE), SECONDS,
     'volume-available!'),
    # The clocks of the API's host and of this one differ.
    ('from the future', seen([young(-3600)], AVAILABLE), {},
     'attach-in-flight'),
    ('of unknown age', seen([dataclasses.replace(YOUNG, created_at=None)],
                            AVAILABLE), {}, 'attach-in-flight'),
    ('no grace period', seen([young(0)], AVAILABLE),
     {'grace_period': datetime.timedelta(0)}, 'volume-available!'),
    ('under way until the last second', seen([BDM], begun(119)),
     SECONDS, 'operation-in-flight'),
    ('stuck from then on', seen([BDM], begun(120)), SECONDS, 'stuck'),
)

#: id, the look, and the findings in the order of acting; "!": it is removed;
#: "+": it is reconnected.
LOOKS = (
    # Waiting will not correct the ids that the mapping names.
    ('cross-wired is told before young', seen(
        [young(10, attachment_id='attachment-1')],
        make.volume(status='reserved'),
        make.attachment(server_id=make.OTHER_SERVER)), 'cross-wired'),

    # Credentials
    # The list names the attachment of a volume that is not visible.
    ('a contradiction is told before what a token cannot see', seen(
        [BDM], None, make.attachment(), sees_all=False),
     'status-contradiction'),
    # Cinder answers the same for a volume of another project, which an
    # administrator may have attached.
    ('missing is no proof to the credentials of a project', seen(
        [BDM], None, sees_all=False), 'cannot-see-project'),
    ('available is proof to the credentials of a project', seen(
        [BDM], AVAILABLE, sees_all=False), 'volume-available!'),

    # The state of the server
    ('a mapping without a volume is in flight', make.snapshot(
        [make.bdm(volume_id=None, attachment_id=None,
                  has_connection_info=False)]), 'operation-in-flight'),
    ('reserved for a server that is shelved', seen(
        [BDM], make.volume(status='reserved'), RESERVED,
        is_offloaded=True), 'healthy'),
    ('reserved by what no mapping names, shelved or not', seen(
        [BDM], make.volume(status='reserved'), UNSAVED,
        is_offloaded=True), 'half-moved'),
    ('named by another mapping', seen(
        [BDM, make.bdm(uuid='bdm-2', attachment_id='attachment-2')],
        make.volume(status='reserved'), UNSAVED),
     'half-moved reserved-only'),
    ('reserved for a server that is not', seen(
        [BDM], make.volume(status='reserved'), RESERVED),
     'reserved-only+'),
    *(('before Queens one entry of several is enough, %s %s' % (
        status, entries.index(HERE)), seen(
            [PRE_QUEENS], make.volume(status=status, multiattach=True,
                                      attached_to=entries)), 'healthy')
      for entries in ((ELSEWHERE, HERE), (HERE, ELSEWHERE))
      for status in ('in-use', 'reserved')),

    # The second table
    ('a dangling root whose attachments may serve it elsewhere', seen(
        [make.bdm(boot_index=0)], AVAILABLE, make.attachment(), SECOND),
     'root-volume-dangling'),
    ('a dangling root that nothing attaches', seen(
        [make.bdm(boot_index=0)], AVAILABLE), 'root-volume-dangling+'),
    ('a root in use by another server', seen(
        [make.bdm(boot_index=0)], make.volume(attached_to=(ELSEWHERE,))),
     'root-volume-dangling'),
    # The usual way to boot from a volume.
    *(('a root made from %s' % source, seen(
        [make.bdm(source_type=source, boot_index=0)], None),
       'root-volume-dangling') for source in ('image', 'snapshot', 'blank')),
    *(('perhaps the root, %s' % name, seen(
        [make.bdm(may_be_root=True)], volume, roots=()), reason)
      for name, volume, reason in (
          ('free', AVAILABLE, 'volume-available'), ('gone', None,
                                                    'volume-missing'),
          ('attached elsewhere', make.volume(attached_to=(ELSEWHERE,)),
           'attached-elsewhere'))),
    ('beside one that may be the root', seen(
        [make.bdm(may_be_root=True), GONE], None, roots=()),
     'volume-missing volume-missing'),
    ('beside the root disk', seen([make.bdm(boot_index=0), GONE], None),
     'root-volume-dangling root-volume-dangling'),
    ('beside one made from an image', seen(
        [make.bdm(source_type='image'), GONE], None),
     'volume-missing volume-missing'),
    ('made from an image, and available', seen(
        [make.bdm(source_type='image')], AVAILABLE), 'volume-available'),
    ('beside one made from an image, and available', seen(
        [make.bdm(source_type='image'), GONE], AVAILABLE),
     'volume-available volume-available'),
    ('beside one that is kept', seen([GONE, YOUNG], None),
     'attach-in-flight attach-in-flight'),
    ('its attachment is named by the mapping of another volume', seen(
        [GONE, make.bdm(volume_id='volume-2')], AVAILABLE,
        make.attachment()), 'operation-in-flight cross-wired'),
    ('two that dangle', seen([make.bdm(), GONE], None),
     'volume-missing! volume-missing!'),

    # A second mapping of a healthy disk
    *(('one that was never connected goes, %s' % name, spare(
        dataclasses.replace(SPARE, attachment_id=name)),
       'healthy duplicate-mapping!')
      for name in (None, 'attachment-0', 'attachment-1')),
    ('one that the guest may use stays', spare(dataclasses.replace(
        SPARE, attachment_id='attachment-0', has_connection_info=True)),
     'healthy duplicate-mapping'),
    ('two by the same attachment stay', spare(dataclasses.replace(
        SPARE, attachment_id='attachment-1', has_connection_info=True)),
     'duplicate-mapping duplicate-mapping'),
    ('a young one stays', spare(dataclasses.replace(
        SPARE, created_at=make.ago(5))), 'healthy attach-in-flight'),
    ('one of a multiattach volume stays', spare(multiattach=True),
     'healthy duplicate-mapping'),
    ('one of a volume that is detached stays', spare(status='detaching'),
     'operation-in-flight operation-in-flight'),
    ('one of a volume that migrates stays', spare(
        migration_status='migrating'), 'volume-busy volume-busy'),
    ('one beside another attachment stays', spare(more=[SECOND]),
     'healthy attachment-mismatch'),
    ('one beside another reservation stays', spare(more=[
        dataclasses.replace(RESERVED, id='attachment-2')]),
     'healthy attachment-mismatch'),
    ('one beside an attachment that only the list shows stays', spare(
        attached_to=(make.attached_to(attachment_id='attachment-2'),)),
     'healthy attachment-mismatch'),
    ('one beside the root stays', spare(first=make.bdm(boot_index=0)),
     'healthy duplicate-mapping'),
    ('one beside what may be the root stays', spare(
        first=make.bdm(may_be_root=True)), 'healthy duplicate-mapping'),
    ('one beside an image stays', spare(first=make.bdm(source_type='image')),
     'healthy duplicate-mapping'),
    ('one beside one that is not connected stays', spare(
        first=make.bdm(has_connection_info=False)),
     'status-contradiction attachment-mismatch'),
    ('one that is the root stays', spare(dataclasses.replace(
        SPARE, boot_index=0)), 'healthy duplicate-mapping'),
    ('one made from a snapshot stays', spare(dataclasses.replace(
        SPARE, source_type='snapshot')), 'healthy duplicate-mapping'),
    ('one beside a legacy attachment stays', spare(
        own=make.attachment(connected=False)),
     'healthy attachment-mismatch'),
    ('one beside an attachment under way stays', spare(
        own=make.attachment(status='attaching')),
     'half-moved operation-in-flight'),

    # A swap of the volume
    *(('a swap that ended half way, %s %s' % (name, ending.name),
       swapped(volume, swaps=ending),
       'swap-interrupted operation-in-flight')
      for name, volume in (
          ('detaching', make.volume(status='detaching')),
          ('migrated', make.volume(migration_status='completing')))
      for ending in (facts.Ending.FAILURE, facts.Ending.NONE)),
    *(('a swap that did not end half way, %s' % name, look, expected)
      for name, look, expected in (
          ('it succeeded', swapped(swaps=facts.Ending.SUCCESS),
           'operation-in-flight operation-in-flight'),
          ('it may be under way', swapped(holds_lock=False),
           'operation-in-flight operation-in-flight'),
          ('the volume is in use', swapped(make.volume()),
           'healthy stale-attachment'),
          ('it waits for the lock, and only reserves the volume', swapped(
              record=dataclasses.replace(NEW, **RESERVING),
              swaps=facts.Ending.NONE),
           'operation-in-flight operation-in-flight'),
          ('a command does not ask the guest', swapped(
              record=dataclasses.replace(NEW, **RESERVING),
              holds_lock=False),
           'operation-in-flight operation-in-flight'),
          ('another project has made the attachment', swapped(
              further=dataclasses.replace(
                  SECOND_VOLUME, project=make.OTHER_PROJECT)),
           'operation-in-flight'),
          ('of another server', swapped(record=dataclasses.replace(
              NEW, server_id=make.OTHER_SERVER)),
           'operation-in-flight cross-wired'))),

    *(('a swap that ended half way, %s' % name, look, expected)
      for name, look, expected in (
          ('the guest has the new disk', swapped(had=NEW_DISK),
           'swap-interrupted+'),
          ('the guest has the new disk, and Nova has recorded no end', swapped(
              had=NEW_DISK, swaps=facts.Ending.NONE), 'swap-interrupted+'),
          ('the guest has the new disk, and Nova does not tell', swapped(
              had=NEW_DISK, swaps=facts.Ending.UNKNOWN), 'swap-interrupted+'),
          ('the guest has the new disk, and no lock is needed', swapped(
              had=NEW_DISK, holds_lock=False), 'swap-interrupted+'),
          ('the guest has the new disk, by its name in the back end', swapped(
              bdm=dataclasses.replace(
                  BDM, addresses=frozenset(), back_end_name='pool/one'),
              own=(dataclasses.replace(
                  OWN, addresses=frozenset(), back_end_name='pool/one'),),
              record=dataclasses.replace(
                  NEW, addresses=frozenset(), back_end_name='pool/two'),
              had=facts.Source(name='pool/two')), 'swap-interrupted+'),
          ('the guest has the new disk, which is not complete', swapped(
              record=dataclasses.replace(NEW, status='attaching'),
              had=NEW_DISK), 'swap-interrupted+'),
          ('the guest has the new disk, and the old one is free', swapped(
              AVAILABLE, own=(), had=NEW_DISK), 'swap-interrupted+'),
          ('the guest has the new disk, and the old one is in use', swapped(
              make.volume(), had=NEW_DISK), 'swap-interrupted+'),
          ('the journal says that it has the new disk', swapped(
              had=facts.Source(attachment_id=NEW.id, was_here=True),
              is_here=False),
           'swap-interrupted+'),
          ('the guest has the old disk', swapped(had=OLD_DISK),
           'swap-interrupted+'),
          ('the guest has the old disk at its path', swapped(
              bdm=dataclasses.replace(BDM, path='/dev/one'),
              had=facts.Source(path='/dev/one')), 'swap-interrupted+'),
          ('the journal says that it has the old disk', swapped(
              had=facts.Source(attachment_id=OWN.id, was_here=True),
              is_here=False),
           'swap-interrupted+'),
          ('nothing is left of it but the state', swapped(
              further=None, record=None, had=OLD_DISK), 'swap-interrupted+'),
          ('the journal says what it has, and it may be elsewhere', swapped(
              had=facts.Source(attachment_id=NEW.id), is_here=False),
           'swap-interrupted operation-in-flight'),
          ('the journal knows it by its address', swapped(
              had=dataclasses.replace(NEW_DISK, attachment_id='')),
           'swap-interrupted+'),
          ('the new volume is only reserved', swapped(
              record=dataclasses.replace(NEW, **RESERVING)),
           'swap-interrupted+'),
          # What is not known is neither connected nor removed.
          ('the guest may be elsewhere, with the new disk', swapped(
              had=NEW_DISK, is_here=False),
           'swap-interrupted operation-in-flight'),
          ('the guest may be elsewhere, with the old disk', swapped(
              had=OLD_DISK, is_here=False),
           'swap-interrupted operation-in-flight'),
          ('the guest may be elsewhere, with either disk', swapped(
              is_here=False), 'swap-interrupted operation-in-flight'),
          ('the guest may be elsewhere, and never had the new disk', swapped(
              record=dataclasses.replace(NEW, **RESERVING), had=OLD_DISK,
              is_here=False), 'swap-interrupted operation-in-flight'),
          ('no guest starts in this operation', swapped(
              had=NEW_DISK, guest=Guest.OTHER),
           'swap-interrupted operation-in-flight'),
          ('the guest has a third disk', swapped(had=OTHER_DISK),
           'swap-interrupted operation-in-flight'),
          ('the guest has a third disk, and Nova has rolled back', swapped(
              make.volume(), None, None, had=OTHER_DISK), 'swap-interrupted'),
          ('the guest has the disk of two attachments', swapped(
              had=NEW_DISK, more=[dataclasses.replace(NEW, id='new-2')]),
           'swap-interrupted operation-in-flight operation-in-flight'),
          ('both attachments connect the same', swapped(
              record=dataclasses.replace(NEW, addresses=OWN.addresses),
              had=OLD_DISK), 'swap-interrupted operation-in-flight'),
          ('Cinder migrates the old volume', swapped(
              make.volume(migration_status='migrating'), had=NEW_DISK),
           'swap-interrupted operation-in-flight'),
          ('Cinder migrates the new volume', swapped(
              further=dataclasses.replace(
                  SECOND_VOLUME, migration_status='target:1'), had=NEW_DISK),
           'swap-interrupted operation-in-flight'),
          ('the project of the volume is not known', swapped(
              make.volume(status='detaching', project=None), had=NEW_DISK),
           'swap-interrupted operation-in-flight'),
          ('the project of the new volume is not known', swapped(
              further=dataclasses.replace(SECOND_VOLUME, project=None),
              had=NEW_DISK), 'swap-interrupted cannot-see-project'),
          ('the new volume is attached to another server, too', swapped(
              further=dataclasses.replace(SECOND_VOLUME, attached_to=(
                  make.attached_to(make.OTHER_SERVER, 'another'),)),
              had=NEW_DISK), 'swap-interrupted operation-in-flight'),
          ('an old attachment is from before Queens', swapped(
              own=(OWN, make.attachment(id='old', connected=False)),
              had=NEW_DISK),
           'swap-interrupted operation-in-flight'))),
    *(('a swap that is over, %s' % name, look, expected)
      for name, look, expected in (
          ('and a detach waits for the lock', swapped(
              further=None, record=None, had=OLD_DISK,
              swaps=facts.Ending.SUCCESS), 'operation-in-flight'),
          ('and another swap waits for the lock', swapped(
              further=None, record=None, had=OLD_DISK,
              swaps=facts.Ending.NONE), 'operation-in-flight'),
          ('and the guest has its disk', swapped(
              make.volume(), None, None, had=OLD_DISK), 'healthy'),
          ('and it is not known what the guest has', swapped(
              make.volume(), None, None), 'healthy'),
          ('and the disk cannot be compared', swapped(
              make.volume(), None, None, had=facts.Source(path='/dev/two')),
           'healthy'),
          ('and did succeed', swapped(
              make.volume(), None, None, had=OTHER_DISK,
              swaps=facts.Ending.SUCCESS), 'healthy'),
          ('and the other attachment is left', swapped(
              make.volume(), had=OLD_DISK), 'healthy stale-attachment!'),
          ('and the old attachment is left', swapped(
              make.volume(), dataclasses.replace(
                  SECOND_VOLUME, status='detaching'), had=OLD_DISK),
           'healthy stale-attachment!'))),

    # A volume that was transferred to another project
    *(('of another project, with its own attachment on %s' % host,
       transferred(None, make.attachment(), FORGED, host=host), expected)
      for host, expected in ((make.HOST, 'healthy'),
                             (make.OTHER_HOST, 'half-moved'))),
    ('of another project, in use by no server', transferred(),
     'status-contradiction'),
    ('of another project, available', transferred(status='available'),
     'volume-available!'),
    ('of another project, and transferred again, one forged', transferred(
        None, FORGED, status='awaiting-transfer'), 'volume-available!'),
    *(('of another project, attached elsewhere, %s forged' % status,
       transferred(None, dataclasses.replace(FORGED, status=status),
                   multiattach=True, listed=(ELSEWHERE,)),
       'attached-elsewhere!') for status in ('attached', 'attaching')),
    ('of another project, by a forged attachment alone', transferred(
        None, FORGED), 'attached-elsewhere!'),
    *(('of another project, attached by what no mapping names to %s' % host,
       transferred(make.bdm(attachment_id='died'),
                   make.attachment(id='live'), host=host, multiattach=True,
                   listed=(ELSEWHERE,)), expected)
      for host, expected in ((make.HOST, 'attached-elsewhere!'),
                             (make.OTHER_HOST, 'attached-elsewhere!'),
                             (None, 'attached-elsewhere!'),
                             ('', 'attached-elsewhere!'))),
    # Any project could make such a record.
    *(('of another project, %s, reserved by what no mapping names' % status,
       transferred(None, dataclasses.replace(RESERVED, id='forged'),
                   status=status, listed=(ELSEWHERE,)), expected)
      for status, expected in (('reserved', 'operation-in-flight'),
                               ('in-use', 'attached-elsewhere!'))),
    ('of another project, before Queens', transferred(
        PRE_QUEENS, make.attachment(connected=False)),
     'status-contradiction'),
)


class LookTest(base.TestCase):
    """The findings of the tables for whole looks."""

    policy: dict[str, Any] = {}
    scenarios = [
        *base.scenarios(TIMES, 'seen', 'policy', 'expected'),
        *base.scenarios(LOOKS, 'seen', 'expected')]

    def test_findings_of_the_row(self):
        self.assertEqual(self.expected, make.reasons_in(
            decide(self.seen, **self.policy)))


ATTACHING = make.attachment(status='attaching', connected=False)
FAILED = make.attachment(status='error_attaching', connected=False)
THIRD = make.attachment(id='attachment-3')


def half(*attachments, bdm=BDM, entries=(), status='in-use', volume=(),
         server=None, **look):
    """Return a look at a disk that is only half attached.

    :param entries: the numbers of the attachments that connect this host
    """
    listed = [make.attached_to(attachment_id='attachment-%d' % n)
              for n in entries]
    return dataclasses.replace(
        seen([bdm], make.volume(status=status, **{
            'attached_to': tuple(listed), **dict(volume)}), *attachments,
            roots=() if bdm.is_root else (make.root(),)),
        server=make.server(**server or {}), **look)


#: An evacuation from the other host to this one.
EVACUATED = {'former_host': make.OTHER_HOST}
THERE = {'attached_to': (
    make.attached_to(attachment_id='attachment-2', host=make.OTHER_HOST),)}


def arriving(*attachments, server=None, **values):
    """Return a look at a disk of a server that comes to this host.

    :param server: without it, the server is unshelved
    """
    return half(*attachments, server={
        'host': '', **(server or {'is_offloaded': True})}, **{
            'guest': Guest.ARRIVES,
            'guest_is_here': server is None, **values})


#: id, the look, the attachment that is used or completed, those that are
#: deleted, in their order, and how many of them before another one is made.
RECONNECTED: tuple[Any, ...] = (
    ('its own only reserves the volume', half(RESERVED), 1, [], 0),
    ('what no mapping names reserves it', half(UNSAVED), 2, [], 0),
    ('its own is attached here by another address', half(
        make.attachment(addresses=frozenset(PATHS)), entries=[1]),
     None, [1], 0),
    ('another one is attached here', half(SECOND, entries=[2]),
     None, [2], 0),
    ('its own reserves it, and another one is attached here',
     half(RESERVED, SECOND, entries=[2]), 1, [2], 0),
    ('of several that reserve it, its own is used',
     half(dataclasses.replace(RESERVED, id='attachment-3'), UNSAVED, RESERVED,
          status='reserved'), 1, [2, 3], 2),
    ('of several that reserve it, the first one is used',
     half(dataclasses.replace(RESERVED, id='attachment-3'), UNSAVED,
          status='reserved'), 2, [3], 1),
    ('one is attaching, and one is attached here',
     half(ATTACHING, SECOND, status='attaching', entries=[2],
          guest_is_here=True), None, [1, 2], 1),
    # Cinder makes no other one, and without one offers the volume.
    ('the only one is attaching', half(ATTACHING, status='attaching'),
     1, [], 0),
    ('several are attaching, its own is completed', half(
        dataclasses.replace(ATTACHING, id='attachment-3'), ATTACHING,
        status='attaching', guest_is_here=True), 1, [3], 1),
    ('several are attaching, the first one is completed', half(
        dataclasses.replace(ATTACHING, id='attachment-3'),
        dataclasses.replace(ATTACHING, id='attachment-2'),
        status='attaching', guest_is_here=True), 2, [3], 1),
    ('one is attaching, one reserves it', half(
        ATTACHING, UNSAVED, status='attaching', guest_is_here=True),
     2, [1], 1),
    # Otherwise Cinder makes another one.
    ('the only one has failed, and stays until there is another',
     half(FAILED, status='reserved'), None, [1], 0),
    ('one has failed, and one is attached here',
     half(FAILED, SECOND, status='in-use', entries=[2]), None, [1, 2], 1),
    # The guest is not there.
    ('its own is attached to another host, and the guest is here', half(
        OWN, volume={'attached_to': (
            make.attached_to(host=make.OTHER_HOST),)}, guest_is_here=True),
     None, [1], 0),
    ('two are attached, its own goes last', half(
        OWN, SECOND, entries=[2], guest_is_here=True, volume={
            'attached_to': (
                make.attached_to(host=make.OTHER_HOST),
                make.attached_to(attachment_id='attachment-2'))}),
     None, [2, 1], 0),
    # A root disk is never removed.
    ('a free root without an attachment', half(
        bdm=make.bdm(boot_index=0), status='available'), None, [], 0),
    ('a free root, and one that reserves it', half(
        UNSAVED, bdm=make.bdm(boot_index=0), status='available'), 2, [], 0),
    ('a free root of a server from before Queens', half(
        bdm=make.bdm(boot_index=0, attachment_id=None), status='available'),
     None, [], 0),
    # Nova connects it by the attachment that the mapping names, and deletes
    # what connects another host.
    ('unshelved, a free root without an attachment', arriving(
        bdm=make.bdm(boot_index=0), status='available'), None, [], 0),
    ('unshelved, what no mapping names reserves it', arriving(
        UNSAVED, status='reserved'), 2, [], 0),
    ('unshelved, its own is attached, and another one reserves it', arriving(
        OWN, UNSAVED, entries=[1]), 1, [2], 1),
    ('unshelved, its own is attached, multiattach, and another one reserves '
     'it', arriving(OWN, UNSAVED, status='reserved', volume={
         'multiattach': True, 'attached_to': (make.attached_to(),)}),
     1, [2], 1),
    ('unshelved, its own reserves it, and another one is attached',
     arriving(RESERVED, SECOND, entries=[2]), 2, [1], 1),
    ('unshelved, its own reserves it, multiattach, and another one is '
     'attached', arriving(RESERVED, SECOND, status='reserved', volume={
         'multiattach': True, 'attached_to': (
             make.attached_to(attachment_id='attachment-2'),)}), 2, [1], 1),
    ('unshelved, its own reserves it, and another one has failed', arriving(
        RESERVED, dataclasses.replace(FAILED, id='attachment-2'),
        status='reserved'), 1, [2], 1),
    ('unshelved, its own is attaching', arriving(
        ATTACHING, status='attaching'), 1, [], 0),
    ('unshelved, Nova has never connected it', arriving(
        SECOND, bdm=make.bdm(has_connection_info=False), entries=[2]),
     2, [], 0),
    ('evacuated, two reserve it', arriving(
        RESERVED, UNSAVED, status='reserved', server=EVACUATED), 1, [2], 1),
    ('evacuated, another one is attached to the former host', arriving(
        SECOND, server=EVACUATED, volume=THERE), 2, [], 0),
    ('evacuated, another one is attached to an unknown host', arriving(
        SECOND, server=EVACUATED, guest_is_here=True), 2, [], 0),
    ('evacuated, its own is attaching', arriving(
        ATTACHING, status='attaching', server=EVACUATED, guest_is_here=True),
     1, [], 0),
)

#: id, the look, and why its disk is not reconnected.
NOT_RECONNECTED: tuple[Any, ...] = (
    ('the guest is not started', half(RESERVED, guest=Guest.OTHER),
     'the operation neither starts the guest nor adopts its disks'),
    ('the server is on no host', half(UNSAVED, server={'is_offloaded': True}),
     'on no host'),
    ('evacuated, its own only reserves the volume', arriving(
        RESERVED, status='reserved', server=EVACUATED),
     'Nova goes on with this attachment'),
    ('unshelved, its own is attached to a host', arriving(OWN, entries=[1]),
     'Nova goes on with this attachment'),
    ('unshelved, two connect it', arriving(OWN, SECOND, entries=[1, 2]),
     'attachment-1 and attachment-2 both connect'),
    ('evacuated, two may connect it', arriving(
        ATTACHING, SECOND, server=EVACUATED, volume=THERE,
        status='attaching', guest_is_here=True),
     'attachment-1 and attachment-2 both connect'),
    ('evacuated, another one is attached to a third host', arriving(
        SECOND, server={'former_host': 'compute-3'}, volume=THERE),
     'Nova would delete attachment attachment-2'),
    ('evacuated, its own is attaching, and the guest may be on a third host',
     arriving(ATTACHING, status='attaching', server=EVACUATED),
     'Nova would delete attachment attachment-1'),
    ('the volume is being detached', half(UNSAVED, status='detaching'),
     'its volume is detaching'),
    ('the volume is attaching for another server', half(
        SECOND, status='attaching', entries=[2],
        volume={'multiattach': True}),
     'its volume is attaching, and by no attachment'),
    ('of another project', half(
        RESERVED, volume={'project': make.OTHER_PROJECT}),
     'not known to belong to the project'),
    ('of a project that is not known', half(
        RESERVED, volume={'project': None}),
     'not known to belong to the project'),
    ('of a server whose project is not known', half(
        RESERVED, server={'project': None}),
     'not known to belong to the project'),
    ('another server has the volume, too', half(
        RESERVED, volume={'attached_to': (ELSEWHERE,)}),
     'attaches its volume to server server-2'),
    ('another mapping names the volume', dataclasses.replace(
        half(RESERVED), bdms=(make.root(), BDM, SPARE)),
     'another mapping names'),
    ('another mapping names an attachment of it', dataclasses.replace(
        half(RESERVED, SECOND, entries=[2]), bdms=(
            make.root(), BDM, make.bdm(
                uuid='bdm-2', volume_id=None,
                attachment_id='attachment-2'))),
     'another mapping names'),
    ('Nova may never have connected it', half(SECOND, entries=[2],
                                         bdm=UNCONNECTED),
     'Nova has no connection information of it'),
    ('two are attached here', half(SECOND, THIRD, entries=[2, 3]),
     'attachment-2 and attachment-3 both connect'),
    ('one from before Queens', half(
        RESERVED, make.attachment(id='attachment-2', connected=False),
        entries=[2]), 'does not tell'),
    ('one that Cinder has half connected', half(
        RESERVED, make.attachment(id='attachment-2', status='reserved')),
     'does not tell'),
    ('one that only the list of the volume shows', half(
        RESERVED, entries=[2]), 'does not tell'),
    ('a mapping from before Queens', half(
        UNSAVED, status='reserved', bdm=PRE_QUEENS), 'does not tell'),
    ('its own is attached to another host', half(OWN, volume={
        'attached_to': (make.attached_to(host=make.OTHER_HOST),)}),
     'the guest may be on another host'),
    ('its own is attached to a host that Cinder does not tell', half(
        make.attachment(addresses=frozenset(PATHS))),
     'the guest may be on another host'),
    ('another one is attached, and this host has no name', half(
        SECOND, entries=[2], server={'host': ''}),
     'the guest may be on another host'),
    ('of several one is completed, and the others would go', half(
        ATTACHING, dataclasses.replace(ATTACHING, id='attachment-2'),
        status='attaching'), 'the guest may be on another host'),
    ('the root disk is attached to another host', half(
        OWN, bdm=make.bdm(boot_index=0), status='available', volume={
            'attached_to': (make.attached_to(host=make.OTHER_HOST),)}),
     'the guest may be on another host'),
)


class ReconnectedTest(base.TestCase):
    """The disks that are reconnected, and with which attachments."""

    scenarios = base.scenarios(
        RECONNECTED, 'seen', 'used', 'deleted', 'early')

    def test_attachments_of_the_row(self):
        finding, = decide(self.seen).due
        self.assertTrue(finding.is_reconnect)
        self.assertFalse(finding.is_removal)
        self.assertTrue(finding.disconnect)
        self.assertEqual(
            self.used and 'attachment-%d' % self.used,
            finding.first and finding.first.id)
        ids = ['attachment-%d' % n for n in self.deleted]
        self.assertEqual(ids, [a.id for a in finding.dependent])
        self.assertEqual(ids[:self.early],
                         [a.id for a in finding.replaced_early])
        self.assertNotIn('not reconnected', finding.explanation)


class NotReconnectedTest(base.TestCase):
    """The disks that are half attached, and stay so."""

    scenarios = base.scenarios(NOT_RECONNECTED, 'seen', 'why')

    def test_reason_is_told(self):
        finding = next(f for f in decide(self.seen).findings if f.bdm is BDM
                       or f.bdm and not f.bdm.is_root or len(
                           self.seen.bdms) == 1)
        self.assertFalse(finding.is_change)
        self.assertIsNone(finding.first)
        self.assertEqual((), finding.dependent)
        self.assertIn(self.why, finding.explanation)
        self.assertIn('not reconnected: ', finding.explanation)


#: What this host has of a disk that is adopted.
ON_HOST = facts.OnHost('sdb', InGuest.DISK, '')
ATTACHED_THERE = make.attached_to(host=make.OTHER_HOST)


def running(*attachments, on_host=ON_HOST, entries=(2,), **values):
    """Return a look at a disk that is half attached, whose guest goes on."""
    return half(*attachments, entries=entries, guest=Guest.GOES_ON,
                on_host={'bdm-1': on_host}, **values)


#: id, the look, the attachment that is taken over, and those that are deleted.
ADOPTED: tuple[Any, ...] = (
    ('its own is of another host', running(
        OWN, SECOND, entries=(), volume={'attached_to': (
            ATTACHED_THERE, make.attached_to(attachment_id='attachment-2'))}),
     2, [1]),
    ('its own does not exist', running(SECOND), 2, []),
    ('its own only reserves the volume', running(RESERVED, SECOND), 2, [1]),
    ('its own is attached here, and another one is attaching', running(
        OWN, dataclasses.replace(ATTACHING, id='attachment-2'), entries=[1],
        status='attaching'), 1, [2]),
    ('a back end that gives names', running(dataclasses.replace(
        SECOND, addresses=frozenset(), back_end_name='volumes/volume-1')),
     2, []),
)

#: id, the look, and why its disk is not adopted.
NOT_ADOPTED: tuple[Any, ...] = (
    ('none is attached here', running(SECOND, entries=()),
     'Cinder shows none as attachment to this host'),
    ('two are attached here', running(SECOND, THIRD, entries=[2, 3]),
     'attachment-2 and attachment-3 both connect'),
    ('Cinder shows neither an address nor a name', running(
        dataclasses.replace(SECOND, addresses=frozenset())),
     'Cinder shows attachment-2 as attachment to this host'),
    ('the kernel has no device', running(SECOND, on_host=dataclasses.replace(
        ON_HOST, device='')), 'the kernel of this host has no device'),
    *(('of the guest: %s' % each.value, running(
        SECOND, on_host=dataclasses.replace(ON_HOST, in_guest=each)),
       each.value) for each in InGuest if each is not InGuest.DISK),
    ('another one may serve the guest elsewhere', running(
        OWN, SECOND, entries=(), volume={'attached_to': (
            ATTACHED_THERE, make.attached_to(attachment_id='attachment-2'))},
        on_host=dataclasses.replace(ON_HOST, in_guest=InGuest.NOT_RUNNING)),
     'the guest may be on another host'),
    ('Nova does something', running(SECOND, on_host=dataclasses.replace(
        ON_HOST, operation='migration 1 is running')),
     'migration 1 is running'),
    ('the volume is being detached', running(
        RESERVED, SECOND, status='detaching'), 'its volume is detaching'),
    ('of another project', running(
        RESERVED, entries=(), volume={'project': make.OTHER_PROJECT}),
     'not known to belong to the project'),
)


class AdoptedTest(base.TestCase):
    """The mappings that take over an attachment, and which one."""

    scenarios = base.scenarios(ADOPTED, 'seen', 'taken', 'deleted')

    def test_attachments_of_the_row(self):
        finding, = decide(self.seen).due
        self.assertTrue(finding.is_adoption)
        self.assertTrue(finding.is_agreed)
        self.assertFalse(finding.is_removal or finding.disconnect)
        self.assertEqual('attachment-%d' % self.taken, finding.first.id)
        ids = ['attachment-%d' % n for n in self.deleted]
        self.assertEqual(ids, [a.id for a in finding.dependent])
        self.assertEqual(finding.dependent, finding.deleted)
        self.assertIn('takes over', finding.explanation)


class NotAdoptedTest(base.TestCase):
    """The mappings of running guests that stay as they are."""

    scenarios = base.scenarios(NOT_ADOPTED, 'seen', 'why')

    def test_reason_is_told(self):
        plan = decide(self.seen)
        finding = next(f for f in plan.findings if f.bdm is BDM)
        self.assertEqual((), plan.due)
        self.assertFalse(finding.is_agreed and finding.is_adoption)
        self.assertIn(self.why, finding.explanation)


class RunningTest(base.TestCase):
    """The other changes while a guest goes on."""

    def stale(self, on_host):
        return running(
            OWN, SECOND, entries=(), on_host=on_host, volume={'attached_to': (
                make.attached_to(), make.attached_to(
                    attachment_id='attachment-2', host=make.OTHER_HOST))})

    def test_attachment_of_another_host_is_deleted_beside_a_healthy_one(self):
        finding, = decide(self.stale(ON_HOST)).due
        self.assertEqual(('attachment-2', Action.DELETE),
                         (finding.attachment_id, finding.action))

    def test_it_is_kept_if_the_guest_may_be_there(self):
        plan = decide(self.stale(dataclasses.replace(
            ON_HOST, in_guest=InGuest.NOT_RUNNING)))
        self.assertEqual((), plan.due)
        self.assertIn(Reason.GUEST_RUNNING,
                      {f.withheld for f in plan.findings})

    def test_mapping_of_a_running_guest_is_not_removed(self):
        plan = decide(running(entries=(), status='available'))
        self.assertEqual([Reason.GUEST_RUNNING],
                         [f.withheld for f in plan.findings if f.bdm is BDM])

    def test_only_those_that_differ_say_why(self):
        for in_guest, differ in ((InGuest.DISK, False),
                                 (InGuest.NOT_RUNNING, True)):
            answers = facts_of(running(SECOND, entries=[2], on_host=(
                dataclasses.replace(ON_HOST, in_guest=in_guest)))).parties
            self.assertEqual(differ, any(a.words for a in answers))
            for answer in answers:
                self.assertEqual(answer.agrees, not answer.words)

    def test_host_is_asked_only_where_it_decides(self):
        for look, expected in (
                (running(SECOND), True), (running(OWN, entries=[1]), False),
                (running(entries=(), status='available'), False),
                (self.stale(ON_HOST), True), (half(SECOND), False)):
            found = mappings.mappings_of(World(look, Policy(), make.NOW))
            self.assertEqual(expected, found['bdm-1'].depends_on_host, look)


class PlaceTest(base.TestCase):
    """Proofs that the guest is on this host, and when they are needed."""

    def depends(self, look):
        found = mappings.mappings_of(World(look, Policy(), make.NOW))
        return found[look.bdms[-1].uuid].depends_on_place

    def test_it_matters_only_where_it_decides(self):
        for look, expected in (
                (half(RESERVED), False),
                (half(SECOND, entries=[2]), False),
                (half(FAILED, status='reserved'), False),
                (of(make.volume(), OWN), False),
                (of(AVAILABLE, OWN), False),
                (half(SECOND), True),
                # Cinder shows its host when it is complete.
                (half(ATTACHING, status='attaching'), True),
                (half(SECOND, bdm=make.bdm(boot_index=0),
                      status='available'), True),
                (half(bdm=make.bdm(boot_index=0), status='available'), False),
                (half(SECOND, guest=Guest.OTHER), False),
                (arriving(SECOND, server=EVACUATED), True),
                (arriving(UNSAVED, status='reserved'), False)):
            self.assertEqual(expected, self.depends(look), look)

    def test_attachment_of_a_disk_that_this_guest_lacks_is_kept(self):
        for left_out, expected in ((frozenset(), 'attachment-mismatch+'),
                                   ({'bdm-1'}, 'attachment-mismatch')):
            self.assertEqual(expected, make.reasons_in(decide(
                half(SECOND, guest_is_here=True,
                     left_out=frozenset(left_out)))))


def facts_of(look, uuid='bdm-1'):
    return mappings.mappings_of(World(look, Policy(), make.NOW))[uuid]


class SwapTest(base.TestCase):
    """The attachments that a swap has left, and the disk that is taken."""

    def left(self, look):
        """Return the deleted attachments of each mapping."""
        return {f.bdm.uuid: [a.id for a in f.dependent]
                for f in decide(look).due if f.bdm}

    def test_attachments_that_may_be_deleted_are(self):
        for values, left in (
                ({}, [NEW.id]),
                ({'record': dataclasses.replace(
                    NEW, status='attached', connected=False)}, []),
                ({'record': dataclasses.replace(NEW, status='reserved')}, []),
                ({'further': dataclasses.replace(
                    SECOND_VOLUME, migration_status='migrating')}, []),
                ({'further': dataclasses.replace(
                    SECOND_VOLUME, project=None)}, [])):
            self.assertEqual({'bdm-1': left}, self.left(
                swapped(had=OLD_DISK, **values)), values)

    def test_nothing_is_deleted_unless_all_disks_are_known(self):
        other = make.bdm(uuid='bdm-3', volume_id='volume-3',
                         attachment_id='attachment-3',
                         device_name='/dev/vdd')
        look = swapped(had=OLD_DISK, more=[
            make.attachment(id='attachment-3', volume_id='volume-3')])
        both = dataclasses.replace(
            look, bdms=(*look.bdms, other), volumes={
                **look.volumes, 'volume-3': make.volume(
                    id='volume-3', status='detaching')})
        self.assertEqual({'bdm-1': []}, self.left(both))
        # It belongs to the first one.
        known = dataclasses.replace(both, sources={
            'bdm-1': OLD_DISK, 'bdm-3': OTHER_DISK})
        self.assertEqual({'bdm-1': [NEW.id], 'bdm-3': []}, self.left(known))

    def test_kept_mapping_takes_no_disk(self):
        for guest, taken in ((Guest.STARTS, NEW), (Guest.OTHER, None)):
            finding = next(f for f in decide(swapped(
                had=NEW_DISK, guest=guest)).findings if f.bdm is BDM)
            self.assertEqual(taken, finding.swapped_to)

    def test_words_name_the_volume_of_the_swap(self):
        for look, words in (
                (swapped(had=NEW_DISK), ' for volume volume-2'),
                (swapped(had=OLD_DISK), ' for volume volume-2'),
                (swapped(further=None, record=None, had=OLD_DISK), '')):
            self.assertEqual(words, facts_of(look).swapped_for)

    def test_only_a_disk_that_can_be_compared_is_known(self):
        unknown = facts.Source(path='/dev/two')
        for had, named in ((OLD_DISK, 'attachment-1'), (NEW_DISK, NEW.id),
                           (OTHER_DISK, '')):
            self.assertEqual(named, facts_of(swapped(
                had=had)).guest_had.attachment_id)
        for had in (unknown, None):
            self.assertIsNone(facts_of(swapped(had=had)).guest_had)

    def test_disk_without_a_connection_is_decided(self):
        for bdm, expected in (
                (BDM, False),
                (dataclasses.replace(BDM, has_connection_info=False), True)):
            self.assertIs(expected, facts_of(swapped(
                bdm=bdm)).is_decided)


class ConnectedTest(base.TestCase):
    """Where Cinder connects a volume, and by which attachment."""

    def test_connected_attachment_that_is_not_complete_shows_a_host(self):
        for status, connected, is_elsewhere in (
                ('attached', True, True), ('attaching', True, True),
                ('attached', False, True), ('reserved', False, False)):
            look = listed(make.attached_to(host=make.OTHER_HOST), own=[
                make.attachment(status=status, connected=connected)])
            self.assertIs(is_elsewhere, bool(facts_of(look).elsewhere),
                          (status, connected))

    def test_only_a_reserved_attachment_of_no_mapping_is_unsaved(self):
        other = make.bdm(uuid='bdm-2', attachment_id=UNSAVED.id,
                         device_name='/dev/vdc')
        for look, unsaved in (
                (half(UNSAVED), UNSAVED),
                (half(dataclasses.replace(UNSAVED, status='attaching')),
                 None),
                (seen([BDM, other], make.volume(), UNSAVED), None)):
            self.assertEqual(unsaved, facts_of(look).unsaved)


class OtherHostsUnitTest(base.TestCase):
    """Each host has its own numbers of units."""

    def test_mapping_takes_no_volume_by_the_unit_of_another_host(self) -> None:
        """A live migration, and its roll back, have failed.

        A member of the project can make any attachment of volume 2.
        """
        unit_here = frozenset([('target', '1')])
        unit_there = frozenset([('target', '7')])
        here, there = (
            make.attachment(id='here', addresses=unit_here),
            make.attachment(id='there', addresses=unit_there))
        other = make.attachment(
            id='other', volume_id='volume-2', addresses=unit_here)

        def of(host: str, attachment: facts.Attachment
               ) -> facts.AttachedServer:
            return facts.AttachedServer(
                make.SERVER, attachment.id, host=host)

        look = dataclasses.replace(
            make.snapshot(
                [make.root(), make.bdm(
                    attachment_id='there', addresses=unit_there)],
                [make.volume(attached_to=(
                    of(make.HOST, here), of(make.OTHER_HOST, there))),
                 make.volume(id='volume-2', attached_to=(
                     of(make.OTHER_HOST, other),))],
                [here, there, other], swaps=facts.Ending.FAILURE),
            holds_lock=True, guest_is_here=True,
            # The guest has volume 1, as always.
            sources={'bdm-1': facts.Source(unit_here, path='/dev/sdb')})
        finding, = (
            f for f in decision.decide(look, Policy(), make.NOW).findings
            if f.volume_id == 'volume-1')
        self.assertEqual((Reason.HALF_MOVED, None),
                         (finding.reason, finding.swapped_to))


class CoverageTest(base.TestCase):

    def test_every_row_has_a_test_above(self):
        tested = set()
        for look in [row[1] for row in (
                *ROWS, *LOOKS, *RECONNECTED, *NOT_RECONNECTED, *ADOPTED,
                *NOT_ADOPTED)]:
            world = World(look, Policy(), make.NOW)
            for judged in mappings.mappings_of(world).values():
                tested.add(id(judged.row))
                if judged.is_dangling:
                    tested.add(id(table.first(
                        mappings.DANGLING_MAPPINGS.rows, judged)))
                if judged.row.outcome.action is Action.RECONNECT:
                    last = (mappings.HALF_SWAPPED if judged.is_half_swapped
                            else mappings.RECONNECTS)
                    tested.add(id(table.first(last.rows, judged)))
        rows: list[Any] = [row for section in mappings.MAPPINGS.rows
                           for row in section.rows]
        rows += mappings.DANGLING_MAPPINGS.rows
        rows += mappings.RECONNECTS.rows
        rows += mappings.HALF_SWAPPED.rows
        self.assertEqual([], [r.cell for r in rows if id(r) not in tested])


class MappingTest(base.TestCase):
    """The removal of a mapping: the records removed with it, and the words."""

    def only(self, look):
        [finding] = decide(look).findings
        return finding

    def test_the_attachment_goes_with_the_last_mapping_of_the_volume(self):
        # Cinder is told when no mapping of the volume is connected any more.
        never = make.bdm(uuid='bdm-0', attachment_id=None,
                         has_connection_info=False)
        for bdms in ([never, make.bdm()], [make.bdm(), never]):
            plan = decide(seen(bdms, AVAILABLE, make.attachment()))
            self.assertEqual(
                [(make.bdm(), ()), (never, (make.attachment(),))],
                [(f.bdm, f.dependent) for f in plan.due])

    def test_mappings_go_in_the_order_of_the_devices(self):
        never = make.bdm(uuid='bdm-0', device_name='/dev/vda',
                         volume_id='volume-0', has_connection_info=False)
        bdms = [make.bdm(uuid=uuid, volume_id=uuid, device_name=name)
                for uuid, name in (('bdm-3', None), ('bdm-2', '/dev/vdb'),
                                   ('bdm-1', '/dev/vdc'))]
        plan = decide(make.snapshot(
            reversed([*bdms, never]),
            missing=['volume-0', *(b.volume_id for b in bdms)]))
        self.assertEqual([*bdms, never], [f.bdm for f in plan.due])

    def test_attachment_of_another_server_is_not_deleted(self):
        # The look has it only because another mapping names it.
        plan = decide(make.snapshot(
            [make.bdm(attachment_id=None),
             make.bdm(uuid='bdm-2', volume_id='volume-2')],
            [AVAILABLE, make.volume(id='volume-2')],
            [make.attachment(server_id=make.OTHER_SERVER)]))
        self.assertEqual([()], [f.dependent for f in plan.due])

    def test_the_attachment_of_the_mapping_goes_last(self):
        # If the deletion stops half way, it keeps the volume in use.
        finding = self.only(seen(
            [make.bdm(attachment_id='b')], AVAILABLE,
            make.attachment(id='c'), make.attachment(id='b'),
            dataclasses.replace(RESERVED, id='e'), make.attachment(id='a'),
            dataclasses.replace(RESERVED, id='d')))
        self.assertEqual(['d', 'e', 'a', 'c', 'b'],
                         [a.id for a in finding.dependent])

    def test_attachments_go_by_their_ids(self):
        finding = self.only(seen([PRE_QUEENS], AVAILABLE, *(
            make.attachment(id=name) for name in 'ba')))
        self.assertEqual(['a', 'b'], [a.id for a in finding.dependent])

    def test_only_attachments_of_the_mapping_are_deleted(self):
        own = make.attachment(status='attaching')
        finding = self.only(transferred(
            None, own, FORGED, dataclasses.replace(RESERVED, id='forged-2'),
            status='available'))
        self.assertEqual((own,), finding.dependent)
        self.assertNotIn('forged', finding.explanation)

    def test_a_duplicate_goes_alone(self):
        [finding] = decide(spare()).due
        self.assertEqual((SPARE, False, ()), (
            finding.bdm, finding.disconnect, finding.dependent))
        self.assertIn('(bdm-1, device /dev/vdb)', finding.explanation)

    def test_disk_another_server_may_get_is_not_connected(self):
        """Do not connect a volume that another server may now get."""
        for look, connects in (
                (of(AVAILABLE), False),
                (in_state('error'), False),
                (in_state('error', OWN), True),
                (in_state('error', SECOND), True),
                (in_state('error', bdm=UNCONNECTED), True),
                (in_state('error', bdm=PRE_QUEENS), False),
                (in_state('error', bdm=make.bdm(source_type='image')), False),
                (listed(ELSEWHERE, bdm=make.bdm(source_type='image')), False),
                (in_state('error', bdm=make.bdm(boot_index=0)), True),
                (in_state('in-use'), False),
                (listed(ELSEWHERE, status='error'), False),
                (listed(HERE, status='error'), True),
                (listed(make.attached_to(host=None), status='error'), True),
                (seen([BDM], None, sees_all=False), True),
                # The attachment exists, though of another volume.
                (of(AVAILABLE, make.attachment(volume_id='volume-2')), True),
                # Only attachments that do not count name the server.
                (transferred(make.bdm(attachment_id='died'), SECOND,
                             host=make.HOST), False),
                (transferred(make.bdm(attachment_id='died',
                                      source_type='image'), SECOND), False),
                (transferred(status='error'), False),
                (transferred(PRE_QUEENS, SECOND), True)):
            finding = decide(look).findings[0]
            self.assertEqual(
                connects, disks.fate_of(finding) is disks.Fate.GIVEN, finding)

    def test_only_a_possible_root_leaves_the_removal_open(self):
        """Say nothing of a reboot that only the root disk would decide."""
        may_be = make.bdm(may_be_root=True)
        for look, depends in (
                (seen([may_be], AVAILABLE), True),
                (seen([may_be], AVAILABLE, make.attachment()), True),
                (in_state('error', bdm=may_be), True),
                (in_state('error', OWN, bdm=may_be), False),
                (in_state('error', bdm=make.bdm(
                    may_be_root=True, has_connection_info=False)), False),
                (in_state('in-use', OWN, bdm=may_be), False),
                (in_state('error'), False),
                (of(AVAILABLE), False)):
            finding = decide(look).findings[0]
            self.assertEqual(depends, finding.depends_on_root, finding)
            if depends:
                self.assertIs(disks.Fate.GIVEN, disks.fate_of(finding))
                self.assertFalse(finding.is_removal)

    def test_explanations_name_what_was_seen(self):
        for look, words in (
                (seen([BDM], begun(7200)),
                 'the volume has been attaching since 2026-03-14 01:00:00 '
                 'UTC'),
                (seen([BDM], make.volume(attached_to=(
                    make.attached_to('server-9'),
                    make.attached_to('server-3')))),
                 'Cinder attaches the volume to server server-3, server-9 '
                 'and not to this one'),
                (seen([BDM], AVAILABLE, make.attachment(id='b'),
                      make.attachment(id='a')),
                 'Cinder says that the volume is available, but still lists '
                 'attachment a, b of it'),
                (seen([BDM], make.volume(), SECOND),
                 'the mapping names attachment attachment-1, but Cinder '
                 'attaches the volume by attachment-2; not reconnected: the '
                 'guest may be on another host, and have the disk by '
                 'attachment attachment-2'),
                (listed(make.attached_to(attachment_id='attachment-2'),
                        own=[SECOND]),
                 'the mapping names attachment attachment-1, but Cinder '
                 'attaches the volume by attachment-2'),
                (listed(HERE, own=[], bdm=make.bdm(
                    attachment_id=None, has_connection_info=False)),
                 'the mapping names no attachment, but Cinder attaches the '
                 'volume by attachment-1; not reconnected: Nova has no '
                 'connection information of it'),
                (in_state('reserved', UNSAVED),
                 'Nova has connected the disk by attachment attachment-1, '
                 'which does not exist, and attachment attachment-2, which no '
                 'mapping names, reserves the volume: nova-compute ended in a '
                 'shelve or a move of the server'),
                (seen([make.bdm(may_be_root=True)], None, roots=()),
                 'the volume does not exist; Nova does not show whether it is '
                 'the root disk'),
                (seen([make.bdm(may_be_root=True)], AVAILABLE, roots=(),
                      sees_all=False),
                 'Cinder says that the volume is available and has no '
                 'attachment of this server; your credentials do not show '
                 'whether it is the root disk'),
                (seen([make.bdm(source_type='image')], None),
                 'the volume does not exist'),
                (seen([make.bdm(source_type='image')], AVAILABLE),
                 'Cinder says that the volume is available and has no '
                 'attachment of this server; kept, since not all mappings of '
                 'the volume have "volume" as source and destination')):
            self.assertEqual(words, self.only(look).explanation)

    def test_reason_and_words_are_of_the_same_mapping_that_is_kept(self):
        [_, finding, _] = decide(seen(
            [make.bdm(uuid='bdm-0'), GONE, YOUNG], None,
            make.attachment(server_id=make.OTHER_SERVER))).findings
        self.assertEqual(
            ('cross-wired', 'another mapping of the volume is kept: '
             'attachment attachment-1 of the mapping belongs to volume '
             'volume-1 of server server-2'),
            (finding.reason, finding.explanation))

    def test_long_lists_are_cut(self):
        many = [make.attachment(id='attachment-%03d' % n)
                for n in range(2, 302)]
        for look in (
                seen([BDM], AVAILABLE, *many),
                seen([BDM], make.volume(), *many),
                seen([BDM], make.volume(multiattach=True, attached_to=[
                    make.attached_to('server-%03d' % n)
                    for n in range(2, 302)]))):
            explanation = self.only(look).explanation
            self.assertLess(len(explanation), 400)
            self.assertIn(' more', explanation)
