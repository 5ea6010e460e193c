# SPDX-License-Identifier: Apache-2.0
"""The hooks that have Placement show the mode of this nova-compute.

Nova keeps the traits of its resource provider that are not its own.  So a
trait outlives the plugin, unless the nova-compute that has set it removes it
when it stops: the next one may have the plugin off, refused or uninstalled.
"""

from __future__ import annotations

import threading
from typing import Any

from nova import context as nova_context
from oslo_log import log as logging

from nova_bdm_cleanup.node import instance_cleanup, shutdown
from nova_bdm_cleanup.node.cleanup.log_lines import masked
from nova_bdm_cleanup.node.hooks.wrapping import NovaCall
from nova_bdm_cleanup.openstack.traits import ENFORCE, OBSERVE

LOG = logging.getLogger(__name__)

#: Seconds that Nova waits at most: no timeout of its own is certain.
_PATIENCE = 5.0

#: The resource providers whose traits could not be set: it is logged once.
_failing: set[str] = set()


def show_mode(call: NovaCall) -> None:
    """Set the trait of the mode, if the compute node does not have it.

    Nova has just told Placement about the compute node, and knows its traits.
    It does so at its start and every minute; so this also follows a reload,
    and tries again after a failure.
    """
    manager, node = call.manager, call.arguments['nodename']
    tree = manager.rt.provider_tree
    if shutdown.has_begun(manager) or tree is None or not tree.exists(node):
        return
    provider = tree.data(node)
    wanted = {OBSERVE if instance_cleanup.observes() else ENFORCE}
    if provider.traits & {OBSERVE, ENFORCE} != wanted:
        _replace(manager, provider.uuid, wanted)


def hide_mode(call: NovaCall) -> None:
    """Remove the trait of the mode: this nova-compute stops."""
    for node in call.manager.rt.compute_nodes.values():
        _replace(call.manager, node.uuid, set())


def _replace(manager: Any, provider: str, wanted: set[str]) -> None:
    """Replace the traits of the plugin, and wait for that, but not long."""
    thread = threading.Thread(
        target=_try_to_replace, args=(manager.reportclient, provider, wanted),
        name='bdm-cleanup', daemon=True)
    thread.start()
    thread.join(_PATIENCE)


def _try_to_replace(client: Any, provider: str, wanted: set[str]) -> None:
    context = nova_context.get_admin_context()
    try:
        found = client.get_provider_traits(context, provider)
        traits = found.traits - {OBSERVE, ENFORCE} | wanted
        if traits != found.traits:
            client.set_traits_for_provider(
                context, provider, traits, generation=found.generation)
        _failing.discard(provider)
        return
    except Exception as exc:
        failure = masked(exc)
    if provider not in _failing:
        LOG.warning(
            'bdm-cleanup: Placement does not show the mode of this host, and '
            '"openstack bdm clean" goes by that: %s', failure)
    _failing.add(provider)
