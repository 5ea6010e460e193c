# SPDX-License-Identifier: Apache-2.0
"""The hooks on the ends of live migrations that have failed, on the source."""

from __future__ import annotations

from nova_bdm_cleanup.node import adoption
from nova_bdm_cleanup.node.hooks.operation import boot_of_this_thread
from nova_bdm_cleanup.node.hooks.wrapping import NovaCall


def adopt(call: NovaCall) -> None:
    """Adopt the disks of a guest whose live migration was rolled back.

    While nova-compute starts, it is left for the end of the start.
    """
    boot = boot_of_this_thread()
    if boot is not None:
        boot.given_up.append(call.instance.uuid)
    else:
        adoption.follow(call.manager, [call.instance.uuid])
