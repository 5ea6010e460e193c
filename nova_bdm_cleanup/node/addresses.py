# SPDX-License-Identifier: Apache-2.0
"""Where on the storage network a volume answers.

os-brick finds the device to remove by target and logical unit number.  A
number is reused: once the back end has taken the volume from the host, the
next volume may get it, and removing "the device of the old one" would take
away the disk of another guest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
import itertools
import json
from typing import Any

Address = tuple[str, str]

#: How iSCSI, Fibre Channel and NVMe drivers call the target and the unit
#: behind it; first where there is one of them, then where there may be
#: several.  What has names of its own (RBD, NFS, ...) reuses nothing.
_TARGET = ('target_iqn', 'target_wwn', 'target_nqn', 'nqn')
_TARGETS = ('target_iqns', 'target_wwns')
_UNIT = ('target_lun', 'ns_id')
_UNITS = ('target_luns',)


def parse(text: str | None) -> dict[str, Any]:
    """A mapping's connection information; empty when it holds none.

    What nobody can read, nobody can have connected by either: Nova itself
    fails on it or takes it for a disk that was never connected.
    """
    try:
        connection_info = json.loads(text or '{}')
    except ValueError:
        return {}
    return connection_info if isinstance(connection_info, dict) else {}


def named_by(connection_info: Mapping[str, Any]) -> frozenset[Address]:
    """The addresses of one volume; empty where they cannot be reused.

    :param connection_info: as Nova keeps it, with the driver's part in "data"
    """
    data = connection_info.get('data')
    if not isinstance(data, dict):
        return frozenset()
    one, several = _values(data, _TARGET), _values(data, _TARGETS)
    unit, units = _values(data, _UNIT), _values(data, _UNITS)
    return frozenset([*_pairs(one, unit or units),
                      *_pairs(several, units or unit)])


def _pairs(targets: list[str], units: list[str]) -> Iterable[Address]:
    """Lists of one length belong together item by item; otherwise rather an
    address too many than one too few.
    """
    if len(targets) == len(units):
        return zip(targets, units)
    return itertools.product(targets, units)


def _values(data: Mapping[str, Any], keys: tuple[str, ...]) -> list[str]:
    values = (data.get(key) for key in keys)
    return [str(value).lower()
            for item in values if item is not None
            for value in (item if isinstance(item, list) else [item])]
