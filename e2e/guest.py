# SPDX-License-Identifier: Apache-2.0
"""The guest: its boot sector (guest.S) and what it says on its console."""

from __future__ import annotations

import pathlib
import re

SECTOR = 512

#: guest.S, assembled.  Kept here so that the tests need no assembler.
CODE = bytes.fromhex(
    'fa31c08ed88ec08ed0bc007cfcbef77ce8cc0066bb0000008030c9e8a300663df41a'
    '01107544b110e89600a9fcff75216689d866c1e8040500d0660fb7c0e88600b10466'
    'b807000000e87b00b110e8700083e0fc83c01489c266ed66c1e8150430a2fe7cbefd'
    '7ce875006681c3000800006681fb00000180729fbe007de85f00ba0206b80001effb'
    'f4ba00ae66ed6685c00f8578ffba04ae66ed6685c07408ba08ae66efe966ffba0006'
    'eda9000174d7be047de82900ba0406b80020effaf4ebfce80d0066edc36650e80500'
    '665866efc36689d888c8baf80c66efbafc0cc3ac84c0741288c4bafd03eca82074fb'
    '88e0baf803eeebe9c34449534b53002030003b0d0a004f46460d0a')

_DISKS = re.compile(r'DISKS((?: \d)*);')


def boot_sector() -> bytes:
    return CODE.ljust(SECTOR - 2, b'\0') + b'\x55\xaa'


def disks(console: pathlib.Path) -> tuple[int, ...] | None:
    """The disks of the guest's last report, as sorted sizes in GiB.

    None when it has not reported since it was started.
    """
    try:
        text = console.read_text(errors='replace')
    except OSError:
        return None
    reports = _DISKS.findall(text)
    if not reports:
        return None
    return tuple(sorted(int(size) for size in reports[-1].split()))
