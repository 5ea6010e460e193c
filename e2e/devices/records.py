# SPDX-License-Identifier: Apache-2.0
"""open-iscsi's records of targets, which one process at a time may change.

On a host the lock of os-brick sees to that.  Here each case has a lock path of
its own: one of them would have all others wait while it flushes for a minute.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import fcntl
import pathlib

from e2e.devices import kernel

#: Where open-iscsi keeps what it has discovered, a directory for each portal.
_DISCOVERED = pathlib.Path('/etc/iscsi/send_targets')


@contextlib.contextmanager
def changing() -> Iterator[None]:
    """Hold this while ``iscsiadm`` changes a record."""
    with open('/run/iscsi-records.lock', 'w') as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def forget_discoveries() -> None:
    """Have open-iscsi know of no discovery, as on a new host."""
    for path in _DISCOVERED.glob('*'):
        with changing():
            kernel.run('iscsiadm', '-m', 'discoverydb', '-t', 'sendtargets',
                       '-p', path.name.replace(',', ':'), '-o', 'delete')
