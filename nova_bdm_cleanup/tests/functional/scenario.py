# SPDX-License-Identifier: Apache-2.0
"""Base class of the tests of the plugin at work in a cloud."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import dataclasses
import datetime
import re
import threading
import time
from typing import Any, ClassVar
import uuid

import fixtures
from nova import objects
from nova.db.main import api as db
from oslo_config import cfg
from oslo_utils import timeutils
from testtools import content

from nova_bdm_cleanup.node.store.journal import Journal, RecordedEntry
from nova_bdm_cleanup.openstack.deadline import Deadline
from nova_bdm_cleanup.tests.cloud import (
    fixture,
    identity,
    proxy,
    recorder,
    snapshot,
)
from nova_bdm_cleanup.tests.functional import base
from nova_bdm_cleanup.tests.unit import base as unit

CONF = cfg.CONF

_LOG_LINE = re.compile(
    r'(?P<level>\w+) nova_bdm_cleanup\.audit .*?'
    r'(?:\[instance: (?P<server>\S+)\] )?bdm-cleanup: event=(?P<event>\S+) '
    r'reason=(?P<reason>\S+) volume=(?P<volume>\S+) '
    r'attachment=(?P<attachment>\S+) device=(?P<device>\S+) '
    r'request_id=(?P<request_id>\S+): (?P<text>.*)')

#: More of nova.conf where a host boots.
RESUME_GUESTS = {'DEFAULT': {'resume_guests_state_on_host_boot': True}}
#: Party and name of a step, what happens just before it, and optionally its
#: subject: see :meth:`recorder.Recorder.before`.
HookArguments = tuple[Any, ...]
#: A volume like any other, but quicker to make than one attached later.
BOOT_DISK = fixture.Disk(at_boot=True)


@dataclasses.dataclass(frozen=True)
class Line:
    """One log line of the plugin."""

    level: str
    #: None: the line is about no server.
    server: str | None
    event: str
    reason: str
    volume: str
    attachment: str
    device: str
    request_id: str
    text: str


class TimeLimit(fixtures.Fixture):
    """The time limit of a reboot, which is over when a test says so."""

    def _setUp(self) -> None:
        self._over = threading.Event()
        self.useFixture(fixtures.MockPatch(
            'nova_bdm_cleanup.node.instance_cleanup.Deadline', self._begin))

    def expire(self) -> None:
        """End the waiting of the reboot that is running."""
        self._over.set()

    def _begin(self, seconds: float, option: str) -> Deadline:
        over = self._over = threading.Event()

        def wait(thread: threading.Thread, left: float) -> None:
            while thread.is_alive() and not over.is_set():
                thread.join(0.02)

        return Deadline(
            seconds, lambda: seconds if over.is_set() else 0.0, wait,
            option)


class ScenarioTestCase(base.FunctionalTestCase):
    """Base class of tests of the plugin, each with a store of its own."""

    #: The arguments of the cloud, besides the plugin.
    ARGUMENTS: ClassVar[dict[str, Any]] = {}
    #: How :meth:`reboot` brings a server back: the scenarios of the reboot are
    #: played once more in the other ways, see :class:`Started` and
    #: :class:`Resumed`.
    TRIGGER: ClassVar[str] = 'hard_reboot'
    #: Its name in the instance actions.
    ACTION: ClassVar[str | None] = 'reboot'
    #: The step by which a cleanup has the guest switched off.
    POWER_OFF_STEPS: ClassVar[Sequence[tuple[str, str]]] = [
        (recorder.GUEST, 'power off')]

    @classmethod
    def cloud_arguments(cls) -> dict[str, Any]:
        arguments: dict[str, Any] = {'plugin': True}
        if cls.TRIGGER != 'hard_reboot':
            arguments.update(
                nova_options=RESUME_GUESTS,
                plugin_options={'triggers': 'start,host_boot'})
        return {**arguments, **cls.ARGUMENTS}

    def setUp(self) -> None:
        super().setUp()
        self.start_recording()
        #: Cinder as Nova sees it, not through the proxy.
        self.cinder = self.cloud.cinder.client(identity.NOVA, service=True)
        self.store_path = (self.cloud.state / 'stores' / uuid.uuid4().hex
                             / 'store.sqlite')
        self.store_path.parent.mkdir(parents=True, mode=0o700)
        self.set_options(store=str(self.store_path))
        # No test cuts the power, and to sync takes most of a change's time.
        self.useFixture(unit.NoSyncing())

    def _keep_log(self, exc_info: Any) -> None:
        self.addDetail('nova.log', content.text_content(
            '\n'.join(self.cloud.log()[self._log_begins:])))
        self.addDetail('timeline', content.text_content(
            '\n'.join(map(str, self.cloud.timeline()))))

    def ignore_actions(self) -> None:
        """Leave the instance actions out of the looks at a server.

        Each costs a request, and there are hundreds after many reboots.
        """
        self.useFixture(fixtures.MockPatchObject(
            self.cloud, '_actions', lambda server: ()))

    def set_options(self, **values: Any) -> None:
        """Set options of ``[bdm_cleanup]`` for the rest of the test."""
        for name, value in values.items():
            CONF.set_override(name, value, group='bdm_cleanup')
            self.addCleanup(CONF.clear_override, name, group='bdm_cleanup')

    # -- making and rebooting ----------------------------------------------

    def create_server(self, *disks: fixture.Disk, **arguments: Any
               ) -> fixture.Server:
        """Make a server; see :meth:`fixture.Cloud.server`."""
        return self.cloud.server(*disks, **arguments)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until another thread or process meets a condition."""
        deadline = time.monotonic() + fixture.TIMEOUT
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)

    def hang_until_timeout(self) -> proxy.Action:
        """Return an action: Cinder hangs, and meanwhile the time runs out."""
        limit = self.useFixture(TimeLimit())

        def hang(request: proxy.Request, forward: proxy.Forward
                 ) -> proxy.Answer:
            limit.expire()
            return self.cloud.proxy.hang(request, forward)

        return hang

    def create_mapping(self, server: fixture.Server, volume: str,
                      age: datetime.timedelta = datetime.timedelta(),
                      **values: Any) -> objects.BlockDeviceMapping:
        """Leave a mapping like an attach that died early.

        :param age: the age of the mapping
        :param values: more of its columns
        """
        context = self.cloud.nova.context()
        mapping = objects.BlockDeviceMapping(
            context, instance_uuid=server.id, volume_id=volume,
            source_type='volume', destination_type='volume',
            device_name='/dev/vdy', **values)
        mapping.create()
        self.age_mapping(mapping, age)
        return mapping

    def record_attach(self, server: fixture.Server) -> None:
        """Record an attach of a volume as Nova does that begins it."""
        context = self.cloud.nova.context()
        objects.InstanceAction.action_start(
            context, server.id, 'attach_volume')
        objects.InstanceActionEvent.event_start(
            context, server.id, 'compute_attach_volume',
            want_result=False, host=server.host)

    def age_mapping(self, mapping: objects.BlockDeviceMapping,
                    age: datetime.timedelta) -> None:
        """Make a mapping older than it is; Nova has no call for that."""
        moment = timeutils.utcnow() - age
        db.block_device_mapping_update(
            self.cloud.nova.context(), mapping.id,
            {'created_at': moment, 'updated_at': moment}, legacy=False)

    def attach_to_host(self, server: fixture.Server, host: str) -> None:
        """Have Cinder attach the disks of a server to another host."""
        with self.cloud.cinder.database() as database:
            database.executemany(
                'UPDATE volume_attachment SET attached_host = ? '
                'WHERE volume_id = ?', [(host, v) for v in server.volumes])

    def start_recording(self) -> None:
        """Forget what was done so far: it was preparation."""
        self.cloud.start_timeline()
        self._began = time.time()
        self._log_begins = len(self.cloud.log())

    def reboot(self, server: fixture.Server, *hooks: HookArguments,
               **arguments: Any) -> snapshot.Snapshot:
        """Bring a server back in the way of this class, check that it
        succeeded and look at everything.

        :param hooks: actions, and the steps before which they happen
        :param arguments: see :meth:`bring_back`
        """
        self.take_down(server)
        self.start_recording()
        for hook in hooks:
            self.cloud.recorder.before(*hook)
        self.bring_back(server, **arguments)
        return self.look(server)

    def take_down(self, server: fixture.Server) -> None:
        """Do what has to happen before a server can come back."""

    def bring_back(self, server: fixture.Server, **arguments: Any) -> None:
        """Have Nova bring a server back, with or without success.

        :param arguments: see :meth:`fixture.Cloud.reboot`
        """
        self.cloud.reboot(server, **arguments)

    def crash(self, server: fixture.Server, party: str, what: str) -> None:
        """Bring a server back in a nova-compute that dies before a step."""
        self.take_down(server)
        self.start_recording()
        self.cloud.recorder.before(party, what, recorder.crash)
        self.cloud.run_until_crash(server, self.TRIGGER)

    def look(self, server: fixture.Server) -> snapshot.Snapshot:
        """Look at a server, whose reboot must have succeeded."""
        view = self.cloud.look(server)
        self.assertEqual(('ACTIVE', None, True),
                         (view.status, view.task_state, view.is_running),
                         view.fault)
        return view

    # -- queries -----------------------------------------------------------

    def all_log_lines(self, event: str = '') -> list[Line]:
        """Return the log lines of the plugin since :meth:`start_recording`."""
        lines = [Line(**match.groupdict()) for match in map(
            _LOG_LINE.search, self.cloud.log()[self._log_begins:]) if match]
        return [line for line in lines if event in ('', line.event)]

    def log_lines(self, server: fixture.Server, event: str = '',
              reason: str = '') -> list[Line]:
        """Return the log lines about a server."""
        return [line for line in self.all_log_lines(event)
                if line.server == server.id and reason in ('', line.reason)]

    def journal(self) -> list[RecordedEntry]:
        """Return the journal entries of this test."""
        return list(Journal(str(self.store_path)).entries())

    def requests(self, method: str = '') -> list[str]:
        """Return the requests to Cinder: method, and path without project."""
        return [
            '%s %s' % (request.method,
                       re.sub(r'^/v3/[^/]+', '', request.path))
            for request in self.cloud.proxy.requests
            if method in ('', request.method)]

    def volume_status(self, volume: str) -> str:
        """Return the status of a volume, which Nova need not know."""
        status: str = self.cinder.volumes.get(volume).status
        return status

    def changes(self) -> list[str]:
        """Return the requests to Cinder that change something."""
        return [each for each in self.requests()
                if not each.startswith('GET ')]

    def plugin_requests(self) -> list[proxy.Request]:
        """Return the requests to Cinder with Nova's own credentials."""
        return [request for request in self.cloud.proxy.requests
                if request.caller == identity.NOVA]

    def back_end(self, *volumes: str) -> list[tuple[str, str | None]]:
        """Return the recorded calls of the back end, with their hosts."""
        return [(call['call'], call['host'])
                for call in self.cloud.cinder.driver_calls(*volumes)
                if call['time'] >= self._began]

    def steps_of(self, *subjects: str) -> list[tuple[str, str]]:
        """Return the recorded steps and their parties, in order of time."""
        return [(event.party, event.what)
                for event in self.cloud.timeline(*subjects)]

    def host_steps(self, *volumes: str) -> list[str]:
        """Return the recorded steps of os-brick on volumes."""
        return [what for party, what in self.steps_of(*volumes)
                if party == recorder.HOST]

    # -- asserting ---------------------------------------------------------

    def assert_removed(self, view: snapshot.Snapshot, volume: str,
                       reason: str, attachments: tuple[str, ...] = (),
                       shared: bool = False, by_api: bool = True,
                       connected: bool = True) -> None:
        """Check that a dangling mapping was removed, in every record.

        :param view: the server after the reboot
        :param volume: whose mapping is gone
        :param reason: the reason code
        :param attachments: the attachments that had to be deleted for it
        :param shared: another server of the host still uses the volume
        :param by_api: the reboot came through the API, so there is an
            instance action to show the removal under
        :param connected: Nova had connected the volume
        """
        row = view.removed_block_device(volume)
        self.assertIsNotNone(row, 'Nova never had a row, or still has it')
        assert row is not None
        self.assert_gone(view, volume, shared)

        lines = [line for line in self.all_log_lines()
                 if line.volume == volume]
        self.assertEqual(
            ['removing', *['still-connected'] * shared, 'removed'],
            [line.event for line in lines])
        self.assertEqual({('INFO', reason)},
                         {(line.level, line.reason) for line in lines})
        self.assertRegex(
            lines[0].text, r"^Removing stale volume attachment \S.* from "
            "instance for volume '%s': " % volume)
        self.assertEqual({row.device_name}, {line.device for line in lines})
        if by_api and self.ACTION:
            self.assertEqual({view.actions[-1].request_id},
                             {line.request_id for line in lines})

        entry, action = self._journalled(row.uuid)
        self.assertEqual(('remove-bdm', reason, volume),
                         (action['kind'], action['reason'],
                          action['bdm']['volume_id']))
        self.assertNotIn('connection_info', action['bdm'])
        self.assertEqual(set(attachments),
                         {each['id'] for each in action['attachments']})
        steps = [(step.name, step.outcome) for step in entry.steps
                 if step.subject.get('bdm') == row.uuid
                 or step.subject.get('attachment') in attachments]
        self.assertEqual(
            [('disconnect', 'done' if connected and not shared
              else 'skipped'),
             ('destroy', 'done'),
             *[('delete-attachment', 'done')] * len(attachments)], steps)
        self.assertIn(row.uuid, entry.removed)

        if by_api:
            self.assert_event(view, 'bdm_cleanup removed volume %s (%s)'
                              % (volume, reason))

    def assert_deleted(self, view: snapshot.Snapshot, attachment: str,
                       volume: str) -> None:
        """Check that a stale attachment was deleted, in every record."""
        self.assertNotIn(attachment, [each.id for each in view.attachments])
        lines = [line for line in self.all_log_lines()
                 if line.attachment == attachment]
        self.assertEqual(
            [('INFO', 'removing', 'stale-attachment', volume),
             ('INFO', 'removed', 'stale-attachment', volume)],
            [(line.level, line.event, line.reason, line.volume)
             for line in lines if line.event != 'still-connected'])
        found = [
            (entry, action) for entry in self.journal()
            for action in entry.record['actions']
            if action['kind'] == 'delete-attachment'
            and action['attachment']['id'] == attachment]
        (entry, action), = found
        self.assertEqual(
            ('stale-attachment', volume, view.server_id),
            (action['reason'], action['attachment']['volume_id'],
             action['attachment']['server_id']))
        self.assertIn(('delete-attachment', 'done'), [
            (step.name, step.outcome) for step in entry.steps
            if step.subject.get('attachment') == attachment])
        self.assert_event(
            view, 'bdm_cleanup removed attachment %s (stale-attachment)'
            % attachment)

    def assert_event(self, view: snapshot.Snapshot, event: str) -> None:
        """Check that the server's owner is shown the event."""
        self.assertIn((event, 'Success'), [
            (each.event, each.result) for each in view.actions
            # Nova shows events without a request under the last action.
            if self.ACTION in (None, each.action)])

    def assert_dangling(self, view: snapshot.Snapshot, volume: str) -> None:
        """Check that nothing was done about a volume's mapping."""
        self.assertIsNotNone(view.block_device(volume), 'the row is gone')
        self.assertEqual([], [step.name for entry in self.journal()
                              for step in entry.steps
                              if step.subject.get('volume') == volume])
        self.assertNotIn(volume, [
            line.volume for event in ('removing', 'removed')
            for line in self.all_log_lines(event)])

    def assert_nothing_done(self, view: snapshot.Snapshot) -> None:
        """Check that the plugin changed nothing anywhere."""
        self.assertEqual([], self.journal())
        for event in ('removing', 'removed'):
            self.assertEqual([], self.all_log_lines(event))
        self.assertEqual([], self.changes())
        self.assertEqual(
            [], [event.event for event in view.actions
                 if event.event.startswith('bdm_cleanup removed')])

    def assert_finding(self, server: fixture.Server, volume: str,
                       *expected: tuple[str, str, str]) -> list[Line]:
        """Check the log lines about a volume: level, event and reason."""
        lines = [line for line in self.log_lines(server)
                 if line.volume == volume]
        self.assertEqual(list(expected), [
            (line.level, line.event, line.reason) for line in lines])
        return lines

    def _journalled(self, bdm: str) -> tuple[
            RecordedEntry, dict[str, Any]]:
        found = [(entry, action) for entry in self.journal()
                 for action in entry.record['actions']
                 if action['kind'] == 'remove-bdm'
                 and action['bdm']['uuid'] == bdm]
        self.assertNotEqual([], found, 'not in the journal')
        return found[-1]


