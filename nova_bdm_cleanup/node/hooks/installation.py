# SPDX-License-Identifier: Apache-2.0
"""Installation of the hooks on Nova's ``ComputeManager``.

Nothing of Nova is copied.  The handlers of the triggers that are not selected
are not imported.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from nova.compute import manager as nova_manager

from nova_bdm_cleanup.node.cleanup.triggers import Trigger
from nova_bdm_cleanup.node.hooks import requirements, table, wrapping

_originals: dict[str, Any] = {}


def install(triggers: Collection[Trigger]) -> None:
    """Install the hooks of some triggers, unless hooks are installed."""
    if not is_installed():
        hooks = table.hooks_for(triggers, requirements.has_builtin())
        _originals.update(wrapping.wrap(
            nova_manager.ComputeManager,
            wrapping.wrappers_for(hooks, triggers)))


def is_installed() -> bool:
    """Return whether the hooks are installed."""
    return bool(_originals)


def uninstall() -> None:
    """Restore the original methods of the class."""
    for name, original in _originals.items():
        setattr(nova_manager.ComputeManager, name, original)
    _originals.clear()
