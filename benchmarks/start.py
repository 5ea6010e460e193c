# SPDX-License-Identifier: Apache-2.0
"""A nova-compute that goes as far as its manager and its virt driver.

Run by :mod:`benchmarks.loader` as a program, with the arguments of
nova-compute.  It ends where nova-compute would begin to wait for the
conductor, and prints what it took to get there as JSON.
"""

from __future__ import annotations

import gc
import json
import os
import re
import sys
import time
from typing import Any


def _arrive(*args: Any, **kwargs: Any) -> None:
    """Take the place of the function that makes the service."""
    # It would import these two next.
    import nova.compute.manager  # noqa: F401
    import nova.virt.libvirt.driver  # noqa: F401

    with open('/proc/self/status', encoding='ascii') as status:
        resident = re.search(r'VmRSS:\s+(\d+) kB', status.read())
    assert resident is not None
    ours = sorted(name for name in sys.modules
                  if name.partition('.')[0] == 'nova_bdm_cleanup')
    hook = sys.modules.get('nova_bdm_cleanup.node.hooks.hook')
    is_active = bool(hook and hook._replaced)
    print(json.dumps({
        # Of the whole process, since its start.
        'seconds': time.process_time(),
        'modules': len(sys.modules), 'ours': ours,
        'mebibytes': int(resident.group(1)) / 1024,
        'is_active': is_active, 'alone': _load_again(ours)}), flush=True)
    os._exit(0)


def _load_again(ours: list[str]) -> float:
    """Load the plugin once more, now that all it needs of Nova is there.

    What two starts differ by is lost in what they vary by; and at the first
    time it imported what nova-compute would have imported a moment later.
    """
    if not ours:
        return 0.0
    hook = sys.modules.get('nova_bdm_cleanup.node.hooks.hook')
    if hook is not None:
        hook.uninstall()
    for name in ours:
        del sys.modules[name]
    # One of its rounds over all objects of Nova takes 120 ms; when it comes
    # is a matter of luck.
    gc.collect()
    gc.disable()
    begun = time.process_time()
    from nova_bdm_cleanup.node import loader

    loader.Loader.load('bdm_cleanup')
    return time.process_time() - begun


def main() -> None:
    import nova.cmd.compute

    # Imported by anybody else, nova.service would have brought eventlet.
    nova.cmd.compute.service.Service.create = _arrive
    nova.cmd.compute.main()


if __name__ == '__main__':
    main()
