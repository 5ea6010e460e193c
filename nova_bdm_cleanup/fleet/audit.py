# SPDX-License-Identifier: Apache-2.0
"""Every inconsistency between Nova's and Cinder's records.

Claims first, authority after: servers and the volumes they claim, then
attachments, then volumes in use, all as whole lists.  What fits together is
never looked at again; every suspect is, on its own and anew, and only what
the rules then say is shown.  So what was created, attached or deleted while
the lists were read does not look orphaned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
import dataclasses
import datetime
import functools
from typing import Callable, TypeVar

from nova_bdm_cleanup.fleet import crosscheck, inspection
from nova_bdm_cleanup.fleet.issues import (
    AnyReason,
    FleetReason,
    Issue,
    issues_of,
    record_words,
    Sides,
    volume_words,
)
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.openstack.cinder import Cinder
from nova_bdm_cleanup.openstack.nova import ComputeServer, Nova
from nova_bdm_cleanup.rules import spelling
from nova_bdm_cleanup.rules.facts import (
    Attachment,
    Policy,
    Reason,
    TAKEN,
    Volume,
)


@dataclasses.dataclass(frozen=True)
class Scope:
    """What is audited; by default the project of the credentials."""

    servers: tuple[str, ...] = ()
    host: str | None = None
    project: str | None = None
    all_projects: bool = False
    #: Compare the attachment ids of every server: a request for each.
    thorough: bool = False
    #: Look also at servers of which nothing is wrong but that Cinder keeps no
    #: connection of an attachment: of an old cloud that may be every one.
    legacy: bool = False

    @property
    def needs_admin(self) -> bool:
        return bool(self.all_projects or self.host or self.project)


Progress = Callable[[str, int], None]

Entry = TypeVar('Entry')


class FleetAudit:
    """One audit.

    :param nova: the compute API
    :param cinder: Cinder
    :param policy: what is young and what is stuck
    :param scope: what to look at
    :param progress: told what is being done, and how far it is
    :param now: gives the time, with its time zone
    :param project: whose credentials these are
    """

    def __init__(self, nova: Nova, cinder: Cinder,
                 policy: Policy, scope: Scope, progress: Progress,
                 now: Callable[[], datetime.datetime],
                 project: str | None) -> None:
        self._nova = nova
        self._cinder = cinder
        self._policy = policy
        self._scope = scope
        self._progress = progress
        self._now = now
        self._project = scope.project or (
            None if scope.all_projects else project)
        self._witness = inspection.Witness(nova, cinder)
        self._inspector = inspection.Inspector(
            nova, cinder, policy, self._witness, now, project)
        self._unknown = 0
        #: The compute hosts of this Nova, where it tells them.
        self.hosts: frozenset[str] = frozenset()
        #: Why the result is not the whole truth; empty: it is.
        self.gaps: list[str] = []
        #: Servers, volumes claimed by them, and attachments listed.
        self.size = (0, 0, 0)
        #: How many of the attachments are legacy records.
        self.legacy = 0

    def issues(self) -> Iterator[Issue]:
        """What is inconsistent; :attr:`gaps` is complete at the end.

        :raises Refused: when the credentials do not suffice
        :raises BadInput: when there is nothing in the scope
        """
        if not self._cinder.prove_admin() and self._scope.needs_admin:
            raise errors.Refused('Cinder does not show all projects to these '
                                 'credentials; this needs the admin role')
        try:
            self._note_silent_hosts()
            if self._scope.servers:
                yield from self._these(self._scope.servers)
            elif self._scope.host:
                yield from self._host(self._scope.host)
            else:
                yield from self._books(crosscheck.CrossCheck())
        except errors.OverBudget as exc:
            self.gaps.append(str(exc))
        if self._unknown:
            self.gaps.append('%d servers are in cells that do not answer'
                             % self._unknown)

    # Some servers

    def _these(self, names: tuple[str, ...]) -> Iterator[Issue]:
        found: list[str] = []
        gone: list[Issue] = []
        for name in names:
            try:
                found.append(
                    self._nova.find(name, self._scope.all_projects).id)
            except errors.BadInput:
                # Cinder may name it all the same.
                left = (list(self._gone(spelling.identifier(name)))
                        if self._scope.all_projects else [])
                if not left:
                    raise
                gone += left
        yield from self._look_at_servers({server: () for server in found})
        yield from gone

    def _host(self, host: str) -> Iterator[Issue]:
        servers = [s for page in self._nova.servers(host=host) for s in page]
        if not servers:
            raise errors.BadInput('no server runs on host %s' % host)
        yield from self._look_at_servers({
            s.id: () for s in servers if not self._is_unknown(s)})

    # The books

    def _books(self, books: crosscheck.CrossCheck) -> Iterator[Issue]:
        has_servers = self._read(
            'servers', self._nova.servers(self._scope.all_projects,
                                          self._scope.project),
            lambda page: books.add_servers(
                s for s in page if not self._is_unknown(s)))
        has_attachments = self._read(
            'attachments', self._cinder.attachments(self._project),
            books.add_attachments)
        has_volumes = all(
            self._read('volumes that are ' + status,
                       self._cinder.volume_ids(status, self._project),
                       functools.partial(books.add_volumes, status))
            for status in TAKEN)
        self.size = books.size
        self.legacy = books.legacy
        if self._scope.project and books.is_empty and not (
                self.gaps or self._unknown):
            # Neither API knows which projects there are.
            raise errors.BadInput('project %s has no servers and no volumes '
                                  'in use: is it the ID of a project?'
                                  % self._scope.project)
        self._witness.remember(self._books_witness(books))
        if self._witness() is False:
            # Everything would look dangling, and nothing would be.
            self.gaps.append(
                'this Cinder knows none of the volumes that Nova names: is '
                'it the Cinder of this region, or a restored database?')
            return
        if has_attachments and has_volumes:
            yield from self._look_at_servers(
                books.suspects(self._scope.thorough, self._scope.legacy))
        if has_servers:
            yield from self._each('servers that Nova did not list', 'server',
                                  books.strangers(), self._stranger)
        if has_servers and has_attachments:
            yield from self._each('volumes that nobody has', 'volume',
                                  books.nobodys_volumes(), self._nobodys)

    def _read(self, what: str, pages: Iterable[list[Entry]],
              add: Callable[[list[Entry]], None]) -> bool:
        """Read a list into the books; whether it was read to its end."""
        count = 0
        try:
            for page in pages:
                add(page)
                count += len(page)
                self._progress(what, count)
        except errors.Unanswered as exc:
            self.gaps.append(str(exc))
            return False
        return True

    # Judging

    def _each(self, what: str, kind: str, ids: Iterable[str],
              look: Callable[[str], Iterable[Issue]]) -> Iterator[Issue]:
        """Look at suspects one by one; what does not answer is a gap."""
        for number, suspect in enumerate(ids, 1):
            self._progress(what, number)
            try:
                yield from look(suspect)
            except errors.Unanswered as exc:
                self.gaps.append('%s %s: %s' % (kind, suspect, exc))

    def _look_at_servers(self, suspects: Mapping[str, Sequence[str]]
                         ) -> Iterator[Issue]:
        """Look at servers, each with the attachments that name it."""
        def look(server_id: str) -> Iterable[Issue]:
            seen = self._inspector.inspect(server_id, suspects[server_id])
            if seen is None:
                return self._gone(server_id)
            return issues_of(seen, legacy=True)

        return self._each('second looks at servers', 'server', suspects, look)

    def _stranger(self, server_id: str) -> Iterable[Issue]:
        """A server that Cinder names.

        It may have been created since, or wait for its reclaim.
        """
        if self._nova.server(server_id) is None:
            return self._gone(server_id)
        seen = self._inspector.inspect(server_id)
        return issues_of(seen) if seen else ()

    def _gone(self, server_id: str) -> Iterator[Issue]:
        """The attachments of a server that Nova does not know."""
        volumes, attachments, _ = self._cinder.look(server_id, ())
        for attachment in attachments:
            if attachment.server_id == server_id:
                yield self._gone_issue(
                    attachment, volumes.get(attachment.volume_id))

    def _gone_issue(self, attachment: Attachment,
                    volume: Volume | None) -> Issue:
        reason: AnyReason = FleetReason.SERVER_GONE
        explanation = 'Nova does not know server %s' % attachment.server_id
        if attachment.is_half_connected:
            explanation += ('; a host was let in, although the attachment is '
                            'only reserved')
        if attachment.status != 'attached' and volume is not None \
                and self._policy.is_young(volume.updated_at, self._now()):
            # Nova reserves the volumes of a server before the server exists.
            reason = Reason.OPERATION_IN_FLIGHT
            explanation = ('attachment %s is too new; its server may still '
                           'be building' % attachment.id)
        host = volume.host_of(attachment.id) if volume else None
        return Issue(
            reason=reason, explanation=explanation,
            server=attachment.server_id, volume=attachment.volume_id,
            attachment=attachment.id,
            host=host, since=volume.updated_at if volume else None,
            sides=Sides(('the server does not exist',), volume_words(volume),
                        (record_words(attachment, volume),)),
            needs_look=(
                # What "bdm release" does not free without being told more.
                attachment.is_legacy
                or attachment.status == 'attaching'
                and not attachment.connected
                or host is not None
                and not spelling.is_among(host, self.hosts)
                or volume is None or volume.keep or volume.is_migrating
                or volume.status not in (*TAKEN, 'available')))

    def _nobodys(self, volume_id: str) -> Iterable[Issue]:
        """A volume that is taken, if nobody has it."""
        volume = self._cinder.volume(volume_id)
        if volume is None or volume.status not in TAKEN:
            return ()
        attachments = self._cinder.attachments_of(volume_id)
        if any(a.server_id for a in attachments) or (
                attachments and volume.status == 'in-use'):
            return ()
        explanation = ('the volume is %s, and neither Nova nor an attachment '
                       'says by whom' % volume.status)
        reason: AnyReason = FleetReason.USED_BY_NOBODY
        if volume.status != 'in-use':
            reason = (
                Reason.STUCK
                if self._policy.is_stuck(volume.updated_at, self._now())
                else Reason.OPERATION_IN_FLIGHT)
        return (Issue(
            reason=reason, explanation=explanation, volume=volume_id,
            since=volume.updated_at,
            sides=Sides(
                ('no server has a mapping of it',), volume_words(volume),
                tuple(record_words(a, volume) for a in attachments)),
            # Who had it, if anybody?
            needs_look=True),)

    # Whether the answers can be believed

    def _note_silent_hosts(self) -> None:
        try:
            hosts = self._nova.hosts()
        except errors.Forbidden:
            if self._scope.needs_admin:
                raise
            return  # One project's lists show what their cells keep back.
        self.hosts = hosts.known
        if hosts.silent:
            self.gaps.append('the cells of these compute hosts do not '
                             'answer: %s' % ', '.join(hosts.silent))

    def _is_unknown(self, server: ComputeServer) -> bool:
        self._unknown += server.is_unknown
        return server.is_unknown

    def _books_witness(self, books: crosscheck.CrossCheck) -> bool | None:
        if books.cinder_is_witnessed is not False:
            return books.cinder_is_witnessed
        # None of them is in use; does it know one of them at all?
        try:
            return self._cinder.knows_any(
                books.some_claims(inspection.WITNESSES))
        except errors.Unanswered as exc:
            self.gaps.append(str(exc))
            return False
