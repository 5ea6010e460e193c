# SPDX-License-Identifier: Apache-2.0
"""The log lines: their level, their form, and what they never show."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import re
from unittest import mock

import fixtures
import testscenarios

from nova_bdm_cleanup.node.cleanup import log_lines, triggers
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.rules import facts
from nova_bdm_cleanup.rules.facts import Action
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.tests.unit import base, make
from nova_bdm_cleanup.tests.unit.node.cleanup import fakes

load_tests = testscenarios.load_tests_apply_scenarios

LINE = re.compile(
    r'^(?P<level>[A-Z]+) bdm-cleanup: event=(?P<event>[a-z-]+) '
    r'reason=(?P<reason>[a-z-]+) volume=(?P<volume>\S+) '
    r'attachment=(?P<attachment>\S+) device=(?P<device>\S+) '
    r'request_id=(?P<request_id>[^\s:]+): (?P<text>.+)$')

#: A secret in the form of a Ceph key.
CEPH_KEY = 'AQBhkfRlAAAAABAAuB0Ys0lYcZGs+XFxR3JXRA=='

#: Texts with secrets, as seen in errors of back ends.
SECRETS = (
    ("{'data': {'auth_username': 'u', 'auth_password': '%s'}}", 'hush-hush'),
    ('{"auth_password": "%s"}', 'hush-hush'),
    ("auth_password='%s'", 'hush-hush'),
    ('auth_password=%s', 'hush-hush'),
    ("{'discovery_auth_password': '%s'}", 'hush-hush'),
    ("{'auth_token': '%s'}", 'hush-hush'),
    ("{'passphrase': '%s'}", 'hush-hush'),
    ("{'keyring': '[client.cinder]\\n\\tkey = %s'}", CEPH_KEY),
    ('[client.cinder]\n\tkey = %s\n', CEPH_KEY),
    ('rbd --id cinder --key=%s failed', CEPH_KEY),
)


class AuditTestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.logger = self.useFixture(fixtures.FakeLogger(
            level=logging.DEBUG, format='%(levelname)s %(message)s'))
        self.counters = fakes.Counters()
        self.audit = log_lines.LogLines(
            None, 'req-1', triggers.HARD_REBOOT, self.counters)

    def line(self):
        """Return the fields of the only line."""
        [line] = self.logger.output.splitlines()
        match = LINE.match(line)
        self.assertIsNotNone(match, line)
        return match.groupdict()


def finding(reason, action=True, withheld=None):
    bdm = make.bdm()
    return facts.Finding(
        reason, 'a sentence', bdm=bdm, withheld=withheld,
        action=Action.REMOVE if action else Action.KEEP)


class LevelTest(AuditTestCase):
    """The level of each finding."""

    scenarios = [
        (reason.value, {
            'reason': reason, 'level': logging.getLevelName(reason.level)})
        for reason in Reason]

    def assert_told(self, event):
        line = self.line()
        self.assertEqual(
            (self.level, event, self.reason.value, 'a sentence'),
            (line['level'], line['event'], line['reason'], line['text']))

    def test_kept_finding_has_its_level(self):
        self.audit.plan(facts.Plan((finding(self.reason, action=False),)))
        self.assert_told('kept')

    def test_finding_of_a_round_has_its_level(self):
        self.audit.found(finding(self.reason, action=False))
        self.assert_told('found')


class WithheldTest(AuditTestCase):
    """The reasons why a removal that the rules ask for is withheld."""

    scenarios = [
        (why.value, {
            'why': why, 'level': logging.getLevelName(why.level)})
        for why in Reason if why.words]

    def test_line_has_code_and_words_of_the_reason(self):
        self.audit.plan(facts.Plan((
            finding(Reason.VOLUME_MISSING, withheld=self.why),)))
        line = self.line()
        self.assertEqual(
            (self.level, 'withheld', 'volume-missing'),
            (line['level'], line['event'], line['reason']))
        # The code to look up, and words for a reader who cannot look it up.
        head, _, words = line['text'].partition('(%s): ' % self.why)
        self.assertEqual('a sentence; not acted on ', head)
        self.assertGreater(len(words), len(self.why.value))


ATTACHMENT = make.attachment()
STALE = facts.Finding(
    Reason.STALE_ATTACHMENT, 'a sentence', attachment=ATTACHMENT,
    action=Action.DELETE)
BESIDE_ANOTHER = facts.Finding(
    Reason.DUPLICATE_MAPPING, 'a sentence', bdm=make.bdm(),
    action=Action.REMOVE_ROW)
#: The fields shown of a mapping, and those without a mapping.
OF_BDM = ('volume-1', 'attachment-1', '/dev/vdb')
OF_NONE = ('-', '-', '-')

#: event, id, the call for the line, level and reason, volume, attachment and
#: device, words in the text.
LINES = (
    ('removing', 'mapping',
     lambda audit: audit.removing(finding(Reason.VOLUME_AVAILABLE)),
     ('INFO', 'volume-available'), OF_BDM,
     "Removing stale volume attachment 'attachment-1' from instance for "
     "volume 'volume-1': a sentence"),
    ('removing', 'row only', lambda audit: audit.removing(BESIDE_ANOTHER),
     ('INFO', 'duplicate-mapping'), OF_BDM,
     "Removing block device mapping bdm-1 of volume 'volume-1' from Nova, and "
     'nothing else: a sentence'),
    ('removing', 'attachment', lambda audit: audit.removing(STALE),
     ('INFO', 'stale-attachment'), ('volume-1', 'attachment-1', '-'),
     "Removing stale volume attachment 'attachment-1' of volume 'volume-1' "
     'from Cinder: a sentence'),
    ('removed', 'how to undo', lambda audit: audit.removed(
        finding(Reason.VOLUME_MISSING), '0mwp6ikx'),
     ('INFO', 'volume-missing'), OF_BDM,
     'nova-bdm-cleanup journal undo 0mwp6ikx'),
    ('removed', 'nothing to undo', lambda audit: audit.removed(
        finding(Reason.ATTACHED_ELSEWHERE), 'x'),
     ('INFO', 'attached-elsewhere'), OF_BDM,
     'attached to another server, so there is nothing to undo'),
    ('removed', 'row only', lambda audit: audit.removed(BESIDE_ANOTHER, 'x'),
     ('INFO', 'duplicate-mapping'), OF_BDM,
     'has the disk through another one, so there is nothing to undo'),
    ('removed', 'attachment', lambda audit: audit.removed(STALE, 'x'),
     ('INFO', 'stale-attachment'), ('volume-1', 'attachment-1', '-'),
     'the attachment is gone from Cinder'),
    ('reconnecting', '', lambda audit: audit.reconnecting(
        finding(Reason.HALF_MOVED)), ('INFO', 'half-moved'), OF_BDM,
     "Connecting volume 'volume-1' to this host by one attachment: a "
     'sentence'),
    ('reconnected', '', lambda audit: audit.reconnected(
        finding(Reason.HALF_MOVED), 'attachment-2'),
     ('INFO', 'half-moved'), OF_BDM,
     'attachment attachment-2 connects the disk to this host'),
    *(('opened-elsewhere', level, lambda audit, claimant=claimant:
       audit.opened_elsewhere(finding(Reason.HALF_MOVED),
                              make.claim(claimant)),
       (level, 'half-moved'), OF_BDM,
       'Cinder has connected the disk to this host, but: ')
      for claimant, level in (
          # It may have written to the disk.
          (facts.Claimant.GUEST, 'ERROR'), (facts.Claimant.ROW, 'WARNING'))),
    ('unplaced', '', lambda audit: audit.unplaced(OSError('no libvirt')),
     ('INFO', '-'), OF_NONE, 'on this host: no libvirt'),
    ('failed', 'disk', lambda audit: audit.failed(
        finding(Reason.VOLUME_MISSING), Reason.SERVICE_TOKEN_REQUIRED,
        'delete-attachment', RuntimeError('409')),
     ('WARNING', 'service-token-required'), OF_BDM,
     'delete-attachment: 409;'),
    ('failed', 'before any disk', lambda audit: audit.failed(
        None, Reason.STEP_FAILED, 'power-off', RuntimeError('no libvirt')),
     ('WARNING', 'step-failed'), OF_NONE, 'power-off: no libvirt'),
    ('skipped', '', lambda audit: audit.skipped(
        Reason.CINDER_UNKNOWN, RuntimeError('no route')),
     ('WARNING', 'cinder-unknown'), OF_NONE,
     'no route; nothing is changed, the reboot goes on'),
    ('unread', '', lambda audit: audit.unread(1000),
     ('WARNING', 'over-limit'), OF_NONE, 'first 1000'),
    ('unrecorded', '', lambda audit: audit.unrecorded(OSError('disk full')),
     ('WARNING', 'journal-unwritable'), OF_NONE, 'disk full'),
    ('unreported', '', lambda audit: audit.unreported(
        finding(Reason.VOLUME_MISSING), RuntimeError('no conductor')),
     ('INFO', 'volume-missing'), OF_BDM, 'no conductor'),
    ('finished', '', lambda audit: audit.finished(2, 1, 1.25, '0mwp6ikx'),
     ('INFO', '-'), OF_NONE,
     '2 of 3 actions complete in 1.2 s; journal entry 0mwp6ikx'),
    ('finished', 'nothing', lambda audit: audit.finished(0, 3, 1.25, ''),
     ('INFO', '-'), OF_NONE, '0 of 3 actions complete in 1.2 s'),
    ('gone', '', lambda audit: audit.gone(
        finding(Reason.ROOT_VOLUME_DANGLING, action=False)),
     ('INFO', 'root-volume-dangling'), OF_BDM, 'a sentence'),
    ('audited', '', lambda audit: audit.audited('servers: 7'),
     ('INFO', '-'), OF_NONE, 'servers: 7'),
    *(('not-audited', level, lambda audit, is_new=is_new: audit.not_audited(
        Reason.CINDER_UNKNOWN, RuntimeError('no route'),
        'the next round is in 60 s', is_new),
       (level, 'cinder-unknown'), OF_NONE,
       'no route; the next round is in 60 s')
      for is_new, level in ((True, 'WARNING'), (False, 'DEBUG'))))


class EventTest(AuditTestCase):
    """Every log line of the plugin."""

    scenarios = [
        (' '.join((event, name)), {
            'event': event, 'tell': tell, 'levels': levels,
            'subject': subject, 'words': words})
        for event, name, tell, levels, subject, words in LINES]

    def test_line_has_level_subject_and_words(self):
        self.tell(self.audit)
        line = self.line()
        self.assertEqual(
            (self.event, self.levels, self.subject, 'req-1'),
            (line['event'], (line['level'], line['reason']),
             (line['volume'], line['attachment'], line['device']),
             line['request_id']))
        self.assertIn(self.words, line['text'])


class LineTest(AuditTestCase):
    """Unusual content of a line."""

    def test_due_removal_is_not_logged_in_advance(self):
        self.audit.plan(facts.Plan((finding(Reason.VOLUME_MISSING),)))
        self.assertEqual('', self.logger.output)

    def test_missing_attachment_is_not_printed(self):
        bdm = make.bdm(attachment_id=None)
        self.audit.removing(facts.Finding(
            Reason.VOLUME_MISSING, 'a sentence', bdm=bdm,
            action=Action.REMOVE))
        self.assertNotIn('None', self.line()['text'])

    def test_missing_request_id_is_a_dash(self):
        log_lines.LogLines(None, None, triggers.HARD_REBOOT).finished(
            1, 0, 0.1, 'x')
        self.assertEqual('-', self.line()['request_id'])

    def test_an_error_is_one_line_and_has_words(self):
        for error, words in (
                (KeyError(), 'KeyError'),
                (RuntimeError('one\ntwo\r\nthree\x0bfour'),
                 'one two three four')):
            self.assertEqual(words, log_lines.masked(error))

    def test_credentials_that_see_too_little_are_critical_once(self):
        hidden = errors.ProjectHidden('no admin')
        log = [lambda error: self.audit.skipped(Reason.STEP_FAILED, error),
               lambda error: self.audit.failed(
                   None, Reason.STEP_FAILED, 'second-look', error),
               lambda error: self.audit.not_audited(
                   Reason.STEP_FAILED, error, '', is_new=True)]
        for line in log:
            self.useFixture(fixtures.MockPatchObject(
                log_lines, '_hidden', itertools.count()))
            for error in (errors.Refused('a 401'), hidden, hidden):
                line(error)
            self.assertEqual(
                ['WARNING', 'CRITICAL', 'WARNING'],
                [each.partition(' ')[0]
                 for each in self.logger.output.splitlines()[-3:]])

    def test_the_server_is_told_to_oslo_log(self):
        instance = object()
        with mock.patch.object(
                log_lines.LOG, 'log', autospec=True) as log:
            log_lines.LogLines(instance, 'req-1', triggers.HARD_REBOOT
                              ).finished(1, 0, 0.1, 'x')
        self.assertIs(instance, log.call_args[1]['instance'])


class CountTest(AuditTestCase):
    """Counters: each finding counts, also if one line tells many."""

    def assertRefused(self, **numbers):
        self.assertEqual(
            {(reason.replace('_', '-'), 'hard_reboot'): number
             for reason, number in numbers.items()}, self.counters.refusals)
        self.assertEqual({}, self.counters.removals)

    def test_each_withheld_finding_is_counted(self):
        self.audit.plan(facts.Plan((
            finding(Reason.VOLUME_MISSING, withheld=Reason.OBSERVE_MODE),
            finding(Reason.VOLUME_AVAILABLE, withheld=Reason.OBSERVE_MODE),
            finding(Reason.VOLUME_MISSING, withheld=Reason.SERVER_LOCKED),
            finding(Reason.STUCK, action=False),
            finding(Reason.VOLUME_MISSING),
            *(dataclasses.replace(STALE, withheld=Reason.OVER_LIMIT)
              for _ in range(300)))))
        self.assertRefused(observe_mode=2, server_locked=1, over_limit=300)
        # The other attachments share one line.
        self.assertEqual(3 + 1 + 5, len(self.logger.output.splitlines()))

    def test_skipped_and_failed_steps_are_counted(self):
        self.audit.skipped(Reason.CINDER_UNKNOWN, RuntimeError('no'))
        for what in (finding(Reason.VOLUME_MISSING), None):
            self.audit.failed(what, Reason.STEP_FAILED, 'claim',
                              RuntimeError('no'))
        self.audit.not_cleaned(Reason.TIMED_OUT, 'no answer', 99)
        self.audit.not_audited(Reason.CINDER_SUSPECT, 'no', 'later', False)
        self.assertRefused(cinder_unknown=1, step_failed=2, timed_out=99,
                           cinder_suspect=1)

    def test_each_removal_is_counted_by_trigger(self):
        self.audit.removed(finding(Reason.VOLUME_MISSING), 'x')
        self.audit.removed(STALE, 'x')
        self.assertEqual({('volume-missing', 'hard_reboot'): 1,
                          ('stale-attachment', 'hard_reboot'): 1},
                         self.counters.removals)

    def test_other_log_lines_are_not_counted(self):
        for told in (self.audit.found, self.audit.gone):
            told(finding(Reason.VOLUME_MISSING, action=False))
        self.audit.audited('servers: 7')
        self.audit.finished(1, 0, 0.1, 'x')
        self.audit.removing(finding(Reason.VOLUME_MISSING))
        self.assertRefused()

    def test_nothing_is_counted_by_default(self):
        lines = log_lines.LogLines(None, 'req-1', triggers.START)
        lines.skipped(Reason.CINDER_UNKNOWN, RuntimeError('no'))
        lines.removed(finding(Reason.VOLUME_MISSING), 'x')
        lines.counters.add_cinder_seconds('start', 1.0)
        self.assertEqual({}, vars(lines.counters))


class SecretTest(AuditTestCase):
    """Secrets of back ends, which no line shows."""

    scenarios = [(text.replace('\n', ' '), {'text': text, 'secret': secret})
                 for text, secret in SECRETS]

    def test_secret_is_masked_in_every_line(self):
        error = RuntimeError(
            'could not log in: %s' % self.text % self.secret)
        self.audit.skipped(Reason.STEP_FAILED, error)
        self.audit.failed(finding(Reason.VOLUME_MISSING),
                          Reason.STEP_FAILED, 'disconnect', error)
        self.audit.unrecorded(error)
        self.audit.unreported(finding(Reason.VOLUME_MISSING), error)
        self.audit.not_audited(Reason.STEP_FAILED, error, 'later', True)
        self.assertNotIn(self.secret, self.logger.output)
        self.assertIn('could not log in', self.logger.output)


class MaskingTest(base.TestCase):
    """Masking, which leaves other text readable."""

    def test_advice_is_not_masked(self):
        for text in ('set [service_user] send_service_user_token to true',
                     'volume 5ad6 is in-use', 'no route to host'):
            self.assertEqual(text, log_lines.masked(RuntimeError(text)))

    def test_traceback_is_cut(self):
        # The format of os-brick's ExceptionChainer.
        text = ('\nChained Exception #1\n'
                '\tTraceback (most recent call last):\n'
                '\t  File "linuxscsi.py", line 396, in remove_connection\n'
                '\t    self.flush_multipath_device(multipath_name)\n'
                '\tProcessExecutionError: Unexpected error\n'
                '\tCommand: multipath -f 3600\n\n'
                '\nChained Exception #2\n'
                '\tTraceback (most recent call last):\n'
                '\t  File "linuxscsi.py", line 417, in remove_connection\n'
                '\tVolumePathNotRemoved: not removed\n')
        self.assertEqual(
            'Chained Exception #1 ProcessExecutionError: Unexpected error '
            'Command: multipath -f 3600 Chained Exception #2 '
            'VolumePathNotRemoved: not removed',
            log_lines.masked(RuntimeError(text)))
