# SPDX-License-Identifier: Apache-2.0
"""The tiny entry point that ``nova-compute`` loads on every start.

Nova has no plug point for a compute plugin.  Its ``main()`` does load every
entry point of the ``os_vif`` namespace, in no other Nova service, after the
configuration and logging are ready and before the manager is imported.  This
module is that entry point: standard library only at import, because an import
error here would be swallowed, and nothing of ours besides when disabled.
"""

from __future__ import annotations

import sys
from typing import Any

GROUP = 'bdm_cleanup'


def enabled_option() -> Any:
    """``[bdm_cleanup] enabled``, which is read before all others."""
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


class Loader:
    """Looks like an os-vif plug-in; no VIF ever selects it."""

    @classmethod
    def load(cls, name: str) -> Loader:
        """Install the hook when this is nova-compute and it is enabled.

        :param name: the name of the entry point, given by os-vif
        :raises startup.StartRefused: when ``[bdm_cleanup] required`` is set
            and the plugin cannot work; nova-compute then does not start
        """
        # Zun, Kuryr and others on the same Python load this namespace too.
        if 'nova.cmd.compute' in sys.modules:
            from oslo_config import cfg

            conf = cfg.CONF
            conf.register_opt(enabled_option(), group=GROUP)
            try:
                enabled = conf[GROUP].enabled
            except cfg.Error:
                # Not a boolean: the full start-up names option and file.
                enabled = True
            if enabled:
                from nova_bdm_cleanup.plugin import startup

                startup.start(conf)
        return cls()

    def describe(self) -> Any:
        """Nothing to plug; ``os_vif.host_info()`` asks every plug-in."""
        import os_vif.objects.host_info as host_info

        return host_info.HostPluginInfo(plugin_name=GROUP, vif_info=[])
