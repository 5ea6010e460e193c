# SPDX-License-Identifier: Apache-2.0
"""The requests to Cinder: what it knows of a server, and changes.

A reboot and the operators' commands ask in the same way.  Cinder cuts its
lists, shows to most credentials one project only, and says neither: so what a
list does not show is asked for by its id, since no answer is not "gone".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
import itertools
from typing import Any, Callable, TypeVar

from nova_bdm_cleanup.openstack import answers, errors
from nova_bdm_cleanup.openstack.answers import quoted
from nova_bdm_cleanup.openstack.api import Api, Hints
from nova_bdm_cleanup.openstack.connection_info import addresses_in, name_in
from nova_bdm_cleanup.rules import facts, spelling
from nova_bdm_cleanup.rules.facts import (
    Answers,
    Attachment,
    Bdm,
    Label,
    Volume,
)

Known = TypeVar('Known')

#: The microversion that Nova speaks for attachments since Queens.  From 3.31
#: on Cinder refuses an id filter that it would silently drop before.
VOLUME_MICROVERSION = '3.44'

#: Cinder cuts lists at ``osapi_max_limit``, by default this, without a link.
PAGE = 1000

#: Sixty ids make a URL of 3 kB; some servers accept no more than 8 kB.
BATCH = 60

#: The rules for a user who is no administrator of Cinder.
POLICY_SAMPLE = 'etc/cinder/bdm-cleanup-policy.yaml'

#: What to look at where the credentials are those of nova.conf.
NOVA_CONF = Hints(
    credentials='check the credentials in [cinder] and [service_user]',
    catalogue='check [cinder] catalog_info and os_region_name',
    role='the credentials in [cinder] need the admin role, or the rules in '
         + POLICY_SAMPLE,
    # Not "option = value": the log would take that for a secret and mask it.
    service_user='nova.conf must enable send_service_user_token in '
                  '[service_user], with the credentials of a user whose role '
                  'is in service_token_roles of Cinder\'s '
                  '[keystone_authtoken]')

#: Attachments of one server that are read while a reboot waits: more than any
#: server has volumes.  Cinder spends some 2 ms on each.
_MAX_ATTACHMENTS = 1000

#: Pages of them, where Cinder makes small pages.
_MAX_ATTACHMENT_PAGES = 4

#: Cinder shows it to administrators only, and lists all projects to them only.
_ADMINS_FIELD = 'migration_status'

#: Volumes of other servers that are looked for as witnesses, and those of them
#: that are looked for one by one before all together.
_MAX_WITNESSES, _SINGLE_WITNESSES = 180, 8

#: Rules of Cinder's policy: that of lists, of the lists of all projects, of
#: one volume, and of the project in an answer.
_LIST_RULE, _ALL_PROJECTS_RULE = 'volume:get_all', 'context_is_admin'
_GET_RULE = 'volume:get'
_PROJECT_RULE = 'volume_extension:volume_tenant_attribute'

#: Volumes among which two are looked for that belong to different projects.
_MAX_SAMPLES = 100

#: An id that no volume has.
_NO_ID = '00000000-0000-0000-0000-000000000000'


class Cinder:
    """Cinder.

    A question raises ApiError when it went unanswered, a change when it cannot
    be known to be done, and each TimedOut when the time is over.
    """

    #: The credentials are an administrator's and see every project: those of
    #: nova.conf must.  Otherwise they see one.
    sees_all = True

    #: The last answer about a witness; None: not asked yet.
    _witness: facts.WitnessAnswer | None = None

    #: The last look has shown a volume of the server: it is no other Cinder.
    _has_shown = False

    def __init__(self, api: Api) -> None:
        self._api = api

    # One server

    def look(self, server_id: str, bdms: Sequence[Bdm],
             project: str | None = None, named: Sequence[str] = (),
             closely: bool = False) -> Answers:
        """Return all that Cinder knows of the disks of a server.

        It takes two requests when everything is in order, for any number of
        volumes.

        :param project: of the server; attachments of volumes of other
            projects that no mapping names are left out
        :param named: attachments that name it, if a list by its id does not
            show them: they may have the id in a form that is another one to
            the database
        :param closely: something is expected not to be in order: list the
            attachments at once, and read what may dangle by its id, too,
            since a list may come from a database that is behind another
        :returns: the volumes, and the attachments that name the server or
            that a mapping carries
        :raises ProjectHidden: when Cinder does not show every project, and
            was to do so
        """
        def ask() -> Answers:
            carried = {b.attachment_id for b in bdms}
            more = [a for a in named if a not in carried]
            try:
                if self.sees_all and not more and not closely:
                    found = self._glance(server_id, bdms, project)
                    if found is not None:
                        return found
                return self._look_closely(
                    server_id, bdms, project, more, closely)
            except errors.BadRequest as exc:
                # Of others Cinder does not take the name of a project.
                if not self.sees_all or self._is_admin():
                    raise
                raise self._hidden() from exc

        self._has_shown = False
        found = self._api.in_time('asking Cinder', ask)
        self._has_shown = any(
            found.volumes.get(b.volume_id or '') for b in bdms)
        return found

    def missing_rule(self) -> str | None:
        """Return a rule of Cinder's policy that keeps answers from these
        credentials; None: none is found.

        No question shows the rules of changes, and what a user may do in its
        own project proves nothing about others.
        """
        try:
            self._ask_as_admin()
        except errors.Forbidden:
            return _LIST_RULE
        except errors.BadRequest:
            return _ALL_PROJECTS_RULE
        samples: dict[str, Volume] = {}
        for volume in map(parse_volume, self._records(
                '/volumes/detail', 'volumes',
                {'all_tenants': '1', 'limit': str(_MAX_SAMPLES)})):
            if volume.project is None:
                return _PROJECT_RULE
            samples.setdefault(volume.project, volume)
        if any(self._volume_by_id(volume) is None and self._is_listed(volume)
               for volume in itertools.islice(
                   (each.id for each in samples.values()), 2)):
            return _GET_RULE
        return None

    def prove_it_answers(self) -> None:
        """Ask what Cinder can answer without reading any volume."""
        self._api.in_time('asking Cinder for nothing', self._is_admin)

    def witness(self, volumes: Iterable[str]) -> facts.WitnessAnswer:
        """Return whether this Cinder knows volumes that must exist.

        A cleanup looks twice; what is known is not asked for again.

        :param volumes: of all other servers; first those that the right Cinder
            is most likely to know.  Reading them takes time, too.
        """
        if self._witness is not facts.WitnessAnswer.KNOWN:
            self._witness = self.ask_for_witness(volumes)
        return self._witness

    def ask_for_witness(self, volumes: Iterable[str]) -> facts.WitnessAnswer:
        """Return the same, and ask in any case."""
        return self._api.in_time('asking Cinder for a witness',
                                 lambda: self._find_witness(volumes))

    def _find_witness(self, volumes: Iterable[str]) -> facts.WitnessAnswer:
        """Read no more of the volumes than is needed.

        Cinder reads all attachments of a volume with it, and a project can
        make thousands.  So the first requests are for one attachment each of
        a few volumes.
        """
        unread = iter(volumes)
        asked: list[str] = []
        for volume_id in itertools.islice(unread, _SINGLE_WITNESSES):
            if self._has_attachment(volume_id):
                return facts.WitnessAnswer.KNOWN
            asked.append(volume_id)
        if not asked:
            return facts.WitnessAnswer.NONE_EXISTS
        asked += itertools.islice(unread, _MAX_WITNESSES - len(asked))
        return (facts.WitnessAnswer.KNOWN if any(self._in_batches(asked))
                else facts.WitnessAnswer.UNKNOWN)

    def _has_attachment(self, volume_id: str) -> bool:
        return any(
            parse_attachment(record).volume_id == volume_id
            for record in self._records('/attachments', 'attachments', {
                **self._of_project(None), 'volume_id': volume_id,
                'limit': '1'}))

    def denies(self, claim: facts.Claim, host: str,
               addresses: frozenset[facts.Address]) -> bool:
        """Return whether a row names an address that its server lacks here.

        A Cinder that knows neither the volume nor one that must exist may be
        that of another region: it denies nothing.

        :param claim: the row
        :param addresses: what it names on the host; empty: the volume
        """
        return self._api.in_time(
            'asking Cinder about a neighbour',
            lambda: self._denies(claim, host, addresses))

    def _denies(self, claim: facts.Claim, host: str,
                addresses: frozenset[facts.Address]) -> bool:
        named = self.attachment(claim.attachment_id) \
            if claim.attachment_id else None
        if named is not None and addresses and named.addresses \
                and not named.addresses & addresses:
            return True
        volume = self.volume(claim.volume_id or '')
        if volume is None:
            return self._has_shown or (
                self._witness is facts.WitnessAnswer.KNOWN)
        if claim.attachment_id and named is None:
            return True
        if named is not None:
            there = volume.host_of(named.id)
            if there is not None:
                return not spelling.is_same_host(there, host)
            # The end of a live migration makes it attached.  Until then the
            # volume is here by another one.
            return any(self._is_by_other(each.attachment_id, addresses)
                       for each in volume.attached_to
                       if each.attachment_id and each.host
                       and spelling.is_same_host(each.host, host))
        users = {each.server_id for each in volume.attached_to}
        return claim.server not in users and (
            bool(users) or volume.status in facts.FREE)

    def _is_by_other(self, attachment_id: str,
                     addresses: frozenset[facts.Address]) -> bool:
        """Return whether an attachment connects other addresses."""
        shown = self.attachment(attachment_id)
        return bool(addresses and shown and shown.addresses
                    and not shown.addresses & addresses)

    def _glance(self, server_id: str, bdms: Sequence[Bdm],
                project: str | None) -> Answers | None:
        """Return the answers when all is in order, as it nearly always is.

        Cinder spends some 2 ms on each record of a list, and a project can
        make any number of attachments.  So one more is asked for than the
        mappings carry.

        :returns: None when anything is not in order
        """
        on_volumes = [b for b in bdms if b.volume_id or b.attachment_id]
        carried = {b.attachment_id: b.volume_id for b in on_volumes
                   if b.attachment_id}
        if len(carried) != len(on_volumes):
            return None  # One carries none, or two carry the same.
        query = self._of_server(server_id, project)
        query['limit'] = str(len(carried) + 1)
        shown = {a.id: a for a in self._of_this(server_id, self._records(
            '/attachments/detail', 'attachments', query))}
        wanted = list(dict.fromkeys(v for v in carried.values() if v))
        if {a.id: a.volume_id for a in shown.values()} != carried:
            return None
        volumes: dict[str, Volume | None] = {
            v.id: v for v in self._in_batches(wanted)
            if v.status == 'in-use'}
        if volumes.keys() != set(wanted) or any(
                a.status != 'attached' for a in shown.values()):
            return None
        return Answers(volumes, tuple(shown.values()))

    def _look_closely(self, server_id: str, bdms: Sequence[Bdm],
                      project: str | None, more: Sequence[str],
                      by_id: bool) -> Answers:
        query = self._of_server(server_id, project)
        carried = {b.attachment_id: b for b in bdms if b.attachment_id}
        found, is_cut = self._list(query, carried)
        listed = frozenset(found)
        for attachment_id in (*carried, *more):
            shown = (None if attachment_id in found
                     else self.attachment(attachment_id))
            if shown is not None and (attachment_id in carried
                                      or shown.server_id == server_id):
                found[attachment_id] = shown
        if is_cut:
            for volume_id in _in_doubt(bdms, found):
                found.update(self._list({**query, 'volume_id': volume_id})[0])
        named = dict.fromkeys(b.volume_id for b in bdms if b.volume_id)
        volumes = self._volumes(
            [*named, *(a.volume_id for a in found.values())])
        if by_id:
            self._read_by_id([b for b in bdms if _may_dangle(
                b, found.get(b.attachment_id or ''),
                volumes.get(b.volume_id or ''))], listed, found, volumes)
        ours = {a.id: a for a in found.values() if a.id in carried
                or not (volumes[a.volume_id] or facts.ABSENT)
                .is_foreign_to(project)}
        named.update(dict.fromkeys(a.volume_id for a in ours.values()))
        return Answers({v: volumes[v] for v in named}, tuple(ours.values()),
                       is_cut)

    def _read_by_id(self, bdms: Iterable[Bdm], listed: Collection[str],
                    found: dict[str, Attachment],
                    volumes: dict[str, Volume | None]) -> None:
        """Replace what lists show of some mappings.

        :param listed: the attachments that a list shows
        :param found: the attachments, which are replaced
        :param volumes: the volumes, which are replaced
        """
        for attachment_id in dict.fromkeys(
                b.attachment_id for b in bdms if b.attachment_id):
            if attachment_id in listed:
                shown = self.attachment(attachment_id)
                del found[attachment_id]
                if shown is not None:
                    found[attachment_id] = shown
        if self.sees_all:
            for volume_id in dict.fromkeys(
                    b.volume_id for b in bdms if b.volume_id):
                volumes[volume_id] = self.volume(volume_id)
        volumes.update(self._volumes([
            a.volume_id for a in found.values()
            if a.volume_id not in volumes]))

    def _list(self, query: Mapping[str, str], expected: Iterable[str] = ()
              ) -> tuple[dict[str, Attachment], bool]:
        """Return attachments of a server by id, and whether there are more.

        The next page is requested when this one is full or something
        expected is not on it.
        """
        found: dict[str, Attachment] = {}
        for number, page in enumerate(self._pages(query), 1):
            found.update((a.id, a) for a in self._of_this(
                query['instance_id'], page))
            if len(page) < PAGE and found.keys() >= set(expected):
                break
            if self._api.is_bounded and (
                    len(found) >= _MAX_ATTACHMENTS
                    or number >= _MAX_ATTACHMENT_PAGES):
                return found, True
        return found, False

    def _pages(self, query: Mapping[str, str]
               ) -> Iterator[list[Mapping[str, Any]]]:
        return self._api.pages('/attachments/detail', 'attachments', {
            **query, 'limit': str(PAGE)}, follow_links=False)

    def _of_project(self, project: str | None) -> dict[str, str]:
        if not self.sees_all:
            return {}
        query = {'all_tenants': '1'}
        if project:
            query['project_id'] = project
        return query

    def _of_server(self, server_id: str,
                   project: str | None) -> dict[str, str]:
        """Return the query for the attachments of a server."""
        return {**self._of_project(project), 'instance_id': server_id}

    @staticmethod
    def _of_this(server_id: str,
                 page: Iterable[Mapping[str, Any]]) -> list[Attachment]:
        """Parse a page of a list that must hold only this server's records.

        A record whose text only the database takes for the same id is left
        out: it must not stop the cleanup.
        """
        found = [parse_attachment(r) for r in page]
        alike = spelling.folded(server_id)
        if any(spelling.folded(a.server_id or '') != alike for a in found
               if a.server_id != server_id):
            raise errors.BadAnswer(
                'Cinder listed attachments of other servers: its '
                'resource_filters.json must allow "instance_id" for '
                '"attachment"')
        return [a for a in found if a.server_id == server_id]

    def _volumes(self, volume_ids: Sequence[str]
                 ) -> dict[str, Volume | None]:
        wanted = list(dict.fromkeys(volume_ids))
        found: dict[str, Volume | None] = {}
        if self.sees_all:
            found.update((v.id, v) for v in self._in_batches(wanted))
        for volume_id in wanted:
            if volume_id not in found:
                # A list does not show it either.
                found[volume_id] = self._volume_by_id(volume_id)
        if self.sees_all and found and not any(found.values()) \
                and not self._is_admin():
            raise self._hidden()
        return found

    def _in_batches(self, volume_ids: Sequence[str]) -> Iterator[Volume]:
        for start in range(0, len(volume_ids), BATCH):
            batch = volume_ids[start:start + BATCH]
            try:
                found = [self._parsed(r) for r in self._records(
                    '/volumes/detail', 'volumes', _with_ids(batch))]
            except errors.BadRequest as exc:
                raise errors.ProjectHidden(
                    '%s; it finds volumes by id for administrators only: %s'
                    % (exc, self._api.advice.role), exc.status) from exc
            yield from (v for v in found if v.id in batch)

    def _parsed(self, record: Mapping[str, Any]) -> Volume:
        """Parse a volume, and check that the credentials see all projects.

        To other credentials a volume of another project looks like one that
        does not exist, and nothing else in Cinder's answers tells.  Without
        the project of a volume it is not known whether its attachments count.
        """
        volume = parse_volume(record)
        if self.sees_all and (_ADMINS_FIELD not in record
                              or volume.project is None):
            raise self._hidden()
        return volume

    def _hidden(self) -> errors.ProjectHidden:
        return errors.ProjectHidden(
            'Cinder does not show every project to these credentials: %s'
            % self._api.advice.role)

    def _is_admin(self) -> bool:
        """Ask what only an administrator may, without any volume to ask for.

        Its operator may let everybody list volumes by id, but has no reason to
        let them do so by a name that the back end gave.
        """
        try:
            self._ask_as_admin()
        except (errors.BadRequest, errors.Forbidden):
            return False
        return True

    def _ask_as_admin(self) -> None:
        self._records('/volumes', 'volumes', dict(
            _with_ids([_NO_ID]), provider_id=_NO_ID))

    def _records(self, path: str, key: str,
                 query: Mapping[str, str]) -> list[Mapping[str, Any]]:
        try:
            return answers.records(self._api.get(path, query), key)
        except errors.NotFound as exc:
            raise errors.BadAnswer(
                '%s; a list cannot be missing' % exc, exc.status) from exc

    # One thing by its id

    def volume(self, volume_id: str) -> Volume | None:
        """Return a volume; None: it does not exist.

        Cinder answers 404, too, where its policy does not let the user read a
        volume that it lets the user list.

        :raises BadAnswer: when a list shows the volume all the same
        """
        found = self._volume_by_id(volume_id)
        if found is None and self.sees_all and self._is_listed(volume_id):
            raise errors.BadAnswer(
                'Cinder lists volume %s, and answers 404 when asked for it by '
                'its ID: unless it was just deleted, the rule %s of Cinder\'s '
                'policy hides it: %s' % (
                    volume_id, _GET_RULE, self._api.advice.role))
        return found

    def _is_listed(self, volume_id: str) -> bool:
        return any(self._in_batches([volume_id]))

    def _volume_by_id(self, volume_id: str) -> Volume | None:
        """Return a volume; None: Cinder does not show it."""
        return self._api.one('volume', volume_id, self._parsed)

    def attachment(self, attachment_id: str) -> Attachment | None:
        """Return an attachment; None: it does not exist."""
        return self._api.one('attachment', attachment_id, parse_attachment)

    def own_attachments(self, server_id: str,
                        volume_id: str) -> list[Attachment]:
        """Return the attachments of a volume to a server."""
        def ask() -> list[Attachment]:
            query = {**self._of_server(server_id, None),
                     'volume_id': volume_id}
            return list(self._list(query)[0].values())

        return self._api.in_time('asking Cinder for attachments', ask)

    # Changing

    def create_attachment(self, server_id: str, volume_id: str) -> str:
        """Create an attachment that only reserves a volume; return its ID.

        :raises Conflict: when Cinder does not do it in the volume's state
        """
        def create() -> str:
            body = self._api.post('/attachments', {'attachment': {
                'volume_uuid': volume_id, 'instance_uuid': server_id}},
                success=200)
            return answers.identifier(
                answers.record(body, 'attachment'), 'id')

        return self._api.in_time(
            'creating an attachment of volume %s' % volume_id, create)

    def delete_attachment(self, attachment_id: str,
                          complete: bool = False) -> bool:
        """Delete an attachment; the back end unmaps the volume first.

        :param complete: say that it is attached before: of what is only
            reserved Cinder would not have the back end unmap anything
        :returns: False when it was gone already
        :raises ServiceTokenRequired: when Cinder wants a service token
        """
        def delete() -> None:
            if complete:
                self.complete_attachment(attachment_id)
            # Cinder answers with what is left; a proxy's page does not.
            answers.records(
                self._api.delete('/attachments/' + quoted(attachment_id)),
                'attachments')

        return self._change('deleting attachment %s' % attachment_id, delete)

    def complete_attachment(self, attachment_id: str) -> None:
        """Say that an attachment is attached; its volume is in use then.

        :raises NotFound: when there is no such attachment
        """
        self._api.in_time(
            'completing attachment %s' % attachment_id,
            lambda: self._api.post(
                '/attachments/%s/action' % quoted(attachment_id),
                {'os-complete': {}}, success=204))

    def roll_detaching_back(self, volume_id: str) -> None:
        """Have Cinder end a detach that it still waits for."""
        self._api.in_time(
            'rolling the detach of volume %s back' % volume_id,
            lambda: self.act(volume_id, 'os-roll_detaching'))

    def act(self, volume_id: str, action: str,
            arguments: Mapping[str, Any] | None = None) -> None:
        """Call a volume action.

        :raises NotFound: when there is no such volume
        """
        self._api.post('/volumes/%s/action' % quoted(volume_id),
                       {action: arguments})

    def _change(self, what: str, change: Callable[[], None]) -> bool:
        try:
            self._api.in_time(what, change)
        except errors.NotFound:
            return False
        except (errors.Forbidden, errors.Conflict) as exc:
            advice = self._api.advice.service_user
            if not advice or exc.status not in (403, 409):
                raise
            raise errors.ServiceTokenRequired(
                '%s; %s' % (exc, advice), exc.status) from exc
        return True


def _may_dangle(bdm: Bdm, own: Attachment | None,
                volume: Volume | None) -> bool:
    """Return whether a mapping dangles, if a list shows its volume rightly.

    A volume that does not exist was asked for by its id.

    :param own: the attachment that the mapping names
    """
    if volume is None or volume.status in facts.FREE:
        return volume is not None
    return volume.status == 'in-use' and not (
        own is not None and own.status == 'attached'
        and own.volume_id == bdm.volume_id)


def _in_doubt(bdms: Iterable[Bdm],
              found: Mapping[str, Attachment]) -> dict[str, None]:
    """Return the volumes without an attached attachment of their mapping."""
    served = {b.volume_id for b in bdms
              for a in [found.get(b.attachment_id or '')]
              if a and a.status == 'attached' and a.volume_id == b.volume_id}
    return dict.fromkeys(b.volume_id for b in bdms
                         if b.volume_id and b.volume_id not in served)


def _with_ids(volume_ids: Iterable[str]) -> dict[str, str]:
    """Return the filter by id, which only administrators may use."""
    return {'all_tenants': '1',
            'id': '[%s]' % ','.join("'%s'" % quoted(v) for v in volume_ids)}


def parse_attachment(record: Mapping[str, Any]) -> Attachment:
    """Parse an attachment of a list or by itself, brief or detailed.

    :raises BadAnswer: when it is not what the API promises
    """
    connection_info = answers.mapping(record, 'connection_info')
    return Attachment(
        id=answers.identifier(record, 'id'),
        volume_id=answers.identifier(record, 'volume_id'),
        server_id=answers.optional_identifier(record, 'instance'),
        status=answers.text(record, 'status'),
        connected=bool(connection_info),
        addresses=addresses_in({'data': connection_info}),
        back_end_name=name_in({**connection_info, 'data': connection_info}),
        initiators=_initiators(connection_info),
        attached_at=answers.moment(record, 'attached_at'))


def _initiators(connection_info: Mapping[str, Any]) -> frozenset[str]:
    """Return the connected ports of the host, which only Fibre Channel names.

    The connector would tell for every kind, but Cinder does not show it.
    """
    found = connection_info.get('initiator_target_map')
    return frozenset(str(port).replace(':', '').lower() for port in found) \
        if isinstance(found, dict) else frozenset()


def parse_volume(record: Mapping[str, Any]) -> Volume:
    """Parse a volume in detail.

    :raises BadAnswer: when it is not what the API promises
    """
    return Volume(
        id=answers.identifier(record, 'id'),
        status=answers.text(record, 'status'),
        project=answers.optional_text(record, 'os-vol-tenant-attr:tenant_id'),
        multiattach=record.get('multiattach') is True,
        migration_status=answers.optional_text(record, 'migration_status'),
        attached_to=tuple(facts.AttachedServer(
            server_id=answers.optional_identifier(a, 'server_id'),
            attachment_id=answers.optional_identifier(a, 'attachment_id'),
            host=answers.optional_text(a, 'host_name'),
            attached_at=answers.moment(a, 'attached_at'))
            for a in answers.records(record, 'attachments')),
        updated_at=(answers.moment(record, 'updated_at')
                    or answers.moment(record, 'created_at')),
        label=_label(record))


def _label(record: Mapping[str, Any]) -> Label:
    """Parse what is only shown; so nothing of it is an error."""
    def known(key: str, kind: type[Known], default: Known) -> Known:
        value = record.get(key)
        return value if isinstance(value, kind) else default

    return Label(
        name=known('name', str, ''), size=known('size', int, 0) or None,
        # Without the pool.
        back_end=known('os-vol-host-attr:host', str, '').partition('#')[0],
        metadata={key: value for key, value
                  in known('metadata', dict, {}).items()
                  if isinstance(value, str)})
