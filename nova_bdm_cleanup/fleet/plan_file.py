# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""Plan files: what an audit found, to be acted on later, or not at all."""

from __future__ import annotations

import dataclasses
import datetime
import json
from typing import Any, Dict, Iterable, List, Tuple

from nova_bdm_cleanup import errors
from nova_bdm_cleanup.fleet.issues import AnyReason
from nova_bdm_cleanup.fleet.issues import Issue
from nova_bdm_cleanup.fleet.issues import REMEDIES
from nova_bdm_cleanup.fleet.issues import Remedy
from nova_bdm_cleanup.fleet.new_file import NewFile
from nova_bdm_cleanup.model import Reason

_FORMAT = 'nova-bdm-cleanup plan'
_VERSION = 1

_TEXTS = ('server', 'server_name', 'project', 'host', 'volume', 'attachment',
          'device')


class PlanWriter(NewFile):
    """A new plan file."""

    kind = 'plan file'

    def write(self, issues: Iterable[Issue], incomplete: bool,
              created: datetime.datetime) -> None:
        """Write all of it."""
        self.put(json.dumps({'format': _FORMAT, 'version': _VERSION,
                             'created': created.isoformat(),
                             'complete': not incomplete,
                             'findings': [_fields(i) for i in issues]},
                            indent=2) + '\n')


@dataclasses.dataclass(frozen=True)
class PlanFile:
    """A plan file's content."""

    issues: Tuple[Issue, ...]

    def of(self, remedy: Remedy) -> Tuple[Issue, ...]:
        """What of it one command is there for."""
        return tuple(i for i in self.issues if i.remedy is remedy)


def read_plan(path: str) -> PlanFile:
    """Read a plan file.

    :raises BadInput: when it is not one
    """
    try:
        with open(path, encoding='utf-8') as file:
            content = json.load(file)
        if not isinstance(content, dict) or content.get('format') != _FORMAT:
            raise ValueError('it was not written by "bdm audit --plan"')
        if content.get('version') != _VERSION:
            raise ValueError('it is of version %s, this command reads %s'
                             % (content.get('version'), _VERSION))
        return PlanFile(tuple(_issue(f) for f in content['findings']))
    except OSError as exc:
        raise errors.BadInput(
            'plan file %s: %s' % (path, exc.strerror)) from exc
    except KeyError as exc:
        raise errors.BadInput('plan file %s: it has no %s' % (path, exc)
                              ) from exc
    except (ValueError, TypeError) as exc:
        raise errors.BadInput('plan file %s: %s' % (path, exc)) from exc


def differences(planned: Iterable[Issue],
                found: Iterable[Issue]) -> List[str]:
    """What has changed since the plan was made.

    :param planned: issues of the plan
    :param found: the same ones looked for now
    :returns: one sentence for each that is no longer as it was
    """
    now = {i.key: i for i in found}
    changed = []
    for issue in planned:
        today = now.get(issue.key)
        what = 'volume %s (%s)' % (issue.volume, issue.reason)
        if today is None:
            changed.append('%s is no longer found' % what)
        elif today.since != issue.since:
            changed.append('%s has changed at %s' % (what, today.since))
        elif today.host != issue.host:
            changed.append('%s is now on host %s' % (what, today.host))
    return changed


def _fields(issue: Issue) -> Dict[str, Any]:
    fields = {name: getattr(issue, name) for name in _TEXTS}
    fields.update(
        reason=str(issue.reason), explanation=issue.explanation,
        since=issue.since.isoformat() if issue.since else None,
        withheld=str(issue.withheld) if issue.withheld else None,
        instead=str(issue.instead) if issue.instead else None,
        needs_look=issue.needs_look)
    return fields


def _issue(fields: Dict[str, Any]) -> Issue:
    since = fields['since']
    withheld = fields['withheld']
    # Plans of an earlier version do not have it.
    instead = fields.get('instead')
    for name in _TEXTS:
        if not isinstance(fields[name], (str, type(None))):
            raise ValueError('"%s" is no text' % name)
    return Issue(
        reason=_reason(fields['reason']), explanation=fields['explanation'],
        since=datetime.datetime.fromisoformat(since) if since else None,
        withheld=Reason(withheld) if withheld else None,
        instead=Remedy(instead) if instead else None,
        needs_look=fields.get('needs_look') is True,
        **{name: fields[name] for name in _TEXTS})


def _reason(code: str) -> AnyReason:
    for reason in REMEDIES:
        if str(reason) == code:
            return reason
    raise ValueError('unknown reason %s' % code)
