# SPDX-License-Identifier: Apache-2.0
"""Run the tests with stestr, and show how far they are and what failed.

Run by an interpreter that has stestr, with a title and the arguments for
stestr.  What is for people goes to stderr, the counts go to stdout::

    {"passed": 1838, "failed": 0, "skipped": 6}
"""

from __future__ import annotations

import collections
import contextlib
import dbm.dumb
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any, BinaryIO, TextIO

import subunit
import testtools

OUTCOMES = {'success': 'passed', 'xfail': 'passed', 'skip': 'skipped'}
#: What tests have to say that say nothing themselves.
SILENT = {'inprogress': 'It began and did not end.',
          'uxsuccess': 'It passed, though it is expected to fail.'}
#: Of a failed test's texts, and of each of their lines.
LINES = 60
WIDTH = 300
#: How often a log is told how far the tests are, in seconds.
SIGN_OF_LIFE = 60.0
#: stestr's own account of how long each test took the last time.
TIMES = '.stestr/times.dbm'


class Follower:
    """The display of the tests' progress and, at once, of each failure.

    :param title: what is run
    :param screen: a terminal or a log
    :param beside: takes what the tests write beside their results
    :param times: how many seconds tests took the last time
    """

    def __init__(self, title: str, screen: TextIO, beside: BinaryIO,
                 times: dict[str, float]) -> None:
        self.counts = collections.Counter(passed=0, failed=0, skipped=0)
        self.failed: list[str] = []
        #: Each worker lists its tests first; they leave when they have ended.
        self.waiting: set[str] = set()
        self._title = title
        self._screen = screen
        self._beside = beside
        self._times = times
        self._work_done = 0.0
        self._tests = testtools.StreamToDict(self._take)
        self._begun = self._said = time.monotonic()

    def begin(self) -> None:
        self._tests.startTestRun()
        self._show()

    def end(self) -> None:
        # Those that are still running come now, too.
        self._tests.stopTestRun()
        self._print(f'{len(self.waiting)} tests did not run.\n'
                    if self.waiting else '')

    def status(self, *args: Any, **event: Any) -> None:
        if event.get('test_id'):
            self._tests.status(*args, **event)
        elif event.get('file_bytes'):
            self._beside.write(event['file_bytes'])

    def _take(self, test: dict[str, Any]) -> None:
        name, status = test['id'], test['status']
        if status == 'exists':
            if not self.waiting:
                # To find the tests took time, too, but says nothing of them.
                self._begun = time.monotonic()
            self.waiting.add(name)
            return
        self.waiting.discard(name)
        self._work_done += self._work(name)
        outcome = OUTCOMES.get(status, 'failed')
        self.counts[outcome] += 1
        if outcome == 'failed':
            self.failed.append(name)
            texts = [f'{title}:\n{text.as_text()}'
                     for title, text in sorted(test['details'].items())
                     if text.content_type.type == 'text']
            self._print('\n'.join([
                f'FAILED {name}',
                *map(shortened, texts or [SILENT.get(status, status)]), '']))
        self._show()

    def _work(self, name: str) -> float:
        # Without times, one test is as good as any other.
        return self._times.get(name, 1.0)

    def _show(self) -> None:
        """Show how far it is: always in a terminal, now and then in a log."""
        done = sum(self.counts.values())
        now = time.monotonic()
        rest = (sum(map(self._work, self.waiting)) * (now - self._begun)
                / (self._work_done or 1.0))
        left = f'{rest:.0f} s' if rest < 100 else f'{rest / 60:.0f} min'
        text = f'{self._title}: ' + (
            f'{done} of {done + len(self.waiting)} tests, '
            f'{self.counts["failed"]} failed, about {left} left'
            if done else 'starting')
        if self._screen.isatty():
            # The terminal cuts what is too long, not to begin another line.
            self._print(f'\x1b[?7l{text}\x1b[?7h')
        elif now - self._said >= SIGN_OF_LIFE:
            self._said = now
            self._print(text + '\n')

    def _print(self, text: str) -> None:
        # In a terminal it takes the place of the last progress.
        self._screen.write(
            f'\r\x1b[K{text}' if self._screen.isatty() else text)
        self._screen.flush()


def shortened(text: str) -> str:
    """Return the start of a text's first line and of its last ones."""
    lines = text.rstrip().splitlines()
    left_out = len(lines) - LINES
    if left_out > 0:
        lines[1:left_out + 1] = [f'({left_out} lines are left out)']
    return '\n'.join(f'    {line[:WIDTH]}' for line in lines)


def last_times() -> dict[str, float]:
    """Return the seconds that each test took the last time, if known."""
    with contextlib.suppress(OSError), dbm.dumb.open(TIMES, 'r') as times:
        return {os.fsdecode(name): float(times[name])
                for name in times.keys()}
    return {}


def main(title: str, *arguments: str) -> int:
    # Ctrl-C is for the tests: what they say then is still read.  They begin
    # with the default again, which they would not after SIG_IGN.
    interrupts: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    with tempfile.TemporaryFile() as beside:
        follower = Follower(title, sys.stderr, beside, last_times())
        stestr = subprocess.Popen(
            [sys.executable, '-m', 'stestr', *arguments],
            stdout=subprocess.PIPE, stderr=beside)
        follower.begin()
        subunit.ByteStreamToStreamResult(stestr.stdout, 'stdout').run(follower)
        follower.end()
        # With --subunit it is 0 even if tests failed, or died.
        code = stestr.wait() or int(bool(follower.failed or follower.waiting))
        if code and not interrupts:
            beside.seek(0)
            said = beside.read().decode(errors='replace')
            if said:
                print(shortened(f'beside the results:\n{said}'),
                      file=sys.stderr)
            for name in follower.failed:
                print(f'FAILED {name}', file=sys.stderr)
    print(json.dumps(follower.counts))
    return code


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
