# SPDX-License-Identifier: Apache-2.0
"""The release of volumes: checks, calls and results."""

from __future__ import annotations

import datetime
import functools
import json
import os
from typing import Any, Callable

from nova_bdm_cleanup.client.cloud import changes
from nova_bdm_cleanup.client.cloud.audit import CloudAudit, Scope
from nova_bdm_cleanup.client.cloud.release import releaser as releasing
from nova_bdm_cleanup.client.cloud.release.releaser import Target
from nova_bdm_cleanup.client.cloud.release.steps import ReleaseStep
from nova_bdm_cleanup.client.cloud.release.volumes import Call, Connector
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.tests.unit import base as unit_base, loopback, make, wire
from nova_bdm_cleanup.tests.unit.client.cloud import base

DAY = datetime.timedelta(days=1)
NOT_GIVEN = Connector()
FORBIDDEN = 403, {'forbidden': {'message': 'Policy'}}


class ReleaserCase(base.CloudCase):

    def releaser(self, user: str = 'admin',
                 connector: Connector = NOT_GIVEN,
                 **confirmed: Any) -> releasing.Releaser:
        return releasing.Releaser(self.seen_by(user), connector, **confirmed)

    def release(self, *targets: Target, connector: Connector = NOT_GIVEN,
                meanwhile: Callable[[], object] = lambda: None
                ) -> list[tuple[bool, str]]:
        """Plan, act, and return the result of each step.

        :param meanwhile: called between the plan and the changes
        """
        releaser = self.releaser(connector=connector)
        releaser.check()
        steps = releaser.plan(targets)
        meanwhile()
        return self.make(releaser, *(s for s in steps if s.call))

    def make(self, releaser: releasing.Releaser,
             *steps: ReleaseStep) -> list[tuple[bool, str]]:
        results = changes.make_all(
            [releasing.Release(releaser, s) for s in steps], True,
            lambda what, count: None)
        return [(r.is_well, str(r)) for r in results.each]


class CheckTest(ReleaserCase):
    """Checks before "Nova does not know it" is believed."""

    def assert_refused(self, words: str, user: str = 'admin',
                       is_same_cloud: bool = False) -> None:
        exc = self.assertRaises(errors.Refused, self.releaser(
            user, is_same_cloud=is_same_cloud).check)
        self.assertIn(words, str(exc))

    def test_member_is_refused(self) -> None:
        self.assert_refused('admin role', user='member')

    def test_silent_cell_is_refused(self) -> None:
        self.cloud.silent_hosts = ['compute7']
        self.assert_refused('compute7')

    def test_server_of_a_silent_cell_is_refused(self) -> None:
        volume = self.orphan()
        self.cloud.silent_servers = [self.alpha]
        exc = self.assertRaises(
            errors.Refused, self.releaser().plan, [Target(volume)])
        self.assertIn(self.alpha, str(exc))

    def test_other_region_is_refused(self) -> None:
        for volume in (self.disk, self.other):
            self.cloud.lose_volume(volume)
        for is_same_cloud in (False, True):
            self.assert_refused('another region', is_same_cloud=is_same_cloud)

    def test_proof_of_the_audit_is_not_reused(self) -> None:
        """Check that a proof from the audit is not reused for a change."""
        seen = self.seen_by()
        self.assertEqual([], list(CloudAudit(
            seen, Scope(all_projects=True)).findings()))
        for volume in (self.disk, self.other):
            self.cloud.lose_volume(volume)
        exc = self.assertRaises(
            errors.Refused, releasing.Releaser(seen, NOT_GIVEN).check)
        self.assertIn('another region', str(exc))


class EmptyNovaTest(ReleaserCase):
    """No server has a volume."""

    def setUp(self) -> None:
        super().setUp()
        for server in (self.alpha, self.beta):
            self.cloud.lose_server(server)

    def test_release_needs_the_same_cloud_option(self) -> None:
        """Need it also if Cinder names a server that Nova has deleted: a
        project can create such an attachment.
        """
        for change in (lambda: None, self.cloud.attachments.clear):
            change()
            exc = self.assertRaises(errors.Refused, self.releaser().check)
            self.assertIn('--same-cloud', str(exc))
            self.releaser(is_same_cloud=True).check()


