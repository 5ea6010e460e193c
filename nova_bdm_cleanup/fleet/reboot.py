# SPDX-License-Identifier: Apache-2.0
"""Has a hard reboot clean a server, and looks at what came of it."""

from __future__ import annotations

import dataclasses
import time
from typing import Callable

from nova_bdm_cleanup.fleet import inspection
from nova_bdm_cleanup.fleet.issues import Issue, issues_of, Remedy
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.openstack.nova import ComputeServer, Nova
from nova_bdm_cleanup.rules.facts import Finding, Reason

#: The states in which Nova accepts a hard reboot.
_REBOOTABLE = ('ACTIVE', 'SHUTOFF', 'PAUSED', 'SUSPENDED', 'ERROR')

_POLL = 2.0


@dataclasses.dataclass(frozen=True)
class RebootPlan:
    """What a hard reboot of one server is to do."""

    server: ComputeServer
    #: What it removes.
    issues: tuple[Issue, ...]
    #: What it cannot release, but another command can.
    others: tuple[Issue, ...] = ()
    #: What another one removes.
    later: tuple[Issue, ...] = ()
    #: The disks that it leaves out of the guest, with their mappings kept.
    left_out: tuple[Finding, ...] = ()
    #: Why it must not be done; empty: it may.
    refusals: tuple[str, ...] = ()


def reboot_plan(seen: inspection.Inspection) -> RebootPlan:
    """What a hard reboot would do at a server, and whether it may."""
    server = seen.server
    issues = issues_of(seen)
    due = tuple(i for i in issues if i.is_for_reboot)
    others = tuple(i for i in issues if not i.is_for_reboot and (
        i.remedy is Remedy.RELEASE or i.reason is Reason.RESERVED_ONLY))
    refusals = []
    if server.is_busy:
        refusals.append('it is changing (%s)'
                        % (server.task_state or server.status))
    elif server.status not in _REBOOTABLE:
        refusals.append(
            'a server that is %s cannot be hard-rebooted%s' % (
                server.status, '; no host has it, so "openstack bdm release" '
                'may release its stale attachments' if server.is_shelved
                else ''))
    refusals += [
        '%s of volume %s: %s; a person must look at it first' % (
            i.withheld or i.reason, i.volume, i.explanation)
        for i in issues if i.stops_a_reboot
        # A reboot for nothing would not end it.
        or i.remedy is Remedy.PERSON and not due]
    return RebootPlan(server, due, others, tuple(
        i for i in issues if i.is_for_later and i not in others),
        seen.left_out, tuple(refusals))


class Rebooter:
    """Reboots servers, and waits.

    :param nova: the compute API
    :param inspector: looks at them
    :param progress: told what is being done, and for how long
    :param timeout: seconds to wait for one reboot
    """

    def __init__(self, nova: Nova, inspector: inspection.Inspector,
                 progress: Callable[[str, int], None], timeout: float,
                 clock: Callable[[], float] = time.monotonic,
                 sleep: Callable[[float], None] = time.sleep) -> None:
        self._nova = nova
        self._inspector = inspector
        self._progress = progress
        self._timeout = timeout
        self._clock = clock
        self._sleep = sleep

    def look(self, server_id: str) -> RebootPlan:
        """What there is to do at a server.

        :raises ApiError: when it cannot be known
        """
        seen = self._inspector.inspect(server_id)
        if seen is None:
            raise errors.BadInput('server %s does not exist' % server_id)
        return reboot_plan(seen)

    def run(self, planned: RebootPlan,
            stop_again: bool = False) -> tuple[str, RebootPlan]:
        """Reboot a server.

        :param stop_again: stop it afterwards if it was stopped before
        :returns: its state afterwards, and what is left to do
        :raises Refused: when Nova does not reboot it for this user
        :raises Conflict: when Nova does not reboot it in its state
        :raises ApiError: when the reboot was not seen to end
        """
        server_id = planned.server.id
        try:
            self._nova.reboot_hard(server_id)
        except errors.NotFound as exc:
            raise errors.Conflict('server %s is gone' % server_id) from exc
        try:
            status = self._wait(planned.server, 'hard reboot')
            if stop_again and status == 'ACTIVE' \
                    and planned.server.status == 'SHUTOFF':
                self._nova.stop(server_id)
                status = self._wait(planned.server, 'stop')
            return status, self.look(server_id)
        except (errors.Refused, errors.Conflict, errors.BadInput) as exc:
            # They would say that nothing was changed.
            raise errors.Unanswered(str(exc)) from exc

    def _wait(self, server: ComputeServer, what: str) -> str:
        begin = self._clock()
        while True:
            now = self._nova.server(server.id)
            if now is None:
                raise errors.Unanswered('server %s is gone' % server.id)
            # The API sets the task before it answers the request.
            if not now.task_state:
                return now.status
            waited = self._clock() - begin
            if waited >= self._timeout:
                raise errors.Unanswered(
                    'the %s of server %s is not over after %d s (%s)' % (
                        what, server.id, waited, now.task_state))
            self._progress('%s of %s, seconds' % (what, server.id),
                           int(waited))
            self._sleep(_POLL)
