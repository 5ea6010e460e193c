# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""The record of every plan and every step, from which a removal is undone.

One JSON object on each line: the plan of an entry, its steps, its end.  What
cannot be recorded is not done, so every failure to write is an error here and
never a warning.  A crash loses at most the line that was being written.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import stat
import time
from typing import (Any, Callable, Collection, Dict, Iterator, List, Mapping,
                    Optional, Sequence, Tuple)

from oslo_log import log as logging

LOG = logging.getLogger(__name__)

#: The version of the format; lines of a higher one are not touched.
VERSION = 1

#: The outcome of an entry without an end: a crash, or still under way.
INTERRUPTED = 'interrupted'

_HOUR = 3600.0

#: Seconds to wait for another writer, which is done in milliseconds.
_PATIENCE = 5.0

#: Seconds between two attempts.
_PAUSE = 0.002

#: The first second of the year 10000, which Python cannot show as a date.
_END_OF_TIME = 253402300800

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH

_DIGITS = '0123456789abcdefghijklmnopqrstuvwxyz'

_REMEDIES = {
    errno.ENOSPC: 'free some space there',
    errno.EDQUOT: 'free some space there or raise the quota',
    errno.EFBIG: 'raise the file size limit of nova-compute or lower '
                 '[bdm_cleanup] journal_max_size',
    errno.EACCES: 'it must be accessible to the user that nova-compute runs '
                  'as; to read it, become that user or root',
    errno.EPERM: 'it must be accessible to the user that nova-compute runs '
                 'as; to read it, become that user or root',
    errno.EROFS: 'make the file system writable or change [bdm_cleanup] '
                 'journal',
    errno.ENOENT: 'make the directory that it is to be in or change '
                  '[bdm_cleanup] journal',
    errno.ELOOP: 'it must not be a symbolic link; name the file itself in '
                 '[bdm_cleanup] journal',
    errno.ENOTDIR: 'name a file in a directory in [bdm_cleanup] journal',
    errno.EISDIR: 'name a file, not a directory, in [bdm_cleanup] journal',
}


class JournalError(Exception):
    """The journal cannot be used; names the path and what to do."""


class NewerVersion(JournalError):
    """A later release wrote here."""


class LimitReached(Exception):
    """The removals of the last hour leave no room for this plan.

    :param done: how many the last hour had
    :param limit: how many it may have
    """

    def __init__(self, done: int, limit: int) -> None:
        super().__init__('%d removals within the last hour, the limit is %d'
                         % (done, limit))
        self.done = done
        self.limit = limit


@dataclasses.dataclass(frozen=True)
class Step:
    """One thing that was done, was tried, or was left out."""

    time: float
    name: str
    outcome: str
    subject: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Recorded:
    """One entry as it was read."""

    id: str
    time: float
    #: How many mappings and attached attachments the plan was to remove.
    removals: int
    #: The plan.
    record: Mapping[str, Any]
    steps: Tuple[Step, ...]
    outcome: str

    @property
    def removed(self) -> Tuple[str, ...]:
        """The ids of the mappings that were removed."""
        return tuple(str(s.subject.get('bdm')) for s in self.steps
                     if s.name == 'destroy' and s.outcome == 'done')

    @property
    def carried_out(self) -> int:
        """How many of the removals are done."""
        return self._steps('destroy', 'done') + self._steps(
            'delete-attachment', 'done', 'attachment', self._attached())

    @property
    def counted(self) -> int:
        """The removals to count: rather one too many.

        An unfinished plan may have done them all, and a mapping whose
        deletion failed may be gone: perhaps only the answer was lost.
        """
        if self.outcome == INTERRUPTED:
            return max(self.removals, self.carried_out)
        return self.carried_out + self._steps('destroy', 'failed')

    def _steps(self, name: str, outcome: str, key: str = '',
               subjects: Optional[Collection[str]] = None) -> int:
        return sum(s.name == name and s.outcome == outcome
                   and (subjects is None or s.subject.get(key) in subjects)
                   for s in self.steps)

    def _attached(self) -> List[str]:
        """The stale attachments that were limited like mappings."""
        return [attachment.get('id', '')
                for action in objects(self.record, 'actions')
                if action.get('kind') == 'delete-attachment'
                for attachment in objects(action, 'attachment')
                if attachment.get('status') == 'attached']


