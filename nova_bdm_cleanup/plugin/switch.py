# SPDX-License-Identifier: Apache-2.0
"""The one option that is read before anything else is imported.

Both the entry point and the options take it from here.  Standard library only
at import, as in the entry point itself.
"""

from __future__ import annotations

from typing import Any

GROUP = 'bdm_cleanup'


def enabled_option() -> Any:
    """``[bdm_cleanup] enabled``."""
    from oslo_config import cfg

    return cfg.BoolOpt(
        'enabled',
        default=False,
        help="""
Clean up dangling block device mappings when a server is rebooted hard or
started (see ``triggers``).

The package does nothing in nova-compute until this is set. Restart
nova-compute after changing it.
""")
