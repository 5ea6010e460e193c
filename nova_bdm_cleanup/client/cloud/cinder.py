# SPDX-License-Identifier: Apache-2.0
"""The requests to Cinder of the commands for a whole cloud."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
import itertools
from typing import NamedTuple

from nova_bdm_cleanup.openstack import answers, errors
from nova_bdm_cleanup.openstack.cinder import (
    Cinder,
    PAGE,
    parse_attachment,
    parse_volume,
)
from nova_bdm_cleanup.rules.facts import Attachment, Volume, WitnessAnswer

#: Volumes to request to check that Nova and Cinder belong together.
_MAX_CLOUD_WITNESSES = 60

_MAX_MESSAGES = 4


class Message(NamedTuple):
    """A message of Cinder to users: what failed, and why."""

    volume_id: str
    at: str
    text: str
    request_id: str


class CloudCinder(Cinder):
    """The Cinder client that reads whole lists.

    Until :meth:`prove_admin` it takes its credentials to see one project.
    """

    sees_all = False

    def prove_admin(self, is_needed: bool = False) -> bool:
        """Find out whether this Cinder shows every project, and use it.

        Cinder silently limits the lists of all other users to one project.

        :raises Refused: when it does not, and is needed to
        """
        self.sees_all = self._is_admin()
        if is_needed and not self.sees_all:
            raise errors.Refused('Cinder does not show all projects to these '
                                 'credentials; this needs the admin role')
        return self.sees_all

    def services(self) -> dict[str, bool]:
        """Return whether each service is down, by its name and host.

        :raises Refused: without the admin role
        """
        return answers.services(answers.records(
            self._api.get('/os-services'), 'services'))

    def messages(self, volume_id: str) -> list[Message]:
        """Return the last messages to users about a volume, the newest first.

        :raises Refused: where its policy does not allow that
        """
        body = self._api.get('/messages', {
            'resource_uuid': volume_id, 'limit': str(_MAX_MESSAGES),
            'sort': 'created_at:desc'})
        return [Message(
            volume_id, answers.text(r, 'created_at').replace('T', ' ')[:19],
            answers.text(r, 'user_message'),
            answers.optional_text(r, 'request_id') or '-')
            for r in answers.records(body, 'messages')]

    def attachments(self, project: str | None = None,
                    volume: str | None = None
                    ) -> Iterator[list[Attachment]]:
        """Yield the attachments page by page.

        In detail, which costs Cinder the same: only the details show which
        ones are connected.
        """
        query = self._of_project(project)
        if volume:
            query['volume_id'] = volume
        for page in self._pages(query):
            yield [parse_attachment(r) for r in page]

    def attachments_of(self, volume_id: str) -> tuple[Attachment, ...]:
        """Return all attachments of a volume."""
        return tuple(
            a for page in self.attachments(volume=volume_id) for a in page
            if a.volume_id == volume_id)

    def witness(self, volumes: Iterable[str]) -> WitnessAnswer:
        # A command asks again before it changes something.
        return self.ask_for_witness(itertools.islice(
            volumes, _MAX_CLOUD_WITNESSES))

    def volumes(self, status: str, project: str | None = None
                ) -> Iterator[list[Volume]]:
        """Yield the volumes in one state page by page.

        In detail only if that shows the hosts of their attachments: Cinder
        shows them to administrators, and of attached volumes.
        """
        query = dict(self._of_project(project), status=status, limit=str(PAGE))
        shows_hosts = self.sees_all and status == 'in-use'
        for page in self._api.pages(
                '/volumes/detail' if shows_hosts else '/volumes', 'volumes',
                query, follow_links=True):
            yield [parse_volume(r) if shows_hosts
                   else Volume(answers.identifier(r, 'id'), status)
                   for r in page]
