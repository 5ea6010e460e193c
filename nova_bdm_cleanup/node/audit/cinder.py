# SPDX-License-Identifier: Apache-2.0
"""What is asked of Cinder about all servers of a host, again and again.

A reboot asks for all that Cinder knows of one server.  Here the volumes of
many servers are asked for together, and more only for what looks wrong.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence

from nova_bdm_cleanup.openstack.cinder import attached_by, Cinder, is_foreign
from nova_bdm_cleanup.rules.facts import Answers, Attachment, Bdm, Volume


class SparingCinder(Cinder):
    """Cinder, for a round of the audit."""

    def known(self, volume_ids: Sequence[str]) -> dict[str, Volume]:
        """Those of some volumes that a list shows, in one request for each
        :data:`BATCH`.

        :raises ProjectHidden: when Cinder does not show every project
        """
        def ask() -> dict[str, Volume]:
            found = {v.id: v for v in self._in_batches(volume_ids)}
            if volume_ids and not found and not self._is_admin():
                raise self._hidden()
            return found

        return self._api.in_time('asking Cinder for volumes', ask)

    def look_sparingly(self, server_id: str, bdms: Sequence[Bdm],
                       known: Mapping[str, Volume],
                       project: str | None = None) -> Answers:
        """What Cinder knows of the disks that the mappings of a server name.

        One request for each disk with which not all is in order.  What no
        mapping names is not noticed.

        :param known: the volumes that a list showed
        """
        def ask() -> Answers:
            volumes: dict[str, Volume | None] = {}
            for bdm in bdms:
                if bdm.volume_id and bdm.volume_id not in volumes:
                    volumes[bdm.volume_id] = (known.get(bdm.volume_id)
                                              or self.volume(bdm.volume_id))
            found = attached_by(server_id, volumes, {
                b.attachment_id: b.volume_id for b in bdms if b.attachment_id},
                project)
            # Of two the volume does not show which one.
            several = {v for v, number in collections.Counter(
                b.volume_id for b in bdms).items() if number > 1}
            for bdm in bdms:
                if bdm.volume_id and (bdm.attachment_id not in found
                                      or bdm.volume_id in several):
                    found.update(self._of_suspect(
                        server_id, bdm, volumes[bdm.volume_id], known,
                        project))
            return Answers(volumes, tuple(found.values()))

        return self._api.in_time('asking Cinder', ask)

    def _of_suspect(self, server_id: str, bdm: Bdm, volume: Volume | None,
                    known: Mapping[str, Volume],
                    project: str | None) -> dict[str, Attachment]:
        """The attachments that a mapping has to be judged by."""
        found: dict[str, Attachment] = {}
        if volume is not None:
            # What is only reserved the volume itself does not show.
            listed, _ = self._list({**self._of_server(server_id, None),
                                    'volume_id': volume.id})
            found = {a.id: a for a in listed.values()
                     if a.volume_id == volume.id
                     and (a.id == bdm.attachment_id
                          or not is_foreign(volume, project))}
        # It is gone, unless it is of another server or volume.
        if bdm.attachment_id and bdm.attachment_id not in found and any(
                a.attachment_id == bdm.attachment_id
                for v in known.values() for a in v.attached_to):
            carried = self.attachment(bdm.attachment_id)
            if carried is not None:
                found[carried.id] = carried
        return found
