# SPDX-License-Identifier: Apache-2.0
"""The tables of ``bdm release``, row by row."""

from __future__ import annotations

from collections.abc import Iterable
import dataclasses
import datetime
from typing import Any

import testscenarios

from nova_bdm_cleanup.client.cloud.findings import CloudFinding
from nova_bdm_cleanup.client.cloud.nova import ComputeServer
from nova_bdm_cleanup.client.cloud.release.attachments import (
    HELD_ATTACHMENTS,
    HeldAttachment,
)
from nova_bdm_cleanup.client.cloud.release.steps import decide, selected
from nova_bdm_cleanup.client.cloud.release.volumes import (
    Call,
    Connector,
    HELD_VOLUMES,
    HeldVolume,
    Holder,
)
from nova_bdm_cleanup.rules.facts import (
    AttachedServer,
    Attachment,
    Policy,
    Volume,
)
from nova_bdm_cleanup.rules.reasons import Reason, Remedy
from nova_bdm_cleanup.rules.table import first
from nova_bdm_cleanup.tests.unit import base

load_tests = testscenarios.load_tests_apply_scenarios

NOW = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.timezone.utc)
DAY = datetime.timedelta(days=1)
MINUTE = datetime.timedelta(minutes=1)

CONNECTOR = Connector(
    {'host': 'compute1', 'initiator': 'iqn'})
NEVER = Connector(is_none=True)
NOT_GIVEN = Connector()

ALIVE = ComputeServer('alive', 'alive', 'ACTIVE', host='compute1')
SHELVED = ComputeServer('alive', 'alive', 'SHELVED_OFFLOADED')


def attachment(status: str = 'attached', connected: bool = True,
               server: str | None = 'gone',
               name: str = 'record') -> Attachment:
    return Attachment(id=name, volume_id='volume', server_id=server,
                      status=status, connected=connected)


def found(reason: Reason, instead: Remedy | None = None,
          name: str | None = 'record', **fields: Any) -> CloudFinding:
    """Return what an audit finds about an attachment of server "alive"."""
    return CloudFinding(reason, 'what the audit says', server='alive',
                        host='compute1', volume='volume', attachment=name,
                        instead=instead, **fields)


STALE = (found(Reason.STALE_ATTACHMENT, Remedy.RELEASE),)
OPEN = (found(Reason.STALE_ATTACHMENT),)
STUCK = (found(Reason.STUCK),)
BY_HAND = (found(Reason.LEGACY_ATTACHMENT),)
TOO_NEW = (found(Reason.STALE_ATTACHMENT, Remedy.WAIT,
                 wait=Policy().grace_period),)
IN_FLIGHT = (found(Reason.OPERATION_IN_FLIGHT),)

HALF = {'claimed_by': ('alive',), 'status': 'reserved'}
ALIVES = attachment(server='alive')
RESERVED = attachment('reserved', False)
HALF_ATTACHED = attachment('reserved', False, 'alive')
LEGACY = attachment(connected=False)
LEGACY_OF_ALIVE = attachment(connected=False, server='alive')
AT_COMPUTE2 = (AttachedServer('gone', 'record', 'compute2'),)
#: The refusals with and without the name of the host.
BY_CONNECTOR = ('on host compute2: nova-manage',
                'on the host that had it: nova-manage')


def but(**fields: Any) -> ComputeServer:
    return dataclasses.replace(ALIVE, **fields)


