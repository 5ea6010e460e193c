# SPDX-License-Identifier: Apache-2.0
"""The command ``repair``, with a nova-compute that answers as told."""

from __future__ import annotations

import json
import os
import threading
import time
from unittest import mock

from nova_bdm_cleanup.node.store import processes
from nova_bdm_cleanup.node.store.processes import Process
from nova_bdm_cleanup.node.store.spool import Spool
from nova_bdm_cleanup.tests.unit.admin import base

HOST = 'compute1'


def finding(outcome, **values):
    return {'volume': base.volume(1), 'device': '/dev/vda',
            'reason': 'half-moved', 'outcome': outcome, 'is_due': True,
            'explanation': 'because', 'parties': [
                {'party': party, 'agrees': True, 'words': ''}
                for party in ('Cinder', 'kernel', 'guest', 'Nova')], **values}


TO_ADOPT = {'findings': [finding('to adopt')]}
ADOPTED = {'findings': [finding('adopted')]}
KEPT = {'findings': [finding('kept', is_due=False, parties=[
    {'party': 'Cinder', 'agrees': True, 'words': ''},
    {'party': 'guest', 'agrees': False, 'words': 'it does not \x1brun'}])]}
BUSY = {'problem': 'busy', 'why': 'Nova works on the server'}


class RepairTest(base.CommandTest):

    def setUp(self):
        super().setUp()
        self.spool = Spool(self.path, HOST)
        self.config = self.write(
            '[DEFAULT]\nhost = %s\n[bdm_cleanup]\nmode = enforce\n'
            'store = %s\n' % (HOST, self.path))
        #: The requests, and the answers to servers.
        self.asked = []
        self.answers = {}

    def start(self, mode='enforce'):
        """Run a nova-compute in a thread."""
        processes.record(Process(HOST, os.getpid(), time.time(), '',
                                 {'mode': mode}), self.path)
        self.spool.make()
        over = threading.Event()

        def run():
            while not over.wait(0.01):
                for request in self.spool.requests(time.time()):
                    self.asked.append(request.record)
                    answer = self.answers.get((
                        request.record.get('server'),
                        request.record.get('dry_run')))
                    if answer is not None:
                        self.spool.answer(request, answer)

        thread = threading.Thread(target=run)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(over.set)

    def repair(self, *words):
        return self.call('repair', '--config-file', self.config, *words)

    def test_without_nova_compute_nothing_is_changed(self):
        code, out, err = self.repair('--yes', base.SERVER)
        self.assertEqual((3, ''), (code, out))
        self.assertIn('nothing was changed', err)

    def test_in_mode_observe_nothing_is_changed(self):
        self.start('observe')
        code, out, err = self.repair('--yes', base.SERVER)
        self.assertEqual((3, '', []), (code, out, self.asked))
        self.assertIn('observe', err)
        self.answers[base.SERVER, True] = TO_ADOPT
        self.assertEqual(5, self.repair('--dry-run', base.SERVER)[0])

    def test_wrong_arguments(self):
        for words in ((), ('--all', base.SERVER), ('--yes', '--dry-run')):
            self.assertEqual(2, self.repair(*words)[0], words)

    def test_without_a_terminal_it_does_not_ask(self):
        code, out, err = self.repair(base.SERVER)
        self.assertEqual((2, []), (code, self.asked))
        self.assertIn('--yes', err)

    def test_answer_of_the_operator(self):
        self.start()
        self.answers = {(base.SERVER, True): TO_ADOPT,
                        (base.SERVER, False): ADOPTED}
        for text, expected in (('n\n', 3), ('\n', 3), ('y\n', 0)):
            with mock.patch('sys.stdin', autospec=True) as stdin:
                stdin.isatty.return_value = True
                stdin.readline.return_value = text
                code, out, err = self.repair(base.SERVER)
            self.assertEqual(expected, code, err)
            self.assertIn('Change 1 records', err)
        self.assertEqual([True, True, True, False],
                         [asked['dry_run'] for asked in self.asked])

    def test_exit_codes(self):
        self.start()
        for preview, answer, expected in (
                (TO_ADOPT, ADOPTED, 0), (TO_ADOPT, KEPT, 3),
                (TO_ADOPT, BUSY, 3), (BUSY, None, 3), (KEPT, None, 5),
                ({'findings': []}, None, 1),
                ({'findings': [finding('to adopt')] * 2}, ADOPTED, 4)):
            self.answers = {(base.SERVER, True): preview,
                            (base.SERVER, False): answer}
            code, out, err = self.repair('--yes', base.SERVER)
            self.assertEqual((expected, ''), (code, err), (preview, answer))

    def test_one_server_done_and_one_busy(self):
        self.start()
        self.answers = {
            (None, None): {'servers': [base.SERVER, base.OTHER]},
            (base.SERVER, True): TO_ADOPT, (base.SERVER, False): ADOPTED,
            (base.OTHER, True): TO_ADOPT, (base.OTHER, False): BUSY}
        code, out, err = self.repair('--yes', '--all', '--json')
        self.assertEqual((4, ''), (code, err))
        self.assertEqual([{'server': base.SERVER, **ADOPTED},
                          {'server': base.OTHER, **BUSY}], json.loads(out))

    def test_party_that_does_not_agree_is_named_in_plain_text(self):
        self.start()
        self.answers[base.SERVER, True] = KEPT
        code, out, err = self.repair('--dry-run', base.SERVER)
        self.assertEqual((5, ''), (code, err))
        self.assertRegex(out, 'half-moved +yes +no +kept')
        self.assertIn('guest does not agree: it does not \\x1brun', out)

    def test_nova_compute_that_does_not_answer(self):
        self.start()
        with mock.patch('nova_bdm_cleanup.node.store.spool.PATIENCE', 0.1), \
                mock.patch.object(Spool.ask, '__defaults__', (0.1,)):
            code, out, err = self.repair('--yes', base.SERVER)
            self.assertEqual((3, ''), (code, out))
            self.assertIn('has not answered', err)
            # It may have done something.
            self.answers[base.SERVER, True] = TO_ADOPT
            self.assertEqual(4, self.repair('--yes', base.SERVER)[0])

    def test_damaged_answer_is_no_bug(self):
        self.start()
        for answer in ({'findings': 1}, {'findings': [1, {'parties': 2}]},
                       {'problem': {'a': 1}}, {'servers': 3}):
            self.answers[base.SERVER, True] = answer
            self.assertIn(self.repair('--dry-run', base.SERVER)[0],
                          (1, 3, 5), answer)