class ResolveTest(ReleaserCase):

    def test_id_is_of_an_attachment_or_a_volume(self) -> None:
        attachment = loopback.uid('attachment of disk')
        for name, target in (
                (attachment, Target(self.disk, attachment)),
                (attachment.upper(), Target(self.disk, attachment)),
                (self.disk, Target(self.disk)),
                ('{%s}' % self.disk, Target(self.disk))):
            self.assertEqual(target, self.releaser().resolve(name))

    def test_unknown_id_is_bad_input(self) -> None:
        for name in (loopback.uid('nothing'), self.alpha, 'a/../b?c'):
            exc = self.assertRaises(
                errors.BadInput, self.releaser().resolve, name)
            self.assertIn(name, str(exc))


class SecondNovaTest(ReleaserCase):
    """Another region, with its own Nova and the same Cinder."""

    def steps(self, *volumes: str) -> list[Any]:
        releaser = self.releaser()
        releaser.check()
        return list(releaser.plan(map(Target, volumes)))

    def test_one_of_them_keeps_all_of_its_server(self) -> None:
        """Keep, for example, the root of a server shelved there."""
        theirs = loopback.uid('theirs')
        self.cloud.attachment('data', theirs, self.cloud.volume(
            'data', 'in-use'), host='elsewhere')
        root = self.cloud.volume('root', 'reserved')
        self.cloud.attachment('root', theirs, root, 'reserved', False)
        step, = self.steps(root)
        self.assertIsNone(step.call)
        self.assertTrue(step.needs_look)
        for words in ('host elsewhere', 'another Nova'):
            self.assertIn(words, step.explanation)
        # Requested once, by the first check.
        self.assertEqual(1, self.cloud.asked('os-services'))

    def test_host_that_is_gone_has_no_server_of_another_nova(self) -> None:
        volume = self.cloud.volume('data', 'in-use')
        self.cloud.attachment('data', loopback.uid('gone'), volume,
                              host='elsewhere')
        self.assertIn('release --gone-host elsewhere ' + loopback.uid('data'),
                      str(self.steps(volume)[0].advice))
        releaser = self.releaser(gone_hosts=['elsewhere'])
        releaser.check()
        step, = releaser.plan([Target(volume)])
        self.assertEqual((Call.DELETE, True), (step.call, step.needs_look))
        error = self.assertRaises(
            errors.BadInput, self.releaser(gone_hosts=['compute1']).check)
        self.assertIn('--gone-host compute1', str(error))

    def test_only_a_deleted_server_needs_no_look(self) -> None:
        """Check it also for an attachment without a host."""
        volume = self.orphan()
        record = self.cloud.attachments[loopback.uid('attachment of orphan')]
        for change, needs_look, words in (
                (lambda: None, False, 'Nova has deleted server'),
                (lambda: record.update(host=None), False,
                 'Nova has deleted server'),
                # It may have been taken down since.
                (lambda: record.update(host='elsewhere'), False,
                 'Nova has deleted server'),
                (lambda: record.update(host='compute1'), False,
                 'Nova has deleted server'),
                (lambda: self.cloud.deleted[record['instance']].update(
                    status='ACTIVE'), True,
                 'or has purged it'),
                (self.cloud.deleted.clear, True, 'Nova never knew server')):
            change()
            step, = self.steps(volume)
            self.assertEqual((Call.DELETE, needs_look),
                             (step.call, step.needs_look))
            self.assertIn(words, step.explanation)

    def test_server_of_this_nova_is_judged_as_in_an_audit(self) -> None:
        step, = self.steps(self.disk)
        self.assertIn('nothing to release', step.explanation)
        self.cloud.attachments[loopback.uid('attachment of disk')].update(
            host='elsewhere')
        step, = self.steps(self.disk)
        self.assertFalse(step.needs_look)
        self.assertIsNone(step.call)
        self.assertIn('openstack bdm clean', str(step.advice))