@dataclasses.dataclass(frozen=True)
class Contents:
    """All that could be read."""

    #: The oldest first.
    entries: Tuple[Recorded, ...]
    #: Lines that a crash tore, or that are no lines of a journal.
    skipped: int
    #: The files that were read, the oldest first.
    files: Tuple[str, ...]


class Entry:
    """One entry that is being written.  Made by :meth:`Journal.begin`."""

    def __init__(self, journal: Journal, identifier: str) -> None:
        self.id = identifier
        self._journal = journal
        self._ended = False
        # What could not be written goes out with the next line, so that an
        # entry with an end always has all its steps.
        self._pending: List[bytes] = []

    def step(self, name: str, outcome: str, **subject: Any) -> None:
        """Record one step.

        :param name: what was done
        :param outcome: ``done``, ``failed`` or ``skipped``
        :param subject: what it was done to
        :raises JournalError: when it could not be written; the line is kept
            and written together with the next one
        """
        self._write('step', name=name, outcome=outcome, subject=subject)

    def finish(self, outcome: str) -> None:
        """Record the end; doing it again only writes what is still pending.

        :param outcome: ``done``, ``partly`` or ``nothing``
        :raises JournalError: when it could not be written
        """
        if self._ended:
            self._journal.append(self._pending, sync=True)
        else:
            self._ended = True
            self._write('end', outcome=outcome)

    def _write(self, event: str, **values: Any) -> None:
        # The steps of a reboot wait once for a lock that does not come free.
        is_end = event == 'end'
        patience = _PATIENCE if is_end or not self._pending else 0.0
        self._pending.append(self._journal.line(event, self.id, **values))
        self._journal.append(self._pending, is_end, patience)


