# SPDX-License-Identifier: Apache-2.0
"""A server as it is requested, and as it was created."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Disk:
    """A volume requested for a server.

    :ivar source: the source of the volume: ``volume`` (an empty one that
        exists before), ``snapshot``, ``image`` or ``blank``; all but the
        first are possible only at boot, where Nova creates the volume
    :ivar volume: an existing volume to use, instead of a new one
    :ivar at_boot: part of the request for the server, instead of attached
        when it runs
    """

    source: str = 'volume'
    volume: str | None = None
    at_boot: bool = False
    multiattach: bool = False
    tag: str | None = None
    name: str = ''


@dataclasses.dataclass(frozen=True)
class Server:
    """A server and the volumes it was created with."""

    id: str
    name: str
    host: str
    #: The volume it boots from; None with an image-backed root.
    root: str | None
    #: The other volumes, in the requested order.
    volumes: tuple[str, ...]
