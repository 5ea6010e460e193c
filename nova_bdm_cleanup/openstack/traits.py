# SPDX-License-Identifier: Apache-2.0
"""The traits in Placement that say which compute nodes have the plugin.

nova-compute sets the one for its mode on the resource provider of its compute
node, and the commands read it.
"""

from __future__ import annotations

OBSERVE = 'CUSTOM_BDM_CLEANUP_OBSERVE'
ENFORCE = 'CUSTOM_BDM_CLEANUP_ENFORCE'
