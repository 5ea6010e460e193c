# SPDX-License-Identifier: Apache-2.0
"""Nova-computes that start and end, played by the process of the test."""

from __future__ import annotations

import os
import time
from typing import Any

from nova_bdm_cleanup.node.store import processes
from nova_bdm_cleanup.node.store.processes import Process


def start(path: str, host: str = 'compute1', since: float | None = None,
          problem: str = '', **facts: Any) -> Process:
    """Start a nova-compute.

    :param path: of the store
    """
    process = Process(host, os.getpid(), time.time() if since is None
                      else since, problem, facts)
    processes.record(process, path)
    return process


def end(path: str, host: str = 'compute1') -> None:
    """End a nova-compute: the kernel closes its files."""
    os.close(processes._held_locks.pop('%s-%s.lock' % (path, host)))
