# SPDX-License-Identifier: Apache-2.0
"""Files that are replaced while other processes read them."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import resource
import signal
import stat
import sys
import threading
import time
from unittest import mock
import uuid

from nova_bdm_cleanup import files
from nova_bdm_cleanup.tests.unit import base

OTHER_USER = 65534

#: Writing it gives others the time to act.
LARGE = b'page' * 500000


write = files.METRICS_FILE.replace


class FileTestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.directory = os.path.join(self.tempdir(), 'metrics')
        os.mkdir(self.directory, 0o700)
        self.path = os.path.join(self.directory, 'bdm.prom')

    def content(self):
        with open(self.path, 'rb') as file:
            return file.read()

    def assertRefused(self, *words, path=None, func=None):
        """Assert that check and write say why, and change no file."""
        path = self.path if path is None else path
        before = sorted(os.listdir(self.directory))
        for act in [func] if func else [
                files.METRICS_FILE.check,
                lambda path: write(path, b'new\n')]:
            error = self.assertRaises(files.FileError, act, path)
            for word in (path, *words):
                self.assertIn(word, str(error))
        self.assertEqual(before, sorted(os.listdir(self.directory)))

    @contextlib.contextmanager
    def as_other_user(self, mode):
        """Become another user, with these permissions of the directory."""
        if os.geteuid() != 0:
            self.skipTest('only root can become another user')
        os.chmod(self.directory, mode)
        os.chmod(os.path.dirname(self.directory), 0o711)  # noqa: S103
        os.seteuid(OTHER_USER)
        try:
            yield
        finally:
            os.seteuid(0)


class WriteTest(FileTestCase):

    def test_file_is_created_and_replaced(self):
        for data in (b'old\n', b'new\n', b''):
            files.METRICS_FILE.check(self.path)
            write(self.path, data)
            self.assertEqual(data, self.content())
            self.assertEqual(['bdm.prom'], os.listdir(self.directory))

    def test_file_is_readable_with_any_umask(self):
        for umask in (0o077, 0o000):
            self.addCleanup(os.umask, os.umask(umask))
            write(self.path, b'data\n')
            self.assertEqual('0o644', oct(stat.S_IMODE(
                os.stat(self.path).st_mode)))

    def test_name_without_directory_is_written(self):
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.directory)
        write('bdm.prom', b'data\n')
        self.assertEqual(b'data\n', self.content())

    def test_reader_never_sees_half_a_file(self):
        both = [letter * 1000000 for letter in (b'a', b'b')]
        write(self.path, both[0])
        done = threading.Event()

        def write_often():
            for number in range(100):
                write(self.path, both[number % 2])
            done.set()

        writer = threading.Thread(target=write_often)
        writer.start()
        self.addCleanup(writer.join)
        seen = 0
        while not done.is_set():
            self.assertTrue(self.content() in both)
            seen += 1
        self.assertGreater(seen, 5)

    def test_checking_leaves_what_is_there(self):
        files.METRICS_FILE.check(self.path)
        self.assertEqual([], os.listdir(self.directory))
        write(self.path, b'old\n')
        before = os.stat(self.path)
        files.METRICS_FILE.check(self.path)
        self.assertEqual(before, os.stat(self.path))


class RefusalTest(FileTestCase):

    def test_symbolic_links_wherever_they_lead(self):
        target = os.path.join(self.directory, 'target')
        for exists in (False, True):
            if exists:
                with open(target, 'w') as file:
                    file.write('precious')
            os.symlink(target, self.path)
            self.assertRefused('symbolic link')
            os.unlink(self.path)
        with open(target) as file:
            self.assertEqual('precious', file.read())

    def test_directory_or_fifo_is_refused(self):
        os.mkdir(self.path)
        self.assertRefused('it is not a regular file')
        os.rmdir(self.path)
        os.mkfifo(self.path)
        self.assertRefused('it is not a regular file')

    def test_a_name_that_no_exporter_reads(self):
        for name in ('bdm', 'bdm.prom.txt', 'bdm.prom/', ''):
            path = name and os.path.join(self.directory, name)
            self.assertRefused('.prom', path=path)

    def test_missing_directory_is_refused(self):
        write(self.path, b'old\n')
        self.assertRefused(
            'No such file', 'create its directory',
            path=os.path.join(self.directory, 'none', 'bdm.prom'))
        self.assertRefused('Not a directory',
                           path=os.path.join(self.path, 'bdm.prom'))

    def test_unwritable_directory_keeps_the_old_file(self):
        write(self.path, b'old\n')
        with self.as_other_user(0o755):
            self.assertRefused('make its directory writable')
        self.assertEqual(b'old\n', self.content())

    def test_file_of_another_user_in_sticky_directory_stays(self):
        write(self.path, b'old\n')
        with self.as_other_user(0o1777):
            self.assertRefused('to another user', 'sticky')
            # The kernel agrees.
            self.assertRaises(PermissionError, os.replace, self.path,
                              self.path + '.old')
        os.chown(self.path, OTHER_USER, -1)
        with self.as_other_user(0o1777):
            files.METRICS_FILE.check(self.path)
            write(self.path, b'new\n')
        self.assertEqual(b'new\n', self.content())

    def test_full_disk_keeps_the_old_file(self):
        write(self.path, b'old\n')
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (5, limits[1]))
        try:
            self.assertRefused('free some space', func=lambda path:
                               write(path, b'much more\n'))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        self.assertEqual(b'old\n', self.content())

    def test_unexpected_error_leaves_no_file(self):
        with mock.patch('os.replace', autospec=True,
                        side_effect=OSError(5, 'Input/output error')):
            self.assertRefused(
                'Input/output error', 'file system',
                func=lambda path: write(path, b''))
        self.assertEqual([], os.listdir(self.directory))

    def test_interrupt_leaves_no_file(self):
        with mock.patch('os.replace', autospec=True,
                        side_effect=KeyboardInterrupt):
            self.assertRaises(KeyboardInterrupt, write,
                              self.path, b'')
        self.assertEqual([], os.listdir(self.directory))


class LeftTest(FileTestCase):

    def leave(self, age):
        """Leave what a process leaves that is killed while it writes."""
        child = os.fork()
        if not child:
            with mock.patch('os.replace', autospec=True, side_effect=lambda *_,
                            **__: os.kill(os.getpid(), signal.SIGKILL)):
                write(self.path, b'half')
        os.waitpid(child, 0)
        [left] = set(os.listdir(self.directory)) - {'bdm.prom'}
        moment = time.time() - age
        os.utime(os.path.join(self.directory, left), (moment, moment))
        return left

    def test_the_next_run_deletes_it(self):
        write(self.path, b'old\n')
        self.leave(age=3600)
        for act in (files.METRICS_FILE.check,
                    lambda path: write(path, b'new\n')):
            act(self.path)
            self.assertEqual(['bdm.prom'], os.listdir(self.directory))
            self.leave(age=3600)

    def test_another_process_writes_now(self):
        left = self.leave(age=0)
        write(self.path, b'new\n')
        self.assertEqual({left, 'bdm.prom'}, set(os.listdir(self.directory)))

    def test_other_linksstay(self):
        other = os.path.join(self.directory, '.other')
        with open(other, 'w'):
            os.utime(other, (0, 0))
        write(self.path, b'new\n')
        self.assertTrue(os.path.exists(other))


class ReadTest(FileTestCase):

    def test_own_file(self):
        self.assertEqual(b'', files.METRICS_FILE.read(self.path))
        write(self.path, b'data\n')
        self.assertEqual(b'data\n', files.METRICS_FILE.read(self.path))

    def test_file_that_others_can_write_is_not_read(self):
        write(self.path, b'data\n')
        for mode in (0o664, 0o646):
            os.chmod(self.path, mode)
            self.assertEqual(b'', files.METRICS_FILE.read(self.path))
        os.chmod(self.path, 0o644)
        if os.geteuid() == 0:
            os.chown(self.path, OTHER_USER, -1)
            self.assertEqual(b'', files.METRICS_FILE.read(self.path))

    def test_link_and_pipe_are_not_read(self):
        os.symlink('/dev/zero', self.path)
        self.assertRefused('symbolic link', func=files.METRICS_FILE.read)
        os.unlink(self.path)
        os.mkfifo(self.path)
        self.assertRefused('not a regular', func=files.METRICS_FILE.read)


class OthersTest(FileTestCase):
    """Another user can write in the directory, and root replaces a file."""

    TRIES = 300

    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest('only root can become another user')
        self.victim = os.path.join(self.tempdir(), 'victim')
        with open(self.victim, 'w') as file:
            file.write('precious')
        os.chmod(self.victim, 0o600)
        os.chmod(os.path.dirname(self.directory), 0o711)  # noqa: S103

    def share(self, mode):
        os.chown(self.directory, -1, OTHER_USER)
        os.chmod(self.directory, mode)

    def race(self):
        """Have another user exchange new files until the test ends."""
        attacker = os.fork()
        if not attacker:
            try:
                os.setgroups([])
                os.setgid(OTHER_USER)
                os.setuid(OTHER_USER)
                while True:
                    self.exchange()
            finally:
                os._exit(1)
        self.addCleanup(os.waitpid, attacker, 0)
        self.addCleanup(os.kill, attacker, signal.SIGKILL)

    def exchange(self):
        """Exchange a new file for a link to the victim, or a new directory
        for one in which the name is such a link.
        """
        for name in os.listdir(self.directory):
            if not name.startswith('.bdm-cleanup-'):
                continue
            there = os.path.join(self.directory, name)
            trap = os.path.join(self.directory, 'trap-' + uuid.uuid4().hex)
            if os.path.isdir(there):
                os.mkdir(trap)
                os.symlink(self.victim, os.path.join(trap, 'bdm.prom'))
            else:
                os.symlink(self.victim, trap)
            # AT_FDCWD and RENAME_EXCHANGE
            ctypes.CDLL(None).renameat2(
                -100, os.fsencode(there), -100, os.fsencode(trap), 2)

    def replace_and_exchange(self, kind, moment):
        """Replace the file in a process; exchange before one of its calls.

        :returns: whether it made that many calls
        """
        child = os.fork()
        if child:
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
        calls = itertools.count()

        def hook(event, arguments):
            if (event.partition('.')[0] in ('open', 'os')
                    and os.geteuid() == 0 and next(calls) == moment):
                os.setegid(OTHER_USER)
                os.seteuid(OTHER_USER)
                self.exchange()
                os.seteuid(0)
                os.setegid(0)

        sys.addaudithook(hook)
        with contextlib.suppress(OSError):
            kind.replace(self.path, b'page')
        os._exit(next(calls) > moment)

    def assertVictimIsWhole(self, when):
        with open(self.victim) as file:
            self.assertEqual('precious', file.read(), when)
        self.assertEqual('0o600', oct(stat.S_IMODE(
            os.stat(self.victim).st_mode)), when)

    def test_before_each_call(self):
        for kind, mode in ((files.REPORT_FILE, 0o2775),
                           (files.REPORT_FILE, 0o777),
                           (files.METRICS_FILE, 0o3775)):
            self.share(mode)
            moment = 0
            while self.replace_and_exchange(kind, moment):
                moment += 1
                self.assertVictimIsWhole((mode, moment))
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.path)
            self.assertGreater(moment, 4)

    def test_race_in_a_sticky_directory(self):
        self.share(0o3775)
        self.race()
        for number in range(self.TRIES):
            data = b'%d\n' % number
            write(self.path, data)
            self.assertEqual(data, self.content())
            self.assertVictimIsWhole(number)

    def test_race_in_a_directory_that_is_not_sticky(self):
        """Lose only the file that was exchanged."""
        self.share(0o2775)
        self.race()
        for number in range(self.TRIES):
            with contextlib.suppress(files.FileError):
                files.FileKind(0o644).replace(self.path, LARGE)
            self.assertVictimIsWhole(number)

    def test_metrics_are_not_written_where_others_can_replace_them(self):
        for mode in (0o2775, 0o777, 0o702):
            self.share(mode)
            self.assertRefused('sticky', 'mode %04o' % mode)
        for mode in (0o3775, 0o1777, 0o755):
            self.share(mode)
            write(self.path, b'new\n')
