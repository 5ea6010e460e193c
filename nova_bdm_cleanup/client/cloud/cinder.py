# SPDX-License-Identifier: Apache-2.0
"""The requests to Cinder of the commands for a whole cloud."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
import itertools

from nova_bdm_cleanup.openstack import answers
from nova_bdm_cleanup.openstack.cinder import Cinder, PAGE, parse_attachment
from nova_bdm_cleanup.rules.facts import Attachment, WitnessAnswer

#: Volumes to request to check that Nova and Cinder belong together.
_MAX_CLOUD_WITNESSES = 60


class CloudCinder(Cinder):
    """The Cinder client that reads whole lists."""

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
        return super().witness(itertools.islice(
            volumes, _MAX_CLOUD_WITNESSES))

    def volume_ids(self, status: str, project: str | None = None
                   ) -> Iterator[list[str]]:
        """Yield the volumes in one state page by page, without details."""
        query = dict(self._of_project(project), status=status, limit=str(PAGE))
        for page in self._api.pages('/volumes', 'volumes', query,
                                    follow_links=True):
            yield [answers.identifier(r, 'id') for r in page]
