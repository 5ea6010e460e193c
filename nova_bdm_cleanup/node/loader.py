# SPDX-License-Identifier: Apache-2.0
"""The tiny entry point that ``nova-compute`` loads on every start.

Nova has no plug point for a compute plugin.  Its ``main()`` does load every
entry point of the ``os_vif`` namespace, in no other Nova service, after the
configuration and logging are ready and before the manager is imported.  This
module is that entry point: standard library only at import, because an import
error here would be swallowed, and nothing of ours besides when it is off.
"""

from __future__ import annotations

import os
import sys
from typing import Any

GROUP = 'bdm_cleanup'

#: The beginning of the environment variables that oslo.config reads values of
#: the options from.
ENVIRONMENT = 'OS_BDM_CLEANUP__'


def mode_option() -> Any:
    """``[bdm_cleanup] mode``, which is read before all others."""
    from oslo_config import cfg

    return cfg.StrOpt(
        'mode',
        default='off',
        choices=[
            ('off', 'Do nothing in nova-compute.'),
            ('observe', 'Look and log only. Nova does what it does without '
                        'the plugin.'),
            ('enforce', 'Remove what is dangling.'),
        ],
        help="""
What the plugin does with dangling block device mappings and stale attachments,
when a server is rebooted hard and at the other moments that ``triggers``
names.

Start with ``observe`` to read in the log what would be removed, then change to
``enforce``. Restart nova-compute after changing it.
""")


class Loader:
    """Looks like an os-vif plug-in; no VIF ever selects it."""

    @classmethod
    def load(cls, name: str) -> Loader:
        """Install the hook when this is nova-compute and it is not off.

        The start also looks whether all that is written for the plugin is
        valid: a typo in the name of ``mode`` must not go unnoticed.

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
                    or any(name.startswith(ENVIRONMENT) for name in os.environ)
                    # By whatever else oslo.config reads.
                    or conf[GROUP].mode != 'off')
            except cfg.Error:
                # The start names the value.
                is_written = True
            if is_written:
                from nova_bdm_cleanup.node import startup

                startup.start(conf)
        return cls()

    def describe(self) -> Any:
        """Nothing to plug; ``os_vif.host_info()`` asks every plug-in."""
        import os_vif.objects.host_info as host_info

        return host_info.HostPluginInfo(plugin_name=GROUP, vif_info=[])
