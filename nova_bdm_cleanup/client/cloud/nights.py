# SPDX-License-Identifier: Apache-2.0
"""Earlier audits, night by night."""

from __future__ import annotations

from collections.abc import Iterable
import dataclasses
import datetime
import os

from nova_bdm_cleanup.client.cloud import plan_file
from nova_bdm_cleanup.client.cloud.findings import CloudFinding
from nova_bdm_cleanup.openstack import errors


@dataclasses.dataclass(frozen=True)
class Night:
    """An earlier audit: when its file was written, and what it has found."""

    written: datetime.datetime
    findings: tuple[CloudFinding, ...]


def read_nights(path: str) -> tuple[Night, ...]:
    """Return the audits of a file or a directory, the oldest first.

    :param path: a file with the JSON output of an audit, or a directory whose
        files with the suffix ``.json`` are such files
    :raises BadInput: names the file that cannot be read, or is no such file
    """
    try:
        paths = [os.path.join(path, name) for name in os.listdir(path)
                 if name.endswith('.json')] if os.path.isdir(path) else [path]
        dated = sorted((os.path.getmtime(each), each) for each in paths)
    except OSError as exc:
        raise errors.BadInput('%s: %s' % (exc.filename, exc.strerror)) from exc
    return tuple(Night(
        datetime.datetime.fromtimestamp(written, datetime.timezone.utc),
        plan_file.read_plan(each)) for written, each in dated)


def found_since(nights: Iterable[Night]
                ) -> dict[tuple[str | None, ...], datetime.datetime]:
    """Return by key since when each finding of the last night was there.

    A night without it in between begins it again.
    """
    found: dict[tuple[str | None, ...], datetime.datetime] = {}
    for night in nights:
        found = {i.key: found.get(i.key, night.written)
                 for i in night.findings}
    return found