class PlanTest(ReleaserCase):

    def steps(self, *targets: Target) -> list[tuple[Any, str | None]]:
        self.cinder().prove_admin()
        releaser = self.releaser()
        releaser.check()
        return [(s.call and str(s.call), s.attachment_id)
                for s in releaser.plan(targets)]

    def test_repeated_targets_give_one_step(self) -> None:
        volume = self.orphan()
        attachment = loopback.uid('attachment of orphan')
        self.assertEqual(
            [('attachment delete', attachment)],
            self.steps(Target(volume), Target(volume, attachment),
                       Target(volume)))

    def test_missing_attachment_or_volume_gives_no_call(self) -> None:
        for target in (Target(self.orphan(), loopback.uid('nothing')),
                       Target(loopback.uid('nothing'))):
            self.assertEqual([(None, None)], self.steps(target))

    def test_volume_that_a_server_claims_is_kept(self) -> None:
        volume = self.orphan()
        self.cloud.mapping(self.alpha, volume)
        self.assertEqual(
            [(None, loopback.uid('attachment of orphan'))],
            self.steps(Target(volume)))

    def test_claim_of_a_server_is_read_again(self) -> None:
        """Request a server that an attachment names once more."""
        volume = self.orphan()
        self.cloud.mapping(self.alpha, volume)
        self.cloud.attachment('left', self.alpha, volume)
        self.cloud.on('GET .*/servers/%s$' % self.alpha,
                      self.cloud.mappings[self.alpha].clear)
        self.assertEqual(
            [('attachment delete', loopback.uid('attachment of orphan'))],
            self.steps(Target(volume)))

    def test_stale_attachment_is_deleted_only_without_a_host(self) -> None:
        volume = self.cloud.volume('stale', 'in-use')
        stale = self.cloud.attachment('stale', self.alpha, volume)
        self.assertEqual([(None, stale)], self.steps(Target(volume)))
        self.cloud.servers[self.alpha].update(
            {'status': 'SHELVED_OFFLOADED', 'OS-EXT-SRV-ATTR:host': None})
        self.assertEqual([('attachment delete', stale)],
                         self.steps(Target(volume)))

    def test_stale_attachment_of_another_host_is_deleted(self) -> None:
        stale = self.cloud.attachment('other host', self.alpha, self.disk,
                                      host='compute2')
        self.assertEqual([('attachment delete', stale)],
                         self.steps(Target(self.disk)))
        self.cloud.migrations[self.alpha] = ['running']
        self.assertEqual([(None, stale)],
                         self.steps(Target(self.disk, stale)))

    def test_stale_attachments_over_the_limit_are_deleted(self) -> None:
        volumes = [self.cloud.volume('stale-%d' % n, 'reserved')
                   for n in range(10)]
        for volume in volumes:
            self.cloud.attachment(volume, self.alpha, volume,
                                  status='reserved', connected=False)
        self.assertEqual({'attachment delete'}, {
            call for volume in volumes
            for call, _ in self.steps(Target(volume))})


