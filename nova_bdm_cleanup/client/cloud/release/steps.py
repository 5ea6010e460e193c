# SPDX-License-Identifier: Apache-2.0
"""The steps that release a volume: one for each of its attachments.

They are a pure function of the facts about the volume.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import datetime
from typing import Any

from nova_bdm_cleanup.client.cloud.findings import Advice
from nova_bdm_cleanup.client.cloud.release.attachments import (
    HELD_ATTACHMENTS,
    HeldAttachment,
)
from nova_bdm_cleanup.client.cloud.release.volumes import (
    Call,
    HELD_VOLUMES,
    HeldVolume,
    Ruling,
)
from nova_bdm_cleanup.rules.facts import Attachment
from nova_bdm_cleanup.rules.table import first, Row


@dataclasses.dataclass(frozen=True)
class ReleaseStep:
    """The step for one attachment, or for a volume without any."""

    volume: str
    explanation: str
    attachment: Attachment | None = None
    host: str | None = None
    since: datetime.datetime | None = None
    #: The commands for an operator to run first.
    commands: tuple[str, ...] = ()
    #: None: no call is allowed, and the explanation says why.
    call: Call | None = None
    connector: Mapping[str, Any] | None = None
    #: The state of the volume afterwards.
    expected: str = ''
    #: Another Nova may have the server.
    needs_look: bool = False
    #: The record is correct, so there is nothing to release.
    is_settled: bool = False

    @property
    def advice(self) -> Advice:
        """Return the explanation with its commands."""
        return Advice(self.explanation, self.commands)

    @property
    def attachment_id(self) -> str | None:
        return self.attachment.id if self.attachment else None

    @property
    def server(self) -> str | None:
        return self.attachment.server_id if self.attachment else None


def decide(volume: HeldVolume) -> tuple[ReleaseStep, ...]:
    """Decide on a volume: return one step for each of its attachments."""
    if not volume.attachments:
        return (_step(volume, first(HELD_VOLUMES.rows, volume)),)
    return tuple(
        _step(held, first(HELD_ATTACHMENTS.rows, held)) for held in (
            HeldAttachment(**{**vars(volume), 'attachment': a})
            for a in volume.attachments))


def _step(held: HeldVolume, row: Row[Any, Ruling]) -> ReleaseStep:
    call = row.outcome.call
    used = call is Call.ROLL_DETACHING or any(
        a.status == 'attached' for a in held.neighbours)
    return ReleaseStep(
        volume=held.volume.id, explanation=row.explain(held),
        attachment=held.attachment, host=held.host,
        since=held.volume.updated_at,
        commands=row.outcome.commands(held), call=call,
        connector=held.connector.data,
        expected='' if call is None else 'in-use' if used else 'available',
        needs_look=held.needs_look, is_settled=row.outcome.is_settled)


def selected(steps: tuple[ReleaseStep, ...],
             attachment_id: str | None) -> tuple[ReleaseStep, ...]:
    """Return the steps that a target selects.

    A volume selects all its attachments to release.  It selects healthy ones
    only if there are no others.
    """
    if attachment_id is not None:
        return tuple(s for s in steps if s.attachment_id == attachment_id)
    return tuple(s for s in steps if s.call) or steps
