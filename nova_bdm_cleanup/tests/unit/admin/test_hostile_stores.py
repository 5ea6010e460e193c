# SPDX-License-Identifier: Apache-2.0
"""Commands of root on stores that the user of nova-compute can damage."""

from __future__ import annotations

import json
import os
import select
import signal
import time

import testscenarios

from nova_bdm_cleanup.node.store import processes
from nova_bdm_cleanup.node.store.database import host_path
from nova_bdm_cleanup.node.store.findings import (
    FindingStore,
    RecordedFinding,
    Round,
)
from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.unit import base as unit
from nova_bdm_cleanup.tests.unit.admin import base

load_tests = testscenarios.load_tests_apply_scenarios

#: Clears a screen.
ESC = '\x1b[2J'

#: Rows without end.
ENDLESS = ('WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) '
           'SELECT ')

DEEP = '[' * 100_000 + ']' * 100_000

FACTS = {'version': '1.0', 'nova_version': '34', 'triggers': 'start',
         'mode': 'enforce', 'max_removals_per_hour': 50,
         'audit_interval': 3600}


def view(table: str, select: str) -> list[str]:
    return [f'DROP TABLE {table}', f'CREATE VIEW {table} AS {select}']


def facts(**wrong: object) -> list[object]:
    return [('UPDATE process SET facts = ?', json.dumps({**FACTS, **wrong}))]


def record(**wrong: object) -> list[object]:
    """Change the plan of the entry."""
    return [('UPDATE plan SET record = json_patch(record, ?)',
             json.dumps(wrong))]


def bytes_at(offset: int, data: bytes):
    def damage(path: str) -> None:
        with open(path, 'r+b') as file:
            file.seek(offset)
            file.write(data)
    return damage


def replaced(make):
    def damage(path: str) -> None:
        os.unlink(path)
        make(path)
    return damage


def lock(make):
    """Replace the lock file."""
    def damage(path: str) -> None:
        there = host_path(path, 'compute1', 'lock')
        os.unlink(there)
        make(there)
    return damage


def link_to_null(path: str) -> None:
    os.symlink('/dev/null', path)


def content(data: bytes):
    def make(path: str) -> None:
        with open(path, 'wb') as file:
            file.write(data)
    return make


#: How a store is damaged: by statements, or by a function of its path.
DAMAGES = {
    # No SQLite file
    'text': replaced(content(b'no store\n' + ESC.encode())),
    'directory': replaced(os.mkdir),
    'pipe': replaced(os.mkfifo),
    'link': replaced(link_to_null),
    'head': bytes_at(0, b'SQLite format 4\0'),
    'page-size': bytes_at(16, b'\xff\xff'),
    'first-page': bytes_at(100, b'\xff' * 400),
    'later-pages': bytes_at(4096, b'\x55' * 40_000),
    'cut': lambda path: os.truncate(path, 5000),
    # Beside it
    'lock-is-pipe': lock(os.mkfifo),
    'lock-is-directory': lock(os.mkdir),
    'lock-is-link': lock(link_to_null),
    'journal-is-pipe': lambda path: os.mkfifo(path + '-journal'),
    # Other tables
    'other-program': ['PRAGMA application_id = 7'],
    'later-version': ['PRAGMA user_version = 99'],
    'no-entry': ['DROP TABLE entry'],
    'no-process': ['DROP TABLE process'],
    'no-feature': ['DROP TABLE feature'],
    'feature-name': [
        ("UPDATE feature SET name = ? WHERE name = 'journal'", ESC)],
    'feature-version': ["UPDATE feature SET version = 'one'"],
    'feature-blob': ["UPDATE feature SET version = x'00'"],
    'other-columns': ['DROP TABLE step', 'CREATE TABLE step (a, b)'],
    'escape-in-schema': view(
        'entry', 'SELECT "ESC" FROM plan'.replace('ESC', ESC)),
    'escape-in-function': view(
        'entry', 'SELECT "ESC"() AS serial'.replace('ESC', ESC)),
    'endless-entry': view('entry', ENDLESS + (
        "x AS serial, 0.0 AS time, '' AS server, NULL AS outcome FROM n")),
    'endless-step': view('step', ENDLESS + (
        "1 AS entry, x AS number, 0.0 AS time, '' AS name, '' AS outcome, "
        "'{}' AS subject FROM n")),
    'endless-feature': view('feature', ENDLESS + (
        'x AS name, 1 AS version FROM n')),
    'endless-process': view('process', ENDLESS + (
        "'compute1' AS host, 0.0 AS since, '' AS identity, '' AS problem, "
        "'' AS facts FROM n WHERE x < 0")),
    'endless-charge': view('charge', ENDLESS + (
        "1 AS entry, '' AS account, x AS time, 1 AS amount FROM n")),
    'recursive-view': view('entry', 'SELECT * FROM entry'),
    # Wrong types and values
    'entry-time': ["UPDATE entry SET time = 'noon'"],
    'entry-never': ['UPDATE entry SET time = 9e999'],
    'entry-outcome': [('UPDATE entry SET outcome = ?', ESC)],
    'entry-server': ["UPDATE entry SET server = x'ff'"],
    'plan-blob': ["UPDATE plan SET record = x'ff00'"],
    'plan-list': ["UPDATE plan SET record = '[]'"],
    'plan-deep': [('UPDATE plan SET record = ?', DEEP)],
    'plan-not-utf-8': ["UPDATE plan SET record = CAST(x'ff' AS TEXT)"],
    'step-subject': ["UPDATE step SET subject = '7'"],
    'step-time': ["UPDATE step SET time = x'00'"],
    'charge-amount': ["UPDATE charge SET amount = 'many'"],
    'charge-account': ['UPDATE charge SET account = 7'],
    'process-since': ["UPDATE process SET since = 'long ago'"],
    'process-never': ['UPDATE process SET since = 9e999'],
    'process-later': ['UPDATE process SET since = 1e15'],
    'process-identity': ["UPDATE process SET identity = '[]'"],
    'process-pid': ["""UPDATE process SET identity = '{"pid": 1e999}'"""],
    'process-problem': ["UPDATE process SET problem = x'ff'"],
    'process-escape': [('UPDATE process SET problem = ?', ESC)],
    'facts-interval': facts(audit_interval='often'),
    'facts-triggers': facts(triggers=['start']),
    'facts-null': facts(version=None, triggers=None, audit_interval=None),
    'facts-escape': facts(version=ESC, mode=ESC, triggers=ESC),
    'facts-deep': [('UPDATE process SET facts = ?', DEEP)],
    'round-next': ["UPDATE round SET next = 'soon'"],
    'round-succeeded': ['UPDATE round SET succeeded = -9e999'],
    'round-servers': ["UPDATE round SET servers = 'all'"],
    'round-null': ['UPDATE round SET servers = NULL, volumes = NULL'],
    'round-failed': ["UPDATE round SET failed = x'00', problem = 7"],
    'finding-first': ["UPDATE finding SET first = 'once'"],
    'finding-late': ['UPDATE finding SET first = 1e300'],
    'finding-reason': ["UPDATE finding SET reason = x'ff'"],
    'finding-explanation': ['UPDATE finding SET explanation = 7'],
    'finding-escape': [
        ('UPDATE finding SET server = ?, device = ?', ESC, ESC)],
    'finding-announced': ["UPDATE finding SET announced = 'yes'"],
    'record-types': record(server=7, host=[], project={}, trigger=None,
                           actions=7, findings='none'),
    'record-actions': record(actions=[7, None, {'kind': []}, {
        'kind': 'remove-bdm', 'bdm': 7, 'attachments': {'id': []}}]),
    'record-bdm': record(actions=[{'kind': 'remove-bdm', 'bdm': {
        'uuid': [], 'volume_id': {}, 'device_name': 7, 'tag': [],
        'delete_on_termination': 'yes', 'boot_index': 'first'},
        'attachments': [7]}]),
    'record-escape': record(server=ESC, host=ESC, actions=[{
        'kind': ESC, 'reason': ESC, 'explanation': ESC,
        'bdm': {ESC: ESC, 'volume_id': ESC}}]),
}

