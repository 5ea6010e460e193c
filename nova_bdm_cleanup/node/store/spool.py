# SPDX-License-Identifier: Apache-2.0
"""The spool: requests of an administrator to the nova-compute of a host.

It is a directory beside the store, which nova-compute makes and in which only
its user and root may write.  ``nova-bdm-cleanup repair`` leaves a request in a
file there, and nova-compute answers in another one.  No name that somebody
else may have put there is followed, and no file is opened that one could wait
for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import contextlib
import itertools
import json
import os
import re
import stat
import time
from typing import Any, NamedTuple
import uuid

from nova_bdm_cleanup.files import OTHERS_WRITE
from nova_bdm_cleanup.node.store.database import host_path, StoreError

#: Seconds that the command waits for an answer.
PATIENCE = 60.0

#: Seconds between two looks for an answer.
_INTERVAL = 0.2

#: A request has one server; an answer has the findings about it.
_MAX_BYTES = 1024 * 1024

#: Files that are looked at each time.
_MAX_FILES = 1000

_REQUEST, _ANSWER, _NEW = '.request', '.answer', '.new'
_NAME = re.compile(r'[0-9a-f]{32}')


class NoAnswer(Exception):
    """nova-compute has not answered in time."""


class Request(NamedTuple):
    """A request that was read, and is no more in the spool."""

    name: str
    record: Mapping[str, Any]


class Spool:
    """The spool of the nova-compute of one host.

    Each method raises StoreError when it cannot be used.

    :param store: the path of the store
    """

    def __init__(self, store: str, host: str) -> None:
        self.path = host_path(store, host, 'spool')

    # In nova-compute

    def make(self) -> None:
        """Make it, if it is missing, and delete what no command waits for.

        A command may write at any time once the directory is there.
        """
        with self._translated():
            try:
                os.mkdir(self.path, stat.S_IRWXU)
            except FileExistsError:
                pass
        with self._opened() as directory:
            for name in self._names(directory, ''):
                # A command may have deleted it itself.
                with contextlib.suppress(FileNotFoundError):
                    written = os.stat(name, dir_fd=directory,
                                      follow_symlinks=False).st_mtime
                    if abs(time.time() - written) > PATIENCE:
                        _drop(name, directory)

    def requests(self, now: float) -> Iterator[Request]:
        """Yield the requests.  Each is deleted first: if nova-compute dies of
        a request, its next start does not take it up.

        :param now: the time; older requests are not answered
        """
        with self._opened() as directory:
            for name in self._names(directory, _REQUEST):
                record = None
                try:
                    record = _read(name, directory, now)
                except (OSError, ValueError, RecursionError):
                    # It is damaged, or no file.
                    pass
                if _drop(name, directory) and record is not None:
                    yield Request(name[:-len(_REQUEST)], record)

    def answer(self, request: Request, record: Mapping[str, Any]) -> None:
        """Answer a request."""
        with self._opened() as directory:
            _write(request.name + _ANSWER, record, directory)

    # In the command

    def ask(self, record: Mapping[str, Any], patience: float = PATIENCE
            ) -> Mapping[str, Any]:
        """Leave a request, and return the answer.

        :param record: the request, in types of JSON
        :raises NoAnswer: when there is none in time
        """
        name = uuid.uuid4().hex
        with self._opened(is_own=False) as directory:
            _write(name + _REQUEST, record, directory)
            try:
                return self._wait(name + _ANSWER, directory, patience)
            finally:
                for suffix in (_REQUEST, _ANSWER):
                    _drop(name + suffix, directory)

    def _wait(self, name: str, directory: int, patience: float
              ) -> Mapping[str, Any]:
        end = time.monotonic() + patience
        while True:
            try:
                return _read(name, directory)
            except FileNotFoundError:
                if time.monotonic() >= end:
                    raise NoAnswer(
                        'nova-compute has not answered within %g s; what it '
                        'has done is in its log and in the journal'
                        % patience) from None
            except (ValueError, RecursionError) as exc:
                raise StoreError('spool %s: an answer is damaged: %s' % (
                    self.path, exc)) from exc
            time.sleep(_INTERVAL)

    def _names(self, directory: int, suffix: str) -> Iterator[str]:
        with os.scandir(directory) as found:
            names = [entry.name for entry in itertools.islice(
                found, _MAX_FILES)]
        for name in sorted(names):
            stem, dot, rest = name.partition('.')
            if _NAME.fullmatch(stem) and suffix in ('', dot + rest):
                yield name

    @contextlib.contextmanager
    def _opened(self, is_own: bool = True) -> Iterator[int]:
        """Open the directory.

        :param is_own: it must belong to the user of this process
        :returns: a context that gives its descriptor
        """
        with self._translated():
            directory = os.open(
                self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                status = os.fstat(directory)
                if status.st_mode & OTHERS_WRITE or (
                        is_own and status.st_uid != os.geteuid()):
                    raise StoreError(
                        'spool %s: other users than that of nova-compute can '
                        'change it; remove it, and restart nova-compute'
                        % self.path)
                yield directory
            finally:
                os.close(directory)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise StoreError(
                'spool %s: %s; nova-compute makes it, and root and its user '
                'may write there' % (self.path, exc.strerror)) from exc


def _write(name: str, record: Mapping[str, Any], directory: int) -> None:
    """Write a file of the directory's owner, and show it as a whole."""
    new = name + _NEW
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW,
                   stat.S_IRUSR | stat.S_IWUSR, dir_fd=directory)
    with open(file, 'w', encoding='utf-8') as opened:
        owner = os.fstat(directory)
        if os.geteuid() != owner.st_uid:
            os.fchown(file, owner.st_uid, owner.st_gid)
        json.dump(record, opened)
    os.rename(new, name, src_dir_fd=directory, dst_dir_fd=directory)


def _read(name: str, directory: int, now: float | None = None
          ) -> Mapping[str, Any]:
    """Read a file.

    :param now: the time; a file older than that by :data:`PATIENCE` is
        refused
    :raises OSError: when it is not there, or cannot be read
    :raises ValueError: when it is not what this module writes
    """
    # Otherwise a pipe would have this wait.
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK,
                   dir_fd=directory)
    with open(file, 'rb') as opened:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_BYTES:
            raise ValueError('it is no file of this size')
        if now is not None and abs(now - status.st_mtime) > PATIENCE:
            raise ValueError('it is too old')
        record = json.loads(opened.read(_MAX_BYTES).decode())
    if not isinstance(record, dict):
        raise ValueError('it is no object')
    return record


def _drop(name: str, directory: int) -> bool:
    """Delete a file; return whether it was deleted."""
    try:
        os.unlink(name, dir_fd=directory)
    except OSError:
        return False
    return True
