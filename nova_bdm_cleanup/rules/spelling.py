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
_DIGITS = re.compile(r'[0-9a-f]{32}')


def identifier(text: str) -> str:
    """An id with small letters and dashes; what is no UUID stays as it is.

    The forms are those that oslo.utils, and by it both APIs, take for a UUID.
    """
    if _CANONICAL.fullmatch(text):
        return text
    digits = text.replace('urn:', '').replace('uuid:', '').strip('{}') \
        .replace('-', '').lower()
    return str(uuid.UUID(digits)) if _DIGITS.fullmatch(digits) else text


def optional(text: str | None) -> str | None:
    """The same for an id that may be none."""
    return identifier(text) if text else text


def is_same(one: str, other: str) -> bool:
    """Whether two ids are one: of a project, which Keystone writes without
    dashes, and is only compared.
    """
    return one == other or identifier(one) == identifier(other)


def folded(text: str) -> str:
    """What is left where a database compares letters and digits only: without
    case, accents and spaces.
    """
    return ''.join(c for c in unicodedata.normalize('NFKD', text).lower()
                   if c.isalnum())


def host(name: str | None) -> str | None:
    """The name of a host, which has no case."""
    return name.lower() if name else name


def is_among(name: str, hosts: Iterable[str]) -> bool:
    """Whether a host is one of some."""
    return any(host(name) == host(other) for other in hosts)


def device(name: str | None) -> str:
    """The name of a disk in a guest: without ``/dev/``, as libvirt has it."""
    return (name or '').rpartition('/')[2].lower()
