# SPDX-License-Identifier: Apache-2.0
"""Reads OpenStack's JSON: from a decoded body to values of the right type.

To take a value of the wrong type for an absent one would be to conclude
something from it.  So whatever is not what the API promises raises
:class:`~nova_bdm_cleanup.openstack.errors.BadAnswer`.
"""

from __future__ import annotations

from collections.abc import Mapping
import datetime
from typing import Any
import urllib.parse

from nova_bdm_cleanup.openstack.errors import BadAnswer
from nova_bdm_cleanup.rules import spelling

#: Of an error's words this much is shown.
_WORDS = 200


def quoted(identifier: str) -> str:
    """An id as a path segment; nothing in it may be taken for more."""
    return urllib.parse.quote(identifier, safe='')


def is_not_found(body: Any) -> bool:
    """Whether the body of a 404 is the API's own, and not a proxy's."""
    return isinstance(body, dict) and isinstance(
        body.get('itemNotFound'), dict)


def error_words(body: Any) -> str:
    """The message of an API's own error; a proxy's page says nothing."""
    if isinstance(body, dict):
        for error in body.values():
            message = error.get('message') if isinstance(error, dict) else None
            if isinstance(message, str):
                return message[:_WORDS]
    return ''


def record(body: Any, key: str) -> Mapping[str, Any]:
    """The only record of an answer."""
    found = body.get(key) if isinstance(body, dict) else None
    if not isinstance(found, dict):
        raise BadAnswer('an answer has no "%s"' % key)
    return found


def records(body: Any, key: str) -> list[Mapping[str, Any]]:
    """All records of an answer, or of a list within a record."""
    found = body.get(key) if isinstance(body, dict) else None
    if not isinstance(found, list) or not all(
            isinstance(r, dict) for r in found):
        raise BadAnswer('an answer has no list of "%s"' % key)
    return found


def text(record: Mapping[str, Any], key: str) -> str:
    """A field that must be there."""
    value = record.get(key)
    if not isinstance(value, str) or not value:
        raise BadAnswer('a record has no "%s"' % key)
    return value


def optional_text(record: Mapping[str, Any], key: str) -> str | None:
    """A field that may be absent, null or empty; all of it is None."""
    value = record.get(key)
    if value is not None and not isinstance(value, str):
        raise BadAnswer('"%s" in a record is no text' % key)
    return value or None


def identifier(record: Mapping[str, Any], key: str) -> str:
    """An id that must be there, in the one form."""
    return spelling.identifier(text(record, key))


def optional_identifier(record: Mapping[str, Any], key: str) -> str | None:
    """An id that may be absent, in the one form."""
    return spelling.optional(optional_text(record, key))


def mapping(record: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """An object that may be absent, null or empty; all of it is ``{}``."""
    value = record.get(key)
    if value is not None and not isinstance(value, dict):
        raise BadAnswer('"%s" in a record is no object' % key)
    return value or {}


def moment(record: Mapping[str, Any],
           key: str) -> datetime.datetime | None:
    """A time, with its time zone; None: absent or in an unknown form."""
    value = optional_text(record, key)
    try:
        found = datetime.datetime.fromisoformat(value or '')
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(
        tzinfo=datetime.timezone.utc)