class Journal:
    """The journal as its writer sees it.

    Threads may share one, and several processes may write the same file.

    :param path: the file; rotated ones get ``.1``, ``.2``, ... appended
    :param max_bytes: the size at which it is rotated
    :param backups: how many rotated files are kept.  One that the hourly
        limit still has to count is kept for its hour in any case
    :param clock: the time since the epoch
    """

    def __init__(self, path: str, max_bytes: int, backups: int,
                 clock: Callable[[], float] = time.time) -> None:
        self.path = os.path.abspath(path)
        self._max_bytes = max_bytes
        self._backups = backups
        self._clock = clock

    def check(self) -> None:
        """Find out early whether the journal can be written.

        :raises JournalError: when it cannot
        """
        with self._writing():
            self._recent()
            os.close(_open_for_writing(self.path))

    def begin(self, record: Mapping[str, Any], removals: int,
              limit_per_hour: int) -> Entry:
        """Write a plan, unless it would exceed the hourly limit.

        When this returns, the plan survives a crash of the host.

        :param record: the plan, of what JSON can express
        :param removals: how much it removes, as the limit counts it
        :param limit_per_hour: how many an hour may have
        :returns: the entry, to record the steps and the end
        :raises JournalError: when it could not be written
        :raises LimitReached: when the hour has had too many already
        """
        with self._writing():
            recent = self._recent()
            horizon = self._clock() - _HOUR
            done = sum(e.counted for e in recent if e.time >= horizon)
            if removals and done + removals > limit_per_hour:
                raise LimitReached(done, limit_per_hour)
            entry = Entry(self, self._new_id(recent))
            self._append([self.line('plan', entry.id, removals=removals,
                                    record=record)], sync=True)
        return entry

    def entries(self) -> Iterator[Recorded]:
        """All entries that are still there, the oldest first.

        :raises JournalError: when the files cannot be read
        """
        contents = read(self.path)
        if contents.skipped:
            LOG.warning('%d lines of the journal %s could not be read and '
                        'were skipped', contents.skipped, self.path)
        return iter(contents.entries)

    # For Entry

    def line(self, event: str, identifier: str, **values: Any) -> bytes:
        """One line of the file, complete."""
        return json.dumps(
            {'version': VERSION, 'event': event, 'entry': identifier,
             'time': self._clock(), **values},
            default=str).encode() + b'\n'

    def append(self, lines: List[bytes], sync: bool,
               patience: float = _PATIENCE) -> None:
        """Write lines and empty the list.

        :param sync: wait until they are on the disk
        :param patience: seconds to wait for another writer
        :raises JournalError: when they could not be written; they are kept
        """
        if lines:
            with self._writing(patience):
                self._append(lines, sync)
                lines.clear()

    # With the lock held

    @contextlib.contextmanager
    def _writing(self, patience: float = _PATIENCE) -> Iterator[None]:
        """Keep all others out, threads too; translate what fails."""
        with _translated('write', self.path):
            _prepare_directory(os.path.dirname(self.path))
            fd = _open_for_writing(_lock_path(self.path))
            with _locked(fd, fcntl.LOCK_EX, self.path, patience):
                yield

    def _append(self, lines: Sequence[bytes], sync: bool) -> None:
        data = b''.join(lines)
        if self._is_full(len(data)):
            self._rotate()
        fd = _open_for_writing(self.path)
        try:
            size = os.fstat(fd).st_size
            if not size:
                _sync_directory(os.path.dirname(self.path))
            _write(fd, size, data, sync)
        finally:
            os.close(fd)

    def _is_full(self, needed: int) -> bool:
        """Whether a line has no room; what is there is then on the disk."""
        fd = _open_for_writing(self.path)
        try:
            size = os.fstat(fd).st_size
            if not size or size + needed <= self._max_bytes:
                return False
            os.fsync(fd)
            return True
        finally:
            os.close(fd)

    def _rotate(self) -> None:
        """Give every file the next number, from the oldest to the newest.

        A crash half way leaves a number out.  Only the files up to the first
        number that is free are moved, so nothing is lost then.
        """
        numbers = _numbers(self.path)
        free = next(n for n in range(1, len(numbers) + 2) if n not in numbers)
        for number in range(free, 1, -1):
            os.rename(_numbered(self.path, number - 1),
                      _numbered(self.path, number))
        os.rename(self.path, _numbered(self.path, 1))
        for number in _numbers(self.path):
            if number > self._backups:
                self._discard(_numbered(self.path, number))

    def _discard(self, path: str) -> None:
        """Delete a rotated file, unless the hourly limit needs it."""
        horizon = self._clock() - _HOUR
        with _opened(path) as files:
            for events in map(_parse_file, files):
                if any(e and e['time'] >= horizon for e in events):
                    return
        os.unlink(path)

    def _recent(self) -> Tuple[Recorded, ...]:
        """The entries of the last hour, and perhaps more.

        Files are read from the newest to the oldest.  One that begins before
        the hour is the last to matter, and it must hold a plan, because the
        next id follows that of the newest plan.
        """
        horizon = self._clock() - _HOUR
        lines: List[Dict[str, Any]] = []
        with _opened(*_paths(self.path)) as files:
            for file in reversed(files):
                events = [e for e in _parse_file(file) if e is not None]
                lines[:0] = events
                if (any(e['event'] == 'plan' for e in events)
                        and events[0]['time'] < horizon):
                    break
        return _join(lines)

    def _new_id(self, recent: Sequence[Recorded]) -> str:
        """The time in milliseconds, and later than every other."""
        serials = [int(self._clock() * 1000)]
        serials += [_serial(e.id) + 1 for e in recent]
        serial, digits = max(serials), ''
        while serial:
            serial, digit = divmod(serial, len(_DIGITS))
            digits = _DIGITS[digit] + digits
        return digits.rjust(8, '0')


def objects(record: Mapping[str, Any], key: str) -> List[Dict[str, Any]]:
    """The objects under a key, one or a list; nothing else that is there."""
    value = record.get(key)
    values = value if isinstance(value, list) else [value]
    return [v for v in values if isinstance(v, dict)]


