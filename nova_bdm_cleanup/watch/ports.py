# SPDX-License-Identifier: Apache-2.0
"""Nova on this host, as a round of the audit asks for it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
import dataclasses
from typing import Protocol

from nova_bdm_cleanup.openstack.sparing import SparingCinder
from nova_bdm_cleanup.rules.facts import Bdm, Server


@dataclasses.dataclass(frozen=True)
class Inhabitant:
    """A server of this host."""

    server: Server
    bdms: tuple[Bdm, ...]
    #: Nova is doing something with it, so that nothing about it is certain.
    is_busy: bool = False
    #: It was stopped, and is not busy either.
    is_stopped: bool = False


class NodePort(Protocol):
    """Implemented by ``NovaNode``; all but the sweep may raise anything."""

    def servers(self) -> Iterable[Inhabitant]:
        """All servers of this host."""

    def cinder(self, seconds: float) -> SparingCinder:
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
