# SPDX-License-Identifier: Apache-2.0
"""Says in the store that the plugin is in this process, or was refused."""

from __future__ import annotations

from collections.abc import Sequence
import os
import time
from typing import Any

from nova import version as nova_version
from oslo_config import cfg
from oslo_log import log as logging

from nova_bdm_cleanup import VERSION
from nova_bdm_cleanup.plugin import options
from nova_bdm_cleanup.store.database import StoreError
from nova_bdm_cleanup.store.processes import Process, Processes

LOG = logging.getLogger(__name__)


def record(conf: cfg.ConfigOpts, triggers: Sequence[str],
           problem: str = '') -> Process:
    """For ``nova-bdm-cleanup status``.

    :param triggers: the names of those that are installed
    :param problem: why nothing is installed; empty: it is
    :returns: what was recorded
    """
    facts: dict[str, Any] = {
        'version': VERSION,
        'nova_version': nova_version.version_string_with_package(),
        'triggers': ','.join(triggers)}
    if not problem:
        # Else they may be what is wrong.
        settings = options.settings(conf)
        facts.update(
            mode='observe' if settings.policy.observe else 'enforce',
            max_removals_per_hour=settings.policy.max_removals_per_hour,
            audit_interval=settings.audit_interval,
            sweep_stopped=settings.sweep_stopped)
    process = Process(host=conf.host, pid=os.getpid(), since=time.time(),
                      problem=problem, facts=facts)
    try:
        Processes(*options.store(conf), conf.host).started(process)
    except StoreError as exc:
        LOG.warning('bdm-cleanup: "nova-bdm-cleanup status" will not know '
                    'of this nova-compute: %s', exc)
    return process
