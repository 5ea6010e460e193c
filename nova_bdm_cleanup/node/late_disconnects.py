# SPDX-License-Identifier: Apache-2.0
"""Disconnects that were suppressed, done at a later start of nova-compute.

By then the server that claimed the address may have left this host.  A
disconnect that was noted is done only if the host has not booted since, the
same device is still there, no other device is on top of it, and no server of
this host claims its address.  Otherwise the note is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable

from oslo_log import log as logging

from nova_bdm_cleanup.node import connections, devices
from nova_bdm_cleanup.node.cleanup.log_lines import masked
from nova_bdm_cleanup.node.store.disconnects import (
    Suppressed,
    SuppressedDisconnects,
)
from nova_bdm_cleanup.openstack.connection_info import addresses_in
from nova_bdm_cleanup.rules.facts import Address

LOG = logging.getLogger(__name__)


def carry_out(
        notes: SuppressedDisconnects,
        claimed: Callable[[frozenset[Address]], bool],
        disconnect: Callable[[Suppressed, Mapping[str, Any]], None],
        has_time: Callable[[], bool]) -> None:
    """Do what was suppressed in this boot of the host.

    A note whose disconnect fails, whose claims cannot be read, or for which no
    time is left, stays for the next start.

    :param claimed: returns whether a server claims one of some addresses
    :param disconnect: disconnects a disk by connection information with the
        targets that this host has
    :param has_time: returns whether to begin one more
    :raises StoreError: when the notes cannot be read or dropped
    """
    for note in notes.pending():
        if not has_time():
            break
        failure = ''
        try:
            obstacle = _carry_out(note, claimed, disconnect)
        except Exception as exc:
            failure = masked(exc)
        if failure:
            LOG.warning(
                'bdm-cleanup: the devices of volume %s, which server %s had, '
                'are not disconnected from this host yet: %s', note.volume,
                note.server, failure)
            continue
        notes.done(note)
        if obstacle:
            LOG.info(
                'bdm-cleanup: the devices of volume %s, which server %s had, '
                'stay on this host: %s', note.volume, note.server, obstacle)
        else:
            LOG.info(
                'bdm-cleanup: volume %s, which server %s had, is now '
                'disconnected from this host (%s)', note.volume, note.server,
                ', '.join(sorted(note.identities)))


def _carry_out(
        note: Suppressed, claimed: Callable[[frozenset[Address]], bool],
        disconnect: Callable[[Suppressed, Mapping[str, Any]], None]) -> str:
    """Disconnect a disk.

    :returns: why it is not disconnected; empty: it is
    """
    found = devices.unique_devices(note.connection_info)
    if devices.are_held(found.keys()):
        return 'another device is on top of them'
    if not found or not found.items() <= note.identities.items():
        return 'they are gone, or are those of another volume'
    addresses = addresses_in(note.connection_info).union(
        *map(devices.device_addresses, found))
    narrowed = devices.narrow_connection_info(
        note.connection_info, found.keys())
    with connections.disconnecting(addresses):
        if claimed(addresses):
            return 'another server has their address'
        if narrowed is not None:
            disconnect(note, narrowed)
    left = {name for name, identity in devices.unique_devices(
                note.connection_info).items() if found.get(name) == identity}
    if left:
        raise RuntimeError(devices.removal_advice(left, found))
    return ''
