# SPDX-License-Identifier: Apache-2.0
"""The group ``[bdm_cleanup]`` and its option ``mode``.

The entry point needs no other options.  Like it, this module imports only the
standard library.
"""

from __future__ import annotations

from typing import Any

GROUP = 'bdm_cleanup'

#: The prefix of the environment variables from which oslo.config reads values
#: of the options.
ENVIRONMENT_PREFIX = 'OS_BDM_CLEANUP__'


def mode_option() -> Any:
    """Return ``[bdm_cleanup] mode``, which is read before all others."""
    from oslo_config import cfg

    return cfg.StrOpt(
        'mode',
        default='off',
        choices=[
            ('off', 'Do nothing in nova-compute.'),
            ('observe', 'Look and log only. Nova works as without the '
                        'plugin.'),
            ('enforce', 'Remove dangling mappings and stale attachments, and '
                        'reconnect half attached disks.'),
        ],
        help="""
What the plugin does with dangling block device mappings, stale attachments and
half attached disks in a hard reboot of a server, and in the other operations
that ``triggers`` names.

``observe`` and ``enforce`` need credentials in ``[cinder]`` that see every
project.

Start with ``observe`` to read in the log what would be done, then change to
``enforce``. Restart nova-compute after changing it.
""")
