# SPDX-License-Identifier: Apache-2.0
"""The hooks on live migrations, on the source.

The guest runs and keeps what it has: nothing is removed.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib

from nova import exception

from nova_bdm_cleanup.node import instance_cleanup
from nova_bdm_cleanup.node.cleanup import triggers
from nova_bdm_cleanup.node.cleanup.cleaner import Assessment
from nova_bdm_cleanup.node.hooks import disks
from nova_bdm_cleanup.node.hooks.departure import Departure
from nova_bdm_cleanup.node.hooks.wrapping import Call
from nova_bdm_cleanup.node.instance_cleanup import InstanceCleanup
from nova_bdm_cleanup.rules import spelling
from nova_bdm_cleanup.rules.facts import Finding


def check(call: Call) -> None:
    """Refuse to attach what is not the instance's, or to disconnect it.

    Nova makes a new attachment for every volume, and disconnects all of them
    from this host at the end.  Nothing has been changed yet.

    :raises MigrationPreCheckError: so that the scheduler tries another host
    """
    context, instance = call.context, call.instance
    obstacles = []
    with instance_cleanup.log_failure(triggers.LIVE_MIGRATION, instance):
        cleanup = InstanceCleanup(call.manager, context.elevated(), instance,
                                  triggers.LIVE_MIGRATION)
        bdms = instance_cleanup.read_bdms(context, instance)
        if cleanup.observes:
            cleanup.run(bdms)
            return
        found = cleanup.preview(bdms)
        obstacles = [(finding, finding.address)
                     for finding in found.left_out.values()]
        for finding in disks.dangling(found.plan.findings):
            # It must not keep a host from being drained without need.
            why = _obstacle_to_attach(found, finding, instance.project_id)
            if why and not finding.address:
                obstacles.append((finding, why))
    if obstacles:
        raise exception.MigrationPreCheckError(
            reason=disks.refusal(cleanup, instance, obstacles))


def _obstacle_to_attach(found: Assessment, finding: Finding,
                        project: str) -> str:
    """Return why Nova must not attach a volume without a cleanup, or ''.

    An unused volume of the project of the instance does no harm.
    """
    volume = found.volumes.get(finding.volume_id or '')
    if volume is None:
        return ''
    if not spelling.is_same(volume.project or '', project):
        return 'the volume belongs to another project'
    if volume.status != 'available':
        return 'the volume is %s' % volume.status
    return ''


@contextlib.contextmanager
def finish(call: Call) -> Iterator[None]:
    """Keep the driver from disconnecting a neighbour's disk afterwards.

    A migration takes long, and the neighbour may have got it meanwhile.
    """
    with Departure.of(
            call, triggers.LIVE_MIGRATION, is_last=True).begun():
        yield
