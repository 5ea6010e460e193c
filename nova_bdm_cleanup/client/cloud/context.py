# SPDX-License-Identifier: Apache-2.0
"""What a finding of the rules is outside a reboot.

The rules judge a server that Nova is about to reboot, under Nova's lock, and
with what nova-compute knows.  An audit has neither.
"""

from __future__ import annotations

import dataclasses
import datetime

from nova_bdm_cleanup.client.cloud.nova import ComputeServer
from nova_bdm_cleanup.rules import facts
from nova_bdm_cleanup.rules.facts import Decision, Finding, Reason
from nova_bdm_cleanup.rules.table import first, Row, Table


@dataclasses.dataclass(frozen=True)
class Shown:
    """What a finding of the rules is shown as."""

    #: None: as it was found.
    reason: Reason | None = None
    #: What the rules would do, or why not, holds no more.
    is_decided_later: bool = False

    def __str__(self) -> str:
        return '``%s``' % self.reason if self.reason else 'as found'


#: What the rules leave to others, or never see in a reboot.
CONTEXT: Table[Row[ContextFacts, Shown]] = Table(
    ('What the rules found', 'is shown'), (

    Row('is in order, and its volume is not ``detaching`` for '
        '``--stuck-after``',
        lambda c: c.finding.reason is Reason.HEALTHY and not c.hangs,
        Shown(),
        '{it.finding.explanation}'),

    Row('is of a server that Nova is changing',
        lambda c: c.server.is_busy or not c.is_settled,
        Shown(Reason.OPERATION_IN_FLIGHT, is_decided_later=True),
        'the server is changing ({it.server.task}); {it.finding.explanation}'),

    # To a reboot it is somebody's detach, however old.
    Row('is in order or ``operation-in-flight``, its volume is ``detaching`` '
        'for ``--stuck-after``, and nobody has locked the server',
        lambda c: c.hangs and not c.server.locked and c.finding.reason in (
            Reason.HEALTHY, Reason.OPERATION_IN_FLIGHT),
        Shown(Reason.STUCK),
        'the volume has been detaching since '
        '{it.volume.updated_at:%Y-%m-%d %H:%M:%S} UTC'),

    # Of no mapping the API shows the age; but reserving a volume for an
    # attach changes it.
    Row('is ``attach-in-flight``, its volume is ``attaching`` for '
        '``--stuck-after``, and nobody has locked the server',
        lambda c: c.finding.reason is Reason.ATTACH_IN_FLIGHT
        and c.volume and c.volume.status == 'attaching'
        and c.is_stuck and not c.server.locked,
        Shown(Reason.STUCK),
        'the volume has been attaching since '
        '{it.volume.updated_at:%Y-%m-%d %H:%M:%S} UTC'),

    Row('is the mapping of a shelved server, whose volume and attachment are '
        '``reserved``',
        lambda c: c.server.is_shelved and c.finding.bdm and c.volume
        and c.attachment
        and c.attachment.status == c.volume.status == 'reserved',
        Shown(Reason.HEALTHY),
        'reserved for the time the server is shelved'),

    Row('is a ``duplicate-mapping`` that the rules keep: the API does not '
        'show whether Nova ever connected it',
        lambda c: c.finding.reason is Reason.DUPLICATE_MAPPING
        and not c.finding.is_removal,
        Shown(),
        '{it.finding.explanation}; a hard reboot removes the one that Nova '
        'never connected, if there is one, which the API does not show'),

    # The API does not show whether Nova has connected the disk.
    Row('is ``reserved-only`` for less than ``--stuck-after``',
        lambda c: c.finding.reason is Reason.RESERVED_ONLY
        and not c.is_stuck,
        Shown(Reason.OPERATION_IN_FLIGHT),
        'the attachment only reserves the volume, and not for long'),

    # The rules' words name the credentials of nova.conf.
    Row('is the mapping of a volume that is not shown, to a member of a '
        'project',
        lambda c: c.finding.reason is Reason.CANNOT_SEE_PROJECT
        and c.finding.bdm and not c.sees_all,
        Shown(),
        'the volume does not exist, or belongs to another project: you '
        'cannot see which'),

    Row('is an attachment that no mapping accounts for, to a member of a '
        'project',
        lambda c: c.finding.reason is Reason.CANNOT_SEE_PROJECT
        and not c.sees_all,
        Shown(),
        'no mapping accounts for it, and you cannot see whether the volume '
        'is migrating'),

    Row('is anything else',
        lambda c: True,
        Shown(),
        '{it.finding.explanation}'),
))


@dataclasses.dataclass(frozen=True)
class ContextFacts:
    """What the table may ask about one finding of the rules."""

    finding: Finding
    server: ComputeServer
    #: Nova said the same before Cinder was asked and after it.
    is_settled: bool
    volume: facts.Volume | None
    attachment: facts.Attachment | None
    #: Whoever asks is an administrator.
    sees_all: bool
    policy: facts.Policy
    now: datetime.datetime

    @property
    def is_stuck(self) -> bool:
        return self.volume is not None and self.policy.is_stuck(
            self.volume.updated_at, self.now)

    @property
    def hangs(self) -> bool:
        return (self.volume is not None and self.is_stuck
                and self.volume.status == 'detaching')


def in_context(context: ContextFacts) -> Finding:
    """What a finding of the rules is outside a reboot."""
    row = first(CONTEXT.rows, context)
    finding = dataclasses.replace(
        context.finding, reason=row.outcome.reason or context.finding.reason,
        explanation=row.explain(context))
    return dataclasses.replace(
        finding, decision=Decision(), withheld=None) \
        if row.outcome.is_decided_later else finding
