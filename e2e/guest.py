# SPDX-License-Identifier: Apache-2.0
"""The guest: its boot sector (guest.S) and its reports on the console."""

from __future__ import annotations

import functools
import pathlib
import re
import tempfile

from e2e import lab as lab_mod

SECTOR = 512
#: Offset of the flag that makes it count, and of the count on its disks.
FLAG, COUNTER = 493, 2047 * SECTOR

SOURCE = pathlib.Path(__file__).with_name('guest.S')

_DISKS = re.compile(r'DISKS((?: \d)*);')


@functools.lru_cache(maxsize=None)
def _code() -> bytes:
    """Assemble guest.S."""
    with tempfile.TemporaryDirectory() as directory:
        lab_mod.run('as', '--32', str(SOURCE), '-o', f'{directory}/guest.o')
        lab_mod.run('ld', '-m', 'elf_i386', '-Ttext', '0x7c00', '--oformat',
                    'binary', f'{directory}/guest.o',
                    '-o', f'{directory}/guest.bin')
        return pathlib.Path(directory, 'guest.bin').read_bytes()


def boot_sector(writes_counters: bool = False) -> bytes:
    return _code()[:FLAG] + bytes([writes_counters]) + _code()[FLAG + 1:]


def disks(console: pathlib.Path) -> tuple[int, ...] | None:
    """Return the disks of the guest's last report, as sorted sizes in GiB.

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