#: ID, attachments, facts, words of the explanation.
REFUSALS: tuple[tuple[str, tuple[Attachment, ...], Any, str], ...] = (
    ('a volume that migrates', (attachment(),),
     {'migration_status': 'migrating'}, 'is being migrated (migrating)'),
    *(('a volume that is %s' % status, (attachment(),), {'status': status},
       'a volume that is %s cannot be released' % status)
      for status in ('error', 'maintenance', 'retyping', 'uploading',
                     'deleting', 'error_deleting', 'creating', 'odd')),
    ('an attachment that is not Nova\'s', (attachment(server=None),), {},
     'another service than Nova'),
    ('a host of another Nova', (RESERVED,),
     {'elsewhere': 'elsewhere'},
     'host elsewhere is no compute host of this Nova'),
    ('a reservation for a server that may still be building', (RESERVED,),
     {'status': 'reserved', 'age': MINUTE},
     'building: wait until 2026-11-20 12:04:01 UTC (--grace-period)'),
    ('a server that is locked', (ALIVES,),
     {'status': 'detaching', 'claimed_by': ('alive',),
      'alive': but(locked=True)}, 'server alive is locked'),
    ('a server in order, as an audit says', (ALIVES,),
     {'claimed_by': ('alive',)}, 'nothing to release'),
    ('in order, beside a stale one',
     (attachment(server='alive', name='good'), ALIVES),
     {'claimed_by': ('alive',), 'findings': STALE}, 'nothing to release'),
    ('what a reboot ends', (ALIVES,), {'findings': OPEN},
     'what the audit says: openstack bdm clean alive'),
    ('what a reboot ends, of a mapping that names another attachment',
     (HALF_ATTACHED,),
     {**HALF, 'findings': (found(Reason.HALF_MOVED, name='other'),)},
     'what the audit says: openstack bdm clean alive'),
    ('what a person ends', (ALIVES,),
     {'findings': (found(Reason.STUCK, Remedy.PERSON,
                         steps=('openstack volume show volume',)),)},
     'what the audit says: openstack volume show volume'),
    ('a server whose state is reset before', (ALIVES,),
     {'status': 'detaching', 'findings': (
         found(Reason.STUCK, reset_by=Remedy.CLEAN),)},
     'openstack bdm clean --reset-state alive'),
    ('reserved, and a detach is stuck of a mapping that names another one',
     (HALF_ATTACHED,),
     {'claimed_by': ('alive',), 'status': 'detaching',
      'findings': (found(Reason.STUCK, name='other'),)},
     'what the audit says: openstack bdm show alive'),
    ('no longer attached, and the server has a mapping that names it',
     (attachment('detaching', True, 'alive'),),
     {'claimed_by': ('alive',), 'status': 'detaching', 'findings': STUCK},
     'what the audit says: openstack bdm show alive'),
    ('too new, as an audit says', (HALF_ATTACHED,),
     {'status': 'reserved', 'findings': TOO_NEW, 'age': MINUTE},
     'says: wait until 2026-11-20 12:04:01 UTC (--grace-period)'),
    ('an operation that may be under way', (HALF_ATTACHED,),
     {**HALF, 'findings': IN_FLIGHT, 'age': MINUTE},
     'says: wait until 2026-11-20 12:59:01 UTC (--stuck-after)'),
    ('an operation of a server, and its volume is old', (ALIVES,),
     {'findings': IN_FLIGHT}, 'what the audit says'),
    ('stale beside one that an operation has begun',
     (HALF_ATTACHED, attachment(server='alive', name='good'),
      attachment('attaching', server='alive', name='begun')),
     {**HALF, 'status': 'in-use', 'findings': STALE},
     'attachment begun of the volume is attaching'),
    ('stale and legacy, with a host',
     (LEGACY_OF_ALIVE,), {'findings': BY_HAND, 'connector': CONNECTOR},
     'Stop server alive, remove the device from the host, and release the '
     'attachment with the connector'),
    ('stale and legacy, of a server that is stopped, without a connector',
     (LEGACY_OF_ALIVE,), {'findings': BY_HAND, 'alive': but(
         status='SHUTOFF')}, BY_CONNECTOR[1]),
    ('legacy and stale, never connected, they say, and too new',
     (LEGACY_OF_ALIVE,),
     {'connector': NEVER, 'findings': BY_HAND, 'age': MINUTE},
     'the attachment is too new'),
    ('a neighbour in an operation',
     (attachment(), attachment('reserved', False, 'alive', 'neighbour')),
     {'multiattach': True, 'claimed_by': ('alive',)},
     'neighbour of the volume is reserved'),
    ('a neighbour of no server in an operation',
     (attachment(), attachment('attaching', True, None, 'neighbour')),
     {'multiattach': True}, 'neighbour of the volume is attaching'),
    ('a mapping of another server', (attachment(),),
     {'claimed_by': ('other',)}, 'server other has a mapping'),
    ('a mapping of another server without attachment', (attachment(),),
     {'claimed_by': ('other',), 'multiattach': True},
     'server other has a mapping'),
    ('a mapping of a neighbour, and the volume is not multiattach',
     (attachment(), attachment(server='alive', name='neighbour')),
     {'claimed_by': ('alive',)}, 'server alive has a mapping'),
    ('a kind of attachment that is not known',
     (attachment('attaching', False),), {}, 'not known'),
    ('legacy with neighbours',
     (LEGACY, attachment(server='alive', name='neighbour')),
     {'connector': CONNECTOR, 'multiattach': True, 'claimed_by': ('alive',)},
     'other attachments'),
    ('legacy without a connector', (LEGACY,), {'attached_to': AT_COMPUTE2},
     BY_CONNECTOR[0]),
    ('legacy without a connector, no host known', (LEGACY,), {},
     BY_CONNECTOR[1]),
    ('legacy that was never connected, they say, but Cinder names a host',
     (LEGACY,), {'connector': NEVER, 'attached_to': AT_COMPUTE2},
     'Cinder says that host compute2 had the volume'),
    ('legacy that was never connected, they say, of a multiattach volume',
     (LEGACY,), {'connector': NEVER, 'multiattach': True},
     'the volume is multiattach'),
    ('legacy that was never connected, they say, with neighbours',
     (LEGACY, attachment(server='gone too', name='neighbour')),
     {'connector': NEVER}, 'other attachments'),
    ('legacy that was never connected, they say, and a mapping', (LEGACY,),
     {'connector': NEVER, 'claimed_by': ('other',)},
     'server other has a mapping'),
    ('legacy and stale, never connected, they say, but Cinder names a host',
     (LEGACY_OF_ALIVE,),
     {'connector': NEVER, 'findings': BY_HAND, 'attached_to': (
         AttachedServer('alive', 'record', 'compute1'),)},
     'may have the volume open'),
    ('legacy and stale, and not said to be never connected',
     (LEGACY_OF_ALIVE,), {'findings': BY_HAND},
     'openstack bdm release --connector none record'),
    ('legacy, and the connector is of another host', (LEGACY,),
     {'connector': CONNECTOR, 'attached_to': AT_COMPUTE2},
     'of host compute1 and the attachment of host compute2'),
    ('connected, and the connector is of another host', (attachment(),),
     {'connector': CONNECTOR, 'attached_to': AT_COMPUTE2},
     'of host compute1 and the attachment of host compute2'),
    ('connected, and never connected, they say', (attachment(),),
     {'connector': NEVER}, 'Cinder has connection information'),
    ('half connected, and never connected, they say',
     (attachment('reserved', True),),
     {'status': 'reserved', 'connector': NEVER},
     'Cinder has connection information'),
    ('connected, never connected, they say, and a server without a host',
     (ALIVES,),
     {'findings': STALE, 'alive': SHELVED, 'connector': NEVER},
     'Cinder has connection information'),

    ('no attachment, migrating', (),
     {'migration_status': 'migrating', 'connector': NEVER}, 'migrated'),
    ('reserved for a server that exists, and a host was given access',
     (HALF_ATTACHED,),
     {'status': 'reserved', 'findings': STALE, 'connector': CONNECTOR},
     'host compute1 may have the volume open'),
    ('no attachment, in maintenance', (),
     {'status': 'maintenance', 'connector': CONNECTOR}, 'that is maintenance'),
    ('no attachment, available', (),
     {'status': 'available', 'connector': NEVER}, 'is available'),
    ('no attachment, available, no connector', (), {'status': 'available'},
     'get_connector'),
    ('no attachment, available, a mapping', (),
     {'status': 'available', 'connector': CONNECTOR,
      'claimed_by': ('other',)}, 'server other has a mapping'),
    ('no attachment, available for a minute', (),
     {'status': 'available', 'connector': CONNECTOR, 'age': MINUTE},
     'perhaps only for a short time'),
    ('no attachment, but a mapping', (),
     {'claimed_by': ('other',), 'connector': NEVER},
     'server other has a mapping'),
    ('no attachment, attaching, but a mapping', (),
     {'status': 'attaching', 'claimed_by': ('alive',), 'connector': NEVER},
     'openstack bdm explain stuck'),
    *(('no attachment, %s for a minute' % status, (),
       {'status': status, 'age': MINUTE, 'connector': NEVER},
       'perhaps only for a short time')
      for status in ('in-use', 'attaching', 'detaching', 'reserved')),
    ('no attachment, attaching for an hour less a minute', (),
     {'status': 'attaching', 'age': 59 * MINUTE, 'connector': NEVER},
     'perhaps only for a short time'),
    ('no attachment, and no connector', (), {'status': 'attaching'},
     '--connector none'),
)

