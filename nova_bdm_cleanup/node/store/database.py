# SPDX-License-Identifier: Apache-2.0
"""The store: one SQLite file of a compute node.

A change is made as a whole or not at all, and survives a power failure once it
is made.  Every problem is a :class:`StoreError` with its remedy, and leaves
the store as it was.

SQLite keeps its rollback journal and not a WAL: then readers write nothing,
and at rest there is one file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import contextlib
import errno
import os
import sqlite3
import stat
import time
from typing import Any, Callable, TypeVar
import urllib.parse

from nova_bdm_cleanup.files import OTHERS_WRITE

T = TypeVar('T')

#: Seconds to wait for another writer, which is done in milliseconds.
LOCK_TIMEOUT = 5.0

#: Like FULL, and the directory is synced after the rollback journal is
#: deleted: otherwise a power failure could revert the change.
SYNCHRONOUS = 'EXTRA'

#: Seconds between two attempts of a statement that finds the store locked.
_STATEMENT_RETRY_SECONDS = 0.002

#: The application id of SQLite that marks the file as ours: "bdmc".
_APPLICATION = 0x62646d63

#: The schema version of all tables.  A release refuses a store with a higher
#: one, also of a feature that it does not know.
_TABLE_VERSION = 1

#: The table that says which features have tables.
_FEATURE = ('CREATE TABLE feature (name TEXT PRIMARY KEY, version INTEGER NOT '
            'NULL) WITHOUT ROWID')

#: The tables of each feature.  A released table is never changed: a later
#: release adds a feature, whose tables the first change makes.  An earlier
#: release ignores a feature of this version that it does not know, so that one
#: can go back to it.  The rows of that feature stay when it deletes an entry.
SCHEMA = {
    'journal': (
        # With AUTOINCREMENT the serial number of a deleted entry is not used
        # again.
        """CREATE TABLE entry (
            serial INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL,
            server TEXT NOT NULL, outcome TEXT)""",
        # A table of its own, because changing a row needs room for all of it.
        """CREATE TABLE plan (entry INTEGER PRIMARY KEY, record TEXT NOT NULL)
        """,
        'CREATE INDEX entry_server ON entry (server, time)',
        'CREATE INDEX entry_time ON entry (time)',
        """CREATE TABLE step (
            entry INTEGER, number INTEGER, time REAL NOT NULL,
            name TEXT NOT NULL, outcome TEXT NOT NULL, subject TEXT NOT NULL,
            PRIMARY KEY (entry, number)) WITHOUT ROWID""",
        # A table of its own: the limits count deleted entries as well.
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
            volumes INTEGER, seconds REAL, failed INTEGER NOT NULL,
            problem TEXT, next REAL NOT NULL) WITHOUT ROWID""",
        """CREATE TABLE process (
            host TEXT PRIMARY KEY, since REAL NOT NULL, identity TEXT NOT NULL,
            problem TEXT NOT NULL, facts TEXT NOT NULL) WITHOUT ROWID"""),
    'disconnects': (
        """CREATE TABLE suppressed (
            host TEXT, server TEXT, volume TEXT, boot TEXT NOT NULL,
            time REAL NOT NULL, connection TEXT NOT NULL,
            identities TEXT NOT NULL, PRIMARY KEY (host, server, volume))
        WITHOUT ROWID""",),
}

#: The size limit of the store: room for thousands of journal entries of a few
#: KiB, and little on the disk that holds Nova's state.
MAX_BYTES = 16 * 1024 * 1024

#: Pages that a change may need besides those of its data.
_MARGIN_PAGES = 16

#: The first second of the year 10000, which Python cannot show as a date.
_END_OF_TIME = 253402300800

#: What a value of another type raises where it is read.
_WRONG_VALUE = (ArithmeticError, RecursionError, TypeError, ValueError)

_LOCKED = 'database is locked'
_READ_ONLY = 'attempt to write a readonly database'

_NOT_OURS = ('it must be accessible to the user that nova-compute runs as; to '
             'read it, become that user or root')
_MAKE_WRITABLE = ('make the file, its directory and its file system writable, '
                  'or change [bdm_cleanup] store')
