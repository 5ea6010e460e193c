# SPDX-License-Identifier: Apache-2.0
"""Stuck states, and the commands that end them.

Each is built with the calls that cause it, and ended with the command that the
audit or the refusal names.  The calls to the back end are compared each time.
"""

from __future__ import annotations

import datetime
import itertools
import json
import os
from typing import Any

import fixtures
from nova import objects
from nova.cmd import manage
from oslo_utils import uuidutils

from nova_bdm_cleanup.rules.reasons import Reason, Remedy
from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.cloud import fixture
from nova_bdm_cleanup.tests.functional import commands, scenario
from nova_bdm_cleanup.tests.functional.commands import NO_WAITING


class StuckTestCase(commands.CommandWithWitnessTestCase):

    def release(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        code, (row,) = self.bdm('release', *arguments, *NO_WAITING, '--yes')
        return code, row

    def assert_refused(self, words: str, *arguments: str) -> None:
        """Check that nothing is done, and why."""
        code, row = self.release(*arguments)
        self.assertEqual((ExitCode.REFUSED, None), (code, row['Call']), row)
        self.assertIn(words, row['Explanation'])

    def assert_release(self, call: str, *arguments: str) -> None:
        """Check that the release succeeds, and by which call."""
        code, row = self.release(*arguments)
        self.assertEqual((ExitCode.OK, call), (code, row['Call']), row)


class AttachedByHandTest(StuckTestCase):
    """Attachments by Cinder's ``os-attach`` alone: no host is connected."""

    def attach_by_hand(self, server: fixture.Server, volume: str,
                       host: str | None = None) -> str:
        self.cinder.volumes.attach(volume, server.id, '/dev/vdb',
                                   host_name=host)
        self.assertEqual('in-use', self.volume_status(volume))
        attachment, = self.cloud.attachments(volume)
        self.assertEqual(('attached', False),
                         (attachment.status, attachment.is_connected))
        return attachment.id

    def test_attachment_of_existing_server_is_released(self):
        server = self.create_server()
        volume = self.cloud.volume()
        attachment = self.attach_by_hand(server, volume)
        self.assertEqual(
            ('legacy-attachment', 'look: openstack bdm release '
             + attachment), self.run_audit(server=server)[volume])
        self.assert_refused('openstack bdm release --connector none '
                            + attachment, attachment)
        self.assert_release('attachment delete', attachment, '--connector',
                          'none')
        self.assert_released(volume)
        self.assertEqual([], self.cloud.log(
            'Rebooting instance.*' + server.id))

    def test_host_that_is_recorded(self):
        """Refuse: a record with a host outweighs the operator's word."""
        server = self.create_server()
        volume, orphan = self.cloud.volume(), self.cloud.volume()
        attachment = self.attach_by_hand(server, volume, 'compute1')
        for connector in ('none', self.connector_file()):
            self.assert_refused('host compute1 may have the volume open',
                                attachment, '--connector', connector)
        self.assertEqual('in-use', self.volume_status(volume))
        self.cloud.stop(server)
        self.assert_release('os-force_detach', attachment, '--connector',
                          self.connector_file())
        self.assert_released(volume, 'terminate_connection', 'remove_export')
        attachment = self.attach_by_hand(self.unknown_server(), orphan,
                                         'compute1')
        self.assert_refused('Cinder says that host compute1 had the volume',
                            attachment, '--connector', 'none')
        self.assertEqual('in-use', self.volume_status(orphan))
        self.assert_release('os-force_detach', attachment, '--connector',
                          self.connector_file())
        self.assert_released(orphan, 'terminate_connection', 'remove_export')


class ConnectedWithoutRecordTest(StuckTestCase):
    """A host that the back end lets in without a record in Cinder.

    The last case of Cinder's force_detach specification, and the leftover of
    a cinder-volume that dies.
    """

    def connect_host(self, volume: str) -> None:
        self.cinder.volumes.initialize_connection(volume, self.connector())

    def half_connect(self, server: fixture.Server, volume: str) -> str:
        """Leave the state of a cinder-volume that dies before it is done."""
        attachment = self.cloud.create_attachment(server, volume)
        self.cloud.cinder.reset_attachment(volume, attachment)
        found, = self.cloud.attachments(volume)
        self.assertEqual(('reserved', True, 'reserved'), (
            found.status, found.is_connected, self.volume_status(volume)))
        return attachment

    def test_half_connected_attachment_is_released(self):
        for multiattach in (False, True):
            volume = self.cloud.volume(multiattach=multiattach)
            attachment = self.half_connect(self.unknown_server(), volume)
            self.assert_release('os-complete, attachment delete', attachment)
            self.assert_released(volume, 'terminate_connection',
                                 'remove_export')

    def test_back_end_fails(self):
        volume = self.cloud.volume()
        self.connect_host(volume)
        self.cloud.cinder.break_driver('terminate_connection', volume)
        code, row = self.release(volume, '--connector', self.connector_file())
        self.assertEqual(ExitCode.PARTLY, code)
        self.assertIn('if the volume is attaching now: openstack bdm release '
                      '--stuck-after 0', row['Result'])
        self.assertEqual('attaching', self.volume_status(volume))
        self.cloud.cinder.repair_driver()
        self.assert_release('os-force_detach', volume, '--connector',
                          self.connector_file())
        self.assertEqual('available', self.volume_status(volume))


class InterruptedAttachTest(StuckTestCase):
    """A volume that Cinder calls ``attaching``, with a mapping in Nova.

    The second case of Cinder's force_detach specification.
    """

    def begin_attach(self, server: fixture.Server, volume: str,
                     saved: bool) -> None:
        """Attach like a nova-compute that died before the guest got it.

        :param saved: whether Nova has saved the connection info
        """
        attachments = self.cinder.attachments
        attachment = attachments.create(volume, self.connector(), server.id)
        self.assertEqual('attaching', self.volume_status(volume))
        # Convert it as Nova's Cinder client does.
        data = attachment['connection_info']
        info = {'driver_volume_type': data.pop('driver_volume_type'),
                'data': data, 'serial': volume}
        self.create_mapping(
            server, volume, datetime.timedelta(days=1),
            attachment_id=attachment['id'],
            connection_info=json.dumps(info) if saved else None)

    def test_release_does_not_complete_an_attachment(self):
        """Leave it: the row may have the address of another guest's disk."""
        for saved, is_stopped in itertools.product((True, False), repeat=2):
            server, volume = self.create_server(), self.cloud.volume()
            self.begin_attach(server, volume, saved)
            if is_stopped:
                self.cloud.stop(server)
            before = self.cloud.attachments(volume)
            # The API does not show what Nova has saved.
            (reason, action), = self.run_audit(
                *NO_WAITING, server=server).values()
            self.assertEqual('half-moved', reason)
            self.assert_refused('openstack bdm clean', before[0].id)
            self.assertEqual((before, 'attaching'), (
                self.cloud.attachments(volume), self.volume_status(volume)))
            if saved:
                # The hard reboot completes what the attach has begun.
                self.run_action(action)
                self.assert_healthy(self.look(server), volume)
            else:
                self.end_attach(server, volume, action)
            self.assertEqual({}, self.run_audit(*NO_WAITING, server=server))

    def end_attach(self, server: fixture.Server, volume: str, action: str
                   ) -> None:
        """End an attach whose connection only Cinder has recorded."""
        code, (row,) = self.bdm(*action.split()[2:], '--yes')
        self.assertEqual(ExitCode.PARTLY, code, row)
        self.assertIn('it is still there', row['Result'])
        # For the node it is not stuck before an hour has passed.
        self.assert_finding(server, volume,
                            ('INFO', 'kept', 'operation-in-flight'))
        # Follow the runbook.
        attachment, = self.cloud.attachments(volume)
        self.cloud.stop(server)
        self.cinder.attachments.delete(attachment.id)
        self.reboot(server)
        self.cloud.cinder.wait(volume, 'available')
        self.assertEqual('terminate_connection',
                         self.terminate_calls(volume)[0])
        self.assert_gone(self.cloud.look(server), volume)

    def test_attach_before_queens(self):
        """Release it without a record in Cinder or an id in Nova."""
        server, volume = self.create_server(), self.cloud.volume()
        self.cinder.volumes.reserve(volume)
        info = self.cinder.volumes.initialize_connection(
            volume, self.connector())
        self.create_mapping(server, volume, datetime.timedelta(days=1),
                           connection_info=json.dumps(
                               {**info, 'serial': volume}))
        self.assertEqual(
            {volume: ('stuck', ' '.join((
                'look: openstack bdm show', server.id, *NO_WAITING)))},
            self.run_audit(*NO_WAITING, server=server))
        self.assert_refused('openstack bdm explain stuck', volume,
                            '--connector', self.connector_file())
        # Follow the runbook.
        self.cloud.stop(server)
        self.cloud.reset_status(volume)
        self.reboot(server)
        self.assert_gone(self.look(server), volume)
        self.assert_release('os-terminate_connection', volume, '--connector',
                          self.connector_file())
        self.assert_released(volume, 'terminate_connection')
        self.assertEqual({}, self.run_audit(*NO_WAITING, server=server))


class IncompleteShelveTest(StuckTestCase):
    """A shelve that a dangling mapping stopped half way."""

    def test_printed_actions_complete_the_shelve(self):
        for lose, reason in ((self.cloud.lose_volume, 'volume-missing'),
                             (self.cloud.attach_elsewhere,
                              'attached-elsewhere')):
            # In each order that Nova may use, the lost one comes last.
            data, lost = sorted(self.cloud.volume() for _ in range(2))
            server = self.create_server(
                *[fixture.Disk(volume=v, at_boot=True)
                  for v in (data, lost)], root='volume')
            lose(server, lost)
            # nova-compute fails within the request here.
            self.assertRaises(fixture.APIError, self.cloud.act, server,
                              {'shelve': None})
            reserved = [v for v in (server.root, data)
                        if self.volume_status(v) == 'reserved']
            self.assertIn(data, reserved)
            self.assertFalse(self.cloud.look(server).is_running)
            found = self.run_audit(*NO_WAITING, server=server)
            action = found[lost][1]
            self.assertEqual({lost: (reason, action), **{
                v: ('reserved-only', action) for v in reserved}}, found)

            # One hard reboot removes one mapping, and reconnects the others.
            self.start_recording()
            self.run_action(action)
            view = self.look(server)
            self.assert_gone(view, lost)
            for volume in reserved:
                self.assert_finding(server, volume,
                                    ('INFO', 'reconnecting', 'reserved-only'),
                                    ('INFO', 'reconnected', 'reserved-only'))
            self.assert_healthy(view, server.root, data)
            self.assertEqual({}, self.run_audit(*NO_WAITING, server=server))


class HalfMovedTest(StuckTestCase):
    """A shelve that died before it saved the new attachment of a disk."""

    def half_move(self, is_root: bool) -> tuple[fixture.Server, str]:
        """Return a server, and its disk that was half moved."""
        server = self.create_server(scenario.BOOT_DISK, root='volume')
        volume = server.root if is_root else server.volumes[0]
        save = objects.BlockDeviceMapping.save

        def fail(row: Any) -> None:
            if row.volume_id == volume:
                raise OSError('nova-compute died')
            save(row)

        with fixtures.MockPatchObject(objects.BlockDeviceMapping, 'save',
                                      fail):
            self.assertRaises(fixture.APIError, self.cloud.act, server,
                              {'shelve': None})
        attachment, = self.cloud.attachments(volume)
        self.assertEqual(('reserved', False, 'reserved'), (
            attachment.status, attachment.is_connected,
            self.volume_status(volume)))
        row = self.cloud.row(server, volume)
        self.assertNotEqual(attachment.id, row.attachment_id)
        self.assertIsNotNone(row.connection_info)
        return server, volume

    def test_printed_action_repairs_the_disk(self):
        for is_root, status in (
                *itertools.product((False, True), ('reserved', 'attaching')),
                (False, 'in-use'), (False, 'detaching')):
            server, volume = self.half_move(is_root)
            reserved, = self.cloud.attachments(volume)
            # The shelve may still be in progress.
            self.assertNotIn(volume, self.run_audit(server=server))
            self.cloud.reset_status(volume, status)
            found = self.run_audit(*NO_WAITING, server=server)
            self.assertEqual('half-moved', found[volume][0])
            if status == 'reserved':
                # Nothing removes it, or its attachment.
                for target in (volume, reserved.id):
                    self.assert_refused('openstack bdm clean', target)
            if status == 'detaching':
                self.check_kept(server, volume, found[volume][1])
                # Follow the runbook.
                self.cloud.reset_status(volume, 'in-use')
            self.run_all_actions(server)
            view = self.look(server)
            self.assert_healthy(view, server.root, *server.volumes)
            # It was used, and kept the volume from other servers.
            self.assertEqual([reserved.id], [
                a.id for a in view.attachments_of(volume)])

    def check_kept(self, server: fixture.Server, volume: str, action: str
                   ) -> None:
        """Check that a disk is left as it is, and the command says why."""
        look, command = action.split(': ')
        self.assertEqual('look', look)
        _, rows = self.bdm(*command.split()[2:])
        self.assertIn('not reconnected: its volume is detaching', str(rows))
        before = self.cloud.attachments(volume)
        self.start_recording()
        self.reboot(server)
        self.assert_finding(server, volume, ('WARNING', 'kept', 'half-moved'))
        view = self.look(server)
        self.assertTrue(view.has_disk(volume))
        self.assertEqual(before, view.attachments_of(volume))

    def test_connector_of_another_host(self):
        """Shelve the server where Nova has lost the connection information.

        That is what ``nova-manage`` leaves when it fails.
        """
        server, volume = self.half_move(is_root=False)
        reserved, = self.cloud.attachments(volume)
        self.cloud.stop(server)
        self.assertEqual(7, manage.VolumeAttachmentCommands().refresh(
            instance_uuid=server.id, volume_id=volume,
            connector_path=self.connector_file('compute2')))
        row = self.cloud.row(server, volume)
        self.assertIsNone(row.connection_info)
        self.assertEqual(
            {(reserved.id, 'reserved'), (row.attachment_id, 'reserved')},
            {(a.id, a.status) for a in self.cloud.attachments(volume)})
        self.assertEqual('reserved-only', self.run_audit(
            *NO_WAITING, server=server)[volume][0])
        self.cloud.act(server, {'shelve': None})
        self.cloud.act(server, {'unshelve': None})
        found = self.run_audit(*NO_WAITING, server=server)
        self.assertEqual('stale-attachment', found[volume][0])
        self.assert_release('attachment delete', reserved.id)
        self.assert_healthy(self.look(server), server.root, volume)
        self.assertEqual({}, self.run_audit(*NO_WAITING, server=server))


class DuplicateMappingTest(StuckTestCase):
    """A surplus mapping; the API does not show if Nova connected it."""

    def test_clean_keeps_the_disk_of_the_server(self):
        for connected, expected in ((False, ExitCode.OK),
                                    (True, ExitCode.PARTLY)):
            server = self.create_server(scenario.BOOT_DISK)
            volume, = server.volumes
            self.create_mapping(
                server, volume, datetime.timedelta(days=1),
                attachment_id=uuidutils.generate_uuid(),
                connection_info=self.cloud.row(
                    server, volume).connection_info if connected else None)
            (reason, _), = self.run_audit('--thorough', server=server).values()
            self.assertEqual('duplicate-mapping', reason)
            self.start_recording()
            code, _ = self.bdm('clean', server.id, '--yes')
            self.assertEqual(expected, code, self.stderr.getvalue())
            view = self.look(server)
            self.assertTrue(view.has_disk(volume))
            self.assertEqual([], self.terminate_calls(volume))


class PrintedActionsTest(StuckTestCase):
    """Printed actions, which end the state or begin with a look."""

    def test_every_printed_command_ends_its_state(self):
        """Build a state for each reason that a command resolves."""
        tried = set()
        for build in (self.build_clean, self.build_reconnect,
                      self.build_in_error, self.build_release,
                      self.build_look, self.build_wait):
            #: A volume by reason; it may be one of several, or none.
            self.built: dict[str, str | None] = {}
            build()
            tried.update(self.built)
        self.assertEqual(set(), {
            str(r) for r in Reason
            if r.remedy in (Remedy.CLEAN, Remedy.RELEASE)} - tried - {
                # The API does not show that Nova has not connected the disk:
                # the audit calls it "reserved-only".
                'never-attached'})

    def actions(self, *arguments: str) -> dict[str, str]:
        """Return the action for each built state, by its reason."""
        found = self.run_audit(*arguments)
        self.assertEqual(self.built, {
            found[v][0]: v for v in self.built.values() if v in found})
        return {reason: found[v][1] for reason, v in self.built.items()}

    def build_clean(self) -> None:
        server = self.create_server(*[scenario.BOOT_DISK] * 3)
        lost, gone, given = server.volumes
        self.cloud.lose_attachment(server, lost)
        self.cloud.lose_volume(server, gone)
        self.cloud.attach_elsewhere(server, given)
        stale = self.cloud.volume()
        self.cloud.create_attachment(server, stale)
        self.built.update({
            'volume-available': lost, 'volume-missing': gone,
            'attached-elsewhere': given, 'stale-attachment': stale})
        self.assertEqual({'openstack bdm clean ' + server.id},
                         set(self.actions().values()))
        _, rows = self.bdm('audit', by=self.cloud.owner)
        self.assertEqual(
            [('cannot-see-project',
              'ask an administrator: openstack bdm show ' + server.id)],
            [(r['Reason'], r['Action']) for r in rows if r['Volume'] == gone])
        code, _ = self.bdm('clean', server.id, '--yes')
        self.assertEqual(ExitCode.OK, code, self.stderr.getvalue())
        self.assertEqual({}, self.run_audit())

    def build_reconnect(self) -> None:
        server = self.create_server(*[scenario.BOOT_DISK] * 3)
        reserved, unsaved, unknown = server.volumes
        for volume in (reserved, unsaved):
            old, = self.cloud.attachments(volume)
            new = self.cloud.create_attachment(server, volume,
                                               connected=False)
            self.cinder.attachments.delete(old.id)
            if volume == reserved:
                self.cloud.change_row(server, volume, attachment_id=new)
        self.cloud.change_row(server, unknown,
                              attachment_id=uuidutils.generate_uuid())
        self.built.update({'reserved-only': reserved, 'half-moved': unsaved,
                           'attachment-mismatch': unknown})
        action, = set(self.actions(*NO_WAITING).values())
        self.run_action(action)
        self.assert_healthy(self.look(server), *server.volumes)
        self.assertEqual({}, self.run_audit(*NO_WAITING))

    def build_in_error(self) -> None:
        server = self.create_server(scenario.BOOT_DISK)
        self.cloud.act(server, {'os-resetState': {'state': 'error'}},
                       by=self.cloud.admin)
        self.built['server-in-error'] = None
        action, = self.actions().values()
        self.run_action(action)
        self.assertEqual('ACTIVE', self.look(server).status)
        self.assertEqual({}, self.run_audit())

    def test_printed_command_ends_an_attach_that_died(self):
        """The audit shows another reason than the node finds."""
        server, volume = self.create_server(), self.cloud.volume()
        self.create_mapping(
            server, volume, attachment_id=self.cloud.create_attachment(
                server, volume, connected=False))
        self.record_attach(server)
        self.cloud.restart_compute()
        (reason, action), = self.run_audit(*NO_WAITING).values()
        self.assertEqual('reserved-only', reason)
        self.run_action(action)
        view = self.look(server)
        self.assert_gone(view, volume)
        self.assert_event(view, 'bdm_cleanup removed volume %s '
                          '(never-attached)' % volume)
        self.assert_released(volume)
        self.assertEqual({}, self.run_audit(*NO_WAITING))

    def build_release(self) -> None:
        server = self.create_server(scenario.BOOT_DISK)
        reserved, orphan = self.cloud.volume(), self.cloud.volume()
        self.cloud.create_attachment(server, reserved, connected=False)
        self.cloud.create_attachment(self.deleted_server(), orphan)
        self.built.update({'stale-attachment': reserved,
                           'server-gone': orphan})
        self.run_releases()
        self.cinder.volumes.begin_detaching(server.volumes[0])
        self.built['stuck'] = server.volumes[0]
        self.run_releases('stuck')
        self.assertEqual({}, self.run_audit(*NO_WAITING))
        self.assertEqual([], self.cloud.log(
            'Rebooting instance.*' + server.id))

    def run_releases(self, *reasons: str) -> None:
        built = self.built
        self.built = {r: built[r] for r in reasons or built}
        for action in self.actions(*NO_WAITING).values():
            command = action.split()[:3]
            self.assertEqual(['openstack', 'bdm', 'release'], command)
            code, rows = self.bdm('release', *action.split()[3:], '--yes')
            self.assertEqual(ExitCode.OK, code, rows)
        self.built = built

    def test_root_disk_is_attached_again(self):
        server = self.create_server(scenario.BOOT_DISK, root='volume')
        self.cloud.lose_attachment(server, server.root)
        (reason, action), = self.run_audit().values()
        self.assertEqual('root-volume-dangling', reason)
        self.run_action(action)
        self.assert_healthy(self.look(server), server.root, *server.volumes)
        self.assertEqual({}, self.run_audit())

    def build_look(self) -> None:
        server = self.create_server(*[scenario.BOOT_DISK] * 5, root='volume')
        mismatch, contradiction, duplicate, crossed, twice = server.volumes
        self.create_mapping(
            server, twice, datetime.timedelta(days=1),
            attachment_id=self.cloud.row(server, twice).attachment_id)
        self.cloud.lose_attachment(server, server.root)
        self.cloud.change_row(
            server, mismatch, attachment_id=self.cloud.create_attachment(
                server, mismatch, connected=False))
        self.cloud.lose_attachment(server, contradiction)
        self.set_in_use(contradiction)
        self.cloud.create_attachment(server, duplicate)
        self.cloud.change_row(
            server, crossed, attachment_id=self.cloud.row(
                self.witness, *self.witness.volumes).attachment_id)
        unreferenced = self.cloud.volume()
        self.set_in_use(unreferenced)
        legacy = self.cloud.volume()
        self.cloud.create_legacy_attachment(self.unknown_server(), legacy)
        by_hand = self.cloud.volume()
        self.cloud.create_legacy_attachment(server, by_hand)
        self.built.update({
            'legacy-attachment': by_hand,
            'root-volume-dangling': server.root,
            'attachment-mismatch': mismatch, 'server-gone': legacy,
            'status-contradiction': contradiction,
            'duplicate-attachment': duplicate, 'cross-wired': crossed,
            'duplicate-mapping': twice,
            'volume-unreferenced': unreferenced})
        page = os.path.join(self.useFixture(fixtures.TempDir()).path, 'page')
        for reason, action in self.actions('--thorough', '--report',
                                           page).items():
            self.assertTrue(action.startswith('look: openstack '),
                            (reason, action))
            command = action.split()[1:]
            if command[:3] == ['openstack', 'bdm', 'show']:
                code, rows = self.bdm(*command[2:])
                self.assertEqual(ExitCode.FINDINGS, code)
                self.assertIn(reason, str(rows))
        with open(page, encoding='utf-8') as file:
            text = file.read()
        for reason, volume in self.built.items():
            self.assertIn(f'<td>{reason}</td>', text)
            self.assertIn(volume, text)
        self.assert_refused('get_connector', unreferenced)
        self.assert_refused('get_connector', legacy)

    def test_wrong_status_is_set_without_an_outage(self):
        server = self.create_server(*[scenario.BOOT_DISK] * 5, root='volume')
        states = dict(zip((server.root, *server.volumes), (
            'available', 'available', 'attaching', 'error', 'maintenance',
            'reserved')))
        for volume, status in states.items():
            self.cloud.reset_status(volume, status)
        found = self.run_audit(*NO_WAITING, server=server)
        self.assertEqual(set(states), set(found))
        for volume, (_, action) in found.items():
            self.assertEqual(
                'look: openstack volume set --state in-use ' + volume, action)
            if states[volume] in ('attaching', 'reserved'):
                self.assert_refused(action[len('look: '):], volume)
            self.run_action(action)
        self.assertEqual({}, self.run_audit(*NO_WAITING, '--thorough',
                                            server=server))
        self.assert_healthy(self.look(server), server.root, *server.volumes)
        self.assertEqual([], self.cloud.log(
            'Rebooting instance.*' + server.id))

    def build_wait(self) -> None:
        server = self.create_server(*[scenario.BOOT_DISK] * 2)
        busy, moving = server.volumes
        self.cloud.reset_status(busy, 'managing')
        self.cinder.volumes.begin_detaching(moving)
        young = self.cloud.volume()
        self.create_mapping(server, young)
        self.built.update({'volume-busy': busy, 'attach-in-flight': young,
                           'operation-in-flight': moving})
        arguments = [f'--reason={reason}' for reason in self.built]
        self.assertEqual({'wait'}, set(self.actions(*arguments).values()))