class ActTest(ReleaserCase):

    def setUp(self) -> None:
        super().setUp()
        self.volume = self.orphan()
        self.attachment = loopback.uid('attachment of orphan')

    def neighbour(self, volume: str) -> str:
        """Create a healthy attachment of the same volume."""
        self.cloud.volumes[volume]['multiattach'] = True
        neighbour = self.cloud.attachment('neighbour', self.alpha, volume)
        self.cloud.mapping(self.alpha, volume, neighbour)
        return neighbour

    def test_neighbours_stay(self) -> None:
        neighbour = self.neighbour(self.volume)
        self.assertEqual([(True, 'released: the volume is in-use')],
                         self.release(Target(self.volume, self.attachment)))
        self.assertIn(neighbour, self.cloud.attachments)

    def test_neighbours_that_change_during_the_call(self) -> None:
        """Change, disconnect, delete and add a neighbour."""
        records = self.cloud.attachments
        changes: tuple[Callable[[str, str], Any], ...] = (
            lambda volume, a: records[a].update(status='detaching'),
            lambda volume, a: records[a].update(connection_info={}),
            lambda volume, a: records.pop(a) and None,
            lambda volume, a: self.cloud.attachment(
                'third', self.beta, volume) and None)
        for number, change in enumerate(changes):
            volume = self.orphan('orphan-%d' % number)
            neighbour = self.neighbour(volume)
            self.cloud.calm()
            self.cloud.on('DELETE ', functools.partial(
                change, volume, neighbour))
            self.assertEqual(
                [(False, 'unknown: another attachment of the volume has '
                         'changed; check it')],
                self.release(Target(volume, loopback.uid(
                    'attachment of orphan-%d' % number))), number)

    def test_unexpected_state_after_the_call_is_a_failure(self) -> None:
        """Fail if the attachment stays, or the volume is gone or in
        another state.
        """
        def go_wrong() -> None:
            del self.cloud.attachments[self.attachment]
            self.cloud.volumes[self.volume]['status'] = 'error'

        for change, text in (
                (lambda: None, 'the attachment is still there'),
                (go_wrong, 'the volume is error, not available'),
                (lambda: self.cloud.lose_volume(self.volume),
                 'the volume is gone')):
            self.volume = self.orphan()
            self.cloud.calm()
            self.cloud.on('DELETE ', lambda c=change: c() or (
                200, {'attachments': []}))
            self.assertEqual([(False, 'failed: ' + text)],
                             self.release(Target(self.volume)))

    def test_lost_answer_is_unknown(self) -> None:
        """Report "unknown", not "failed": the call may have succeeded."""
        for number, trouble in enumerate((504, 500, 503)):
            volume = self.orphan('lost-%d' % number)
            self.cloud.on('DELETE ', lambda s=trouble: wire.page(s))
            [(done, text)] = self.release(Target(volume))
            self.assertFalse(done)
            self.assertIn('unknown: ', text)
            self.assertIn(str(trouble), text)
            self.assertIn('openstack bdm release --dry-run '
                          + loopback.uid('attachment of lost-%d' % number),
                          text)
            self.cloud.calm()

    def test_result_that_is_not_read_back_is_unknown(self) -> None:
        def stop() -> None:
            self.cloud.on('GET ', lambda: wire.page(503))

        self.cloud.on('DELETE ', stop)
        [(done, text)] = self.release(Target(self.volume))
        self.assertFalse(done)
        self.assertIn('unknown: the request was accepted', text)

    def test_completed_attachment_not_deleted_is_unknown(self) -> None:
        """Do not report "failed": the attachment has changed."""
        record = self.cloud.attachments[self.attachment]
        for status in (403, 409):
            self.cloud.calm()
            self.cloud.on('DELETE ', lambda s=status: wire.fault(s, 'fault'))
            record['status'] = 'reserved'
            [(done, text)] = self.release(Target(self.volume))
            self.assertEqual((False, 'attached'), (done, record['status']))
            self.assertIn('unknown: the attachment is now attached', text)
            self.assertIn(str(status), text)

    def test_changed_volume_or_attachment_is_skipped(self) -> None:
        """Change it before the operator says yes."""
        volume = self.cloud.volumes[self.volume]
        record = self.cloud.attachments[self.attachment]
        for change, done, words in (
                (lambda: volume.update(status='maintenance'), False,
                 'skipped: a volume that is maintenance'),
                (self.cloud.deleted.clear, False,
                 'skipped: Nova never knew server'),
                (lambda: self.cloud.on('GET .*/volumes/%s$' % self.volume,
                                       lambda: wire.page(503)),
                 False, 'failed: '),
                (lambda: self.cloud.lose_attachment(self.volume), True,
                 'skipped: it no longer exists')):
            self.cloud.calm()
            volume.update(status='in-use')
            record.update(host='compute1')
            [(found, text)] = self.release(Target(self.volume),
                                           meanwhile=change)
            self.assertEqual(done, found)
            self.assertIn(words, text)
            self.assertEqual(0, self.cloud.asked('^(DELETE|POST)'))