_FREE_STORE_SPACE = 'free some space there, or raise the quota'
_DAMAGED = ('it is damaged or no store: move it away, with the file of that '
            'name and -journal if it exists, and nova-compute creates a new '
            'one')
_CUT_OFF = ('nova-compute was stopped during a change, which its next start '
            'rolls back; to read it now, become its owner')

#: By errno, or by SQLite's message: its errors have no code before Python
#: 3.11.
_STORE_REMEDIES: dict[object, str] = {
    errno.EACCES: _NOT_OURS,
    errno.EPERM: _NOT_OURS,
    errno.EROFS: _MAKE_WRITABLE,
    errno.ENOSPC: _FREE_STORE_SPACE,
    errno.EDQUOT: _FREE_STORE_SPACE,
    errno.ENOENT: 'create its directory, or change [bdm_cleanup] store',
    errno.ENOTDIR: 'name a file in a directory in [bdm_cleanup] store',
    _LOCKED: 'another process has held the lock for too long; find out which '
             '(fuser) and why',
    'database or disk is full': _FREE_STORE_SPACE,
    _READ_ONLY: _MAKE_WRITABLE,
    'unable to open database file': _NOT_OURS,
    'disk I/O error': 'check the disk that it is on, its quota, and the file '
                      'size limit of nova-compute',
}


class StoreError(Exception):
    """The store cannot be used; names the path and what to do."""


def host_path(store: str, host: str, suffix: str) -> str:
    """Return the path beside a store of what belongs to one host.

    Several nova-computes may share a store.
    """
    return '%s-%s.%s' % (os.path.abspath(store),
                         urllib.parse.quote(host, safe=''), suffix)


def deletion_of(serial: int) -> list[tuple[str, Sequence[Any]]]:
    """Return the statements that delete an entry of the journal.

    The limits count what it was charged for all the same.
    """
    return [('DELETE FROM plan WHERE entry = ?', (serial,)),
            ('DELETE FROM step WHERE entry = ?', (serial,)),
            ('DELETE FROM entry WHERE serial = ?', (serial,))]


def text(value: Any) -> str:
    """Return a value that was read, if it is a text."""
    if not isinstance(value, str):
        raise TypeError('no text')
    return value


def timestamp(value: Any) -> float:
    """Return a value that was read, if it is a time."""
    moment = float(value)
    if not 0 <= moment < _END_OF_TIME:
        raise ValueError('no time')
    return moment


