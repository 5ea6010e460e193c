# SPDX-License-Identifier: Apache-2.0
"""Plans: the JSON output of an audit, for a later command."""

from __future__ import annotations

from collections.abc import Collection
import datetime
import json
import sys
from typing import Any

from nova_bdm_cleanup.client.cloud.findings import CloudFinding
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.rules import spelling
from nova_bdm_cleanup.rules.facts import Label
from nova_bdm_cleanup.rules.reasons import Reason, Remedy

#: An audit's format for the time when a volume was changed.
MOMENT = '%Y-%m-%dT%H:%M:%SZ'

_REASONS_BY_CODE = {str(reason): reason for reason in Reason if reason.remedy}

#: The required fields of a finding.
_FIELDS = ('Server', 'Host', 'Volume', 'Attachment', 'Reason', 'Since',
           'Remedy')


def read_plan(path: str, numbers: Collection[int] = (),
              host: str | None = None) -> tuple[CloudFinding, ...]:
    """Return the findings of an audit.

    :param path: path of a file; ``-``: standard input
    :param numbers: only these findings, counted from 1; empty: all
    :param host: only those of this host; None: all
    :raises BadInput: when it is not a plan, or has none of these
    """
    name = 'plan of standard input' if path == '-' else 'plan file ' + path
    try:
        if path == '-':
            rows = json.load(sys.stdin)
        else:
            with open(path, encoding='utf-8') as file:
                rows = json.load(file)
        if not isinstance(rows, list):
            raise ValueError('it is not a list of findings')
        plan = tuple(map(_finding, rows))
    except (OSError, ValueError) as exc:
        raise errors.BadInput(
            '%s: %s; a plan is what "openstack bdm audit -f json" prints' % (
                name, getattr(exc, 'strerror', exc))) from exc
    for number in numbers:
        if not 1 <= number <= len(plan):
            raise errors.BadInput('%s: it has no finding %d, but %d' % (
                name, number, len(plan)))
    chosen = tuple(i for number, i in enumerate(plan, 1)
                   if (not numbers or number in numbers) and (
                       not host or spelling.is_same_host(i.host or '', host)))
    if host and not chosen:
        raise errors.BadInput('%s: no chosen finding is of host %s' % (
            name, host))
    return chosen


def has_changed(planned: CloudFinding,
                since: datetime.datetime | None) -> bool:
    """Return whether the volume was changed after the audit.

    :param since: when it was changed last; a plan has whole seconds
    """
    return planned.since != (since and since.replace(microsecond=0))


def _finding(row: Any) -> CloudFinding:
    for name in _FIELDS:
        if not isinstance(row, dict) or name not in row:
            raise ValueError('a finding has no "%s"' % name)
        if not isinstance(row[name], (str, type(None))):
            raise ValueError('"%s" is not a text' % name)
    since = row['Since']
    if row['Reason'] not in _REASONS_BY_CODE:
        raise ValueError('unknown reason %s' % row['Reason'])
    return CloudFinding(
        reason=_REASONS_BY_CODE[row['Reason']], explanation='',
        host=row['Host'],
        server=spelling.optional(row['Server']),
        volume=spelling.optional(row['Volume']),
        # They are only shown.
        server_name=row.get('Server Name'),
        label=Label(row.get('Volume Name') or '', row.get('Size')),
        attachment=spelling.optional(row['Attachment']),
        since=datetime.datetime.strptime(since, MOMENT).replace(
            tzinfo=datetime.timezone.utc) if since else None,
        instead=Remedy(row['Remedy']))