class TwoDisks(ScenarioTestCase):
    """A server with one disk to be lost and one to be kept."""

    def setUp(self) -> None:
        super().setUp()
        self.server = self.create_server(*[BOOT_DISK] * 2)
        self.lost, self.kept = self.server.volumes

    def check_removed(self, view: snapshot.Snapshot) -> None:
        """Check that the lost disk is gone everywhere, and the other not."""
        self.assert_gone(view, self.lost)
        self.assert_healthy(view, self.kept)


class ThreeDisks(ScenarioTestCase):
    """A server with a disk to be lost in each of two ways, and one kept."""

    def setUp(self) -> None:
        super().setUp()
        self.server = self.create_server(*[BOOT_DISK] * 3)
        self.lost, self.reset, self.kept = self.server.volumes
        #: The leftover attachment of the volume that is reset to available.
        self.attachment, = self.cloud.attachments(self.reset)

    def damage_both(self) -> None:
        self.cloud.lose_attachment(self.server, self.lost)
        self.cloud.reset_status(self.reset)

    def check_removed(self, view: snapshot.Snapshot, by_api: bool = True
                      ) -> None:
        """Check that both are gone everywhere, and the third is not."""
        self.assert_removed(view, self.lost, 'volume-available',
                            by_api=by_api)
        self.assert_removed(view, self.reset, 'volume-available',
                            (self.attachment.id,), by_api=by_api)
        self.assert_healthy(view, self.kept)


class Started(ScenarioTestCase):
    """The scenarios of the reboot, played by stop and start.

    A server is broken while it runs, stopped, and started.
    """

    TRIGGER = 'start'
    ACTION = 'start'
    POWER_OFF_STEPS = ()

    def take_down(self, server: fixture.Server) -> None:
        if self.cloud.nova.instance(server.id).vm_state != 'stopped':
            self.cloud.stop(server)

    def bring_back(self, server: fixture.Server, **arguments: Any) -> None:
        self.take_down(server)
        self.cloud.start(server, **arguments)


class Resumed(ScenarioTestCase):
    """The scenarios of the reboot, played by a host that boots.

    Its guests end, and nova-compute restarts.
    """

    TRIGGER = 'host_boot'
    ACTION = None
    POWER_OFF_STEPS = ()

    def take_down(self, server: fixture.Server) -> None:
        self.cloud.lose_power(server)

    def bring_back(self, server: fixture.Server, **arguments: Any) -> None:
        self.take_down(server)
        self.cloud.restart_compute(server.host)
