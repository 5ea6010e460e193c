# SPDX-License-Identifier: Apache-2.0
"""State of a guest, by the hypervisor."""

from __future__ import annotations

from typing import Any

from nova import exception
from nova.compute import power_state
from nova.virt.libvirt.driver import LibvirtDriver


def is_off(driver: Any, instance: Any) -> bool:
    """Whether a guest is off, proved by the hypervisor.

    A crashed guest, or one that is just shutting down, still has its disks
    open: Nova's words for the states of libvirt do not tell these apart.
    """
    try:
        if isinstance(driver, LibvirtDriver):
            return not driver._host.get_guest(instance).is_active()
        state = driver.get_info(instance, use_cache=False).state
        return bool(state == power_state.SHUTDOWN)
    except exception.InstanceNotFound:
        return True
