# SPDX-License-Identifier: Apache-2.0
"""One form for texts that Nova, Cinder and people spell differently.

Both APIs accept an id in any form that Python accepts as a UUID, and store it
as written.  MariaDB ignores case when it compares texts, PostgreSQL does not.
So each input is converted to one form, and only that form is compared.
"""

from __future__ import annotations

from collections.abc import Iterable
import re
import unicodedata
import uuid

_CANONICAL = re.compile(r'[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}')
_HEX_DIGITS = re.compile(r'[0-9a-f]{32}')


def identifier(text: str) -> str:
    """Return an id in lower case and with dashes, if it is a UUID.

    The accepted forms are those of oslo.utils, and therefore of both APIs.
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
    """Return whether two ids are the same.

    Keystone writes the ids of projects without dashes; they are only compared.
    """
    return one == other or identifier(one) == identifier(other)


def folded(text: str) -> str:
    """Return a text without case, accents and spaces.

    A database that compares only letters and digits compares it like this.
    """
    return ''.join(c for c in unicodedata.normalize('NFKD', text).lower()
                   if c.isalnum())


def host(name: str | None) -> str | None:
    """Return the name of a host in lower case."""
    return name.lower() if name else name


def is_among(name: str, hosts: Iterable[str]) -> bool:
    """Return whether a host is among others, ignoring case."""
    return any(host(name) == host(other) for other in hosts)


def is_same_host(one: str, other: str) -> bool:
    """Return whether two names are of one host, with or without its domain."""
    short, long = sorted((one.lower(), other.lower()), key=len)
    return short == long or '.' not in short and long.startswith(short + '.')


def device(name: str | None) -> str:
    """Return the name of a disk as libvirt has it: without ``/dev/``."""
    return (name or '').rpartition('/')[2].lower()
