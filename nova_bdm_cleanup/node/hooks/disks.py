# SPDX-License-Identifier: Apache-2.0
"""Disks that dangle in an operation, and the refusal of the operation.

In every operation that takes an instance from a host or to one, Nova makes a
new attachment for each volume.  If a BDM dangles, that fails half way and
leaves the other volumes of the instance only reserved; or it succeeds, and the
instance gets a volume that is no longer its own.

Hence the first look, before Nova or the driver has changed anything: an
operation is refused there, or not at all.  After it nothing is raised.  A BDM
that dangles then is removed, or else taken out of the list that Nova goes on
with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from oslo_log import log as logging

from nova_bdm_cleanup.node import instance_cleanup
from nova_bdm_cleanup.node.instance_cleanup import InstanceCleanup
from nova_bdm_cleanup.rules.action_events import Kind
from nova_bdm_cleanup.rules.facts import Finding
from nova_bdm_cleanup.rules.reasons import NOT_REATTACHED

LOG = logging.getLogger(__name__)


def dangling(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings about BDMs that Nova must not attach again."""
    return tuple(finding for finding in findings if finding.bdm is not None
                 and (finding.reason in NOT_REATTACHED
                      or not finding.decision.connect))


def remove(cleanup: InstanceCleanup, bdms: Any,
           seen_before: Sequence[Finding] = ()) -> tuple[Finding, ...]:
    """Remove the BDMs that dangle, and take the others out of a list.

    :param bdms: the BlockDeviceMappingList that Nova goes on with
    :param seen_before: what the first look has found.  A missing answer does
        not revoke it
    :returns: the findings about BDMs that dangle and still exist
    """
    cleaner = cleanup.cleaner
    # After the first look nothing waits for the same records again.
    cleaner.settled = frozenset(
        finding.volume_id for finding in seen_before if finding.is_due)
    cleanup.run(bdms)
    if cleanup.observes:
        return ()
    seen = {f.bdm.uuid for f in cleaner.plan.findings if f.bdm}
    left = tuple(
        finding for finding in (
            *dangling(cleaner.plan.findings),
            *(f for f in seen_before if f.bdm and f.bdm.uuid not in seen))
        if finding.bdm and finding.bdm.uuid not in cleaner.removed)
    instance_cleanup.take_out(bdms, cleaner.removed.union(
        f.bdm.uuid for f in left if f.bdm))
    return left


def refusal(cleanup: InstanceCleanup, instance: Any,
            obstacles: Iterable[tuple[Finding, str]]) -> str:
    """Log and record why an operation is refused.

    :param obstacles: each finding that is in the way, and why, if its own
        words do not say it.  They may name servers of other projects
    :returns: a text for the owner of the instance, who is told nothing of
        other projects
    """
    words = []
    for finding, why in obstacles:
        cleanup.lines.refused(finding, '; '.join(filter(None, (
            finding.explanation, finding.obstacle, why))))
        words.append('volume %s is in the way (%s)' % (
            finding.volume_id, finding.reason))
        try:
            cleanup.host.report(Kind.REFUSED, finding, finding.reason)
        except Exception:
            LOG.debug('no instance action event', exc_info=True)
    return '%s. Look at it with "openstack bdm show %s"' % (
        '; '.join(words), instance.uuid)
