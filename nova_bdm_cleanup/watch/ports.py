# SPDX-License-Identifier: Apache-2.0
"""The two interfaces that a round talks to: Cinder's and the node's."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
import dataclasses
from typing import Protocol

from nova_bdm_cleanup.rules.facts import Answers, Bdm, Server, Volume


@dataclasses.dataclass(frozen=True)
class Inhabitant:
    """A server of this host."""

    server: Server
    bdms: tuple[Bdm, ...]
    #: Nova is doing something with it, so that nothing about it is certain.
    is_busy: bool = False
    #: It was stopped, and is not busy either.
    is_stopped: bool = False


class CinderPort(Protocol):
    """Implemented by :class:`.openstack.sparing.SparingCinder`."""

    def known(self, volume_ids: Sequence[str]) -> dict[str, Volume]:
        """Those of some volumes that exist, as far as a list shows them."""

    def look_sparingly(self, server_id: str, bdms: Sequence[Bdm],
                       known: Mapping[str, Volume],
                       project: str | None = None) -> Answers:
        """What Cinder knows of the disks that the mappings name."""

    def prove_it_answers(self) -> None:
        """Ask what Cinder can answer without reading any volume."""

    def knows_any(self, volume_ids: Sequence[str]) -> bool:
        """Whether at least one of some volumes exists in this Cinder."""


class NodePort(Protocol):
    """Nova on this host; every call but the sweep may raise anything."""

    def servers(self) -> Iterable[Inhabitant]:
        """All servers of this host."""

    def cinder(self, seconds: float) -> CinderPort:
        """Cinder, for so many seconds from now on."""

    def witnesses(self, server: str) -> Iterable[str]:
        """The volumes of all servers that Nova knows but one."""

    def requests(self) -> int:
        """How many Cinder has been sent so far."""

    def sweep(self, server: str,
              seen: Collection[tuple[str, str]]) -> None:
        """Clean up a server that is stopped, if it still is.

        :param seen: the mappings that may go, and why; nothing else

        Raises nothing: others are waiting for their turn.
        """
