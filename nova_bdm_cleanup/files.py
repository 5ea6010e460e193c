# SPDX-License-Identifier: Apache-2.0
"""Files that are replaced as a whole, so that no reader sees half of one."""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import dataclasses
import errno
import os
import stat
import tempfile

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
    """

    mode: int
    suffix: str = ''

    def check(self, path: str) -> None:
        """Check that the file could be written now, and leave it as it is.

        :raises FileError: when it could not
        """
        with self._directory_beside(path):
            pass

    @contextlib.contextmanager
    def replacing(self, path: str) -> Iterator[str]:
        """Have a new file take the place of another, if there is one.

        :returns: a context that gives the path at which to write the new file
        :raises FileError: when it cannot be written; the old one is still
            there
        """
        with self._directory_beside(path) as directory:
            new = os.path.join(directory, os.path.basename(path))
            yield new
            os.chmod(new, self.mode)
            os.replace(new, path)

    @contextlib.contextmanager
    def _directory_beside(self, path: str) -> Iterator[str]:
        """Make a temporary directory next to a file, for its successor.

        Others may be allowed to write where the file is; into this directory
        they cannot put a link.
        """
        try:
            self._check_path(path)
            with tempfile.TemporaryDirectory(
                    prefix='.bdm-cleanup-', dir=_parent(path)) as directory:
                yield directory
        except FileError:
            raise
        except OSError as exc:
            raise FileError('%s: %s; %s' % (
                path, exc.strerror, _REMEDIES_BY_ERRNO.get(
                    exc.errno or 0, 'check its file system'))) from exc

    def _check_path(self, path: str) -> None:
        """Refuse a path at which no file may be written or replaced."""
        if not path.endswith(self.suffix):
            raise FileError(
                '%s: the name has to end in %s, or node_exporter does not '
                'read the file' % (path, self.suffix))
        if not os.path.basename(path):
            raise FileError('%s: name a file' % path)
        try:
            there = os.lstat(path)
        except FileNotFoundError:
            return
        if stat.S_ISLNK(there.st_mode):
            # Replacing the link would leave the file that it points to stale.
            raise FileError('%s: it is a symbolic link; name the file itself'
                            % path)
        if not stat.S_ISREG(there.st_mode):
            raise FileError('%s: it is not a regular file; name a file' % path)
        parent = os.stat(_parent(path))
        if parent.st_mode & stat.S_ISVTX and os.geteuid() not in (
                0, there.st_uid, parent.st_uid):
            raise FileError('%s: it and its sticky directory belong to '
                            'another user; delete the file'
                            % path)


def _parent(path: str) -> str:
    return os.path.dirname(os.path.abspath(path))


#: A page about servers and volumes, for the user who asked for it.
REPORT_FILE = FileKind(0o600)

#: Metrics for the textfile collector of node_exporter, which runs as another
#: user and reads no file with another suffix.
METRICS_FILE = FileKind(0o644, '.prom')
