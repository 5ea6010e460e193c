# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""Every inconsistency between Nova's and Cinder's records.

Claims first, authority after: servers and the volumes they claim, then
attachments, then volumes in use, all as whole lists.  What fits together is
never looked at again; every suspect is, on its own and anew, and only what
the rules then say is shown.  So what was created, attached or deleted while
the lists were read does not look orphaned.
"""

from __future__ import annotations

import dataclasses
import datetime
from typing import Callable, FrozenSet, Iterator, List, Optional, Tuple

from nova_bdm_cleanup import errors
from nova_bdm_cleanup.cinder import Cinder
from nova_bdm_cleanup.fleet import compute
from nova_bdm_cleanup.fleet import crosscheck
from nova_bdm_cleanup.fleet import inspection
from nova_bdm_cleanup.fleet.issues import AnyReason
from nova_bdm_cleanup.fleet.issues import FleetReason
from nova_bdm_cleanup.fleet.issues import Issue
from nova_bdm_cleanup.fleet.issues import issues_of
from nova_bdm_cleanup.fleet.issues import record_words
from nova_bdm_cleanup.fleet.issues import Sides
from nova_bdm_cleanup.fleet.issues import volume_words
from nova_bdm_cleanup.model import Attachment
from nova_bdm_cleanup.model import Policy
from nova_bdm_cleanup.model import Reason
from nova_bdm_cleanup.model import TAKEN
from nova_bdm_cleanup.model import Volume


@dataclasses.dataclass(frozen=True)
class Scope:
    """What is audited; by default the project of the credentials."""

    servers: Tuple[str, ...] = ()
    host: Optional[str] = None
    project: Optional[str] = None
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


class Audit:
    """One audit.

    :param nova: the compute API
    :param cinder: Cinder
    :param policy: what is young and what is stuck
    :param scope: what to look at
    :param progress: told what is being done, and how far it is
    :param now: gives the time, with its time zone
    :param project: whose credentials these are
    """

    def __init__(self, nova: compute.Compute, cinder: Cinder,
                 policy: Policy, scope: Scope, progress: Progress,
                 now: Callable[[], datetime.datetime],
                 project: Optional[str]) -> None:
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
        self.hosts: FrozenSet[str] = frozenset()
        #: Why the result is not the whole truth; empty: it is.
        self.gaps: List[str] = []
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
                with crosscheck.CrossCheck() as books:
                    yield from self._books(books)
        except errors.OverBudget as exc:
            self.gaps.append(str(exc))
        if self._unknown:
            self.gaps.append('%d servers are in cells that do not answer'
                             % self._unknown)

    # Some servers

    def _these(self, names: Tuple[str, ...]) -> Iterator[Issue]:
        found: List[str] = []
        gone: List[Issue] = []
        for name in names:
            try:
                found.append(
                    self._nova.find(name, self._scope.all_projects).id)
            except errors.BadInput:
                # Cinder may name it all the same.
                left = (list(self._gone(name)) if self._scope.all_projects
                        else [])
                if not left:
                    raise
                gone += left
        yield from self._judge_servers(iter(found))
        yield from gone

    def _host(self, host: str) -> Iterator[Issue]:
        servers = [s for page in self._nova.servers(host=host) for s in page]
        if not servers:
            raise errors.BadInput('no server runs on host %s' % host)
        yield from self._judge_servers(
            s.id for s in servers if not self._is_unknown(s))

    # The books

    def _books(self, books: crosscheck.CrossCheck) -> Iterator[Issue]:
        servers_whole = self._whole(self._list_servers, books)
        attachments_whole = self._whole(self._list_attachments, books)
        volumes_whole = self._whole(self._list_volumes, books)
        books.close_books()
        self.size = books.size
        self.legacy = books.legacy
        if self._scope.project and books.is_empty and not (
                self.gaps or self._unknown):
            # Neither API knows which projects there are.
            raise errors.BadInput('project %s has no servers and no volumes '
                                  'in use: is it the ID of a project?'
                                  % self._scope.project)
        self._witness.known(self._books_witness(books))
        if self._witness() is False:
            # Everything would look dangling, and nothing would be.
            self.gaps.append(
                'this Cinder knows none of the volumes that Nova names: is '
                'it the Cinder of this region, or a restored database?')
            return
        if attachments_whole and volumes_whole:
            yield from self._judge_servers(
                books.suspects(self._scope.thorough, self._scope.legacy))
        if servers_whole:
            yield from self._judge_strangers(books.strangers())
        if servers_whole and attachments_whole:
            yield from self._judge_volumes(books.nobodys_volumes())

    def _whole(self, read: Callable[[crosscheck.CrossCheck], None],
               books: crosscheck.CrossCheck) -> bool:
        """Read a list; whether it was read to its end."""
        try:
            read(books)
        except errors.Unanswered as exc:
            self.gaps.append(str(exc))
            return False
        return True

    def _list_servers(self, books: crosscheck.CrossCheck) -> None:
        count = 0
        for page in self._nova.servers(self._scope.all_projects,
                                       self._scope.project):
            books.add_servers(s for s in page if not self._is_unknown(s))
            count += len(page)
            self._progress('servers', count)

    def _list_attachments(self, books: crosscheck.CrossCheck) -> None:
        count = 0
        for page in self._cinder.attachments(self._project):
            books.add_attachments(page)
            count += len(page)
            self._progress('attachments', count)

    def _list_volumes(self, books: crosscheck.CrossCheck) -> None:
        count = 0
        for status in TAKEN:
            for page in self._cinder.volume_ids(status, self._project):
                books.add_volumes(page, status)
                count += len(page)
                self._progress('volumes', count)

    # Judging

    def _judge_servers(self, server_ids: Iterator[str]) -> Iterator[Issue]:
        for number, server_id in enumerate(server_ids, 1):
            self._progress('second looks at servers', number)
            try:
                seen = self._inspector.inspect(server_id)
                if seen is not None:
                    yield from issues_of(seen, legacy=True)
                else:
                    yield from self._gone(server_id)
            except errors.Unanswered as exc:
                self.gaps.append('server %s: %s' % (server_id, exc))

    def _judge_strangers(self, server_ids: Iterator[str]) -> Iterator[Issue]:
        for number, server_id in enumerate(server_ids, 1):
            self._progress('servers that Nova did not list', number)
            try:
                # It may have been created since, or wait for its reclaim.
                if self._nova.server(server_id) is None:
                    yield from self._gone(server_id)
                    continue
                seen = self._inspector.inspect(server_id)
                if seen is not None:
                    yield from issues_of(seen)
            except errors.Unanswered as exc:
                self.gaps.append('server %s: %s' % (server_id, exc))

    def _gone(self, server_id: str) -> Iterator[Issue]:
        """The attachments of a server that Nova does not know."""
        volumes, attachments, _ = self._cinder.look(server_id, ())
        for attachment in attachments:
            if attachment.server_id == server_id:
                yield self._gone_issue(
                    attachment, volumes.get(attachment.volume_id))

    def _gone_issue(self, attachment: Attachment,
                    volume: Optional[Volume]) -> Issue:
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
                or host is not None and host not in self.hosts
                or volume is None or volume.keep or volume.is_migrating
                or volume.status not in (*TAKEN, 'available')))

    def _judge_volumes(self, volume_ids: Iterator[str]) -> Iterator[Issue]:
        for number, volume_id in enumerate(volume_ids, 1):
            self._progress('volumes that nobody has', number)
            try:
                found = self._nobodys(volume_id)
            except errors.Unanswered as exc:
                self.gaps.append('volume %s: %s' % (volume_id, exc))
                continue
            if found is not None:
                yield found

    def _nobodys(self, volume_id: str) -> Optional[Issue]:
        volume = self._cinder.volume(volume_id)
        if volume is None or volume.status not in TAKEN:
            return None
        attachments = self._cinder.attachments_of(volume_id)
        if any(a.server_id for a in attachments) or (
                attachments and volume.status == 'in-use'):
            return None
        explanation = ('the volume is %s, and neither Nova nor an attachment '
                       'says by whom' % volume.status)
        reason: AnyReason = FleetReason.USED_BY_NOBODY
        if volume.status != 'in-use':
            reason = (
                Reason.STUCK
                if self._policy.is_stuck(volume.updated_at, self._now())
                else Reason.OPERATION_IN_FLIGHT)
        return Issue(reason=reason, explanation=explanation,
                     volume=volume_id, since=volume.updated_at,
                     sides=Sides(
                         ('no server has a mapping of it',),
                         volume_words(volume), tuple(
                             record_words(a, volume) for a in attachments)),
                     # Who had it, if anybody?
                     needs_look=True)

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

    def _is_unknown(self, server: compute.ComputeServer) -> bool:
        self._unknown += server.is_unknown
        return server.is_unknown

    def _books_witness(self, books: crosscheck.CrossCheck) -> Optional[bool]:
        if books.cinder_is_witnessed is not False:
            return books.cinder_is_witnessed
        # None of them is in use; does it know one of them at all?
        try:
            return self._cinder.knows_any(
                books.some_claims(inspection.WITNESSES))
        except errors.Unanswered as exc:
            self.gaps.append(str(exc))
            return False
