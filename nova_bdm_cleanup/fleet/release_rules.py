# SPDX-License-Identifier: Apache-2.0
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

from typing import Any

from nova_bdm_cleanup.fleet.held_attachments import (
    HELD_ATTACHMENTS,
    HeldAttachment,
)
from nova_bdm_cleanup.fleet.held_volumes import HELD_VOLUMES, HeldVolume
from nova_bdm_cleanup.fleet.release_facts import (
    Call,
    Outcome,
    ReleaseFacts,
    ReleaseStep,
)
from nova_bdm_cleanup.rules.table import first, Row


def decide(facts: ReleaseFacts) -> tuple[ReleaseStep, ...]:
    """What to do with a volume: one step for each of its attachments."""
    held = [HeldAttachment(facts, a) for a in facts.attachments]
    if held:
        return tuple(_step(h, first(HELD_ATTACHMENTS.rows, h)) for h in held)
    volume = HeldVolume(facts)
    return (_step(volume, first(HELD_VOLUMES.rows, volume)),)


def _step(held: HeldVolume, row: Row[Any, Outcome]) -> ReleaseStep:
    call = row.outcome.call
    used = call in (Call.ROLL_DETACHING, Call.COMPLETE) or any(
        a.status == 'attached' for a in held.neighbours)
    return ReleaseStep(
        volume=held.volume.id, explanation=row.explain(held),
        attachment=held.attachment, host=held.host,
        since=held.volume.updated_at, call=call,
        connector=held.connector.data
        if call in (Call.FORCE_DETACH, Call.TERMINATE) else None,
        expected='' if call is None else 'in-use' if used else 'available',
        needs_look=held.needs_look, is_settled=row.outcome.is_settled)


def selected(steps: tuple[ReleaseStep, ...],
             attachment_id: str | None) -> tuple[ReleaseStep, ...]:
    """The steps that a target stands for.

    A volume stands for all its attachments to release: its healthy ones are
    not the operator's concern, unless there are no others.
    """
    if attachment_id is not None:
        return tuple(s for s in steps if s.attachment_id == attachment_id)
    return tuple(s for s in steps if s.call) or steps