#: ID, attachments, facts, call, expected status.
CALLS: tuple[tuple[str, tuple[Attachment, ...], Any, Call, str], ...] = (
    # Cases of Cinder's force_detach specification
    ('reserved by a call from before Queens', (),
     {'status': 'attaching', 'connector': NEVER}, Call.UNRESERVE,
     'available'),
    ('reserved', (RESERVED,), {'status': 'reserved'}, Call.DELETE,
     'available'),
    ('connected and never attached, before Queens', (),
     {'status': 'attaching', 'connector': CONNECTOR}, Call.FORCE_DETACH,
     'available'),
    ('connected and never attached', (attachment('attaching'),),
     {'status': 'attaching'}, Call.DELETE, 'available'),
    ('detaching', (attachment(),), {'status': 'detaching'}, Call.DELETE,
     'available'),
    ('detaching, before Queens', (LEGACY,),
     {'status': 'detaching', 'connector': CONNECTOR}, Call.FORCE_DETACH,
     'available'),
    ('legacy and stale, of a server that is stopped', (LEGACY_OF_ALIVE,),
     {'findings': BY_HAND, 'connector': CONNECTOR,
      'alive': but(status='SHUTOFF')}, Call.FORCE_DETACH, 'available'),
    ('detaching, and Nova still has it', (ALIVES,),
     {'status': 'detaching', 'claimed_by': ('alive',), 'findings': STUCK},
     Call.ROLL_DETACHING,
     'in-use'),
    ('detaching, and Nova has not detached it', (ALIVES,),
     {'status': 'detaching', 'claimed_by': ('alive',), 'findings': STUCK,
      'has_failed_detach': True}, Call.DETACH_AGAIN, 'available'),
    ('detaching, and the server has no mapping', (ALIVES,),
     {'status': 'detaching', 'findings': STUCK}, Call.ROLL_DETACHING,
     'in-use'),
    ('detaching, legacy, and the server has no mapping',
     (attachment('attached', False, 'alive'),),
     {'status': 'detaching', 'findings': STUCK},
     Call.ROLL_DETACHING, 'in-use'),
    ('available, and a host was given access', (),
     {'status': 'available', 'connector': CONNECTOR}, Call.TERMINATE,
     'available'),
    ('reserved, and a host was given access', (RESERVED,),
     {'status': 'reserved', 'connector': CONNECTOR}, Call.FORCE_DETACH,
     'available'),
    ('half connected', (attachment('reserved', True),),
     {'status': 'reserved'}, Call.COMPLETE_AND_DELETE, 'available'),
    ('half connected with neighbours',
     (attachment('reserved', True),
      attachment(server='alive', name='neighbour')),
     {'multiattach': True, 'claimed_by': ('alive',)},
     Call.COMPLETE_AND_DELETE, 'in-use'),
    ('detached in Nova', (attachment('detaching'),),
     {'status': 'detaching'}, Call.DELETE, 'available'),
    # Other cases
    ('surplus beside an attachment in order',
     (HALF_ATTACHED, attachment(server='alive', name='good')),
     {**HALF, 'status': 'in-use', 'findings': STALE}, Call.DELETE,
     'in-use'),
    ('surplus beside another one',
     (HALF_ATTACHED, attachment(server='alive', name='good'),
      attachment('reserved', False, 'alive', 'third')),
     {**HALF, 'status': 'in-use', 'findings': (*STALE, found(
         Reason.STALE_ATTACHMENT, Remedy.RELEASE, 'third'))}, Call.DELETE,
     'in-use'),
    ('of another host, beside an attachment in order',
     (ALIVES, attachment(server='alive', name='good')),
     {'claimed_by': ('alive',), 'findings': STALE}, Call.DELETE,
     'in-use'),
    ('in use by a server that is gone', (attachment(),), {}, Call.DELETE,
     'available'),
    ('in use by a server that is gone, and the connector is of its host',
     (attachment(),),
     {'connector': CONNECTOR, 'attached_to': (
         AttachedServer('gone', 'record', 'compute1'),)},
     Call.DELETE, 'available'),
    ('in use by a server that is gone, however young', (attachment(),),
     {'age': MINUTE}, Call.DELETE, 'available'),
    ('in use after a migration', (attachment(),),
     {'migration_status': 'success'}, Call.DELETE, 'available'),
    ('in use by no server', (), {'connector': CONNECTOR}, Call.FORCE_DETACH,
     'available'),
    ('in use by no server, and never connected', (), {'connector': NEVER},
     Call.DETACH, 'available'),
    ('in use by no server, and older than the grace period', (),
     {'connector': NEVER, 'age': 5 * MINUTE}, Call.DETACH, 'available'),
    ('the status was reset', (attachment(),), {'status': 'available'},
     Call.DELETE, 'available'),
    ('reserved for a server that exists', (HALF_ATTACHED,),
     {'status': 'reserved', 'findings': STALE}, Call.DELETE,
     'available'),
    ('stale, of a server without a host', (ALIVES,),
     {'findings': STALE, 'alive': SHELVED}, Call.DELETE, 'available'),
    ('beside a neighbour in order',
     (attachment(), attachment(server='alive', name='neighbour')),
     {'multiattach': True, 'claimed_by': ('alive',)}, Call.DELETE,
     'in-use'),
    ('legacy that was never connected, they say', (LEGACY,),
     {'connector': NEVER}, Call.DELETE, 'available'),
    ('legacy and stale, and never connected, they say', (LEGACY_OF_ALIVE,),
     {'connector': NEVER, 'findings': BY_HAND}, Call.DELETE, 'available'),
    # This is safe: an unfinished attach of a dead server is no operation.
    ('beside what a dead server left unfinished',
     (attachment(), attachment('attaching', True, 'also gone', 'second')),
     {'multiattach': True}, Call.DELETE, 'available'),
)


