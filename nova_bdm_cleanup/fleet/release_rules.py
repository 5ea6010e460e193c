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
"""Which call releases a volume, and when none may.

Cinder checks next to nothing before it detaches.  So everything is checked
here: one pure function from the facts about a volume to the call for each of
its attachments, or to the reason why there is none.  The order of the rows of
a table is the order of the questions; the first that holds decides.

* :mod:`release_facts`: what is known, and what may follow
* :mod:`held_attachments`: the table for each attachment of a volume
* :mod:`held_volumes`: the table for a volume without any
"""

from __future__ import annotations

import datetime
from typing import Any, Mapping, Optional, Tuple

from nova_bdm_cleanup.fleet.held_attachments import HELD_ATTACHMENTS
from nova_bdm_cleanup.fleet.held_attachments import HeldAttachment
from nova_bdm_cleanup.fleet.held_volumes import HELD_VOLUMES
from nova_bdm_cleanup.fleet.held_volumes import HeldVolume
from nova_bdm_cleanup.fleet.release_facts import Call
from nova_bdm_cleanup.fleet.release_facts import Connector
from nova_bdm_cleanup.fleet.release_facts import Make
from nova_bdm_cleanup.fleet.release_facts import ReleaseFacts
from nova_bdm_cleanup.fleet.release_facts import ReleaseStep
from nova_bdm_cleanup.model import Policy
from nova_bdm_cleanup.rules.table import first


def decide(facts: ReleaseFacts, connector: Connector, policy: Policy,
           now: datetime.datetime) -> Tuple[ReleaseStep, ...]:
    """What to do with a volume: one step for each of its attachments.

    :param facts: fresh ones
    :param connector: for what Cinder kept no connector of
    :param policy: what is young and what is stuck
    :param now: the time of the facts
    """
    return tuple(_of_attachment(HeldAttachment(a, facts, connector, policy,
                                                now), connector)
                 for a in facts.attachments) or (
        _of_volume(HeldVolume(facts, connector, policy, now)),)


def _of_attachment(facts: HeldAttachment,
                   connector: Connector) -> ReleaseStep:
    row = first(HELD_ATTACHMENTS.rows, facts)
    call = row.outcome.call if isinstance(row.outcome, Make) else None
    used = call in (Call.ROLL_DETACHING, Call.COMPLETE) or any(
        a.status == 'attached' for a in facts.neighbours)
    return ReleaseStep(
        volume=facts.volume.id, explanation=row.explain(facts),
        attachment=facts.attachment, host=facts.host,
        since=facts.volume.updated_at, call=call,
        connector=_for(call, connector),
        expected='' if call is None else 'in-use' if used else 'available',
        is_elsewhere=facts.is_elsewhere)


def _of_volume(facts: HeldVolume) -> ReleaseStep:
    row = first(HELD_VOLUMES.rows, facts)
    call = row.outcome.call if isinstance(row.outcome, Make) else None
    return ReleaseStep(
        volume=facts.volume.id, explanation=row.explain(facts),
        since=facts.volume.updated_at, call=call,
        connector=_for(call, facts.connector),
        attached=_attached(facts) if call is Call.ATTACH else None,
        expected='' if call is None else
        'in-use' if call is Call.ATTACH else 'available')


def _attached(facts: HeldVolume) -> Mapping[str, str]:
    host = facts.server.host if facts.server else None
    return {'instance_uuid': facts.claimed_by[0], 'mode': 'rw',
            # Cinder shows it, and nobody goes by it.
            'mountpoint': facts.disk and facts.disk.device or 'unknown',
            **({'host_name': host} if host else {})}


def _for(call: Optional[Call],
         connector: Connector) -> Optional[Mapping[str, Any]]:
    """The connector, where the call takes one."""
    return (connector if call in (Call.FORCE_DETACH, Call.TERMINATE)
            and isinstance(connector, Mapping) else None)


def selected(steps: Tuple[ReleaseStep, ...],
             attachment_id: Optional[str]) -> Tuple[ReleaseStep, ...]:
    """The steps that a target stands for.

    A volume stands for all its attachments to release: its healthy ones are
    not the operator's concern, unless there are no others.
    """
    if attachment_id is not None:
        return tuple(s for s in steps if s.attachment_id == attachment_id)
    return tuple(s for s in steps if s.call) or steps
