# SPDX-License-Identifier: Apache-2.0
"""Installation of the hooks on Nova's classes.

Nothing of Nova is copied.  The handlers of the triggers that are not selected
are not imported.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from nova.compute import manager as nova_manager
from nova.virt.libvirt import driver as libvirt_driver
from nova.volume import cinder as nova_cinder

from nova_bdm_cleanup.node.cleanup.triggers import Trigger
from nova_bdm_cleanup.node.hooks import requirements, table, wrapping

#: The methods as they were, by class and name.
_originals: dict[tuple[type, str], Any] = {}


def install(triggers: Collection[Trigger]) -> None:
    """Install the hooks of some triggers, unless hooks are installed."""
    if not is_installed():
        hooks = table.hooks_for(triggers, requirements.has_builtin())
        _originals.update(wrapping.wrap(
            _owners(), wrapping.wrappers_for(hooks, triggers)))


def is_installed() -> bool:
    """Return whether the hooks are installed."""
    return bool(_originals)


def uninstall() -> None:
    """Restore the original methods of the classes."""
    for (owner, name), original in _originals.items():
        setattr(owner, name, original)
    _originals.clear()


def _owners() -> Mapping[str, type]:
    """Return the classes that the table names."""
    return {table.MANAGER: nova_manager.ComputeManager,
            table.LIBVIRT: libvirt_driver.LibvirtDriver,
            table.VOLUME_API: nova_cinder.API}
