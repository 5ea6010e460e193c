# SPDX-License-Identifier: Apache-2.0
"""A server as it is asked for, and as it was made."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Disk:
    """A volume a server is to have.

    :ivar source: what the volume is made of: ``volume`` (an empty one that
        exists before), ``snapshot``, ``image`` or ``blank``; all but the
        first can only be had at boot, where Nova makes the volume
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
    """A server and the volumes it was made with."""

    id: str
    name: str
    host: str
    #: The volume it boots from; None with an image-backed root.
    root: str | None
    #: The other volumes, in the order they were asked for.
    volumes: tuple[str, ...]
