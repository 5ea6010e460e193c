# SPDX-License-Identifier: Apache-2.0
"""Files that are replaced while other processes read them."""

from __future__ import annotations

import contextlib
import os
import pathlib
import resource
import stat
import threading
from unittest import mock

from nova_bdm_cleanup import files
from nova_bdm_cleanup.tests.unit import base

OTHER_USER = 65534


def write(path: str, data: bytes) -> None:
    with files.METRICS_FILE.replacing(path) as new:
        pathlib.Path(new).write_bytes(data)


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
