# SPDX-License-Identifier: Apache-2.0
"""The graceful shutdown of nova-compute.

Nova 34 waits in a shutdown for the tasks that its manager has recorded.  It
records the calls of its RPC methods, but not what it does at its start.  Other
releases neither record tasks nor show that a shutdown has begun.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import time
from typing import Any

#: The name of the task in the log of nova-compute.
_TASK = 'bdm_cleanup'


def has_begun(manager: Any) -> bool:
    """Return whether nova-compute is shutting down, as far as it shows it.

    :param manager: the ComputeManager
    """
    return (hasattr(manager, '_shutdown_in_progress')
            and bool(manager._shutdown_in_progress.is_set()))


def wait(manager: Any, seconds: float) -> None:
    """Wait, but no longer than until nova-compute shows that it shuts down.

    :param manager: the ComputeManager
    """
    if hasattr(manager, '_shutdown_in_progress'):
        manager._shutdown_in_progress.wait(seconds)
    else:
        time.sleep(seconds)


@contextlib.contextmanager
def recorded_task(manager: Any, instance: Any, request_id: str | None
                  ) -> Iterator[None]:
    """Record a task for which a shutdown waits, where Nova records tasks.

    :param manager: the ComputeManager
    :param instance: the Nova instance
    """
    if not hasattr(manager, '_record_task_start'):
        yield
        return
    key = manager._record_task_start(_TASK, instance.uuid, request_id)
    try:
        yield
    finally:
        manager._record_task_end(key)
