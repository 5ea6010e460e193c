# SPDX-License-Identifier: Apache-2.0
"""Run tests in several processes that take them from one queue.

stestr runs this instead of an interpreter, as its only worker: ``python
test_workers.py 3 -m stestr.subunit_runner.run discover ...``.  The tests are
imported once, before the processes are forked.  stestr's own workers import
them again each, and each gets its share before anything is known of how long
that takes; the last one then runs alone for a minute.
"""

from __future__ import annotations

# Before the tests patch them: nothing else runs in the process that forks.
from os import fork, read, waitpid, write  # isort: skip

from collections.abc import Iterable, Iterator
import fcntl
import functools
import gc
import io
import itertools
import os
import signal
import struct
import sys
import tempfile
from typing import Any, BinaryIO
import unittest

from stestr.subunit_runner import program, run
import subunit
import testtools

#: Tests of one class that are taken together; its last ones should not take
#: long.
_TOGETHER = 4
_NUMBER = struct.Struct('=H')


class _Queue:
    """The numbers of the parts that no process has taken yet."""

    def __init__(self, length: int) -> None:
        # A pipe holds 65536 bytes, more than are needed.
        self._reader, writer = os.pipe()
        write(writer, b''.join(map(_NUMBER.pack, range(length))))
        os.close(writer)

    def __iter__(self) -> Iterator[int]:
        # To read so few bytes is atomic.
        while taken := read(self._reader, _NUMBER.size):
            yield _NUMBER.unpack(taken)[0]


class _Stream(io.RawIOBase):
    """Standard output, which takes one whole packet after another.

    What tests print goes to standard error.
    """

    def __init__(self, lock: BinaryIO) -> None:
        super().__init__()
        self._lock = lock
        self._output = os.dup(1)
        os.dup2(2, 1)

    def read(self, size: int = -1) -> bytes:
        # subunit tries it, to know what kind of stream this is.
        raise io.UnsupportedOperation

    def write(self, packet: Any) -> int:
        fcntl.lockf(self._lock, fcntl.LOCK_EX)
        try:
            rest = memoryview(packet)
            while rest:
                rest = rest[write(self._output, rest):]
        finally:
            fcntl.lockf(self._lock, fcntl.LOCK_UN)
        return len(packet)


class Runner(run.SubunitTestRunner):
    """Runner that lists the tests here and runs them in other processes."""

    stream: Any

    def __init__(self, workers: int, **options: Any) -> None:
        super().__init__(**options)
        self._workers = workers

    def run(self, test: unittest.TestSuite) -> Any:
        # Not with _list(): in stestr 3 it closes standard output at last.
        listing = subunit.StreamResultToBytes(self.stream)
        for name in program.list_test(test)[0]:
            listing.status(test_id=name, test_status='exists')
        parts = list(_parts(testtools.iterate_tests(test)))
        queue = _Queue(len(parts))
        # What is there stays: not to be copied, nor looked at again.
        gc.collect()
        gc.freeze()
        with tempfile.TemporaryFile() as lock:
            children = []
            for _ in range(self._workers):
                child = fork()
                if not child:
                    self.stream = _Stream(lock)
                    return self._run_parts(parts, queue)
                children.append(child)
        codes = [_code(child) for child in children]
        sys.exit(max(codes))

    def _run_parts(self, parts: list[unittest.TestSuite], queue: _Queue
                   ) -> Any:
        result = run.AutoTimingTestResultDecorator(
            run.ExtendedToStreamDecorator(
                subunit.StreamResultToBytes(self.stream)))
        result.startTestRun()
        try:
            for number in queue:
                parts[number](result)
        finally:
            result.stopTestRun()
        return result


def _code(child: int) -> int:
    """Wait for a process and return its exit code."""
    while True:
        try:
            # Not 0 for one that was killed.
            return abs(os.waitstatus_to_exitcode(waitpid(child, 0)[1]))
        except KeyboardInterrupt:
            # It got the signal, too, and removes what it made.
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def _parts(tests: Iterable[unittest.TestCase]
           ) -> Iterator[unittest.TestSuite]:
    """Yield the tests in groups that one process runs."""
    for kind, group in itertools.groupby(tests, type):
        members = list(group)
        # What a class shares is made once.
        together = len(members) if _has_fixture(kind) else _TOGETHER
        for begin in range(0, len(members), together):
            yield unittest.TestSuite(members[begin:begin + together])


def _has_fixture(kind: type[unittest.TestCase]) -> bool:
    return any('setUpClass' in vars(base) for base in kind.__mro__
               if base is not unittest.TestCase)


def main(workers: str, *arguments: str) -> None:
    program.TestProgram(
        module=None, argv=list(arguments[1:]), testRunner=functools.partial(
            Runner, int(workers), stdout=sys.stdout))


if __name__ == '__main__':
    # As with -m; what is beside this file is no module of the tests.
    sys.path[0] = ''
    main(*sys.argv[1:])
