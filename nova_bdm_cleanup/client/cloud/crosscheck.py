# SPDX-License-Identifier: Apache-2.0
"""The answers of both APIs, side by side.

This module only filters: it names suspects, and does not judge them.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator
from typing import Optional

from nova_bdm_cleanup.client.cloud.nova import ComputeServer
from nova_bdm_cleanup.rules import spelling
from nova_bdm_cleanup.rules.facts import Attachment, Volume

#: A volume, and the server that is said to have it.
Pair = tuple[str, Optional[str]]


class CrossCheck:
    """Nova's and Cinder's records.  A record listed twice counts once."""

    def __init__(self) -> None:
        #: The servers, with their hosts.
        self._servers: dict[str, str | None] = {}
        self._shelved: set[str] = set()
        #: Those with a volume that are in ERROR, or whose task, or create,
        #: may have been interrupted.
        self._failed: set[str] = set()
        #: Nova's pairs.  Cinder's pairs are the same objects where they
        #: agree: for a whole cloud this saves a quarter of the memory.
        self._claims: dict[Pair, Pair] = {}
        #: Cinder's pairs by attachment ID.
        self._records: dict[str, Pair] = {}
        #: The states of those that are not ``attached``.
        self._unattached: dict[str, str] = {}
        #: The states of the volumes that are taken.
        self._volumes: dict[str, str] = {}
        #: The servers with a volume that Cinder attaches to another host.
        self._elsewhere: set[str] = set()

    # Writing

    def add_servers(self, servers: Iterable[ComputeServer]) -> None:
        for server in servers:
            self._servers[server.id] = server.host
            if server.is_shelved:
                self._shelved.add(server.id)
            if server.volumes and (server.task_state or server.is_lost
                                   or server.has_failed):
                self._failed.add(server.id)
            for volume in server.volumes:
                pair = (volume, server.id)
                self._claims[pair] = pair

    def add_attachments(self, attachments: Iterable[Attachment]) -> None:
        for each in attachments:
            pair = (each.volume_id, each.server_id)
            self._records[each.id] = self._claims.get(pair, pair)
            if each.status != 'attached':
                self._unattached[each.id] = each.status

    def add_volumes(self, volumes: Iterable[Volume]) -> None:
        """Add volumes that are taken, after the servers."""
        for volume in volumes:
            self._volumes[volume.id] = volume.status
            for each in volume.attached_to:
                host = self._servers.get(each.server_id or '')
                if each.server_id and host and each.host \
                        and not spelling.is_same_host(host, each.host):
                    self._elsewhere.add(each.server_id)

    # Reading

    def claims(self) -> Iterator[str]:
        """Yield the volumes that Nova names."""
        return (volume for volume, _ in self._claims)

    def suspects(self, thorough: bool) -> dict[str, list[str]]:
        """Return the servers to inspect, with the attachments that name them.

        :param thorough: return all servers that have a volume
        """
        if thorough:
            found = {s for _, s in (*self._claims, *self._records.values())}
        else:
            count = collections.Counter(self._records.values())
            # Only one side has the pair, or Cinder has it twice.
            found = {s for _, s in self._claims.keys() ^ count.keys()}
            found.update(s for (_, s), times in count.items() if times > 1)
            found.update(pair[1] for name, pair in self._records.items()
                         if not self._is_normal(name, pair))
            found.update(self._elsewhere, self._failed)
        named: dict[str, list[str]] = {
            s: [] for s in sorted(
                self._servers.keys() & found)}
        for name, (_, server) in self._records.items():
            if server in named:
                named[server].append(name)
        return named

    def _is_normal(self, name: str, pair: Pair) -> bool:
        volume, server = pair
        status = self._unattached.get(name, 'attached')
        return (status, self._volumes.get(volume)) == (
            ('reserved', 'reserved') if server in self._shelved
            else ('attached', 'in-use'))

    def strangers(self) -> dict[str, dict[str, str]]:
        """Return servers that Cinder names and Nova did not list.

        By volume and attachment, attachments in the order of Cinder's list.
        """
        found: dict[str, dict[str, str]] = {}
        for name, (volume, server) in self._records.items():
            if server is not None and server not in self._servers:
                found.setdefault(volume, {})[name] = server
        return found

    def unreferenced_volumes(self) -> list[str]:
        """Return volumes that are taken but that no server has."""
        held = set(self.claims())
        held.update(v for v, server in self._records.values()
                    if server is not None
                    or self._volumes.get(v) == 'in-use')
        return sorted(self._volumes.keys() - held)

    @property
    def size(self) -> tuple[int, int, int]:
        """Count the servers, the claims of volumes, and the attachments."""
        return len(self._servers), len(self._claims), len(self._records)

    @property
    def knows_claim(self) -> bool:
        """Return whether a volume that Nova names is taken in Cinder."""
        return any(volume in self._volumes for volume in self.claims())
