# SPDX-License-Identifier: Apache-2.0
"""nova-compute with the plugin, started for real without a message bus.

Run by test_loading in a process of its own, since the imports take seconds.
For each line on its standard input, a directory with a nova.conf and
optionally a change of Nova, it forks a nova-compute and prints its exit code.
The fork runs all of ``nova.cmd.compute.main()`` except the wait for a
conductor and for Placement, builds the manager, and writes its findings to a
file in the directory.
"""

from __future__ import annotations

# Before they are patched: nothing else runs in the process that forks.
from os import fork  # isort: skip
from os import waitpid  # isort: skip
# As the nova-compute command does: it may monkey patch first of all.
from nova.cmd import compute  # isort: skip

from collections.abc import Callable
import functools
import importlib
import inspect
import json
import logging
import os
import sys
import traceback
from typing import Any

from nova import manager as base
from nova.conductor import api as conductor
from nova.scheduler.client import report
from oslo_config import cfg


def _report(instance: Any, *args: Any, **kwargs: Any) -> None:
    """Replace the constructor that all managers share."""
    methods = vars(type(instance))
    # As every service does before it accepts requests.
    cfg.CONF.log_opt_values(logging.getLogger(__name__), logging.DEBUG)
    print(json.dumps({
        'modules': sorted(name for name in sys.modules
                          if name.split('.')[0] == 'nova_bdm_cleanup'),
        # A wrapper has the module of the wrapped function.
        'wrapped': sorted(name for name, method in methods.items()
                          if inspect.isfunction(method)
                          and hasattr(method, '__wrapped__')
                          and 'nova_bdm_cleanup/node/'
                          in method.__code__.co_filename)}),
        flush=True)
    # No cleanup is needed.
    os._exit(0)


def _remove_name() -> None:
    """Remove a name from Nova that the plugin requires."""
    from nova.compute import task_states

    del task_states.REBOOT_PENDING


def _add_parameter(name: str) -> None:
    """Add a parameter unknown to the plugin to a method of Nova."""
    from nova.compute import manager

    def method(*args: Any) -> None:
        pass

    known = inspect.signature(getattr(manager.ComputeManager, name))
    new_parameter = inspect.Parameter(
        'new_parameter', inspect.Parameter.POSITIONAL_OR_KEYWORD)
    method.__signature__ = known.replace(  # type: ignore[attr-defined]
        parameters=[*known.parameters.values(), new_parameter])
    setattr(manager.ComputeManager, name, method)


CHANGES: dict[str, Callable[[], None]] = {
    'name': _remove_name,
    'signature': functools.partial(_add_parameter, '_reboot_instance'),
    'start': functools.partial(_add_parameter, '_power_on')}


def _start(directory: str, change: str = '') -> None:
    """Run as a nova-compute until the process ends."""
    os.chdir(directory)
    for number, name in ((1, 'stdout'), (2, 'stderr')):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.argv[1:] = ['--config-file', 'nova.conf']
    if change:
        CHANGES[change]()
    # There is no Placement either.
    report.SchedulerReportClient._create_client = lambda self: None
    conductor.API.wait_until_ready = lambda *args, **kwargs: None
    base.Manager.__init__ = _report
    code: Any = 1
    try:
        compute.main()
    except SystemExit as exc:
        code = exc.code
    except BaseException:
        traceback.print_exc()
    os._exit(code if isinstance(code, int) else 1)


def main() -> None:
    # Nova imports them together with its manager: once for all forks.
    for name in ('cinderclient.client', 'neutronclient.v2_0.client',
                 'paramiko'):
        importlib.import_module(name)
    for line in sys.stdin:
        child = fork()
        if not child:
            _start(*json.loads(line))
        print(os.waitstatus_to_exitcode(waitpid(child, 0)[1]), flush=True)


if __name__ == '__main__':
    main()
