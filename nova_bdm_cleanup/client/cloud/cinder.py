# SPDX-License-Identifier: Apache-2.0
"""What only the commands for a whole cloud ask of Cinder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
import itertools

from nova_bdm_cleanup.openstack import answers
from nova_bdm_cleanup.openstack.cinder import Cinder, PAGE, parse_attachment
from nova_bdm_cleanup.rules.facts import Attachment, WitnessAnswer

#: Volumes that are asked for to see whether Nova and Cinder belong together.
_MAX_CLOUD_WITNESSES = 60


class CloudCinder(Cinder):
    """Cinder, of which everything is read."""

    def attachments(self, project: str | None = None,
                    volume: str | None = None
                    ) -> Iterator[list[Attachment]]:
        """Attachments, page by page.

        In detail, which costs Cinder the same: only so does it show which
        ones are connected.
        """
        query = self._of_project(project)
        if volume:
            query['volume_id'] = volume
        for page in self._pages(query):
            yield [parse_attachment(r) for r in page]

    def attachments_of(self, volume_id: str) -> tuple[Attachment, ...]:
        """All attachments of a volume."""
        return tuple(
            a for page in self.attachments(volume=volume_id) for a in page
            if a.volume_id == volume_id)

    def witness(self, volumes: Iterable[str]) -> WitnessAnswer:
        return super().witness(itertools.islice(
            volumes, _MAX_CLOUD_WITNESSES))

    def volume_ids(self, status: str, project: str | None = None
                   ) -> Iterator[list[str]]:
        """The volumes in one state, page by page: the light list."""
        query = dict(self._of_project(project), status=status, limit=str(PAGE))
        for page in self._api.pages('/volumes', 'volumes', query,
                                    follow_links=True):
            yield [answers.identifier(r, 'id') for r in page]
