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
"""Which process something is said of, and whether that one still runs.

A number alone is given to another process one day.  With the moment at which
the kernel started it, in the boot that the machine is in, it is not.
"""

from __future__ import annotations

import os
import pathlib
from typing import Any, Dict, Mapping, Optional

_BOOT = '/proc/sys/kernel/random/boot_id'
_NAMESPACE = 'ns/pid'

#: The fields of /proc/PID/stat behind the name, which may hold anything.
_STARTED = 19


def identity() -> Dict[str, Any]:
    """What tells this process from every other, for :func:`runs`."""
    return {'pid': os.getpid(), 'started': _started(os.getpid()),
            'boot': _boot(), 'namespace': _namespace()}


def runs(process: Mapping[str, Any]) -> Optional[bool]:
    """Whether a process runs; None: it cannot be seen from here.

    :param process: what :func:`identity` said in it
    """
    if process.get('boot') != _boot():
        return False
    if process.get('namespace') != _namespace():
        # In another container its number means another process, or none.
        return None
    try:
        started = _started(int(process.get('pid', 0)))
    except PermissionError:
        # What hides the processes of others need not hide that they are.
        return None
    return started is not None and process.get('started') == started


def _started(pid: int) -> Optional[int]:
    """In ticks since the boot; None: there is no such process."""
    try:
        text = pathlib.Path('/proc/%d/stat' % pid).read_text(
            encoding='utf-8', errors='replace')
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(')')[2].split()
    # A zombie has ended and only waits for its parent.
    return None if fields[0] in 'ZX' else int(fields[_STARTED])


def _boot() -> str:
    return pathlib.Path(_BOOT).read_text(encoding='ascii').strip()


def _namespace() -> str:
    return os.readlink('/proc/self/' + _NAMESPACE)
