# SPDX-License-Identifier: Apache-2.0
"""open-iscsi's records of targets, which one process at a time may change.

On a host os-brick's lock ensures that.  Here each case has its own lock path:
with a shared one, a case that flushes for a minute would block all others.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import fcntl
import pathlib

from e2e.devices import kernel

#: open-iscsi's discovery records, a directory for each portal.
_DISCOVERED = pathlib.Path('/etc/iscsi/send_targets')


@contextlib.contextmanager
def changing() -> Iterator[None]:
    """Hold the lock while ``iscsiadm`` changes a record."""
    with open('/run/iscsi-records.lock', 'w') as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def forget_discoveries() -> None:
    """Delete open-iscsi's discovery records, as on a new host."""
    for path in _DISCOVERED.glob('*'):
        with changing():
            kernel.run('iscsiadm', '-m', 'discoverydb', '-t', 'sendtargets',
                       '-p', path.name.replace(',', ':'), '-o', 'delete')