class Database:
    """The store.

    Each operation opens the file again, so that threads, green threads and
    forked processes may share an instance; any number may use one file.

    :param path: the file, made when missing, as is its directory
    :param max_bytes: the size that the file never exceeds
    """

    def __init__(self, path: str, max_bytes: int = MAX_BYTES) -> None:
        self.path = os.path.abspath(path)
        self._max_bytes = max_bytes

    def write(self, work: Callable[[sqlite3.Connection], T], size: int = 0,
              keep: int = 0, timeout: float = LOCK_TIMEOUT) -> T:
        """Make a change: all of it, or nothing if there is an exception.

        :param work: makes the change
        :param size: how many bytes it adds, if many
        :param keep: the journal entry that is not deleted to make room
        :param timeout: seconds to wait for other writers
        :raises StoreError: when the change could not be made
        """
        with self._opened(True, timeout) as connection:
            _run(connection, 'BEGIN IMMEDIATE', timeout)
            missing = self._missing(connection)
            if missing == list(SCHEMA):
                connection.execute('PRAGMA application_id = %d' % _APPLICATION)
                connection.execute('PRAGMA user_version = %d' % _TABLE_VERSION)
                connection.execute(_FEATURE)
            for feature in missing:
                for statement in SCHEMA[feature]:
                    connection.execute(statement)
                connection.execute('INSERT INTO feature VALUES (?, ?)',
                                   (feature, _TABLE_VERSION))
            self._make_room(connection, size, keep)
            result = work(connection)
            _run(connection, 'COMMIT', timeout)
            return result

    def exists(self) -> bool:
        """Return whether something exists at the path.

        :raises StoreError: when the path cannot be examined
        """
        with self._translated(False):
            try:
                os.lstat(self.path)
            except FileNotFoundError:
                return False
        return True

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Read from the store; make no file and change none.

        :param work: reads, and raises one of :data:`_WRONG_VALUE` for what no
            release writes
        :returns: what ``work`` returns; None when nothing was ever written
        :raises StoreError: when the store cannot be read
        """
        if not self.exists():
            return None
        with self._opened(False) as connection:
            _run(connection, 'BEGIN')
            # From the first read on, no writer can interrupt the transaction.
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
        """Check that changes are possible; shrink a file over the limit.

        :raises StoreError: when changes are impossible
        """
        def touch(connection: sqlite3.Connection) -> bool:
            if _ask(connection, 'quick_check(1)') != 'ok':
                raise sqlite3.DatabaseError(
                    'database disk image is malformed')
            # Only a write shows that writing is possible.
            connection.execute('PRAGMA user_version = %d' % _TABLE_VERSION)
            size = (_ask(connection, 'page_count')
                    * _ask(connection, 'page_size'))
            return bool(size > self._max_bytes)

        if self.write(touch):
            with self._opened(True) as connection:
                _run(connection, 'VACUUM')

    def damaged(self, what: object) -> StoreError:
        """Return the error for content that no release writes."""
        return StoreError('store %s: %s; %s' % (self.path, what, _DAMAGED))

    @contextlib.contextmanager
    def _opened(self, writing: bool, timeout: float = LOCK_TIMEOUT
                ) -> Iterator[sqlite3.Connection]:
        """Open the file after checking that it is safe.

        :returns: a context that gives the connection
        """
        with self._translated(writing):
            if writing:
                self._make_file()
            for suffix in ('', '-journal', '-wal', '-shm'):
                _check_file(self.path + suffix, writing)
            # A reader who is not the owner does not roll back an interrupted
            # change: the owner could redirect the writes to other files.
            own = os.stat(self.path).st_uid == os.geteuid()
            connection = sqlite3.connect(
                'file:%s?mode=%s' % (
                    urllib.parse.quote(os.fsencode(self.path)),
                    'rw' if writing or own else 'ro'),
                # Waiting inside SQLite would block all green threads.
                uri=True, timeout=0, isolation_level=None)
            with contextlib.closing(connection):
                for pragma in (
                        'journal_mode = DELETE',
                        'synchronous = ' + SYNCHRONOUS,
                        # Otherwise a large change would need an exclusive
                        # lock before its end.
                        'cache_spill = OFF',
                        'temp_store = MEMORY') if writing else ():
                    _run(connection, 'PRAGMA ' + pragma, timeout)
                yield connection

    def _missing(self, connection: sqlite3.Connection) -> list[str]:
        """Return the features that have no tables yet."""
        if not _ask(connection, 'schema_version'):
            return list(SCHEMA)
        if _ask(connection, 'application_id') != _APPLICATION:
            raise self.damaged('it belongs to another program')
        made = {_normal(sql) for sql, in connection.execute(
            'SELECT sql FROM sqlite_master WHERE sql IS NOT NULL').fetchall()}
        # A view could have no end.
        if _normal(_FEATURE) not in made:
            raise self.damaged('its tables are others')
        there: dict[str, int] = dict(
            connection.execute('SELECT name, version FROM feature').fetchall())
        version = max([_ask(connection, 'user_version'), *there.values()])
        if version > _TABLE_VERSION:
            raise StoreError(
                'store %s: it is of version %d, this release knows version '
                '%d; install the release that wrote it, or move the file away '
                'and restart nova-compute, which creates a new one'
                % (self.path, version, _TABLE_VERSION))
        if not made.issuperset(
                _normal(statement) for feature in SCHEMA if feature in there
                for statement in SCHEMA[feature]):
            raise self.damaged('its tables are others')
        return [feature for feature in SCHEMA if feature not in there]

    def _make_room(self, connection: sqlite3.Connection, size: int,
                   keep: int) -> None:
        """Delete the oldest journal entries until a change has room."""
        page = _ask(connection, 'page_size')
        limit = self._max_bytes // page
        # If the limit was lowered below the size of the file, SQLite takes the
        # size of the file.
        connection.execute('PRAGMA max_page_count = %d' % limit)
        max_used = limit - size // (page - 4) - _MARGIN_PAGES
        while (_ask(connection, 'page_count')
               - _ask(connection, 'freelist_count') > max_used):
            oldest = connection.execute(
                'SELECT serial FROM entry WHERE serial <> ? '
                'ORDER BY serial LIMIT 1', (keep,)).fetchone()
            if oldest is None:
                raise StoreError(
                    'store %s: %d bytes do not fit, since its maximum size is '
                    '%d' % (self.path, size, self._max_bytes))
            for statement, values in deletion_of(*oldest):
                connection.execute(statement, values)

    def _make_file(self) -> None:
        """Make a private file in a directory that no other user can write."""
        directory = os.path.dirname(self.path)
        _make(lambda: os.mkdir(directory, stat.S_IRWXU),
              os.path.dirname(directory))
        status = os.stat(directory)
        # A sticky bit is not enough: others could plant a rollback journal.
        if (status.st_uid not in (0, os.geteuid())
                or status.st_mode & OTHERS_WRITE):
            raise StoreError(
                'store directory %s: other users than that of nova-compute '
                'can change it (owner %d, mode %04o); change that (chown, '
                'chmod 0700) or name another place in [bdm_cleanup] '
                'store' % (directory, status.st_uid,
                           stat.S_IMODE(status.st_mode)))
        # Not open(): closing the file would release the locks that other
        # threads of this process hold on it.
        _make(lambda: os.mknod(
            self.path, stat.S_IFREG | stat.S_IRUSR | stat.S_IWUSR), directory)

    @contextlib.contextmanager
    def _translated(self, writing: bool) -> Iterator[None]:
        what = 'cannot %s store %s' % (
            'write' if writing else 'read', self.path)
        try:
            yield
        except OSError as exc:
            # The error may be about the directory.
            where = ('' if exc.filename in (None, self.path)
                     else '%s: ' % exc.filename)
            raise StoreError('%s: %s%s; %s' % (
                what, where, os.strerror(exc.errno or 0), _STORE_REMEDIES.get(
                    exc.errno or 0, 'check the disk that it is on'))) from exc
        except _WRONG_VALUE as exc:
            raise self.damaged(exc) from exc
        except sqlite3.Error as exc:
            words = str(exc)
            remedy = _STORE_REMEDIES.get(words, _DAMAGED)
            if not writing and words == _READ_ONLY:
                remedy = _CUT_OFF
            raise StoreError('%s: %s; %s' % (what, words, remedy)) from exc


def _run(connection: sqlite3.Connection, statement: str,
         timeout: float = LOCK_TIMEOUT) -> None:
    """Execute a statement that may have to wait for others.

    It waits in ``time.sleep``, during which other green threads run.
    """
    end = time.monotonic() + timeout
    while True:
        try:
            connection.execute(statement).fetchall()
            return
        except sqlite3.OperationalError as exc:
            if str(exc) != _LOCKED or time.monotonic() >= end:
                raise
        time.sleep(_STATEMENT_RETRY_SECONDS)


def _normal(statement: str) -> str:
    """Return a statement that makes a table without its line breaks."""
    return ' '.join(statement.split())


def _ask(connection: sqlite3.Connection, pragma: str) -> Any:
    return connection.execute('PRAGMA ' + pragma).fetchone()[0]


def _check_file(path: str, writing: bool) -> None:
    """Refuse a file that is not ours, or that others can write."""
    try:
        # Not open(), which would release locks: see _make_file().
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
    if writing and status.st_mode & OTHERS_WRITE:
        raise StoreError(
            'store %s: others may write it (mode %04o); make it private '
            '(chmod 0600)' % (path, stat.S_IMODE(status.st_mode)))


def _make(make: Callable[[], None], directory: str) -> None:
    """Make a file or a directory that is missing, durably.

    :param directory: the parent, which is synced
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
