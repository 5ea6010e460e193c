# SPDX-License-Identifier: Apache-2.0
"""The guests of this host, and the disks that they have.

A guest counts from the moment at which libvirt runs its domain, also one that
is paused or that a migration brings, until it is off.  A suspended guest is
off: its domain has names of devices, which are those of other devices since
the host was booted.  The rows of its server claim its disks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from nova import exception
from nova.virt.libvirt import host as libvirt_host
from nova.virt.libvirt.driver import LibvirtDriver
from oslo_log import log as logging

from nova_bdm_cleanup.node import devices
from nova_bdm_cleanup.node.cleanup.log_lines import masked
from nova_bdm_cleanup.rules import spelling
from nova_bdm_cleanup.rules.facts import Address, Source

LOG = logging.getLogger(__name__)


class Domain(NamedTuple):
    """An active domain of libvirt: it has its disks open."""

    #: Its uuid, which is that of the server; another's domain has any.
    server: str
    addresses: frozenset[Address]


def is_libvirt(driver: Any) -> bool:
    """Return whether Nova's virt driver is that of libvirt."""
    return isinstance(driver, LibvirtDriver)


def domains(driver: Any) -> tuple[Domain, ...]:
    """Return the active domains; none if the host has another hypervisor.

    :raises Exception: when libvirt does not answer
    """
    if not is_libvirt(driver):
        return ()
    try:
        return _all_of_libvirt(driver._host)
    except Exception as exc:
        failure = masked(exc)
    # After a restart of its daemon Nova connects again only now; and what is
    # not known would cost a server all its disks.
    LOG.debug('The hypervisor is asked once more: %s', failure)
    return _all_of_libvirt(driver._host)


def serials(driver: Any, instance: Any) -> frozenset[str] | None:
    """Return the volumes that the guest of an instance has, by the serials of
    its disks; None: its guest is not defined here, and may be elsewhere.

    :raises Exception: when the hypervisor does not tell
    """
    if not is_libvirt(driver):
        raise NotImplementedError('the disks of a guest of this hypervisor '
                                  'are not known')
    try:
        guest = driver._host.get_guest(instance)
    except exception.InstanceNotFound:
        return None
    return devices.serials_in_domain(guest._domain.XMLDesc(0))


def sources(driver: Any, instance: Any) -> Mapping[str, Source]:
    """Return the sources of the disks of an instance's guest, by the name of
    the device in it; none if it is not known here.

    A guest that is off had them when it was last on: each change of a guest is
    one of its definition, too.

    :raises Exception: when the hypervisor does not tell
    """
    if not is_libvirt(driver):
        return {}
    try:
        return _sources_of_libvirt(driver._host, instance)
    except Exception as exc:
        failure = masked(exc)
    # As above: the guest is not started without a disk for this.
    LOG.debug('The hypervisor is asked once more: %s', failure)
    return _sources_of_libvirt(driver._host, instance)


def _sources_of_libvirt(host: libvirt_host.Host,
                        instance: Any) -> Mapping[str, Source]:
    try:
        guest = host.get_guest(instance)
    except exception.InstanceNotFound:
        return {}
    return devices.sources_in_domain(
        guest._domain.XMLDesc(0), bool(guest.is_active()))


def _all_of_libvirt(host: libvirt_host.Host) -> tuple[Domain, ...]:
    found = map(_of_libvirt, host.list_instance_domains(only_running=True))
    return tuple(domain for domain in found if domain is not None)


def _of_libvirt(domain: Any) -> Domain | None:
    """Return a domain of libvirt; None if it has gone."""
    try:
        xml = domain.XMLDesc(0)
    except libvirt_host.libvirt.libvirtError as exc:
        if exc.get_error_code() != libvirt_host.libvirt.VIR_ERR_NO_DOMAIN:
            raise
        return None
    return Domain(spelling.identifier(domain.UUIDString()),
                  devices.addresses_in_domain(xml))
