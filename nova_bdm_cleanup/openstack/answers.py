# SPDX-License-Identifier: Apache-2.0
"""Reads OpenStack's JSON: from a decoded body to values of the right type.

A value of the wrong type is not taken for an absent one: that would be a
conclusion.  What the API does not promise raises
:class:`~nova_bdm_cleanup.openstack.errors.BadAnswer`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
import datetime
from typing import Any
import urllib.parse

from nova_bdm_cleanup.openstack.errors import BadAnswer
from nova_bdm_cleanup.rules import spelling

#: Characters of an error's message that are shown.
MAX_MESSAGE_LENGTH = 200


def quoted(identifier: str) -> str:
    """Return an id as a path segment, with all else in it quoted."""
    return urllib.parse.quote(identifier, safe='')


def is_not_found(body: Any) -> bool:
    """Return whether a 404 has the API's own body, and not a proxy's."""
    return isinstance(body, dict) and isinstance(
        body.get('itemNotFound'), dict)


def error_words(body: Any) -> str:
    """Return the message of an API's own error; empty for a proxy's page."""
    if isinstance(body, dict):
        for error in body.values():
            message = error.get('message') if isinstance(error, dict) else None
            if isinstance(message, str):
                return message[:MAX_MESSAGE_LENGTH]
    return ''


def record(body: Any, key: str) -> Mapping[str, Any]:
    """Return the only record of an answer."""
    found = body.get(key) if isinstance(body, dict) else None
    if not isinstance(found, dict):
        raise BadAnswer('an answer has no "%s"' % key)
    return found


def records(body: Any, key: str) -> list[Mapping[str, Any]]:
    """Return all records of an answer, or of a list within a record."""
    found = body.get(key) if isinstance(body, dict) else None
    if not isinstance(found, list) or not all(
            isinstance(r, dict) for r in found):
        raise BadAnswer('an answer has no list of "%s"' % key)
    return found


def text(record: Mapping[str, Any], key: str) -> str:
    """Return a field that must be there."""
    value = record.get(key)
    if not isinstance(value, str) or not value:
        raise BadAnswer('a record has no "%s"' % key)
    return value


def optional_text(record: Mapping[str, Any], key: str) -> str | None:
    """Return a field; None where it is absent, null or empty."""
    value = record.get(key)
    if value is not None and not isinstance(value, str):
        raise BadAnswer('"%s" in a record is not a text' % key)
    return value or None


def identifier(record: Mapping[str, Any], key: str) -> str:
    """Return an id that must be there, in the canonical form."""
    return spelling.identifier(text(record, key))


def optional_identifier(record: Mapping[str, Any], key: str) -> str | None:
    """Return an id that may be absent, in the canonical form."""
    return spelling.optional(optional_text(record, key))


def mapping(record: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return an object; ``{}`` where it is absent, null or empty."""
    value = record.get(key)
    if value is not None and not isinstance(value, dict):
        raise BadAnswer('"%s" in a record is not an object' % key)
    return value or {}


def moment(record: Mapping[str, Any],
           key: str) -> datetime.datetime | None:
    """Return a time with its zone; None if absent or in an unknown form."""
    value = optional_text(record, key)
    try:
        # Python reads the letter of UTC from 3.11 on.
        found = datetime.datetime.fromisoformat(
            (value or '').removesuffix('Z'))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(
        tzinfo=datetime.timezone.utc)


def services(records: Iterable[Mapping[str, Any]]) -> dict[str, bool]:
    """Return whether each service is down, by its name and host.

    One that is disabled is meant to be.
    """
    return {'%s on %s' % (text(record, 'binary'), text(record, 'host')):
            record.get('state') == 'down'
            and record.get('status') == 'enabled' for record in records}
