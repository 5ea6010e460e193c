# SPDX-License-Identifier: Apache-2.0
"""The record of this nova-compute in the store, for the status command."""

from __future__ import annotations

from collections.abc import Collection
import os
import time
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from nova_bdm_cleanup import VERSION
from nova_bdm_cleanup.node import options
from nova_bdm_cleanup.node.cleanup.log_lines import masked
from nova_bdm_cleanup.node.cleanup.triggers import Trigger
from nova_bdm_cleanup.node.option_group import GROUP
from nova_bdm_cleanup.node.store import processes
from nova_bdm_cleanup.node.store.database import StoreError
from nova_bdm_cleanup.node.store.processes import Process

LOG = logging.getLogger(__name__)


def record(conf: cfg.ConfigOpts, triggers: Collection[Trigger],
           problem: str = '') -> Process:
    """Record that the plugin is in this process, or was refused.

    :param triggers: the triggers whose hooks are installed
    :param problem: why nothing is installed; empty: it is
    :returns: the record
    """
    from nova import version as nova_version

    facts: dict[str, Any] = {
        'version': VERSION,
        'nova_version': nova_version.version_string_with_package(),
        'triggers': ','.join(options.words_for(triggers))}
    if not problem:
        # Otherwise their values may be the problem.
        facts.update((name, conf[GROUP][name]) for name in (
            'mode', 'max_removals_per_hour', 'audit_interval'))
    process = Process(host=conf.host, pid=os.getpid(), since=time.time(),
                      problem=problem, facts=facts)
    try:
        processes.record(process, conf[GROUP].store)
        return process
    except StoreError as exc:
        failure = masked(exc)
    LOG.warning('bdm-cleanup: "nova-bdm-cleanup status" will not show this '
                'nova-compute: %s', failure)
    return process
