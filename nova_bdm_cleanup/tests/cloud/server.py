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
    delete_on_termination: bool = False
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