def facts(attachments: tuple[Attachment, ...], status: str = 'in-use',
          alive: ComputeServer = ALIVE,
          claimed_by: tuple[str, ...] = (),
          findings: tuple[CloudFinding, ...] = (),
          age: datetime.timedelta = DAY,
          connector: Connector = NOT_GIVEN,
          elsewhere: str | None = None,
          has_failed_detach: bool = False,
          **fields: Any) -> HeldVolume:
    """Return the facts for the tables; only server "alive" exists."""
    holders = dict.fromkeys(
        (a.server_id for a in attachments if a.server_id), Holder(
            is_deleted=not elsewhere, elsewhere=elsewhere))
    if 'alive' in holders:
        holders['alive'] = Holder(
            alive, findings=findings,
            has_failed_detach=has_failed_detach)
    return HeldVolume(
        Volume(id='volume', status=status, updated_at=NOW - age, **fields),
        attachments, holders, tuple(sorted(claimed_by)), connector, Policy(),
        NOW)


class RefusalsTest(base.TestCase):
    """Rows that refuse."""

    scenarios = base.scenarios(REFUSALS, 'attachments', 'world', 'words')

    def test_step_has_no_call_and_gives_advice(self) -> None:
        step = decide(facts(self.attachments, **self.world))[0]
        self.assertIsNone(step.call)
        self.assertEqual('', step.expected)
        self.assertIn(self.words, str(step.advice))


