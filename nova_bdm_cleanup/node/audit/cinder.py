# SPDX-License-Identifier: Apache-2.0
"""Cinder's records of all servers of a host, in few requests.

A reboot asks for all that Cinder knows of one server.  An audit round asks for
the volumes of many servers together, and for more only where something looks
wrong.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence

from nova_bdm_cleanup.openstack.cinder import attached_by, Cinder, is_foreign
from nova_bdm_cleanup.rules.facts import Answers, Attachment, Bdm, Volume


class AuditCinder(Cinder):
    """Cinder, for an audit round."""

    def volumes_by_id(self, volume_ids: Sequence[str]) -> dict[str, Volume]:
        """List volumes, :data:`BATCH` of them in one request.

        :returns: the existing volumes, by id
        :raises ProjectHidden: when Cinder does not show every project
        """
        def ask() -> dict[str, Volume]:
            found = {v.id: v for v in self._in_batches(volume_ids)}
            if volume_ids and not found and not self._is_admin():
                raise self._hidden()
            return found

        return self._api.in_time('asking Cinder for volumes', ask)

    def answers_for(self, server_id: str, bdms: Sequence[Bdm],
                    listed: Mapping[str, Volume],
                    project: str | None = None) -> Answers:
        """Return what Cinder knows of the disks that a server's BDMs name.

        Only a disk that looks wrong costs a request.  An attachment that no
        BDM names is not found.

        :param listed: the volumes that :meth:`volumes_by_id` returned
        """
        def ask() -> Answers:
            volumes: dict[str, Volume | None] = {}
            for bdm in bdms:
                if bdm.volume_id and bdm.volume_id not in volumes:
                    # A list does not show it either.
                    volumes[bdm.volume_id] = (
                        listed.get(bdm.volume_id)
                        or self._volume_by_id(bdm.volume_id))
            found = attached_by(server_id, volumes, {
                b.attachment_id: b.volume_id for b in bdms if b.attachment_id},
                project)
            # If two BDMs name one volume, the volume does not show which of
            # them an attachment belongs to.
            several = {v for v, number in collections.Counter(
                b.volume_id for b in bdms).items() if number > 1}
            for bdm in bdms:
                if bdm.volume_id and (bdm.attachment_id not in found
                                      or bdm.volume_id in several):
                    found.update(self._of_suspect(
                        server_id, bdm, volumes[bdm.volume_id], listed,
                        project))
            return Answers(volumes, tuple(found.values()))

        return self._api.in_time('asking Cinder', ask)

    def _of_suspect(self, server_id: str, bdm: Bdm, volume: Volume | None,
                    listed: Mapping[str, Volume],
                    project: str | None) -> dict[str, Attachment]:
        """Return the attachments that decide about a suspect BDM."""
        found: dict[str, Attachment] = {}
        if volume is not None:
            # The volume itself does not show attachments in status reserved.
            attachments, _ = self._list({**self._of_server(server_id, None),
                                    'volume_id': volume.id})
            found = {a.id: a for a in attachments.values()
                     if a.volume_id == volume.id
                     and (a.id == bdm.attachment_id
                          or not is_foreign(volume, project))}
        # The attachment is gone, unless it belongs to another server or
        # volume.
        if bdm.attachment_id and bdm.attachment_id not in found and any(
                a.attachment_id == bdm.attachment_id
                for v in listed.values() for a in v.attached_to):
            attachment = self.attachment(bdm.attachment_id)
            if attachment is not None:
                found[attachment.id] = attachment
        return found