def read(path: str) -> Contents:
    """Read a journal with its rotated files.

    :param path: the file that is written at present
    :raises NewerVersion: when a later release wrote there
    :raises JournalError: when a file cannot be read
    """
    path = os.path.abspath(path)
    lines: List[Dict[str, Any]] = []
    skipped = 0
    with _translated('read', path):
        with contextlib.ExitStack() as stack:
            # Held only until the files are open and their sizes are known:
            # what writers do afterwards is not seen.
            with _no_writer(path):
                paths = _paths(path)
                files = stack.enter_context(_opened(*paths))
            for file in files:
                for event in _parse_file(file):
                    if event is None:
                        skipped += 1
                    else:
                        lines.append(event)
    return Contents(_join(lines), skipped, tuple(paths))


# The format


def _join(events: Sequence[Mapping[str, Any]]) -> Tuple[Recorded, ...]:
    """Entries out of lines; the lines of one may be in several files.

    Lines whose plan is gone with the oldest file are of no use any more.
    """
    plans: Dict[str, Mapping[str, Any]] = {}
    steps: Dict[str, List[Step]] = {}
    outcomes: Dict[str, str] = {}
    for event in events:
        entry = event['entry']
        if event['event'] == 'plan':
            plans.setdefault(entry, event)
        elif event['event'] == 'step':
            steps.setdefault(entry, []).append(Step(
                event['time'], event['name'], event['outcome'],
                event['subject']))
        else:
            outcomes[entry] = event['outcome']
    return tuple(
        Recorded(entry, plan['time'], plan['removals'], plan['record'],
                 tuple(steps.get(entry, ())),
                 outcomes.get(entry, INTERRUPTED))
        for entry, plan in plans.items())


_FIELDS: Dict[str, Tuple[Tuple[str, type], ...]] = {
    'plan': (('removals', int), ('record', dict)),
    'step': (('name', str), ('outcome', str), ('subject', dict)),
    'end': (('outcome', str),),
}


def _parse(line: bytes, path: str) -> Optional[Dict[str, Any]]:
    """One line; None when it is not one of ours."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or type(event.get('version')) is not int:
        return None
    if event['version'] > VERSION:
        raise NewerVersion(
            'journal %s: it is of version %d, this release knows version %d; '
            'install the release that wrote it, or move the file away'
            % (path, event['version'], VERSION))
    moment: Any = event.get('time')
    fields = _FIELDS.get(str(event.get('event')))
    if (fields is None or not isinstance(event.get('entry'), str)
            or type(moment) not in (int, float)
            or not 0 <= moment < _END_OF_TIME
            or not all(isinstance(event.get(k), t) for k, t in fields)):
        return None
    return event


def _serial(identifier: str) -> int:
    try:
        return int(identifier, len(_DIGITS))
    except ValueError:
        return 0


# Files


@dataclasses.dataclass(frozen=True)
class _File:
    """An open file, as long as it was when it was opened."""

    path: str
    fd: int
    size: int


def _parse_file(file: _File) -> List[Optional[Dict[str, Any]]]:
    os.lseek(file.fd, 0, os.SEEK_SET)
    data = b''
    while len(data) < file.size:
        part = os.read(file.fd, file.size - len(data))
        if not part:
            break
        data += part
    return [_parse(line, file.path) for line in data.split(b'\n') if line]


@contextlib.contextmanager
def _opened(*paths: str) -> Iterator[List[_File]]:
    """Files, open for reading."""
    with contextlib.ExitStack() as stack:
        files = []
        for path in paths:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            stack.callback(os.close, fd)
            _check_regular(path, os.fstat(fd))
            files.append(_File(path, fd, os.fstat(fd).st_size))
        yield files


def _paths(path: str) -> List[str]:
    """The files that exist, the oldest first."""
    if not os.path.lexists(os.path.dirname(path)):
        return []
    rotated = [_numbered(path, n) for n in reversed(_numbers(path))]
    return rotated + ([path] if os.path.lexists(path) else [])


def _numbers(path: str) -> List[int]:
    """The numbers of the rotated files, in ascending order."""
    directory, name = os.path.split(path)
    suffixes = [n[len(name) + 1:] for n in os.listdir(directory)
                if n.startswith(name + '.')]
    # Only the names that rotation itself gives: not .01 and not .²
    return sorted(int(s) for s in suffixes
                  if s.isascii() and s.isdigit() and s[0] != '0')


def _numbered(path: str, number: int) -> str:
    return '%s.%d' % (path, number)


def _lock_path(path: str) -> str:
    # Rotation replaces the journal itself, so that cannot be the lock.
    return path + '.lock'


def _open_for_writing(path: str) -> int:
    """Open a file of ours and nobody else's, making it when missing."""
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
                 | os.O_NONBLOCK, stat.S_IRUSR | stat.S_IWUSR)
    try:
        status = os.fstat(fd)
        _check_regular(path, status)
        if status.st_uid != os.geteuid():
            raise JournalError(
                'journal %s: it belongs to user %d and not to user %d; give '
                'it to the user that nova-compute runs as (chown)'
                % (path, status.st_uid, os.geteuid()))
        if status.st_mode & _OTHERS_WRITE:
            raise JournalError(
                'journal %s: others may write it (mode %04o); make it '
                'private (chmod 0600)' % (path, stat.S_IMODE(status.st_mode)))
    except BaseException:
        os.close(fd)
        raise
    return fd


