# SPDX-License-Identifier: Apache-2.0
"""Every inconsistency between Nova's and Cinder's records.

The audit reads whole lists in this order: servers with the volumes that their
mappings name, then attachments, then volumes in use.  Records that agree are
not read again.  Each suspect is read again on its own, and only the result of
the rules is shown.  So a volume, server or attachment that was created,
attached or deleted while the lists were read does not look orphaned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import functools
import itertools
from typing import Callable, TypeVar

from nova_bdm_cleanup.client.cloud import crosscheck, inspection
from nova_bdm_cleanup.client.cloud.findings import (
    CloudFinding,
    findings_of,
    for_reader,
    sides_of,
)
from nova_bdm_cleanup.client.cloud.nova import ComputeServer
from nova_bdm_cleanup.client.cloud.release.steps import decide
from nova_bdm_cleanup.client.cloud.release.volumes import (
    Connector,
    HeldVolume,
    Holder,
)
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.rules import facts, spelling
from nova_bdm_cleanup.rules.facts import Attachment, Volume
from nova_bdm_cleanup.rules.reasons import Reason, Remedy

#: The limit per volume of inspected attachments to servers that Nova did not
#: list: the owner of a volume can create thousands.
EACH = 50

Entry = TypeVar('Entry')


class _Over(Exception):
    """A refusal after which every other request would fail as well."""


@dataclasses.dataclass(frozen=True)
class Scope:
    """The scope of an audit; by default the project of the credentials."""

    servers: tuple[str, ...] = ()
    host: str | None = None
    project: str | None = None
    all_projects: bool = False
    #: Compare the attachment ids of every server: a request for each.
    thorough: bool = False

    @property
    def needs_admin(self) -> bool:
        return bool(self.all_projects or self.host or self.project)


class CloudAudit:
    """One audit."""

    def __init__(self, cloud: inspection.Cloud, scope: Scope) -> None:
        self._cloud = cloud
        # Not the witness of the cloud: a command that changes something after
        # the audit has to ask again.
        self._witness = inspection.Witness(cloud.nova, cloud.cinder)
        self._nova = cloud.nova
        self._cinder = cloud.cinder
        self._scope = scope
        self._project = scope.project or (
            None if scope.all_projects else cloud.project)
        self._unknown = 0
        #: Whether Nova knows a server that it did not list.
        self._known: dict[str, bool] = {}
        # Asked once for each server.
        self._has_deleted = functools.lru_cache(maxsize=None)(
            cloud.nova.has_deleted)
        #: The compute hosts of this Nova, where it tells them.
        self.hosts: frozenset[str] = frozenset()
        #: Whether each service is down, where the APIs tell that.
        self.services: dict[str, bool] = {}
        #: Why the result is incomplete; empty: it is complete.
        self.gaps: list[str] = []
        #: Servers, volumes claimed by them, and attachments listed.
        self.size = (0, 0, 0)

    def findings(self) -> Iterator[CloudFinding]:
        """Yield the inconsistencies; :attr:`gaps` is complete at the end.

        Once all lists are read, no error is raised.

        :raises Refused: when the credentials do not suffice
        :raises BadInput: when there is nothing in the scope
        """
        scope = self._scope
        self._cinder.prove_admin(scope.needs_admin)
        try:
            self._ask_for_services()
            for finding in (
                    self._these(scope.servers) if scope.servers
                    else self._host(scope.host) if scope.host
                    else self._books(crosscheck.CrossCheck())):
                yield for_reader(finding, self._cloud)
        except (errors.OverBudget, _Over) as exc:
            self.gaps.append(str(exc))
        if self._unknown:
            self.gaps.append('%d server%s in cells that do not answer' % (
                self._unknown, ' is' if self._unknown == 1 else 's are'))

    # Some servers

    def _these(self, names: tuple[str, ...]) -> Iterator[CloudFinding]:
        found: list[str] = []
        gone: list[CloudFinding] = []
        for name in names:
            try:
                found.append(
                    self._nova.find(name, self._scope.all_projects).id)
            except errors.Unanswered as exc:
                self.gaps.append('server %s: %s' % (name, exc))
            except errors.BadInput:
                # Cinder may still name it.
                gaps = len(self.gaps)
                left = list(self._each(
                    'servers', 'server', [spelling.identifier(name)],
                    self._gone)) if self._scope.all_projects else []
                if not left and len(self.gaps) == gaps:
                    raise
                gone += left
        yield from self._look_at_servers({server: () for server in found})
        yield from gone

    def _host(self, host: str) -> Iterator[CloudFinding]:
        servers: list[ComputeServer] = []
        is_whole = self._read(
            'servers', self._nova.servers(host=host), servers.extend)
        if is_whole and not servers and self.hosts \
                and not spelling.is_among(host, self.hosts):
            raise errors.BadInput('Nova has no compute host %s' % host)
        yield from self._look_at_servers({
            s.id: () for s in self._answering(servers)})

    def _answering(self, servers: Sequence[ComputeServer]
                   ) -> list[ComputeServer]:
        """Return the servers whose cell answers, and count the others."""
        found = [s for s in servers if not s.is_unknown]
        self._unknown += len(servers) - len(found)
        return found

    # The books

    def _books(self, books: crosscheck.CrossCheck) -> Iterator[CloudFinding]:
        has_servers = self._read(
            'servers', self._nova.servers(self._scope.all_projects,
                                          self._scope.project),
            lambda page: books.add_servers(self._answering(page)))
        has_attachments = self._read(
            'attachments', self._cinder.attachments(self._project),
            books.add_attachments)
        has_volumes = all(
            self._read('volumes that are ' + status,
                       self._cinder.volumes(status, self._project),
                       books.add_volumes)
            for status in facts.TAKEN)
        self.size = books.size
        try:
            # Cinder may also know a volume that is not taken.
            answer = (facts.WitnessAnswer.KNOWN if books.knows_claim
                      else self._cinder.witness(books.claims()))
        except (errors.Unanswered, errors.Refused) as exc:
            self.gaps.append(str(exc))
            return
        self._witness = inspection.Witness(self._nova, self._cinder, answer)
        if answer is facts.WitnessAnswer.UNKNOWN:
            # Every mapping would look dangling, and none would be.
            self.gaps.append(
                'Cinder knows none of the volumes that Nova names: is it the '
                'wrong region, or a restored database?')
            return
        if has_attachments and has_volumes:
            yield from self._look_at_servers(
                books.suspects(self._scope.thorough))
        if has_servers:
            yield from self._look_at_strangers(books.strangers())
        if has_servers and has_attachments:
            yield from self._each('volumes without a server', 'volume',
                                  books.unreferenced_volumes(),
                                  self._unreferenced)

    def _read(self, what: str, pages: Iterable[list[Entry]],
              add: Callable[[list[Entry]], None]) -> bool:
        """Read a list into the books; return whether it is complete."""
        count = 0
        try:
            for page in pages:
                add(page)
                count += len(page)
                self._cloud.progress(what, count)
        except errors.Unanswered as exc:
            self.gaps.append(str(exc))
            return False
        return True

    # Judging

    def _each(self, what: str, kind: str, ids: Iterable[str],
              look: Callable[[str], Iterable[CloudFinding]]
              ) -> Iterator[CloudFinding]:
        """Inspect suspects one by one; an unanswered request is a gap."""
        for number, suspect in enumerate(ids, 1):
            self._cloud.progress(what, number)
            try:
                yield from look(suspect)
            except (errors.Unanswered, errors.Forbidden,
                    errors.ProjectHidden) as exc:
                self.gaps.append('%s %s: %s' % (kind, suspect, exc))
            except errors.Refused as exc:
                raise _Over('%s %s, and the rest of the audit: %s'
                            % (kind, suspect, exc)) from exc

    def _inspect(self, server_id: str, named: Sequence[str] = ()
                 ) -> inspection.Inspection | None:
        return self._cloud.inspect(server_id, named,
                                   witness=self._witness)

    def _look_at_servers(self, suspects: Mapping[str, Sequence[str]]
                         ) -> Iterator[CloudFinding]:
        """Inspect servers, each with the attachments that name it."""
        def look(server_id: str) -> Iterable[CloudFinding]:
            seen = self._inspect(server_id, suspects[server_id])
            return (self._gone(server_id) if seen is None
                    else findings_of(seen, self._cloud))

        return self._each('second looks at servers', 'server', suspects, look)

    def _look_at_strangers(self, strangers: Mapping[str, Mapping[str, str]]
                           ) -> Iterator[CloudFinding]:
        """Inspect volumes with attachments to servers not listed by Nova."""
        every = {s for named in strangers.values() for s in named.values()}

        def look(volume_id: str) -> Iterator[CloudFinding]:
            named = strangers[volume_id]
            some = dict(itertools.islice(named.items(), EACH))
            yield from self._each(
                'servers that Nova did not list', 'server',
                dict.fromkeys(some.values()), self._stranger)
            # Only now: a server deleted meanwhile took its attachments along.
            gone = [a for a, s in some.items() if self._known.get(s) is False]
            last: CloudFinding | None = None
            if gone:
                for last in self._gone_of(
                        volume_id, self._cinder.volume(volume_id), gone,
                        every):
                    yield last
            more = len(named) - len(some)
            if more and last:
                yield dataclasses.replace(
                    last, server=None, attachment=None, host=None,
                    count=more, instead=Remedy.PERSON, sides={},
                    steps=('openstack bdm release %s --max %d' % (
                        volume_id, len(named)),),
                    explanation='%d more attachments of this volume name '
                    'servers that Nova did not list; they were not looked at '
                    'one by one' % more)
            elif more:
                raise errors.Unanswered(
                    '%d more attachments of this volume name servers that '
                    'Nova did not list; they were not looked at' % more)

        return self._each('volumes of servers that Nova did not list',
                          'volume', sorted(strangers), look)

    def _stranger(self, server_id: str) -> Iterable[CloudFinding]:
        """Inspect a server that Cinder names, once.

        It may have been created since, or wait for its reclaim.
        """
        if server_id in self._known:
            return ()
        seen = self._inspect(server_id)
        self._known[server_id] = seen is not None
        return () if seen is None else findings_of(seen, self._cloud)

    def _gone(self, server_id: str) -> Iterator[CloudFinding]:
        """Yield the attachments of a server that Nova does not know."""
        volumes, attachments, _ = self._cinder.look(server_id, ())
        wanted: dict[str, list[str]] = {}
        for each in attachments:
            if each.server_id == server_id:
                wanted.setdefault(each.volume_id, []).append(each.id)
        for volume_id, ids in wanted.items():
            yield from self._gone_of(
                volume_id, volumes.get(volume_id), ids, (server_id,))

    def _gone_of(self, volume_id: str, volume: Volume | None,
                 wanted: Collection[str],
                 gone: Collection[str]) -> Iterator[CloudFinding]:
        """Yield findings on attachments of a volume that still exist.

        :param wanted: their IDs; Nova knows none of their servers
        :param gone: the servers that Nova does not know
        """
        found: dict[str, Attachment] = {}
        for page in self._cinder.attachments(volume=volume_id):
            found.update((a.id, a) for a in page if a.volume_id == volume_id)
            if found.keys() >= set(wanted):
                break
        left = [found[a] for a in wanted if a in found]
        # One attachment whose server may exist is enough to refuse.
        others = [a for a in found.values()
                  if a.status != 'attached' and a.server_id not in gone][:1]
        holders = {a.server_id or '': self._holder(a, volume) for a in left}
        freed = {s.attachment_id for s in decide(
            self._held(volume, (*left, *others), holders))
            if s.call and not s.needs_look} if volume else ()
        for attachment in left:
            yield self._gone_finding(
                attachment, volume,
                holders[attachment.server_id or ''].is_deleted,
                attachment.id not in freed)

    def _holder(self, attachment: Attachment,
                volume: Volume | None) -> Holder:
        """Return the server of an attachment, unknown to Nova."""
        is_deleted = False
        with contextlib.suppress(errors.Unanswered, errors.Refused):
            # Nova tells administrators only.
            is_deleted = self._cinder.sees_all and self._has_deleted(
                attachment.server_id or '')
        host = volume.host_of(attachment.id) if volume else None
        is_known = host is None or spelling.is_among(host, self.hosts)
        return Holder(None, is_deleted,
                      None if is_deleted or is_known else host)

    def _held(self, volume: Volume, attachments: tuple[Attachment, ...],
              holders: Mapping[str, Holder]) -> HeldVolume:
        """Return the volume as "bdm release" would judge it."""
        return HeldVolume(volume, attachments, holders, (), Connector(),
                          self._cloud.policy, self._cloud.now())

    def _gone_finding(self, attachment: Attachment, volume: Volume | None,
                    is_deleted: bool, needs_look: bool) -> CloudFinding:
        """Return the finding on an attachment whose server Nova lacks.

        :param is_deleted: Nova says that it has deleted the server
        :param needs_look: "bdm release" would not free it without more
        """
        if not self._cinder.sees_all:
            explanation = ('server %s is not visible to you: it does not '
                           'exist, or belongs to another project'
                           % attachment.server_id)
        elif is_deleted:
            explanation = 'Nova has deleted server %s' % attachment.server_id
        else:
            explanation = ('Nova never knew server %s, or has purged it; '
                           'another Nova may have it' % attachment.server_id)
        if attachment.is_half_connected:
            explanation += ('; a host was given access, although the '
                            'attachment is only reserved')
        reason = Reason.SERVER_GONE
        since = volume.updated_at if volume else None
        wait = None
        if attachment.status != 'attached' and volume \
                and self._cloud.policy.is_young(since, self._cloud.now()):
            # Nova reserves the volumes of a server before the server exists.
            reason = Reason.OPERATION_IN_FLIGHT
            explanation = ('attachment %s is too new; its server may still '
                           'be building' % attachment.id)
            wait = self._cloud.policy.grace_period
        return CloudFinding(
            reason=reason, explanation=explanation,
            server=attachment.server_id, volume=attachment.volume_id,
            attachment=attachment.id,
            project=volume.project if volume else None,
            host=volume.host_of(attachment.id) if volume else None,
            label=volume.label if volume else facts.Label(),
            since=since, wait=wait, needs_look=needs_look,
            sides=sides_of(['the server does not exist, or is not visible'],
                           volume, [attachment]))

    def _unreferenced(self, volume_id: str) -> Iterable[CloudFinding]:
        """Yield a volume that is taken, if no server has it."""
        volume = self._cinder.volume(volume_id)
        if volume is None or volume.status not in facts.TAKEN:
            return
        attachments = self._cinder.attachments_of(volume_id)
        if any(a.server_id for a in attachments) or (
                attachments and volume.status == 'in-use'):
            return
        reason = Reason.VOLUME_UNREFERENCED
        if volume.status != 'in-use':
            reason = Reason.STUCK if self._cloud.policy.is_stuck(
                volume.updated_at, self._cloud.now()
            ) else Reason.OPERATION_IN_FLIGHT
        yield CloudFinding(
            reason=reason,
            explanation=self._held(volume, attachments, {}).why_unused,
            project=volume.project, volume=volume_id, label=volume.label,
            since=volume.updated_at,
            wait=self._cloud.policy.stuck_after,
            sides=sides_of(['no server has a mapping of the volume'], volume,
                           attachments),
            # Which server had it, if any?
            needs_look=True)

    # Whether the answers are reliable

    def _ask_for_services(self) -> None:
        if self._cinder.sees_all:
            # Without an answer, the lists are incomplete as well.
            with contextlib.suppress(errors.Unanswered, errors.Refused):
                self.services.update(self._cinder.services())
        try:
            hosts = self._nova.hosts()
        except errors.Forbidden:
            if self._scope.needs_admin:
                raise
            return  # Lists of one project show servers of silent cells.
        except errors.Unanswered as exc:
            self.gaps.append('whether every cell answers is not known: %s'
                             % exc)
            return
        self.hosts = hosts.known
        self.services.update(hosts.services)
        if hosts.silent:
            self.gaps.append('the cells of these compute hosts do not '
                             'answer: %s' % ', '.join(hosts.silent))
