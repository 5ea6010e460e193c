# SPDX-License-Identifier: Apache-2.0
"""The tiny entry point that ``nova-compute`` loads on every start.

Nova has no plug point for a compute plugin.  But the ``main()`` of
nova-compute, and of no other Nova service, loads every entry point of the
``os_vif`` namespace, after the configuration and logging are ready and before
the manager is imported.  This module is such an entry point.  os-vif would
swallow an import error, so it imports only the standard library and the group
of the options; if the plugin is off, nothing else of it is imported.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from nova_bdm_cleanup.node.option_group import (
    ENVIRONMENT_PREFIX,
    GROUP,
    mode_option,
)


class Loader:
    """An os-vif plug-in that no VIF ever selects."""

    @classmethod
    def load(cls, name: str) -> Loader:
        """Install the hooks if this is nova-compute and the plugin is on.

        The start also checks whether everything in ``[bdm_cleanup]`` is valid:
        a typo in the name of ``mode`` must not go unnoticed.

        :param name: the name of the entry point, given by os-vif
        :raises startup.StartRefused: when ``[bdm_cleanup] required`` is set
            and the plugin cannot work; nova-compute then does not start
        """
        # Zun, Kuryr and others on the same Python load this namespace too.
        if 'nova.cmd.compute' in sys.modules:
            from oslo_config import cfg

            conf = cfg.CONF
            conf.register_opt(mode_option(), group=GROUP)
            try:
                is_written = (
                    GROUP in map(str.lower, conf.list_all_sections())
                    or any(name.startswith(ENVIRONMENT_PREFIX)
                           for name in os.environ)
                    # Set by another source of oslo.config.
                    or conf[GROUP].mode != 'off')
            except cfg.Error:
                # The start reports the value.
                is_written = True
            if is_written:
                from nova_bdm_cleanup.node import startup

                startup.start(conf)
        return cls()

    def describe(self) -> Any:
        """Return a description without VIFs, which ``host_info()`` needs."""
        import os_vif.objects.host_info as host_info

        return host_info.HostPluginInfo(plugin_name=GROUP, vif_info=[])
