# SPDX-License-Identifier: Apache-2.0
"""One form for texts that Nova, Cinder and people spell differently.

Both APIs take an id in any form that Python takes for a UUID, and keep it as
it was written.  MariaDB compares texts without their case, PostgreSQL with it.
So what comes in is brought into one form, and only that is compared.
"""

from __future__ import annotations

from collections.abc import Iterable
import re
import unicodedata
import uuid

_CANONICAL = re.compile(r'[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}')
_HEX_DIGITS = re.compile(r'[0-9a-f]{32}')


def identifier(text: str) -> str:
    """Return an id with small letters and dashes, if it is a UUID.

    The forms are those that oslo.utils, and by it both APIs, take for a UUID.
    """
    if _CANONICAL.fullmatch(text):
        return text
    digits = text.replace('urn:', '').replace('uuid:', '').strip('{}') \
        .replace('-', '').lower()
    return str(uuid.UUID(digits)) if _HEX_DIGITS.fullmatch(digits) else text


def optional(text: str | None) -> str | None:
    """Return an id in that form, or None for None."""
    return identifier(text) if text else text


def is_same(one: str, other: str) -> bool:
    """Return whether two ids are one.

    Those of projects Keystone writes without dashes; they are only compared.
    """
    return one == other or identifier(one) == identifier(other)


def folded(text: str) -> str:
    """Return a text without case, accents and spaces.

    So it is compared by a database that compares letters and digits only.
    """
    return ''.join(c for c in unicodedata.normalize('NFKD', text).lower()
                   if c.isalnum())


def host(name: str | None) -> str | None:
    """Return the name of a host in small letters."""
    return name.lower() if name else name


def is_among(name: str, hosts: Iterable[str]) -> bool:
    """Return whether a host is among others, ignoring case."""
    return any(host(name) == host(other) for other in hosts)


def device(name: str | None) -> str:
    """Return the name of a disk as libvirt has it: without ``/dev/``."""
    return (name or '').rpartition('/')[2].lower()
