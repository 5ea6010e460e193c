# SPDX-License-Identifier: Apache-2.0
"""Files that are replaced as a whole, so that no reader sees half of one.

Others may write in the directory of a file.  So it is opened once, no link in
it is followed, and no file in it is opened for writing that was there before.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import dataclasses
import errno
import os
import stat
import time
import uuid

#: How the name of a new file begins, until it takes the place of the old one.
_NEW = '.bdm-cleanup-'

#: Seconds after which a new file was left by a process that was killed: it is
#: written at once.
_LEFT_AFTER = 60.0

#: The permissions of others than the owner to write.
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH

_FIX_PERMISSIONS = 'make its directory writable for the user of this process'
_FREE_SPACE = 'free some space there, or raise the quota'

_REMEDIES_BY_ERRNO = {
    errno.EACCES: _FIX_PERMISSIONS,
    errno.EPERM: _FIX_PERMISSIONS,
    errno.EROFS: _FIX_PERMISSIONS,
    errno.ENOENT: 'create its directory',
    errno.ENOTDIR: 'name a file in a directory',
    errno.ENOSPC: _FREE_SPACE,
    errno.EDQUOT: _FREE_SPACE,
    errno.EFBIG: _FREE_SPACE,
}


class FileError(OSError):
    """The file cannot be written; names the path and what to do."""


@dataclasses.dataclass(frozen=True)
class FileKind:
    """A kind of file.

    :param mode: its permissions, independent of the umask
    :param suffix: how its name must end
    :param is_trusted: alerts rely on it: where others can write, the sticky
        bit of the directory must keep them from replacing it
    """

    mode: int
    suffix: str = ''
    is_trusted: bool = False

    def check(self, path: str) -> None:
        """Check that the file could be written now, and leave it as it is.

        :raises FileError: when it could not
        """
        with self._opened(path) as directory, _new_file(directory):
            pass

    def replace(self, path: str, content: bytes) -> None:
        """Have a new file take the place of another, if there is one.

        :raises FileError: when it cannot be written; the old one is still
            there
        """
        with self._opened(path) as directory, _new_file(directory) as new:
            name, file = new
            with open(file, 'wb', closefd=False) as opened:
                opened.write(content)
            os.fchmod(file, self.mode)
            os.replace(name, os.path.basename(path),
                       src_dir_fd=directory, dst_dir_fd=directory)

    def read(self, path: str) -> bytes:
        """Return what this user, or root, has written into the file.

        :returns: its content; nothing if it does not exist, or if others can
            have written it
        :raises FileError: when it cannot be read
        """
        with self._opened(path) as directory:
            try:
                # Otherwise a pipe would have this wait.
                file = os.open(os.path.basename(path), os.O_RDONLY
                               | os.O_NOFOLLOW | os.O_NONBLOCK,
                               dir_fd=directory)
            except FileNotFoundError:
                return b''
            with open(file, 'rb') as opened:
                there = os.fstat(file)
                if (not stat.S_ISREG(there.st_mode)
                        or there.st_uid not in (0, os.geteuid())
                        or there.st_mode & OTHERS_WRITE):
                    return b''
                return opened.read()

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        """Open the directory of a file that may be written or replaced.

        :returns: a context that gives its descriptor
        """
        try:
            self._check_name(path)
            directory = os.open(os.path.dirname(os.path.abspath(path)),
                                os.O_RDONLY | os.O_DIRECTORY)
            try:
                self._check_directory(path, os.fstat(directory))
                _check_old_file(path, directory)
                yield directory
            finally:
                os.close(directory)
        except FileError:
            raise
        except OSError as exc:
            raise FileError('%s: %s; %s' % (
                path, exc.strerror, _REMEDIES_BY_ERRNO.get(
                    exc.errno or 0, 'check its file system'))) from exc

    def _check_name(self, path: str) -> None:
        if not path.endswith(self.suffix):
            raise FileError(
                '%s: the name has to end in %s, or node_exporter does not '
                'read the file' % (path, self.suffix))
        if not os.path.basename(path):
            raise FileError('%s: name a file' % path)

    def _check_directory(self, path: str, status: os.stat_result) -> None:
        if (self.is_trusted and status.st_mode & OTHERS_WRITE
                and not status.st_mode & stat.S_ISVTX):
            raise FileError(
                '%s: others can replace it, since its directory has mode %04o '
                'without the sticky bit (chmod +t)'
                % (path, stat.S_IMODE(status.st_mode)))


def _check_old_file(path: str, directory: int) -> None:
    """Refuse a path at which no file may be replaced."""
    try:
        there = os.stat(os.path.basename(path), dir_fd=directory,
                        follow_symlinks=False)
    except FileNotFoundError:
        return
    if stat.S_ISLNK(there.st_mode):
        # Replacing the link would leave the file that it points to stale.
        raise FileError('%s: it is a symbolic link; name the file itself'
                        % path)
    if not stat.S_ISREG(there.st_mode):
        raise FileError('%s: it is not a regular file; name a file' % path)
    parent = os.fstat(directory)
    if parent.st_mode & stat.S_ISVTX and os.geteuid() not in (
            0, there.st_uid, parent.st_uid):
        raise FileError('%s: it and its sticky directory belong to '
                        'another user; delete the file'
                        % path)


@contextlib.contextmanager
def _new_file(directory: int) -> Iterator[tuple[str, int]]:
    """Make a file that is deleted unless it gets another name.

    :returns: a context that gives its name and descriptor
    """
    _delete_left(directory)
    name = _NEW + uuid.uuid4().hex
    file = os.open(
        name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW,
        stat.S_IRUSR | stat.S_IWUSR, dir_fd=directory)
    try:
        yield name, file
    finally:
        os.close(file)
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=directory)


def _delete_left(directory: int) -> None:
    """Delete what killed processes have left."""
    for name in os.listdir(directory):
        # In a sticky directory, the files of other users stay.
        with contextlib.suppress(OSError):
            if name.startswith(_NEW) and time.time() - os.stat(
                    name, dir_fd=directory,
                    follow_symlinks=False).st_mtime > _LEFT_AFTER:
                os.unlink(name, dir_fd=directory)


#: A page about servers and volumes, for the user who asked for it.
REPORT_FILE = FileKind(0o600)

#: Metrics for the textfile collector of node_exporter, which runs as another
#: user and reads no file with another suffix.
METRICS_FILE = FileKind(0o644, '.prom', is_trusted=True)