class RequestsTest(ReleaserCase):
    """Requests of each call; the back end must be told the same."""

    def test_each_call_sends_its_requests(self) -> None:
        connector = {'host': 'compute1', 'ip': '127.0.0.1'}
        record = loopback.uid('attachment of disk')
        volume, attachment = '/volumes/' + self.disk, '/attachments/' + record
        requests: dict[Call, list[tuple[str, Any]]] = {
            Call.DELETE: [('DELETE ' + attachment, None)],
            Call.COMPLETE_AND_DELETE: [
                ('POST %s/action' % attachment, {'os-complete': {}}),
                ('DELETE ' + attachment, None)],
            Call.FORCE_DETACH: [('POST %s/action' % volume, {
                'os-force_detach': {'attachment_id': record,
                                    'connector': connector}})],
            Call.TERMINATE: [
                ('POST %s/action' % volume, {'os-reserve': None}),
                ('POST %s/action' % volume, {
                    'os-terminate_connection': {'connector': connector}})],
            Call.ROLL_DETACHING: [
                ('POST %s/action' % volume, {'os-roll_detaching': None})],
            Call.DETACH_AGAIN: [
                ('POST %s/action' % volume, {'os-roll_detaching': None}),
                ('DELETE /servers/%s/os-volume_attachments/%s' % (
                    make.SERVER, self.disk), None)],
            Call.UNRESERVE: [
                ('POST %s/action' % volume, {'os-unreserve': None})],
            Call.DETACH: [('POST %s/action' % volume, {'os-detach': {}})]}
        self.assertEqual(list(Call), sorted(requests, key=list(Call).index))
        self.cloud.on('POST .*/attachments', lambda: (204, None))
        self.cloud.on('POST .*/volumes|DELETE .*/servers',
                      lambda: (202, None))
        self.cloud.on('(GET|DELETE) .*/attachments', lambda: (
            200, {'attachments': []}))
        for call, expected in requests.items():
            self.cloud.requests.clear()
            releasing._MAKE[call](self.releaser(), ReleaseStep(
                self.disk, '', call=call, connector=connector,
                attachment=make.attachment(id=record)))
            self.assertEqual(expected, [
                ('%s %s' % (r.method, r.path), r.body)
                for r in self.cloud.requests if r.method != 'GET'], call)


class DetachTest(ReleaserCase):
    """A detach that ended half way."""

    def setUp(self) -> None:
        super().setUp()
        self.use_clock(changes, releasing)
        self.cloud.fail_detach(self.alpha, self.disk)
        self.record = loopback.uid('attachment of disk')

    def detach(self, go_on: Callable[[], object] = lambda: None,
               answer: Any = None) -> tuple[bool, str]:
        """Release the volume, and detach it in these steps.

        :param go_on: called at each look at the volume afterwards
        """
        def begin() -> Any:
            if answer:
                return answer
            self.cloud.volumes[self.disk]['status'] = 'detaching'
            self.cloud.on('GET .*/volumes/', go_on)
            return None

        self.cloud.on('DELETE .*/os-volume_attachments', begin)
        [result] = self.release(Target(self.disk))
        return result

    def end(self) -> None:
        """Free the volume at the third look."""
        if self.time >= 4:
            self.cloud.lose_attachment(self.disk)

    def test_it_waits_until_nova_has_detached_the_volume(self) -> None:
        self.assertEqual((True, 'released: the volume is available'),
                         self.detach(self.end))
        self.assertEqual(4, self.time)

    def test_detach_that_fails_again_is_a_failure(self) -> None:
        self.assertEqual(
            (False, 'failed: the attachment is still there'),
            self.detach(lambda: self.cloud.volumes[self.disk].update(
                status='in-use')))

    def test_detach_that_does_not_end_is_unknown(self) -> None:
        done, text = self.detach()
        self.assertFalse(done)
        self.assertRegex(text, '^unknown: .*Nova has not detached the volume '
                               'after 120 s')

    def test_detach_is_unknown_where_its_end_is_not_shown(self) -> None:
        done, text = self.detach(lambda: FORBIDDEN)
        self.assertFalse(done)
        self.assertRegex(text, r'^unknown: .*403 \(Policy\)')

    def test_refused_detach_is_unknown(self) -> None:
        done, text = self.detach(answer=(409, {
            'conflictingRequest': {'message': 'locked'}}))
        self.assertFalse(done)
        self.assertIn('unknown: the volume is in-use again, and', text)


