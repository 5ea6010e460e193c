# SPDX-License-Identifier: Apache-2.0
"""The one file of a compute node: an SQLite database.

A change is made as a whole or not at all, and survives a power failure once it
is made.  Every problem is one :class:`StoreError` with its remedy, and leaves
the store as it was.

The rollback journal of SQLite and not its WAL: what only reads needs to write
nothing then, and at rest there is one file to keep.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import errno
import os
import sqlite3
import stat
import time
from typing import Any, Callable, TypeVar
import urllib.parse

T = TypeVar('T')

#: Seconds to wait for another writer, which is done in milliseconds.
LOCK_TIMEOUT = 5.0

#: Like FULL, and the name of the rollback journal is gone from the disk, too:
#: else a power failure takes the change back.
SYNCHRONOUS = 'EXTRA'

#: Seconds between two attempts.
_PAUSE = 0.002

#: How SQLite knows the file for ours: "bdmc".
_APPLICATION = 0x62646d63

#: The version of all tables.
_VERSION = 1

#: What each feature keeps.  What was released is never changed: a later
#: release adds a feature, whose tables the first change makes.
SCHEMA = {
    'journal': (
        # With AUTOINCREMENT a serial number is known also when its entry is
        # gone.
        """CREATE TABLE entry (
            serial INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL,
            server TEXT NOT NULL, outcome TEXT)""",
        # On its own, because changing a row needs room for all of it.
        """CREATE TABLE plan (entry INTEGER PRIMARY KEY, record TEXT NOT NULL)
        """,
        'CREATE INDEX entry_server ON entry (server, time)',
        'CREATE INDEX entry_time ON entry (time)',
        """CREATE TABLE step (
            entry INTEGER, number INTEGER, time REAL NOT NULL,
            name TEXT NOT NULL, outcome TEXT NOT NULL, subject TEXT NOT NULL,
            PRIMARY KEY (entry, number)) WITHOUT ROWID""",
        # On its own, because the hour has to be known when entries had to go.
        """CREATE TABLE charge (
            entry INTEGER, account TEXT, time REAL NOT NULL,
            amount INTEGER NOT NULL, PRIMARY KEY (entry, account))
        WITHOUT ROWID""",
        'CREATE INDEX charge_account ON charge (account, time, amount)',
        'CREATE INDEX charge_time ON charge (time)'),
    'watch': (
        """CREATE TABLE finding (
            host TEXT, server TEXT, subject TEXT, reason TEXT,
            first REAL NOT NULL, announced INTEGER NOT NULL,
            volume TEXT, attachment TEXT, device TEXT,
            explanation TEXT NOT NULL,
            PRIMARY KEY (host, server, subject, reason)) WITHOUT ROWID""",
        """CREATE TABLE round (
            host TEXT PRIMARY KEY, succeeded REAL, servers INTEGER,
            volumes INTEGER, requests INTEGER, seconds REAL,
            failed INTEGER NOT NULL, problem TEXT, next REAL NOT NULL)
        WITHOUT ROWID""",
        """CREATE TABLE process (
            host TEXT PRIMARY KEY, since REAL NOT NULL, identity TEXT NOT NULL,
            problem TEXT NOT NULL, facts TEXT NOT NULL) WITHOUT ROWID"""),
}

#: How large the store may become, in bytes: it holds thousands of entries, of
#: a few KiB each, and the disk that Nova's state is on does not notice.
MAX_BYTES = 16 * 1024 * 1024

#: Pages that a change may need besides those of its data.
_MARGIN = 16

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH

_LOCKED = 'database is locked'
_READ_ONLY = 'attempt to write a readonly database'

_NOT_OURS = ('it must be accessible to the user that nova-compute runs as; to '
             'read it, become that user or root')
_UNWRITABLE = ('make the file, its directory and its file system writable, or '
               'change [bdm_cleanup] store')
_NO_SPACE = 'free some space there, or raise the quota'
_DAMAGED = ('it is damaged or no store: move it away, together with the file '
            'of that name and -journal if there is one, and nova-compute '
            'begins a new one')
_CUT_OFF = ('nova-compute was stopped in the middle of a change, which its '
            'next start takes back; to read it now, become the user that '
            'owns it')

#: By the number of the operating system or the words of SQLite, which are all
#: that tells one of its errors from another before Python 3.11.
_REMEDIES: dict[object, str] = {
    errno.EACCES: _NOT_OURS,
    errno.EPERM: _NOT_OURS,
    errno.EROFS: _UNWRITABLE,
    errno.ENOSPC: _NO_SPACE,
    errno.EDQUOT: _NO_SPACE,
    errno.ENOENT: 'make the directory that it is to be in, or change '
                  '[bdm_cleanup] store',
    errno.ENOTDIR: 'name a file in a directory in [bdm_cleanup] store',
    _LOCKED: 'another process holds it for too long; find out which (fuser) '
             'and why',
    'database or disk is full': _NO_SPACE,
    _READ_ONLY: _UNWRITABLE,
    'unable to open database file': _NOT_OURS,
    'disk I/O error': 'check the disk that it is on, its quota, and the file '
                      'size limit of nova-compute',
}


class StoreError(Exception):
    """The store cannot be used; names the path and what to do."""


class Database:
    """The store.

    Each operation opens the file anew, so that threads, green threads and
    forked processes may share one of these; any number may use one file.

    :param path: the file, made when missing, as is its directory
    :param max_bytes: it never becomes larger
    """

    def __init__(self, path: str, max_bytes: int = MAX_BYTES) -> None:
        self.path = os.path.abspath(path)
        self._max_bytes = max_bytes

    def write(self, work: Callable[[sqlite3.Connection], T], size: int = 0,
              keep: int = 0, timeout: float = LOCK_TIMEOUT) -> T:
        """Make a change: all of it, or with any exception nothing.

        :param work: makes it
        :param size: how many bytes it adds, if many
        :param keep: the entry of the journal that makes no room for it
        :param timeout: seconds to wait for others
        :raises StoreError: when it could not be made
        """
        with self._opened(True, timeout) as connection:
            _run(connection, 'BEGIN IMMEDIATE', timeout)
            missing = self._missing(connection)
            if missing == list(SCHEMA):
                connection.execute('PRAGMA application_id = %d' % _APPLICATION)
                connection.execute('PRAGMA user_version = %d' % _VERSION)
                connection.execute(
                    'CREATE TABLE feature (name TEXT PRIMARY KEY, version '
                    'INTEGER NOT NULL) WITHOUT ROWID')
            for feature in missing:
                for statement in SCHEMA[feature]:
                    connection.execute(statement)
                connection.execute('INSERT INTO feature VALUES (?, ?)',
                                   (feature, _VERSION))
            self._make_room(connection, size, keep)
            result = work(connection)
            _run(connection, 'COMMIT', timeout)
            return result

    def exists(self) -> bool:
        """Whether there is a file, of whatever kind.

        :raises StoreError: when nobody can tell
        """
        with self._translated(False):
            try:
                os.lstat(self.path)
            except FileNotFoundError:
                return False
        return True

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Look something up; makes no file and changes none.

        :returns: what was found; None when nothing was ever written
        :raises StoreError: when it cannot be read
        """
        if not self.exists():
            return None
        with self._opened(False) as connection:
            _run(connection, 'BEGIN')
            # Whoever has read something is not interrupted any more.
            _run(connection, 'PRAGMA schema_version')
            missing = self._missing(connection)
            if missing == list(SCHEMA):
                return None
            if missing:
                raise StoreError(
                    'store %s: it is of an older release; restart '
                    'nova-compute, which converts it' % self.path)
            return work(connection)

    def check(self) -> None:
        """Find out early what would stop a change; enforce a lower limit.

        :raises StoreError: when changes are impossible
        """
        def touch(connection: sqlite3.Connection) -> bool:
            if _ask(connection, 'quick_check(1)') != 'ok':
                raise sqlite3.DatabaseError(
                    'database disk image is malformed')
            # Something has to be written to know that it can be.
            connection.execute('PRAGMA user_version = %d' % _VERSION)
            size = (_ask(connection, 'page_count')
                    * _ask(connection, 'page_size'))
            return bool(size > self._max_bytes)

        if self.write(touch):
            with self._opened(True) as connection:
                _run(connection, 'VACUUM')

    def damaged(self, what: object) -> StoreError:
        """The error for content that no release writes."""
        return StoreError('store %s: %s; %s' % (self.path, what, _DAMAGED))

    @contextlib.contextmanager
    def _opened(self, writing: bool, timeout: float = LOCK_TIMEOUT
                ) -> Iterator[sqlite3.Connection]:
        """A connection on a file that is safe to open."""
        with self._translated(writing):
            if writing:
                self._make_file()
            for suffix in ('', '-journal', '-wal', '-shm'):
                _check_file(self.path + suffix, writing)
            # A reader who is not the owner repairs nothing: the owner could
            # let him write elsewhere.
            own = os.stat(self.path).st_uid == os.geteuid()
            connection = sqlite3.connect(
                'file:%s?mode=%s' % (
                    urllib.parse.quote(os.fsencode(self.path)),
                    'rw' if writing or own else 'ro'),
                # SQLite itself would stop all green threads while it waits.
                uri=True, timeout=0, isolation_level=None)
            with contextlib.closing(connection):
                for pragma in (
                        'journal_mode = DELETE',
                        'synchronous = ' + SYNCHRONOUS,
                        # A large change must not need the file for itself
                        # half way.
                        'cache_spill = OFF',
                        'temp_store = MEMORY') if writing else ():
                    _run(connection, 'PRAGMA ' + pragma, timeout)
                yield connection

    def _missing(self, connection: sqlite3.Connection) -> list[str]:
        """The features that have no tables yet."""
        if not _ask(connection, 'schema_version'):
            return list(SCHEMA)
        if _ask(connection, 'application_id') != _APPLICATION:
            raise self.damaged('it belongs to another program')
        there: dict[str, int] = dict(
            connection.execute('SELECT name, version FROM feature').fetchall())
        version = max([_ask(connection, 'user_version'), *there.values()])
        if version > _VERSION:
            raise StoreError(
                'store %s: it is of version %d, this release knows version '
                '%d; install the release that wrote it, or move the file away'
                % (self.path, version, _VERSION))
        return [feature for feature in SCHEMA if feature not in there]

    def _make_room(self, connection: sqlite3.Connection, size: int,
                   keep: int) -> None:
        """Have the oldest entries of the journal go."""
        page = _ask(connection, 'page_size')
        limit = self._max_bytes // page
        # A file over a limit that was lowered can be no smaller now.
        connection.execute('PRAGMA max_page_count = %d' % limit)
        most = limit - size // (page - 4) - _MARGIN
        while (_ask(connection, 'page_count')
               - _ask(connection, 'freelist_count') > most):
            oldest = connection.execute(
                'SELECT serial FROM entry WHERE serial <> ? '
                'ORDER BY serial LIMIT 1', (keep,)).fetchone()
            if oldest is None:
                raise StoreError(
                    'store %s: %d bytes have no room in it, since it never '
                    'has more than %d' % (self.path, size, self._max_bytes))
            connection.execute('DELETE FROM plan WHERE entry = ?', oldest)
            connection.execute('DELETE FROM step WHERE entry = ?', oldest)
            connection.execute('DELETE FROM entry WHERE serial = ?', oldest)

    def _make_file(self) -> None:
        """A private file in a directory that only we and root can change."""
        directory = os.path.dirname(self.path)
        _make(lambda: os.mkdir(directory, stat.S_IRWXU),
              os.path.dirname(directory))
        status = os.stat(directory)
        # A sticky bit is not enough: a rollback journal could be planted.
        if (status.st_uid not in (0, os.geteuid())
                or status.st_mode & _OTHERS_WRITE):
            raise StoreError(
                'store directory %s: others than the user that nova-compute '
                'runs as can change it (owner %d, mode %04o); change that '
                '(chown, chmod 0700) or name another place in [bdm_cleanup] '
                'store' % (directory, status.st_uid,
                           stat.S_IMODE(status.st_mode)))
        # Not open(): closing it again would free the locks that other threads
        # have on it.
        _make(lambda: os.mknod(
            self.path, stat.S_IFREG | stat.S_IRUSR | stat.S_IWUSR), directory)

    @contextlib.contextmanager
    def _translated(self, writing: bool) -> Iterator[None]:
        what = 'cannot %s store %s' % (
            'write' if writing else 'read', self.path)
        try:
            yield
        except OSError as exc:
            # The directory where it is that.
            where = ('' if exc.filename in (None, self.path)
                     else '%s: ' % exc.filename)
            raise StoreError('%s: %s%s; %s' % (
                what, where, os.strerror(exc.errno or 0), _REMEDIES.get(
                    exc.errno or 0, 'check the disk that it is on'))) from exc
        except sqlite3.Error as exc:
            words = str(exc)
            remedy = _REMEDIES.get(words, _DAMAGED)
            if not writing and words == _READ_ONLY:
                remedy = _CUT_OFF
            raise StoreError('%s: %s; %s' % (what, words, remedy)) from exc


