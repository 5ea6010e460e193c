# SPDX-License-Identifier: Apache-2.0
"""The steps of a nova-compute that change something; it can be killed between
any two of them.
"""

from __future__ import annotations

from collections.abc import Callable
import contextlib
import os
import pathlib
import signal
from typing import Any
from unittest import mock

from cinderclient import client as cinderclient
from nova import objects
from oslo_concurrency import processutils

from e2e.devices import fakes, records

#: The commands that only read, or whose loss has no effect.
_READ_ONLY = ('discovery', '--show', 'session', 'is_luks', 'isLuks', 'list',
              '-ll', '--op new', '--op update', 'scsi_id', 'show', '-C')


class Steps:
    """A log of the steps, each written before it is done, with an optional
    kill before one of them.

    :param path: the file of the names of the steps
    :param kill_before: the number of steps before the kill; None: no kill
    """

    def __init__(self, path: pathlib.Path,
                 kill_before: int | None = None) -> None:
        self._path = path
        self._left = kill_before
        self._is_recording = False

    def watch(self) -> None:
        """Start the log, for the rest of this process."""
        domain, mapping = fakes.libvirt.Domain, objects.BlockDeviceMapping
        self._wrap(domain, 'destroy', lambda *_, **__: 'guest off')
        self._wrap(domain, 'createWithFlags', lambda *_, **__: 'guest on')
        self._wrap(mapping, 'destroy', lambda *_, **__: 'row deleted')
        self._wrap(cinderclient.SessionClient, 'request', _request)
        self._wrap(processutils, 'execute', _command)
        _serialize_record_changes()
        from nova.compute import manager
        self._wrap_cleanup(manager.ComputeManager, '_delete_dangling_bdms')

    def _wrap_cleanup(self, owner: Any, name: str) -> None:
        """Count only the steps of the cleanup, and the first after it."""
        original = getattr(owner, name)

        def cleaning(*args: Any, **kwargs: Any) -> Any:
            self._is_recording = True
            try:
                return original(*args, **kwargs)
            finally:
                self._record('end of the cleanup')
                self._is_recording = False

        mock.patch.object(owner, name, cleaning).start()

    def _wrap(self, owner: Any, name: str,
              name_of: Callable[..., str | None]) -> None:
        original = getattr(owner, name)

        def recorded(*args: Any, **kwargs: Any) -> Any:
            step = name_of(*args, **kwargs)
            if step and self._is_recording:
                self._record(step)
            return original(*args, **kwargs)

        mock.patch.object(owner, name, recorded).start()

    def _record(self, step: str) -> None:
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if self._left is not None:
            self._left -= 1
        with open(self._path, 'a') as file:
            file.write(step + '\n')


def _serialize_record_changes() -> None:
    execute = processutils.execute

    def serialized(*words: Any, **kwargs: Any) -> Any:
        with records.changing() if '--op' in words \
                else contextlib.nullcontext():
            return execute(*words, **kwargs)

    mock.patch.object(processutils, 'execute', serialized).start()


def _request(client: Any, url: str, method: str, *args: Any,
             **kwargs: Any) -> str | None:
    return None if method == 'GET' else f'Cinder: {method}'


def _command(*words: Any, **kwargs: Any) -> str | None:
    line = ' '.join(map(str, words))
    for prefix in ('env LC_ALL=C ', 'env '):
        line = line.removeprefix(prefix)
    program = os.path.basename(line.split()[0])
    if any(word in line for word in _READ_ONLY):
        return None
    if program == 'tee':
        return f'tee {os.path.basename(line.split()[-1])}'
    if program == 'iscsiadm':
        return ('logout' if '--logout' in line else
                'login' if '--login' in line else
                'delete node' if 'delete' in line else
                'rescan' if '--rescan' in line or '-R' in line else None)
    if program in ('blockdev', 'multipath', 'multipathd', 'cryptsetup',
                   'nvme', 'dmsetup'):
        return ' '.join([program, *line.split()[1:3]])
    return None