def _check_regular(path: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise JournalError('journal %s: it is not a regular file; name '
                           'another in [bdm_cleanup] journal' % path)


def _prepare_directory(path: str) -> None:
    """Make the directory when missing; refuse one that others can change."""
    try:
        os.mkdir(path, stat.S_IRWXU)
    except FileExistsError:
        pass
    else:
        _sync_directory(os.path.dirname(path))
    status = os.stat(path)
    if status.st_uid not in (0, os.geteuid()) or (
            status.st_mode & _OTHERS_WRITE
            and not status.st_mode & stat.S_ISVTX):
        raise JournalError(
            'journal directory %s: others than the user that nova-compute '
            'runs as could replace files in it (owner %d, mode %04o); change '
            'that (chown, chmod 0700) or name another place in [bdm_cleanup] '
            'journal' % (path, status.st_uid, stat.S_IMODE(status.st_mode)))


def _sync_directory(path: str) -> None:
    """Have the names in a directory survive a crash of the host."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _write(fd: int, size: int, data: bytes, sync: bool) -> None:
    """Append to a file of that size, all or nothing."""
    if size and os.pread(fd, 1, size - 1) != b'\n':
        # A crash tore the last line.
        data = b'\n' + data
    left = memoryview(data)
    try:
        while left:
            # One call, save on a full disk, which the second one reports.
            left = left[os.write(fd, left):]
        if sync:
            os.fsync(fd)
    except OSError:
        # What cannot be recorded is not done: half a plan must not be taken
        # for one that a crash interrupted.
        with contextlib.suppress(OSError):
            os.ftruncate(fd, size)
        raise


@contextlib.contextmanager
def _no_writer(path: str) -> Iterator[None]:
    """Keep writers out for a moment; never makes the lock file."""
    try:
        fd = os.open(_lock_path(path), os.O_RDONLY | os.O_NOFOLLOW
                     | os.O_NONBLOCK)
    except FileNotFoundError:
        yield
        return
    with _locked(fd, fcntl.LOCK_SH, path, _PATIENCE):
        yield


@contextlib.contextmanager
def _locked(fd: int, mode: int, path: str,
            patience: float) -> Iterator[None]:
    """Hold the lock on an open file, and close the file at the end.

    Such a lock belongs to the opened file and not to the process, so it keeps
    threads apart as well.  Waiting is left to ``time.sleep``: in a
    nova-compute with green threads a call that blocks would stop the very
    thread that holds the lock.
    """
    end = time.monotonic() + patience
    try:
        while True:
            try:
                fcntl.flock(fd, mode | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise JournalError(
                        'journal %s: another process holds %s for more than '
                        '%g s; find out which (fuser) and why'
                        % (path, _lock_path(path), patience)) from None
            time.sleep(_PAUSE)
        try:
            yield
        finally:
            # A process forked meanwhile would hold on to it.
            fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        os.close(fd)


@contextlib.contextmanager
def _translated(what: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        # The directory, the lock or a rotated file where it is one of them.
        where = '' if exc.filename in (None, path) else '%s: ' % exc.filename
        raise JournalError(
            'cannot %s journal %s: %s%s; %s' % (
                what, path, where, os.strerror(exc.errno or 0),
                _REMEDIES.get(exc.errno or 0, 'check the disk that it is on'))
        ) from exc
