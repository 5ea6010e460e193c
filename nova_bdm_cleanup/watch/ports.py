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
"""The two interfaces that a round talks to: Cinder's and the node's."""

from __future__ import annotations

import dataclasses
from typing import (
    Collection,
    Dict,
    Iterable,
    Mapping,
    Optional,
    Protocol,
    Sequence,
    Tuple,
)

from nova_bdm_cleanup.model import Answers
from nova_bdm_cleanup.model import Bdm
from nova_bdm_cleanup.model import Server
from nova_bdm_cleanup.model import Volume


@dataclasses.dataclass(frozen=True)
class Inhabitant:
    """A server of this host."""

    server: Server
    bdms: Tuple[Bdm, ...]
    #: Nova is doing something with it, so that nothing about it is certain.
    is_busy: bool = False
    #: It was stopped, and is not busy either.
    is_stopped: bool = False


class CinderPort(Protocol):
    """Implemented by :class:`nova_bdm_cleanup.cinder.Cinder`."""

    def known(self, volume_ids: Sequence[str]) -> Dict[str, Volume]:
        """Those of some volumes that exist, as far as a list shows them."""

    def look_sparingly(self, server_id: str, bdms: Sequence[Bdm],
                       known: Mapping[str, Volume],
                       project: Optional[str] = None) -> Answers:
        """What Cinder knows of the disks that the mappings name."""

    def knows_any(self, volume_ids: Sequence[str]) -> bool:
        """Whether at least one of some volumes exists in this Cinder."""


class NodePort(Protocol):
    """Nova on this host; every call but the sweep may raise anything."""

    def servers(self) -> Iterable[Inhabitant]:
        """All servers of this host."""

    def cinder(self) -> CinderPort:
        """Cinder, with a time limit that begins now."""

    def witnesses(self, server: str) -> Iterable[Sequence[str]]:
        """The volumes of all servers that Nova knows but one, in portions."""

    def requests(self) -> int:
        """How many Cinder has been sent so far."""

    def sweep(self, server: str,
              seen: Collection[Tuple[str, str]]) -> None:
        """Clean up a server that is stopped, if it still is.

        :param seen: the mappings that may go, and why; nothing else

        Raises nothing: others are waiting for their turn.
        """
