# SPDX-License-Identifier: Apache-2.0
"""A nova-compute that stops where it would wait for the conductor.

Run by :mod:`benchmarks.loader` as a program, with the arguments of
nova-compute.  It prints as JSON what its start took until its manager and its
virt driver were imported.
"""

from __future__ import annotations

import gc
import inspect
import json
import os
import re
import sys
import time


class Clock:
    """The time of a process without its garbage collection.

    A collection over all objects of Nova takes 120 ms; when it happens is
    chance, and would hide what the plugin takes.

    :param began: ``time.monotonic()`` when the process was started
    """

    def __init__(self, began: float) -> None:
        self._began = began
        self._collecting = (0.0, 0.0)
        self._wall = self._cpu = 0.0
        gc.callbacks.append(self._note)

    def _note(self, phase: str, _info: dict[str, int]) -> None:
        now = time.monotonic(), time.process_time()
        if phase == 'start':
            self._collecting = now
        else:
            self._wall += now[0] - self._collecting[0]
            self._cpu += now[1] - self._collecting[1]

    def read(self) -> dict[str, float]:
        """Return wall and CPU seconds since the process was started."""
        return {'wall': time.monotonic() - self._began - self._wall,
                'cpu': time.process_time() - self._cpu}


def _finish(clock: Clock) -> None:
    """Print the measurements and end the process."""
    # The next two imports of nova-compute.
    from nova.compute import manager
    import nova.virt.libvirt.driver  # noqa: F401

    start = clock.read()
    ours = sorted(name for name in sys.modules
                  if name.partition('.')[0] == 'nova_bdm_cleanup')
    print(json.dumps({
        **start, 'mebibytes': _resident(), 'is_installed': bool(ours),
        'is_active': any(
            '/nova_bdm_cleanup/' in method.__code__.co_filename
            for method in vars(manager.ComputeManager).values()
            if inspect.isfunction(method)),
        'load': _load_again(ours)}), flush=True)
    os._exit(0)


def _resident() -> float:
    """Return the resident memory of this process in MiB."""
    with open('/proc/self/status', encoding='ascii') as status:
        found = re.search(r'VmRSS:\s+(\d+) kB', status.read())
    assert found is not None
    return int(found.group(1)) / 1024


def _load_again(ours: list[str]) -> dict[str, float]:
    """Load the plugin once more and return the seconds that it takes.

    The difference of two starts is small beside the variation of both; and
    the first time the plugin imports modules of Nova that nova-compute would
    import a moment later.
    """
    if not ours:
        return {'wall': 0.0, 'cpu': 0.0}
    for name in ours:
        uninstall = getattr(sys.modules[name], 'uninstall', None)
        if uninstall is not None:
            uninstall()
    for name in ours:
        del sys.modules[name]
    clock = Clock(time.monotonic())
    cpu = clock.read()['cpu']
    from nova_bdm_cleanup.node import loader

    loader.Loader.load('bdm_cleanup')
    now = clock.read()
    return {'wall': now['wall'], 'cpu': now['cpu'] - cpu}


def main() -> None:
    clock = Clock(float(os.environ['BDM_CLEANUP_BENCHMARK_BEGAN']))
    import nova.cmd.compute

    # Imported by another module, nova.service would have imported eventlet.
    nova.cmd.compute.service.Service.create = (
        lambda *args, **kwargs: _finish(clock))
    nova.cmd.compute.main()


if __name__ == '__main__':
    main()
