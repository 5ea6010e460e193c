# SPDX-License-Identifier: Apache-2.0
"""What the hypervisor says about a guest, and its definition."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from nova import exception
from nova.compute import power_state
from nova.virt.libvirt.config import LibvirtConfigGuest, LibvirtConfigGuestDisk
from nova.virt.libvirt.driver import LibvirtDriver

from nova_bdm_cleanup.rules import spelling


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


def undefine_disk(driver: Any, instance: Any, volume_id: str, device: str,
                  path: str | None, others: Collection[str]) -> None:
    """Take the disk of a volume out of the definition of a guest that is off.

    Only libvirt's driver keeps one.  Nova reads it when it resizes a server,
    and takes a disk in it that has no mapping for one of its own.

    :param device: the name of the disk in the guest, without ``/dev/``
    :param path: of its device on this host, if Nova knows one
    :param others: the names of the server's other volumes
    """
    if not isinstance(driver, LibvirtDriver):
        return
    try:
        guest = driver._host.get_guest(instance)
    except exception.InstanceNotFound:
        return
    # Not get_all_devices(), which has none of a guest that cannot be read.
    definition = LibvirtConfigGuest()
    definition.parse_str(guest.get_xml_desc(dump_inactive=True))
    for disk in definition.devices:
        if (isinstance(disk, LibvirtConfigGuestDisk)
                and spelling.device(disk.target_dev) not in others
                # After a swap of volumes it has the serial of the first one,
                # and a LUN that is passed through has none.
                and (spelling.optional(disk.serial) == volume_id
                     or path and disk.source_path == path
                     and spelling.device(disk.target_dev) == device)):
            guest.detach_device(disk, persistent=True)
