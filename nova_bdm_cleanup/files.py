# SPDX-License-Identifier: Apache-2.0
"""Files that others read at any time: the old one or the new one, whole."""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import dataclasses
import errno
import os
import stat
import tempfile
from typing import Any

_UNWRITABLE = 'make its directory writable to the user that this runs as'
_NO_SPACE = 'free some space there, or raise the quota'

_REMEDIES = {
    errno.EACCES: _UNWRITABLE,
    errno.EPERM: _UNWRITABLE,
    errno.EROFS: _UNWRITABLE,
    errno.ENOENT: 'make the directory that it is to be in',
    errno.ENOTDIR: 'name a file in a directory',
    errno.ENOSPC: _NO_SPACE,
    errno.EDQUOT: _NO_SPACE,
    errno.EFBIG: _NO_SPACE,
}


class FileError(OSError):
    """The file cannot be written; names the path and what to do."""


@dataclasses.dataclass(frozen=True)
class Kind:
    """What files are alike in.

    :param mode: who may read them, whatever the umask says
    :param suffix: what their names have to end in
    :param reader: who reads no others
    """

    mode: int
    suffix: str = ''
    reader: str = ''

    def check(self, path: str) -> None:
        """Whether the file could be written now; what is there stays.

        :raises FileError: when it could not
        """
        with _beside(path, self):
            pass

    def write(self, path: str, data: bytes) -> None:
        """Put a new file in place of what is there, if anything.

        :raises FileError: when it cannot; what was there is still there
        """
        with _beside(path, self) as file:
            os.fchmod(file.fileno(), self.mode)
            file.write(data)
            # Only then a full disk has said so.
            file.close()
            os.replace(file.name, path)


@contextlib.contextmanager
def _beside(path: str, kind: Kind) -> Iterator[Any]:
    """A file next to the other, whose name no collector reads.

    It is deleted in the end, unless it has the other's place by then.
    """
    try:
        _refuse(path, kind)
        with tempfile.NamedTemporaryFile(
                prefix='.bdm-cleanup-', suffix='.tmp', dir=_directory(path),
                delete=False) as file:
            try:
                yield file
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(file.name)
    except FileError:
        raise
    except OSError as exc:
        raise FileError('%s: %s; %s' % (
            path, exc.strerror,
            _REMEDIES.get(exc.errno or 0, 'look at its file system'))) from exc


def _refuse(path: str, kind: Kind) -> None:
    """What is never replaced."""
    if not path.endswith(kind.suffix):
        raise FileError(
            '%s: the name has to end in %s, or %s does not read the file'
            % (path, kind.suffix, kind.reader))
    if not os.path.basename(path):
        raise FileError('%s: name a file' % path)
    try:
        there = os.lstat(path)
    except FileNotFoundError:
        return
    if stat.S_ISLNK(there.st_mode):
        # To replace it would leave what it leads to as it is, for ever.
        raise FileError('%s: it is a symbolic link; name the file itself'
                        % path)
    if not stat.S_ISREG(there.st_mode):
        raise FileError('%s: there is something else than a file; name a '
                        'file' % path)
    directory = os.stat(_directory(path))
    if directory.st_mode & stat.S_ISVTX and os.geteuid() not in (
            0, there.st_uid, directory.st_uid):
        raise FileError('%s: it is of another user, and so is its '
                        'directory, which is sticky; delete the file' % path)


def _directory(path: str) -> str:
    return os.path.dirname(os.path.abspath(path))