class CallsTest(base.TestCase):
    """Rows that make a call."""

    scenarios = base.scenarios(
        CALLS, 'attachments', 'world', 'call', 'expected')

    def test_step_has_its_call_and_expected_status(self) -> None:
        step = decide(facts(self.attachments, **self.world))[0]
        self.assertEqual((self.call, self.expected),
                         (step.call, step.expected))
        self.assertEqual(self.attachments[:1], tuple(filter(
            None, [step.attachment])))
        if self.call in (Call.FORCE_DETACH, Call.TERMINATE):
            self.assertEqual(CONNECTOR.data, step.connector)


class CoverageTest(base.TestCase):

    def test_every_row_has_a_test_above(self) -> None:
        tested = set()
        cases: Iterable[tuple[Any, ...]] = (*REFUSALS, *CALLS)
        for _name, attachments, world, *_ in cases:
            about = facts(attachments, **world)
            tested.add(id(
                first(HELD_ATTACHMENTS.rows,
                      HeldAttachment(**{
                          **vars(about), 'attachment': attachments[0]}))
                if attachments else
                first(HELD_VOLUMES.rows, about)))
        self.assertEqual([], [
            row.cell for table in (HELD_ATTACHMENTS,
                                   HELD_VOLUMES)
            for row in table.rows if id(row) not in tested])


class WordsTest(base.TestCase):

    def test_no_command_in_prose(self) -> None:
        """Show every command apart, where the output does not break it."""
        for table in (HELD_ATTACHMENTS,
                      HELD_VOLUMES):
            for row in table.rows:
                for name in ('openstack ', 'nova-manage', 'virsh'):
                    self.assertNotIn(name, row.words)


class WayOutTest(base.TestCase):
    """Advice for after the rollback of a detach."""

    def test_server_is_judged_again_after_the_rollback(self) -> None:
        """Only then it is known what removes the stale attachment."""
        for alive in (ALIVE, SHELVED):
            [step] = decide(facts(
                (ALIVES,), status='detaching', alive=alive, findings=STUCK))
            self.assertEqual(('openstack bdm show alive',), step.commands)


class NeighboursTest(base.TestCase):
    """Several attachments of one volume."""

    def test_a_volume_stands_for_what_is_to_be_released(self) -> None:
        gone, healthy = decide(facts(
            (attachment(), attachment(server='alive', name='neighbour')),
            multiattach=True, claimed_by=('alive',)))
        self.assertIsNotNone(gone.call)
        self.assertIsNone(healthy.call)
        self.assertEqual((gone,),
                         selected((gone, healthy), None))
        self.assertEqual((healthy,),
                         selected((gone, healthy), 'neighbour'))
