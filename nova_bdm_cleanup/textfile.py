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
"""A file for the textfile collector of Prometheus' node_exporter.

The collector reads every file whose name ends in ``.prom`` whenever it is
asked, as a user of its own.  So the file is replaced as a whole, anybody may
read it, and nothing else with such a name ever stands next to it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from typing import Iterator

_SUFFIX = '.prom'

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


class TextfileError(Exception):
    """The file cannot be written; names the path and what to do."""


def check(path: str) -> None:
    """Whether the file could be written now; what is there stays.

    :raises TextfileError: when it could not
    """
    with _explained(path):
        _refuse(path)
        descriptor, temporary = _temporary(path)
        os.close(descriptor)
        os.unlink(temporary)


def write(path: str, data: bytes) -> None:
    """Put a new file in place of what is there, if anything.

    A reader sees the old one or the new one, each of them whole.

    :raises TextfileError: when it cannot; what was there is still there
    """
    with _explained(path):
        _refuse(path)
        descriptor, temporary = _temporary(path)
        try:
            with os.fdopen(descriptor, 'wb') as file:
                # Whatever the umask says: the collector is another user.
                os.fchmod(descriptor, 0o644)
                file.write(data)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise


@contextlib.contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise TextfileError('%s: %s; %s' % (
            path, exc.strerror,
            _REMEDIES.get(exc.errno or 0, 'look at its file system'))) from exc


def _refuse(path: str) -> None:
    """What is never replaced, and what nobody would read."""
    if not path.endswith(_SUFFIX):
        raise TextfileError('%s: the name has to end in %s, or node_exporter '
                            'does not read the file' % (path, _SUFFIX))
    try:
        there = os.lstat(path)
    except FileNotFoundError:
        return
    if stat.S_ISLNK(there.st_mode):
        # To replace it would leave what it leads to as it is, for ever.
        raise TextfileError('%s: it is a symbolic link; name the file itself'
                            % path)
    if not stat.S_ISREG(there.st_mode):
        raise TextfileError('%s: there is something else than a file; name '
                            'a file' % path)
    directory = os.stat(_directory(path))
    if directory.st_mode & stat.S_ISVTX and os.geteuid() not in (
            0, there.st_uid, directory.st_uid):
        raise TextfileError('%s: it is of another user, and so is its '
                            'directory, which is sticky; delete the file'
                            % path)


def _temporary(path: str) -> tuple[int, str]:
    """A new file next to the other, which the collector does not read."""
    return tempfile.mkstemp(suffix='.tmp', prefix='.bdm-cleanup-',
                            dir=_directory(path))


def _directory(path: str) -> str:
    return os.path.dirname(os.path.abspath(path))
