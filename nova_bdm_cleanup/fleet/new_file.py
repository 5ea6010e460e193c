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
"""A file that an audit writes at its end, and that must be new."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Optional, Type, TypeVar

from nova_bdm_cleanup import errors

N = TypeVar('N', bound='NewFile')


class NewFile:
    """Made before the audit begins, so that it cannot fail for that later.

    A context manager: a file that was not written is not left behind.

    :param path: of a file that does not exist
    :raises BadInput: when it does, or cannot be made
    """

    kind = 'file'

    def __init__(self, path: str) -> None:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL,
                                 0o600)
        except OSError as exc:
            raise errors.BadInput('%s %s: %s; give the path of a new file' % (
                self.kind, path, exc.strerror)) from exc
        self._path = path
        self._file = os.fdopen(descriptor, 'w', encoding='utf-8')
        self._written = False

    def __enter__(self: N) -> N:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]],
                 error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self._file.close()
        if not self._written:
            os.unlink(self._path)

    def put(self, text: str) -> None:
        """Write all of it."""
        self._file.write(text)
        self._written = True
