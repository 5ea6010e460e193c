# SPDX-License-Identifier: Apache-2.0
"""What the kernel shows of itself in files."""

from __future__ import annotations

import os

#: Where it does.
SYS = '/sys'


def path(*parts: str) -> str:
    return os.path.join(SYS, *parts)


def listed(*parts: str) -> frozenset[str]:
    """What is in a directory; nothing when there is none."""
    try:
        return frozenset(os.listdir(path(*parts)))
    except OSError:
        return frozenset()


def read(*parts: str) -> str | None:
    """What a file says; None when there is none, or it is empty."""
    try:
        with open(path(*parts), encoding='utf-8') as file:
            return file.read().strip() or None
    except OSError:
        return None
