# SPDX-License-Identifier: Apache-2.0
"""The store on real files: permissions, and the fate of each change."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import sqlite3
import stat
import subprocess
import sys
from unittest import mock

import fixtures

from nova_bdm_cleanup.node.store.database import (
    Database,
    LOCK_TIMEOUT,
    StoreError,
)
from nova_bdm_cleanup.tests.unit import base

OTHER_USER = 65534
MIB = 1024 * 1024


class StoreTest(base.TestCase):

    syncs = False

    def setUp(self):
        super().setUp()
        if not self.syncs:
            self.useFixture(base.NoSyncing())
        # Files that a test creates itself are private, too.
        self.addCleanup(os.umask, os.umask(0o022))
        self.directory = os.path.join(self.tempdir(), 'bdm-cleanup')
        self.path = os.path.join(self.directory, 'a store?#%41.sqlite')

    def database(self, max_bytes=4 * MIB):
        return Database(self.path, max_bytes)

    def add(self, number, data='', max_bytes=4 * MIB):
        """Add an entry of the journal."""
        def insert(connection):
            connection.execute(
                "INSERT INTO entry VALUES (?, 0, 'a-server', NULL)", (number,))
            connection.execute('INSERT INTO plan VALUES (?, ?)',
                               (number, data))

        self.database(max_bytes).write(insert, len(data))

    def things(self):
        return [number for number, in self.database().read(
            lambda c: c.execute('SELECT serial FROM entry').fetchall()) or ()]

    def contents(self):
        """Return every file with its content."""
        found = {}
        for name in os.listdir(self.directory):
            path = os.path.join(self.directory, name)
            if stat.S_ISREG(os.lstat(path).st_mode):
                with open(path, 'rb') as file:
                    found[name] = file.read()
        return found

    def assertRefused(self, *words, func=None):
        """Check that an error names path and remedy, and nothing changes."""
        before = os.path.isdir(self.directory) and self.contents()
        text = str(self.assertRaises(StoreError, func or self.add, 0))
        if before:
            self.assertEqual(before, self.contents())
        for word in (self.directory, '; ', *words):
            self.assertIn(word, text)

    def as_somebody(self, func, *args):
        os.seteuid(OTHER_USER)
        try:
            return func(*args)
        finally:
            os.seteuid(0)


class FilesTest(StoreTest):

    def test_private_from_the_start(self):
        self.addCleanup(os.umask, os.umask(0))

        def modes(connection):
            connection.execute("INSERT INTO plan VALUES (1, '')")
            return [oct(stat.S_IMODE(os.stat(path).st_mode)) for path in (
                self.directory, self.path, self.path + '-journal')]

        self.assertEqual(['0o700', '0o600', '0o600'],
                         self.database().write(modes))
        self.assertEqual([os.path.basename(self.path)],
                         os.listdir(self.directory))

    def test_symbolic_links_and_what_is_no_file(self):
        self.add(1)
        target = os.path.join(self.directory, 'target')
        for suffix in ('', '-journal', '-wal', '-shm'):
            path = self.path + suffix
            if not suffix:
                os.rename(path, target)
            for to in (target, target + '-of-a-dangling-one'):
                os.symlink(to, path)
                self.assertRefused(path + ':', 'symbolic link')
                self.assertRefused(func=lambda _: self.things())
                os.unlink(path)
            os.mkfifo(path)
            self.assertRefused(path + ':', 'not a regular file')
            os.unlink(path)
            os.mkdir(path)
            self.assertRefused(path + ':', 'not a regular file')
            os.rmdir(path)
            if not suffix:
                os.rename(target, path)
        self.assertEqual([1], self.things())

    def test_store_writable_by_others_is_refused(self):
        self.add(1)
        for mode in (0o770, 0o707, 0o1777):
            os.chmod(self.directory, mode)
            self.assertRefused('%04o' % mode, 'chmod 0700')
        os.chmod(self.directory, 0o700)
        for mode in (0o620, 0o602):
            os.chmod(self.path, mode)
            self.assertRefused('%04o' % mode, 'chmod 0600')

    def test_store_of_another_user_is_refused(self):
        self.add(1)
        with mock.patch.object(os, 'geteuid', autospec=True,
                               return_value=4321):
            self.assertRefused('chown')
            os.chown(self.directory, 4321 if os.getuid() == 0 else -1, -1)
            if os.getuid() == 0:
                self.assertRefused('belongs to user 0 and not to user 4321')

    def test_impossible_path_is_refused_with_a_remedy(self):
        os.rmdir(os.path.dirname(self.directory))
        self.assertRefused(os.strerror(errno.ENOENT), 'create its directory')
        os.mkdir(os.path.dirname(self.directory))
        with open(self.directory, 'w'):
            pass
        self.assertRefused(os.strerror(errno.ENOTDIR), 'name a file in')
        os.unlink(self.directory)
        for number, remedy in ((errno.EROFS, 'file system writable'),
                               (errno.ENOSPC, 'free some space'),
                               (errno.EIO, 'check the disk')):
            with mock.patch.object(
                    os, 'mknod', autospec=True, side_effect=OSError(
                        number, os.strerror(number), self.path)):
                self.assertRefused(os.strerror(number), remedy)

    def test_missing_permission_is_explained(self):
        if os.geteuid() != 0:
            self.skipTest('needs a second user')
        os.chmod(os.path.dirname(self.directory), 0o711)  # noqa: S103
        self.add(1)
        for _ in range(2):
            self.assertRefused(
                'to read it, become that user or root',
                func=lambda _: self.as_somebody(self.things))
            # First the directory is closed to others, then the file.
            os.chmod(self.directory, 0o711)  # noqa: S103
        os.chown(self.path, OTHER_USER, -1)
        os.chown(self.directory, OTHER_USER, -1)
        for path, remedy in ((self.path, 'file system writable'),
                             (self.directory, 'its directory')):
            mode = stat.S_IMODE(os.stat(path).st_mode)
            os.chmod(path, mode & ~stat.S_IWUSR)
            for func in (self.add, lambda _: self.database().check()):
                self.assertRefused(
                    remedy, func=lambda _, f=func: self.as_somebody(f, 2))
            # A user with read permission only can read.
            self.assertEqual([1], self.as_somebody(self.things))
            os.chmod(path, mode)

    def test_reading_makes_no_file_and_changes_none(self):
        self.assertEqual([], self.things())
        self.assertFalse(os.path.exists(self.directory))
        os.mkdir(self.directory)
        with open(self.path, 'w'):
            pass
        self.assertEqual([], self.things())
        os.unlink(self.path)
        self.add(1)
        before = self.contents()
        self.assertEqual([1], self.things())
        self.assertEqual(before, self.contents())

    def test_change_of_a_killed_writer_is_rolled_back(self):
        """Check that the owner rolls the change back, and root does not."""
        self.add(1)
        process = subprocess.run([sys.executable, '-c', (
            'import os, sqlite3, sys\n'
            'c = sqlite3.connect(sys.argv[1], isolation_level=None)\n'
            'c.execute("PRAGMA cache_size = 1")\n'
            'c.execute("BEGIN IMMEDIATE")\n'
            'c.execute("UPDATE entry SET serial = 2")\n'
            'for _ in range(99):\n'
            '    c.execute("INSERT INTO plan VALUES (NULL, zeroblob(9999))")\n'
            'os.kill(os.getpid(), 9)'), self.path])
        self.assertEqual(-9, process.returncode)
        self.assertEqual(2, len(self.contents()))
        with mock.patch.object(os, 'geteuid', autospec=True,
                               return_value=4321):
            self.assertRefused('its next start rolls back',
                               func=lambda _: self.things())
        self.assertEqual([1], self.things())
        self.assertEqual(1, len(self.contents()))

    def test_relative_path_survives_a_chdir(self):
        os.mkdir(self.directory)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.directory)
        relative = Database(os.path.basename(self.path))
        os.chdir('/')
        self.add(1)
        self.assertEqual(1, relative.read(lambda c: c.execute(
            'SELECT count(*) FROM entry').fetchone()[0]))


class PowerFailureTest(StoreTest):

    syncs = True

    def test_a_change_survives_a_power_failure(self):
        """Check that it is synced; a unit test cannot cut the power."""
        synced, statements = [], []
        fsync, connect = os.fsync, sqlite3.connect

        def note(fd):
            synced.append(os.readlink('/proc/self/fd/%d' % fd))
            fsync(fd)

        def traced(*args, **kwargs):
            connection = connect(*args, **kwargs)
            connection.set_trace_callback(statements.append)
            return connection

        with mock.patch.object(os, 'fsync', note), \
                mock.patch.object(sqlite3, 'connect', traced):
            self.add(1)
        self.assertEqual([os.path.dirname(self.directory), self.directory],
                         synced)
        begin = statements.index('BEGIN IMMEDIATE')
        for pragma in ('journal_mode = DELETE', 'synchronous = EXTRA'):
            self.assertIn('PRAGMA ' + pragma, statements[:begin])


class VersionsTest(StoreTest):

    def test_an_older_one_is_converted_by_the_first_change(self):
        """Convert a store that lacks a feature."""
        self.add(1)
        for change in ("DELETE FROM feature WHERE name = 'watch'",
                       'DROP TABLE finding', 'DROP TABLE round',
                       'DROP TABLE process'):
            base.sql(self.path, change)
        self.assertRefused('restart nova-compute',
                           func=lambda _: self.things())
        self.add(2)
        self.assertEqual([1, 2], self.things())
        base.sql(self.path, "INSERT INTO round (host, failed, next) "
                            "VALUES ('h', 0, 0)")

    def test_a_newer_one_is_refused(self):
        self.add(1)
        for change in ('UPDATE feature SET version = 99',
                       'PRAGMA user_version = 99'):
            base.sql(self.path, 'UPDATE feature SET version = 1')
            base.sql(self.path, change)
            for func in (self.add, lambda _: self.things(),
                         lambda _: self.database().check()):
                self.assertRefused('it is of version 99', 'install the '
                                   'release that wrote it', func=func)

    def test_damaged_file_is_refused(self):
        self.add(1, 'x' * 9999)
        whole = self.contents()[os.path.basename(self.path)]
        for content in (b'garbage', b'garbage' * 9999, whole[:5000],
                        whole[:4096] + bytes(len(whole) - 4096)):
            with open(self.path, 'wb') as file:
                file.write(content)
            self.assertRefused('move it away', '-journal', func=self.check)
            self.assertRefused('move it away', func=lambda _: self.things())
        os.unlink(self.path)
        base.sql(self.path, 'CREATE TABLE instances (x)')
        os.chmod(self.path, 0o600)
        self.assertRefused('another program')
        self.assertRefused('another program', func=lambda _: self.things())

    def check(self, _):
        self.database().check()


class ChangesTest(StoreTest):

    def test_failed_change_writes_nothing(self):
        def fail(connection):
            connection.execute("INSERT INTO plan VALUES (2, '')")
            raise KeyError

        self.add(1)
        before = self.contents()
        self.assertRaises(KeyError, self.database().write, fail)
        self.assertEqual(before, self.contents())

    def test_full_disk_changes_nothing(self):
        self.add(1)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        for spare in (0, 600, 5000, 20000):
            resource.setrlimit(resource.RLIMIT_FSIZE, (
                os.path.getsize(self.path) + spare, limits[1]))
            try:
                self.assertRefused('check the disk', func=lambda _: self.add(
                    2, 'x' * MIB))
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        self.add(3)
        self.assertEqual([1, 3], self.things())

    def test_lowered_limit_shrinks_the_store(self):
        """Check that the check changes nothing else."""
        self.database().check()
        self.assertEqual([], self.things())
        for number in range(1, 8):
            self.add(number, 'x' * MIB, max_bytes=8 * MIB)
        self.database().check()
        self.assertLessEqual(os.path.getsize(self.path), 4 * MIB)
        self.assertEqual([5, 6, 7], self.things())

    def test_wait_for_a_lock_is_short(self):
        """Check that no thread is blocked for longer than a moment."""
        self.add(1)
        waited = []
        clock = mock.Mock(monotonic=lambda: sum(waited), sleep=waited.append)
        self.useFixture(fixtures.MonkeyPatch(
            'nova_bdm_cleanup.node.store.database.time', clock))
        for statement, func in (('BEGIN IMMEDIATE', self.add),
                                ('BEGIN EXCLUSIVE', self.add),
                                ('BEGIN EXCLUSIVE', lambda _: self.things())):
            with contextlib.closing(sqlite3.connect(
                    self.path, isolation_level=None)) as holder:
                holder.execute(statement)
                del waited[:]
                with mock.patch.object(sqlite3, 'connect',
                                       wraps=sqlite3.connect) as connect:
                    self.assertRefused('another process has held the lock',
                                       func=func)
                self.assertEqual(0, connect.call_args[1]['timeout'])
            self.assertAlmostEqual(LOCK_TIMEOUT, sum(waited), 1)
            self.assertLess(max(waited), 0.005)
        # A reader delays only the last moment of a change.
        with contextlib.closing(sqlite3.connect(self.path)) as reader:
            cursor = reader.execute('SELECT 1 FROM entry UNION ALL SELECT 2')
            cursor.fetchone()
            waited[:] = [0]

            def sleep(seconds):
                waited.append(seconds)
                cursor.close()

            clock.sleep = sleep
            self.add(2)
            self.assertEqual([0, 0.002], waited)
