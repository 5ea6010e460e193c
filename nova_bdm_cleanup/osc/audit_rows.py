# SPDX-License-Identifier: Apache-2.0
"""The findings of an audit as rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
import dataclasses
from typing import Any

from nova_bdm_cleanup.fleet.issues import AnyReason, Issue, Remedy
from nova_bdm_cleanup.fleet.plan_file import MOMENT
from nova_bdm_cleanup.rules.facts import DANGLING, Reason

COLUMNS = ('Server', 'Host', 'Volume', 'Attachment', 'Device', 'Reason',
           'Since', 'Action')
LONG_COLUMNS = (*COLUMNS, 'Server Name', 'Project', 'Breaks', 'Explanation')

#: When a volume was changed, for people.
FOR_PEOPLE = '%Y-%m-%d %H:%M:%S UTC'

#: What Nova alone does not do with such a disk, or only half, or by attaching
#: the disk again, in the words of ``triggers``: each was tried.
_BREAKS: dict[AnyReason, str] = dict.fromkeys(
    (*DANGLING, Reason.ROOT_VOLUME_DANGLING),
    'move, shelve, unshelve, evacuate, live_migration')

#: As many findings of one kind at one server have a row each in a table.
_EACH = 4


def summed_up(issues: Sequence[Issue], found: Iterable[Issue],
              needs_admin: bool) -> list[tuple[Any, ...]]:
    """The rows, and one only for many of one kind at one server.

    :param found: also what is not shown
    :param needs_admin: more than the project of the credentials was audited
    """
    releases = Counter(i.server for i in found if i.remedy is Remedy.RELEASE)
    kinds: dict[Any, list[Issue]] = {}
    for issue in issues:
        kinds.setdefault((
            issue.server, issue.host, issue.reason, issue.remedy,
            issue.needs_look, issue.is_for_member,
            issue.remedy is Remedy.PERSON and issue.withheld),
            []).append(issue)
    rows: list[tuple[Any, ...]] = []
    for alike in kinds.values():
        if len(alike) <= _EACH or not alike[0].server:
            rows += [row(i, LONG_COLUMNS, since=FOR_PEOPLE) for i in alike]
            continue
        first = min(alike, key=lambda i: (i.since is None, i.since))
        action = first.what_to_do
        if first.remedy is Remedy.RELEASE and not first.needs_look:
            # Of every kind: the command does not tell them apart, and does
            # nothing where there is more.
            action = dataclasses.replace(
                first, attachment='--server %s --max %d' % (
                    first.server, releases[first.server])).what_to_do
        elif first.remedy is Remedy.RELEASE:
            action = 'look: openstack bdm audit --long --reason %s%s' % (
                first.reason, ' --all-projects' if needs_admin else '')
        volumes = {i.volume for i in alike}
        rows.append(row(dataclasses.replace(
            first, device=None, attachment='%d attachments' % len(alike),
            volume='%d volumes' % len(volumes) if len(volumes) > 1
            else first.volume,
            explanation='%d findings; --long shows each. The oldest: %s' % (
                len(alike), first.explanation)), LONG_COLUMNS, action,
            FOR_PEOPLE))
    return rows


def row(issue: Issue, columns: Iterable[str], action: str | None = None,
        since: str = MOMENT) -> tuple[Any, ...]:
    """A finding as a row.

    :param action: instead of that of the finding
    :param since: how to write when the volume was changed
    """
    cells = {
        'Server': issue.server, 'Host': issue.host, 'Volume': issue.volume,
        'Attachment': issue.attachment, 'Device': issue.device,
        'Reason': str(issue.reason),
        'Since': issue.since and issue.since.strftime(since),
        'Action': action or issue.what_to_do,
        'Server Name': issue.server_name, 'Project': issue.project,
        'Breaks': _BREAKS.get(issue.reason),
        'Explanation': issue.explanation, 'Remedy': str(issue.remedy)}
    return tuple(cells[name] for name in columns)