def _run(connection: sqlite3.Connection, statement: str,
         timeout: float = LOCK_TIMEOUT) -> None:
    """Execute a statement that may have to wait for others.

    Waiting is left to ``time.sleep``, in which green threads take turns.
    """
    end = time.monotonic() + timeout
    while True:
        try:
            connection.execute(statement).fetchall()
            return
        except sqlite3.OperationalError as exc:
            if str(exc) != _LOCKED or time.monotonic() >= end:
                raise
        time.sleep(_PAUSE)


def _ask(connection: sqlite3.Connection, pragma: str) -> Any:
    return connection.execute('PRAGMA ' + pragma).fetchone()[0]


def _check_file(path: str, writing: bool) -> None:
    """Refuse what is not a file of ours and nobody else's."""
    try:
        # Not open(): see above.
        status = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(status.st_mode):
        raise StoreError(
            'store %s: it is not a regular file%s; name another in '
            '[bdm_cleanup] store' % (
                path, ' but a symbolic link' * stat.S_ISLNK(status.st_mode)))
    if writing and status.st_uid != os.geteuid():
        raise StoreError(
            'store %s: it belongs to user %d and not to user %d; give it to '
            'the user that nova-compute runs as (chown)'
            % (path, status.st_uid, os.geteuid()))
    if writing and status.st_mode & _OTHERS_WRITE:
        raise StoreError(
            'store %s: others may write it (mode %04o); make it private '
            '(chmod 0600)' % (path, stat.S_IMODE(status.st_mode)))


def _make(make: Callable[[], None], directory: str) -> None:
    """Make what is not there, and have it survive a power failure.

    :param directory: where its name is
    """
    try:
        make()
    except FileExistsError:
        return
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
