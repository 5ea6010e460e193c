# SPDX-License-Identifier: Apache-2.0
"""Stop nova-compute at one exact point: a hook of the tests.

Python imports this module at its start when its directory is on PYTHONPATH.
The tests put it there for one nova-compute at a time; the product does not
know it.  The environment says where and how:

``E2E_POINT``
    ``module:Class.method:before`` or ``...:after``
``E2E_ACTION``
    ``kill``: SIGKILL to this process.  ``fail``: raise an error.  ``pause``:
    make the file ``reached`` in ``E2E_SIGNALS`` and wait until the file ``go``
    is there.

Only the standard library may be imported here, and little of it: Nova has
not yet been able to patch it for eventlet.
"""

from __future__ import annotations

import functools
from importlib import machinery
import os
import types
from typing import Any


def _reached(action: str, signals: str) -> None:
    if action == 'kill':
        os.kill(os.getpid(), 9)
    if action == 'fail':
        raise RuntimeError('the end-to-end tests have this fail')
    import time  # already patched, so other green threads go on
    with open(os.path.join(signals, 'reached'), 'w'):
        pass
    while not os.path.exists(os.path.join(signals, 'go')):
        time.sleep(0.1)


def _wrap(module: object, path: str, when: str, action: str,
          signals: str) -> None:
    owner_name, name = path.split('.')
    owner = getattr(module, owner_name)
    original = getattr(owner, name)
    used = False

    def stop() -> None:
        nonlocal used
        if not used:
            used = True
            _reached(action, signals)

    @functools.wraps(original)
    def wrapper(*args: object, **kwargs: object) -> object:
        if when == 'before':
            stop()
        try:
            return original(*args, **kwargs)
        finally:
            if when == 'after':
                stop()

    setattr(owner, name, wrapper)


def _command_line() -> str:
    # sys.argv does not exist yet when Python imports this module.
    with open('/proc/self/cmdline') as stream:
        return stream.read()


def _install() -> None:
    point = os.environ.get('E2E_POINT')
    # The privileged helpers of nova-compute inherit its environment.
    if not point or 'bin/nova-compute' not in _command_line():
        return
    wanted, path, when = point.split(':')
    action = os.environ['E2E_ACTION']
    signals = os.environ.get('E2E_SIGNALS', '')
    execute = machinery.SourceFileLoader.exec_module

    def exec_module(loader: Any, module: types.ModuleType) -> None:
        execute(loader, module)
        if module.__name__ == wanted:
            _wrap(module, path, when, action, signals)

    loader_type: Any = machinery.SourceFileLoader
    loader_type.exec_module = exec_module


_install()
