# SPDX-License-Identifier: Apache-2.0
"""The events that the plugin adds to Nova's instance actions.

The name is the only part of an event that every microversion and every user
is shown, so it says everything.  ``openstack bdm clean`` reads it as the proof
of what the plugin did in a reboot.
"""

from __future__ import annotations

import enum
import re
from typing import NamedTuple

from nova_bdm_cleanup.rules import spelling
from nova_bdm_cleanup.rules.facts import Finding
from nova_bdm_cleanup.rules.reasons import Reason


class Kind(str, enum.Enum):
    """Kind of an event; its value is in the name."""

    REMOVED = 'removed'
    RECONNECTED = 'reconnected'
    ADOPTED = 'adopted'
    #: A removal or a reconnect was withheld, or a step of it failed, or Cinder
    #: gave no answer.
    WITHHELD = 'did not clean up'
    #: The guest is without the disk, and the mapping still exists.
    NOT_CONNECTED = 'did not connect'


class ActionEvent(NamedTuple):
    """One event of the plugin."""

    kind: Kind
    #: The ID of a volume or an attachment; None: the whole server.
    subject: str | None
    reason: str
    #: The host that recorded it; None without the admin role.
    host: str | None = None


_NAME = re.compile(
    r'bdm_cleanup (%s) (?:mapping \S+ of )?'
    r'(?:the server|(?:volume|attachment) (\S+)) \((\S+)\)'
    % '|'.join(kind.value for kind in Kind))


def name_of(kind: Kind, finding: Finding | None, reason: Reason) -> str:
    """Return the name of an event.

    :param finding: the disk or the attachment; None: the whole server
    """
    if finding is None:
        subject = 'the server'
    elif finding.bdm is None:
        subject = 'attachment %s' % finding.attachment_id
    elif finding.reason is Reason.DUPLICATE_MAPPING:
        # The server keeps the disk.
        subject = 'mapping %s of volume %s' % (
            finding.bdm.uuid, finding.volume_id)
    else:
        subject = 'volume %s' % finding.volume_id
    return 'bdm_cleanup %s %s (%s)' % (kind.value, subject, reason)


def interrupted(task_state: str) -> str:
    """Return the name of the event of an operation that has not ended."""
    return 'bdm_cleanup interrupted %s' % task_state


def parse(name: str, host: str | None = None) -> ActionEvent | None:
    """Return the event with a name; None: it is not one of the plugin."""
    match = _NAME.fullmatch(name)
    return match and ActionEvent(
        Kind(match[1]), match[2] and spelling.identifier(match[2]), match[3],
        host)
