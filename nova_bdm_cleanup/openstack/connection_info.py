# SPDX-License-Identifier: Apache-2.0
"""Connection information: what a driver of Cinder gave to connect a volume.

Nova keeps it in its rows, and Cinder in its attachments.  It holds secrets, so
the rules, the log and the journal get nothing of it but the addresses.

Addresses are compared in one spelling: os-brick rewrites those of Fibre
Channel in Nova's row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
import itertools
import json
import re
from typing import Any

from nova_bdm_cleanup.rules.facts import Address

#: The keys of iSCSI, Fibre Channel and NVMe drivers for the target and the
#: unit behind it; first those with one value, then those with several.  Other
#: drivers (RBD, NFS, ...) use names that are not reused.
_TARGET_KEYS = ('target_iqn', 'target_wwn', 'target_nqn', 'nqn')
_TARGETS_KEYS = ('target_iqns', 'target_wwns')
_UNIT_KEYS = ('target_lun', 'ns_id')
_UNITS_KEYS = ('target_luns',)

#: The kinds of back ends that name a volume by ``name``; libvirt has it as the
#: source of the disk, or as the name of its file.
_KINDS_WITH_NAME = ('rbd', 'nfs', 'smbfs', 'quobyte', 'vzstorage')

#: The name of a Fibre Channel port in any spelling.
_WWN = re.compile(r'(?:0x)?(?:[0-9a-f]{2}:?){7}[0-9a-f]{2}')


def parse_connection_info(text: str | None) -> dict[str, Any]:
    """Return the connection information of a BDM; empty when it has none.

    Nothing was connected with unreadable information: Nova itself fails on it
    or treats the volume as never connected.
    """
    try:
        connection_info = json.loads(text or '{}')
    except ValueError:
        return {}
    return connection_info if isinstance(connection_info, dict) else {}


def addresses_in(connection_info: Mapping[str, Any]) -> frozenset[Address]:
    """Return the addresses of a volume; empty where they cannot be reused.

    :param connection_info: as Nova keeps it, with the driver's part in "data"
    """
    data = connection_info.get('data')
    if not isinstance(data, dict):
        return frozenset()
    target, targets = (
        list(map(spelt, _values(data, keys)))
        for keys in (_TARGET_KEYS, _TARGETS_KEYS))
    unit, units = _values(data, _UNIT_KEYS), _values(data, _UNITS_KEYS)
    # Fibre Channel drivers also give a list where others give one target.
    return frozenset([
        *_pairs(target, units if units and len(target) > 1 else unit or units),
        *_pairs(targets, units or unit)])


def name_in(connection_info: Mapping[str, Any]) -> str | None:
    """Return the name by which a back end without addresses has a volume."""
    data = connection_info.get('data')
    name = data.get('name') if isinstance(data, dict) else None
    return name if isinstance(name, str) and name and (
        connection_info.get('driver_volume_type') in _KINDS_WITH_NAME
    ) else None


def path_in(connection_info: Mapping[str, Any]) -> str | None:
    """Return the device or the file of a volume on its host."""
    data = connection_info.get('data')
    path = data.get('device_path') if isinstance(data, dict) else None
    return path if isinstance(path, str) and path else None


def _pairs(targets: list[str], units: list[str]) -> Iterable[Address]:
    """Pair lists of one length item by item, and others in all combinations.

    An address too many does less harm than one too few.
    """
    if len(targets) == len(units):
        return zip(targets, units)
    return itertools.product(targets, units)


def spelt(target: str) -> str:
    """Return the name of a target as the kernel has it, in lower case."""
    target = target.lower()
    if _WWN.fullmatch(target):
        return target.replace('0x', '').replace(':', '')
    return target


def _values(data: Mapping[str, Any], keys: tuple[str, ...]) -> list[str]:
    values = (data.get(key) for key in keys)
    return [str(value).lower()
            for item in values if item is not None
            for value in (item if isinstance(item, list) else [item])]
