# SPDX-License-Identifier: Apache-2.0
"""The guest: its boot sector (guest.S) and what it says on its console."""

from __future__ import annotations

import pathlib
import re

SECTOR = 512
#: Where in it the guest is told to count, and where on its disks it does.
FLAG, COUNT = 493, 2047 * SECTOR

#: guest.S, assembled.  Kept here so that the tests need no assembler.
CODE = bytes.fromhex(
    'fa31c08ed88ec08ed0bc007cfcbeee7db8804288c2cd1366c706ee7d0100000031c0'
    '8ec0bf0882beb87de8730166bb0000008030c9e84a01663df41a01100f85a200b110'
    'e83b01a9fcff75216689d866c1e8040500d0660fb7c0e82b01b10466b807000000e8'
    '2001b110e8150183e0fc89c583c01489c266ed66c1e8150430a2bf7dbebe7de81801'
    '803eed7d00745581ff0c82744f89e8af744a8945feb10466b807000000e8e00089f8'
    '01c0660fb6c06650c1e0088ec05731ff31c0b90018f3ab31ffbecb7db92000f3a45f'
    '26fe0600108ec08d5612ee83ea0a665866ef83c20ab007ee6681c3000800006681fb'
    '000001800f823dffbec17de8a400ba0206b80001effbf4f6066c040f753e803eed7d'
    '007437b90014be08828ec126a10210263b060220752426ff060210ad83c01089c231'
    'c0ef80c50480fd1c75dd66ff06fe7df606fe7d030f84d6feba00ae66ed6685c00f85'
    'cafeba04ae66ed6685c07408ba08ae66efe9b8feba0006eda900017492bec57de829'
    '00ba0406b80020effaf4ebfce80d0066edc36650e80500665866efc36689d888c8ba'
    'f80c66efbafc0cc3ac84c0741288c4bafd03eca82074fb88e0baf803eeebe9c34449'
    '534b53002030003b0d0a004f46460d0a00ee7d000000000000100200000100010000'
    '82000000000000010000000200000000000010000100fe7d0000ff07000000000000'
    '55aa')

_DISKS = re.compile(r'DISKS((?: \d)*);')


def boot_sector(counts: bool = False) -> bytes:
    return CODE[:FLAG] + bytes([counts]) + CODE[FLAG + 1:]


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