class TerminateTest(ReleaserCase):
    """A connection to a host that Cinder does not know about."""

    def setUp(self) -> None:
        super().setUp()
        self.volume = self.cloud.volume('mapped')

    def terminate(self) -> tuple[bool, str]:
        [result] = self.release(Target(self.volume), connector=Connector(
            {'host': 'compute1'}))
        return result

    def on(self, call: str, action: Any) -> None:
        self.cloud.on('POST .*/action', lambda: action()
                      if call in self.cloud.requests[-1].body else None)

    @property
    def calls(self) -> list[str]:
        return [call for call, volume in self.cloud.driver
                if volume == self.volume]

    def status(self) -> Any:
        return self.cloud.volumes[self.volume]['status']

    def test_volume_is_reserved_before_the_call(self) -> None:
        self.assertEqual((True, 'released: the volume is available'),
                         self.terminate())
        self.assertEqual(['os-reserve', 'os-terminate_connection'],
                         self.calls)

    def test_failed_call_returns_the_reservation(self) -> None:
        """Fail if it was reserved or attached first, if its attachments
        are not known, or if the call is refused.
        """
        taken = 400, {'badRequest': {'message': 'status must be available'}}
        for call, answer, words, calls in (
                ('os-reserve', lambda: taken, 'status must be available', []),
                ('os-reserve', lambda: self.cloud.attachment(
                    'new', self.alpha, self.volume) and None,
                 'failed: attachment %s of the volume is new'
                 % loopback.uid('new'), ['os-reserve', 'os-unreserve']),
                ('os-reserve', lambda: self.cloud.on(
                    'GET .*/attachments', lambda: wire.page(503)),
                 'failed: ', ['os-reserve', 'os-unreserve']),
                ('os-terminate_connection', lambda: FORBIDDEN, 'failed: ',
                 ['os-reserve', 'os-unreserve'])):
            self.cloud.calm()
            self.on(call, answer)
            done, text = self.terminate()
            self.assertFalse(done)
            self.assertIn(words, text)
            self.assertEqual(calls, self.calls)
            self.cloud.attachments.pop(loopback.uid('new'), None)
            self.cloud.volumes[self.volume].update(
                status='available', updated_at=loopback._stamp(DAY))
            self.cloud.driver.clear()

    def assert_left_attaching(self, *calls: str) -> None:
        """Assert that the row says so, with the command to fix it."""
        done, text = self.terminate()
        self.assertFalse(done)
        self.assertIn('unknown: ', text)
        self.assertIn('if the volume is attaching now: openstack bdm release '
                      '--stuck-after 0 --connector FILE ' + self.volume, text)
        self.assertEqual((list(calls), 'attaching'),
                         (self.calls, self.status()))
        self.cloud.calm()
        self.cloud.driver.clear()
        releaser = releasing.Releaser(
            self.seen_by(stuck_after=datetime.timedelta()),
            Connector({'host': 'compute1'}))
        releaser.check()
        [step] = releaser.plan([Target(self.volume)])
        [(done, _)] = self.make(releaser, step)
        self.assertEqual((True, ['os-force_detach'], 'available'),
                         (done, self.calls, self.status()))

    def test_uncertain_call_leaves_the_volume_attaching(self) -> None:
        """Leave it attaching: a server that got it now could lose it."""
        self.on('os-terminate_connection', lambda: (500, {
            'computeFault': {'message': 'RPC timed out'}}))
        self.assert_left_attaching('os-reserve')

    def test_failed_unreserve_leaves_the_volume_attaching(self) -> None:
        self.on('os-reserve', lambda: self.cloud.on(
            'GET .*/attachments', lambda: wire.page(503)))
        self.cloud.on('POST .*/action', lambda: FORBIDDEN
            if 'os-unreserve' in self.cloud.requests[-1].body else None)
        self.assert_left_attaching('os-reserve')


class ConnectorTest(unit_base.TestCase):

    def connector(self, content: str) -> Connector:
        path = os.path.join(self.tempdir(), 'connector.json')
        with open(path, 'w', encoding='utf-8') as file:
            file.write(content)
        return releasing.read_connector(path)

    def test_none_stands_for_no_connector(self) -> None:
        self.assertEqual(Connector(is_none=True),
                         releasing.read_connector('none'))

    def test_output_of_nova_manage_is_read(self) -> None:
        connector = {'host': 'compute1', 'ip': '127.0.0.1',
                     'multipath': False}
        self.assertEqual(connector,
                         self.connector(json.dumps(connector)).data)

    def test_connector_without_host_or_address_is_refused(self) -> None:
        for content, words in (
                ('', 'Expecting value'), ('{', 'Expecting property name'),
                ('{}', 'it names no host'), ('"none"', 'it names no host'),
                ('{"host": "compute1"}',
                 'by which a back end knows host compute1'),
                ('{"host": "compute1", "wwpns": [], "ip": ""}',
                 'by which a back end knows host compute1'),
                ('[]', 'it names no host'), ('{"host": ""}', 'no host'),
                ('{"host": 7}', 'no host')):
            exc = self.assertRaises(errors.BadInput, self.connector, content)
            self.assertIn(words, str(exc))
        exc = self.assertRaises(errors.BadInput, releasing.read_connector,
                                '/no/such/file')
        self.assertIn('No such file', str(exc))
