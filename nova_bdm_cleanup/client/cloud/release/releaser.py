# SPDX-License-Identifier: Apache-2.0
"""The release of volumes: facts, plan, check again, act, read back."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable
import dataclasses
import json
import time
from typing import Callable

from nova_bdm_cleanup.client.cloud import findings, inspection
from nova_bdm_cleanup.client.cloud.changes import Change, Result, Status, Steps
from nova_bdm_cleanup.client.cloud.release.steps import (
    decide,
    ReleaseStep,
    selected,
)
from nova_bdm_cleanup.client.cloud.release.volumes import (
    Call,
    Connector,
    HeldVolume,
    Holder,
)
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.rules import facts, spelling

#: How long a detach may take.
_LIMIT = 120.0

#: The connector keys by which back ends identify a host.
_IDENTITIES = ('initiator', 'wwpns', 'nqn', 'ip')


@dataclasses.dataclass(frozen=True)
class Target:
    """A volume, or one attachment of it."""

    volume: str
    attachment: str | None = None


class Releaser:
    """The planner of a release of volumes.

    :param is_same_cloud: the operator says that Nova and Cinder belong
        together
    :param gone_hosts: the operator says that these hosts are gone, and that
        no other Nova has their servers
    """

    def __init__(self, cloud: inspection.Cloud, connector: Connector,
                 is_same_cloud: bool = False,
                 gone_hosts: Collection[str] = ()) -> None:
        self._cloud = cloud
        self.nova = cloud.nova
        self.cinder = cloud.cinder
        self._connector = connector
        self._is_same_cloud = is_same_cloud
        self._gone_hosts = gone_hosts
        #: The servers with a mapping of a volume, as of the last scan.
        self._mapped_by: dict[str, set[str]] = {}
        #: The compute hosts of this Nova, and those that are gone.
        self._hosts: frozenset[str] = frozenset()
        #: The servers that Nova does not know.
        self._gone: dict[str, Holder] = {}

    def check(self) -> None:
        """Check that a server is gone if Nova does not know it.

        :raises BadInput: when a host that is gone is a compute host
        :raises Refused: when it is not
        """
        self.cinder.prove_admin(is_needed=True)
        hosts = self.nova.hosts()
        if hosts.silent:
            raise errors.Refused(
                'the cells of these compute hosts do not answer, so no '
                'server is known to be gone: %s' % ', '.join(hosts.silent))
        for host in self._gone_hosts:
            if spelling.is_among(host, hosts.known):
                raise errors.BadInput(
                    '--gone-host %s: it is a compute host of this Nova' % host)
        self._hosts = hosts.known.union(self._gone_hosts)
        self._check_same_cloud()

    def _check_same_cloud(self) -> None:
        """Check that Nova and Cinder belong together.

        To another region's Nova, or with another region's Cinder, the server
        of every attachment seems to be gone.
        """
        answer = self._cloud.witness.answer()
        if answer is facts.WitnessAnswer.UNKNOWN:
            # A contradiction: the word of an operator does not end it.
            raise errors.Refused(
                'Cinder knows none of the volumes that Nova names: it is the '
                'Cinder of another region, or was restored from an old '
                'database')
        if (answer is facts.WitnessAnswer.NONE_EXISTS
                and not self._is_same_cloud):
            # Attachments prove nothing: a project can have its own name any
            # server.
            raise errors.Refused(
                'no server has a volume, so nothing shows that this Nova and '
                'this Cinder belong together: add --same-cloud if they do')

    def resolve(self, name: str) -> Target:
        """Return the target for an attachment's or a volume's ID.

        :raises BadInput: when it is neither
        """
        wanted = spelling.identifier(name)
        attachment = self.cinder.attachment(wanted)
        if attachment is not None:
            return Target(attachment.volume_id, attachment.id)
        if self.cinder.volume(wanted) is None:
            raise errors.BadInput('neither an attachment nor a volume has the '
                                  'ID %s' % name)
        return Target(wanted)

    def plan(self, targets: Iterable[Target]) -> tuple[ReleaseStep, ...]:
        """Return the steps, and why each refused step is refused."""
        wanted: dict[str, list[str | None]] = {}
        for target in targets:
            wanted.setdefault(target.volume, []).append(target.attachment)
        self._scan(frozenset(wanted))
        steps: list[ReleaseStep] = []
        for number, (volume_id, attachments) in enumerate(wanted.items(), 1):
            self._cloud.progress('volumes', number)
            found = self._steps(volume_id)
            for attachment in dict.fromkeys(attachments):
                chosen = selected(found, attachment) or (
                    ReleaseStep(volume_id, 'attachment %s does not exist'
                                % attachment, is_settled=True),)
                steps += [s for s in chosen if s not in steps]
        return tuple(steps)

    def again(self, step: ReleaseStep) -> ReleaseStep | None:
        """Return the step as planned now; None: its target is gone."""
        self._gone.pop(step.server or '', None)
        return next((s for s in self._steps(step.volume)
                     if s.attachment_id == step.attachment_id), None)

    # The facts

    def _scan(self, volume_ids: frozenset[str]) -> None:
        """Find the servers, of all projects and cells, that have the volumes.

        Servers in the state SOFT_DELETED are not listed; they are
        found by the attachments that name them.
        """
        self._mapped_by = {v: set() for v in volume_ids}
        count = 0
        for page in self.nova.servers(all_projects=True):
            for server in page:
                if server.is_unknown:
                    raise errors.Refused(
                        'the cell of server %s does not answer, so no server '
                        'is known to be gone' % server.id)
                for volume_id in volume_ids.intersection(server.volumes):
                    self._mapped_by[volume_id].add(server.id)
            count += len(page)
            self._cloud.progress('servers', count)

    def _steps(self, volume_id: str) -> tuple[ReleaseStep, ...]:
        volume = self.cinder.volume(volume_id)
        if volume is None:
            return (ReleaseStep(volume_id, 'the volume does not exist',
                                is_settled=True),)
        attachments = self.cinder.attachments_of(volume_id)
        holders = {s: self._holder(s, volume, attachments) for s in sorted({
            a.server_id for a in attachments if a.server_id})}
        mapped_by = set(self._mapped_by[volume_id])
        for server in filter(None, (h.server for h in holders.values())):
            mapped_by.discard(server.id)
            if volume_id in server.volumes:
                mapped_by.add(server.id)
        return decide(HeldVolume(
            volume, attachments, holders, tuple(sorted(mapped_by)),
            self._connector, self._cloud.policy, self._cloud.now()))

    def _holder(self, server_id: str, volume: facts.Volume,
                attachments: Iterable[facts.Attachment]) -> Holder:
        server = self.nova.server(server_id)
        if server is None:
            if server_id not in self._gone:
                self._gone[server_id] = self._gone_holder(server_id)
            return self._gone[server_id]
        seen = self._cloud.inspect(server_id, [
            a.id for a in attachments if a.server_id == server_id])
        if seen is None:
            raise errors.Conflict('server %s is changing' % server_id)
        return Holder(
            server, findings=findings.findings_of(seen, self._cloud),
            has_failed_detach=(
                volume.status == 'detaching' and volume.id in server.volumes
                and self.nova.has_failed_detach(
                    server, volume.id, volume.updated_at)))

    def _gone_holder(self, server_id: str) -> Holder:
        """Return the facts about a server that Nova does not know."""
        if self.nova.has_deleted(server_id):
            return Holder(None, is_deleted=True)
        volumes, attachments, _ = self.cinder.look(
            server_id, (), closely=True)
        elsewhere = None
        for attachment in attachments:
            volume = volumes.get(attachment.volume_id)
            host = volume.host_of(attachment.id) if volume else None
            if (host and attachment.server_id == server_id
                    and not spelling.is_among(host, self._hosts)):
                elsewhere = host
        return Holder(None, elsewhere=elsewhere)


class Release(Change):
    """One step, as the operator was shown it."""

    def __init__(self, releaser: Releaser, step: ReleaseStep) -> None:
        self.subjects = (step,)
        self._releaser = releaser
        self._cinder = releaser.cinder
        self._step = step
        #: The attachments that the call must not change.
        self._others_before: set[facts.Attachment] = set()
        self.advice = '; see openstack bdm release --dry-run %s' % (
            step.attachment_id or step.volume)
        if step.call is Call.TERMINATE:
            # The volume stays "attaching" while a host may still have it.
            self.advice = ('; if the volume is attaching now: openstack bdm '
                           'release --stuck-after 0 --connector FILE %s'
                           % step.volume)

    def check(self) -> list[Result]:
        step, again = self._step, self._releaser.again(self._step)
        if again is None:
            return [Result(step, Status.SKIPPED, 'it no longer exists', True)]
        if (again.call, again.needs_look) == (step.call, step.needs_look):
            self._others_before = self._others()
            return []
        if step.call is Call.ROLL_DETACHING:
            volume = self._cinder.volume(step.volume)
            if volume is not None and volume.status == step.expected:
                # With another attachment of the same volume, for example.
                return [Result(step, Status.DONE, 'the volume is %s'
                               % volume.status, True)]
        return [Result(step, Status.SKIPPED, str(again.advice),
                       again.is_settled)]

    def make(self) -> Steps:
        if self._step.call is not None:
            _MAKE[self._step.call](self._releaser, self._step)
        try:
            if self._step.call is Call.DETACH_AGAIN:
                yield from self._wait()
            return [self._result()]
        except errors.ApiError as exc:
            raise errors.Unanswered(
                'the request was accepted, but its result is not known: %s'
                % exc, exc.status) from exc

    def _wait(self) -> Generator[None, None, None]:
        """Wait until Nova has detached the volume."""
        begin = time.monotonic()
        while True:
            volume = self._cinder.volume(self._step.volume)
            # Nova sets it before it answers, and undoes it if it fails.
            if volume is None or volume.status != 'detaching':
                return
            if time.monotonic() - begin >= _LIMIT:
                raise errors.Unanswered('Nova has not detached the volume '
                                        'after %d s' % _LIMIT)
            yield

    def _result(self) -> Result:
        """Read back the result of the call."""
        step = self._step

        def failed(why: str) -> Result:
            return Result(step, Status.FAILED, why)

        volume = self._cinder.volume(step.volume)
        if volume is None:
            return failed('the volume is gone')
        left = step.attachment_id and self._cinder.attachment(
            step.attachment_id)
        if left and step.call is not Call.ROLL_DETACHING:
            return failed('the attachment is still there')
        if self._others() != self._others_before:
            return Result(step, Status.UNKNOWN, 'another attachment of the '
                                                'volume has changed; check it')
        if volume.status != step.expected:
            return failed('the volume is %s, not %s' % (
                volume.status, step.expected))
        return Result(step, Status.RELEASED,
                      'the volume is %s' % step.expected, is_well=True)

    def _others(self) -> set[facts.Attachment]:
        """Return the other attachments of the volume."""
        return {a for a in self._cinder.attachments_of(self._step.volume)
                if a.id != self._step.attachment_id}


# How each call is made


def _delete(releaser: Releaser, step: ReleaseStep) -> None:
    if not releaser.cinder.delete_attachment(step.attachment_id or ''):
        raise errors.NotFound('the attachment no longer exists')


def _complete_and_delete(releaser: Releaser, step: ReleaseStep) -> None:
    releaser.cinder.complete_attachment(step.attachment_id or '')
    try:
        _delete(releaser, step)
    except (errors.Refused, errors.Conflict) as exc:
        # "Failed" would say that it is unchanged.
        raise errors.Unanswered(
            'the attachment is now attached, and %s' % exc,
            exc.status) from exc


def _detach_again(releaser: Releaser, step: ReleaseStep) -> None:
    """Ask Nova once more to detach a volume."""
    cinder = releaser.cinder
    cinder.act(step.volume, Call.ROLL_DETACHING.value)
    try:
        releaser.nova.detach(step.server or '', step.volume)
    except (errors.Refused, errors.Conflict, errors.NotFound) as exc:
        # "Failed" would say that the volume is unchanged.
        raise errors.Unanswered('the volume is in-use again, and %s' % exc,
                                exc.status) from exc


def _terminate(releaser: Releaser, step: ReleaseStep) -> None:
    """Have the back end unmap a volume that Cinder has no record for.

    No other user may get the volume before it is known to be unmapped: the
    back end could unmap it from that user.
    """
    cinder = releaser.cinder
    cinder.act(step.volume, 'os-reserve')
    try:
        try:
            attachments = cinder.attachments_of(step.volume)
        except errors.ApiError as exc:
            raise errors.Conflict(str(exc)) from exc
        if attachments:
            raise errors.Refused('attachment %s of the volume is new'
                                 % attachments[0].id)
        # Cinder ends the reservation when the back end has done it.
        cinder.act(step.volume, Call.TERMINATE.value,
                   {'connector': step.connector})
    except (errors.Refused, errors.Conflict, errors.NotFound):
        try:
            cinder.act(step.volume, Call.UNRESERVE.value)
        except errors.ApiError as exc:
            # "Failed" would say that the volume is unchanged.
            raise errors.Unanswered(str(exc), exc.status) from exc
        raise


_MAKE: dict[Call, Callable[[Releaser, ReleaseStep], object]] = {
    Call.DELETE: _delete,
    Call.COMPLETE_AND_DELETE: _complete_and_delete,
    Call.FORCE_DETACH: lambda releaser, step: releaser.cinder.act(
        step.volume, Call.FORCE_DETACH.value, {
            'attachment_id': step.attachment_id,
            'connector': step.connector}),
    Call.TERMINATE: _terminate,
    Call.ROLL_DETACHING: lambda releaser, step: releaser.cinder.act(
        step.volume, Call.ROLL_DETACHING.value),
    Call.DETACH_AGAIN: _detach_again,
    Call.UNRESERVE: lambda releaser, step: releaser.cinder.act(
        step.volume, Call.UNRESERVE.value),
    Call.DETACH: lambda releaser, step: releaser.cinder.act(
        step.volume, Call.DETACH.value, {}),
}


def read_connector(path: str) -> Connector:
    """Read a file with a host's connector, or the word ``none``.

    :raises BadInput: when it is neither
    """
    if path == 'none':
        return Connector(is_none=True)
    try:
        with open(path, encoding='utf-8') as file:
            connector = json.load(file)
    except (OSError, ValueError) as exc:
        raise errors.BadInput('connector %s: %s' % (
            path, getattr(exc, 'strerror', exc))) from exc
    host = connector.get('host') if isinstance(connector, dict) else None
    if not host or not isinstance(host, str):
        raise errors.BadInput('connector %s: it names no host; use the output '
                              'of "nova-manage volume_attachment '
                              'get_connector --json"' % path)
    if not any(connector.get(key) for key in _IDENTITIES):
        # Some back ends take a missing key for "any".
        raise errors.BadInput(
            'connector %s: it has none of the keys by which a back end knows '
            'host %s (%s)' % (path, host, ', '.join(_IDENTITIES)))
    return Connector(connector)