#: What stays readable: the others end in 3 or 4 for some command.
READABLE = {
    'charge-account', 'entry-outcome', 'entry-server', 'facts-escape',
    'finding-announced', 'finding-escape', 'finding-explanation',
    'process-escape', 'record-escape', 'record-types', 'record-actions',
    'record-bdm'}


class HostileStoreTest(base.CommandTest):
    """No command hangs, ends as by a bug, or controls the terminal."""

    scenarios = [(name, {'name': name, 'damage': damage})
                 for name, damage in DAMAGES.items()]

    def setUp(self):
        super().setUp()
        self.entry = self.record(base.removal(1), done=[1], failed=[2])
        unit.sql(self.path, 'INSERT INTO charge VALUES (1, ?, ?, 1)',
                 'mappings of project a-project', time.time())
        store = FindingStore(self.path, 'compute1')
        for moment in (0, 7200):
            store.record_server(base.SERVER, moment, moment, 3600, [
                RecordedFinding(base.SERVER, 'bdm', 'volume-missing', 'v',
                                'a', '/dev/vdb', 'gone')])
        store.record(Round(time.time(), 1, 1, 1.0, 1, 'no answer',
                           time.time() + 60))
        processes.record(processes.Process(
            'compute1', os.getpid(), time.time(), '', FACTS), self.path)
        lock = host_path(self.path, 'compute1', 'lock')
        self.addCleanup(lambda: os.close(processes._held_locks.pop(lock)))
        self.conf = self.write('[DEFAULT]\nhost = compute1\n[bdm_cleanup]\n'
                               'store = %s\n' % self.path)

    def apply(self):
        if callable(self.damage):
            self.damage(self.path)
            return
        for statement in self.damage:
            words = (statement,) if isinstance(statement, str) else statement
            unit.sql(self.path, *words)

    def run_command(self, *words):
        """Run the command in a process; end one that hangs."""
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            try:
                os.close(reader)
                with open(writer, 'w') as file:
                    json.dump(self.call(*words), file)
            finally:
                os._exit(0)
        os.close(writer)
        with open(reader) as file:
            ready, _, _ = select.select([reader], [], [], 20.0)
            if not ready:
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            self.assertTrue(ready, f'{words} hangs')
            return json.load(file)

    def test_commands(self):
        self.apply()
        codes = []
        for words in (['status'], ['status', '--json'], ['journal', 'list'],
                      ['journal', 'list', '--json'],
                      ['journal', 'show', self.entry],
                      ['journal', 'undo', self.entry]):
            code, out, err = self.run_command(
                *words, '--config-file', self.conf)
            for text in (out, err):
                self.assertTrue(text.replace('\n', '').isprintable(), words)
            self.assertNotIn('bug', err)
            self.assertLessEqual(err.count('\n'), 1)
            codes.append(code)
        self.assertNotIn(ExitCode.BROKEN, codes)
        if self.name not in READABLE:
            self.assertTrue({ExitCode.REFUSED, ExitCode.PARTLY} & {*codes},
                            codes)
