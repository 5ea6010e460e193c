# SPDX-License-Identifier: Apache-2.0
"""The iSCSI sessions by which this host has a volume.

os-brick is told these, and nothing else.  Where a driver of Cinder names one
portal of several, os-brick would otherwise look the targets up in what
open-iscsi has discovered, and that may have been before the volume's target
was made, or after it was gone.

Other volumes need no such thing: for Fibre Channel and NVMe os-brick looks for
the volume's own addresses in the kernel, and asks nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
import itertools
import os
from typing import Any

from nova_bdm_cleanup.node import devices

_KINDS = ('iscsi', 'iser')

#: A portal, the name of a target, and the number of a unit.
Target = tuple[str, str, Any]


def narrowed(connection_info: Mapping[str, Any],
             found: Set[str]) -> dict[str, Any] | None:
    """What the driver has to be told to disconnect what is here.

    :param connection_info: as Nova keeps it
    :param found: the volume's devices, as :func:`devices.found_for` tells them
    :returns: a copy of it, with the volume's own targets that this host has;
        None when it has neither a session nor a device of the volume
    """
    data = connection_info.get('data')
    if (connection_info.get('driver_volume_type') not in _KINDS
            or not isinstance(data, dict)):
        return dict(connection_info)
    told = _told(data)
    if not told or not devices.listed('class', 'block'):
        # Whatever is wrong with it, os-brick is as likely to get over it.
        return dict(connection_info)
    live = _live(told, found)
    if not live and not found:
        return None
    portals, names, units = zip(*(live or told))
    own = dict(data, target_portals=list(portals), target_iqns=list(names),
               target_luns=list(units))
    if _is_of_another(data.get('device_path'), found):
        # An encrypted disk is closed by this name.
        del own['device_path']
    return dict(connection_info, data=own)


def _told(data: Mapping[str, Any]) -> list[Target]:
    """The targets that the connection information names itself."""
    portals, names = data.get('target_portals'), data.get('target_iqns')
    unit = data.get('target_lun', 0)
    if portals and names:
        return list(zip(portals, names,
                        data.get('target_luns') or itertools.repeat(unit)))
    if data.get('target_portal') and data.get('target_iqn'):
        return [(data['target_portal'], data['target_iqn'], unit)]
    return []


def _live(told: list[Target], found: Set[str]) -> list[Target]:
    """The targets of a volume that this host has sessions of.

    Also at other portals than the volume's, and other targets that are paths
    of its multipath device: a discovery found them when it was connected.
    """
    paths = {address for device in found
             for address in devices.addresses_of(device)}
    live: list[Target] = []
    for session in sorted(devices.listed('class', 'iscsi_session')):
        name = devices.read('class', 'iscsi_session', session, 'targetname')
        if not name:
            continue
        own = [target for target in told
               if target[1].lower() == name.lower()]
        units = [unit for _, _, unit in own] or [
            unit for _, _, unit in told if (name.lower(), str(unit)) in paths]
        portals = _portals(session) or [portal for portal, _, _ in own]
        live += [(portal, name, unit) for portal in portals
                 for unit in dict.fromkeys(units)]
    return live


def _portals(session: str) -> list[str]:
    """Where a session is connected to, as iscsiadm writes it."""
    found = []
    for connection in sorted(devices.listed('class', 'iscsi_connection')):
        if connection.partition(':')[0] == session.replace(
                'session', 'connection'):
            address, port = (
                devices.read('class', 'iscsi_connection', connection,
                             'persistent_' + part)
                for part in ('address', 'port'))
            if address and port:
                found.append('%s:%s' % (
                    address if '.' in address else '[%s]' % address, port))
    return found


def _is_of_another(path: str | None, found: Set[str]) -> bool:
    """Whether the path of a device names one that is not the volume's."""
    name = os.path.basename(os.path.realpath(path or ''))
    return bool(path) and name not in found and os.path.exists(
        devices.path_of('class', 'block', name))
