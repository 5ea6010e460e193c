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
"""Which call releases a volume that has no attachment, and when none may."""

from __future__ import annotations

import datetime
from typing import Optional, Sequence, Union

from nova_bdm_cleanup.fleet.compute import ComputeServer
from nova_bdm_cleanup.fleet.compute import Disk
from nova_bdm_cleanup.fleet.release_facts import Call
from nova_bdm_cleanup.fleet.release_facts import Connector
from nova_bdm_cleanup.fleet.release_facts import host_of
from nova_bdm_cleanup.fleet.release_facts import Make
from nova_bdm_cleanup.fleet.release_facts import Refuse
from nova_bdm_cleanup.fleet.release_facts import ReleaseFacts
from nova_bdm_cleanup.fleet.release_facts import wanted
from nova_bdm_cleanup.model import Policy
from nova_bdm_cleanup.model import TAKEN
from nova_bdm_cleanup.model import Volume
from nova_bdm_cleanup.rules.table import Row
from nova_bdm_cleanup.rules.table import Table

HELD_VOLUMES: Table[Row[HeldVolume, Union[Make, Refuse]]] = Table(
    ('The volume has no attachment, and', 'call'), (

    Row('is marked ``bdm_cleanup=keep``',
        lambda v: v.volume.keep,
        Refuse(),
        'the volume is marked bdm_cleanup=keep'),

    Row('is being migrated',
        lambda v: v.volume.is_migrating,
        Refuse(),
        'the volume is being migrated ({it.volume.migration_status})'),

    Row('is in another state than ``in-use``, ``reserved``, ``attaching``, '
        '``detaching``, ``available``',
        lambda v: v.volume.status not in (*TAKEN, 'available'),
        Refuse(),
        'the volume is {it.volume.status}'),

    # The back end may be ahead of Cinder's database, which cannot tell.
    Row('is ``available``, and ``--connector FILE`` is not given',
        lambda v: v.is_available and not v.connector_host,
        Refuse(),
        'the volume is available, and nothing in Cinder holds it; if a host '
        'has it mapped all the same, only the back end shows it: then give '
        '--connector with the output of "nova-manage volume_attachment '
        'get_connector --json" on that host'),

    # The attach flow from before Queens leaves no record.
    Row('is ``attaching`` for ``--stuck-after``, one server has a mapping of '
        'it, which names no attachment, and the guest has the disk',
        lambda v: v.is_unfinished and v.guest_has_it,
        Make(Call.ATTACH),
        'server {it.claimed_by[0]} runs with the disk, and its mapping is of '
        'an attach flow without attachment ids: only the last word to Cinder '
        'is missing'),

    Row('is ``attaching`` for ``--stuck-after``, one server has a mapping of '
        'it, which names no attachment, and the server is stopped or its '
        'guest does not have the disk. Once the volume is ``in-use``, the '
        'server gets it when it is rebooted or started, or Nova can take it '
        'back',
        lambda v: v.is_unfinished and v.guest_has_it is False,
        Make(Call.ATTACH),
        'server {it.claimed_by[0]} has a mapping of an attach flow without '
        'attachment ids, but no guest has the disk. Once the volume is in '
        'use, the server gets it at its next hard reboot or start, or Nova '
        'can take it back: openstack server remove volume '
        '{it.claimed_by[0]} {it.volume.id}'),

    Row('is ``attaching`` for ``--stuck-after``, one server has a mapping of '
        'it, which names no attachment, and Nova does not tell what the '
        'guest has',
        lambda v: v.is_unfinished,
        Refuse(),
        'server {it.claimed_by[0]} has a mapping of an attach flow without '
        'attachment ids, and whether its guest has the disk is not known: '
        'look with "virsh domblklist {it.claimed_by[0]}" on its host. Then '
        'stop the server (openstack server stop {it.claimed_by[0]}) and do '
        'this again; when it is started, it has the disk'),

    Row('a server has a mapping of it',
        lambda v: v.claimed_by,
        Refuse(),
        'server {it.claimed_by[0]} has a mapping of the volume: openstack '
        'bdm show {it.claimed_by[0]}'),

    Row('changed within ``--grace-period`` (``in-use``, ``available``) or '
        '``--stuck-after``',
        lambda v: v.may_be_under_way,
        Refuse(),
        'the volume is {it.volume.status}, and not for long'),

    Row('``--connector`` is not given',
        lambda v: v.connector is None,
        Refuse(),
        '{it.why_unused}, and {it.wanted}'),

    # Reserved for as long as that takes, so that nobody attaches it to the
    # same host meanwhile.
    Row('is ``available``, and ``--connector FILE`` is given: it is reserved, '
        'and the back end unmaps it',
        lambda v: v.is_available,
        Make(Call.TERMINATE),
        'the volume is available, and no server has it; host '
        '{it.connector_host} is taken off it'),

    Row('``--connector FILE`` is given',
        lambda v: v.connector_host,
        Make(Call.FORCE_DETACH),
        '{it.why_unused}'),

    Row('is ``attaching``, and ``--connector none`` is given',
        lambda v: v.volume.status == 'attaching',
        Make(Call.UNRESERVE),
        '{it.why_unused}'),

    Row('``--connector none`` is given',
        lambda v: True,
        Make(Call.DETACH),
        '{it.why_unused}'),
))


class HeldVolume:
    """What the table may ask about a volume."""

    def __init__(self, facts: ReleaseFacts, connector: Connector,
                 policy: Policy, now: datetime.datetime) -> None:
        self.volume: Volume = facts.volume
        self.claimed_by: Sequence[str] = sorted(facts.claimed_by)
        self.connector: Connector = connector
        self.connector_host: Optional[str] = host_of(connector)
        self.is_available: bool = self.volume.status == 'available'
        #: Nothing has happened to it since.
        self.is_young: bool = policy.is_young(self.volume.updated_at, now)
        self.is_stuck: bool = policy.is_stuck(self.volume.updated_at, now)
        #: The only server that has a mapping of it.
        self.server: Optional[ComputeServer] = (
            facts.servers.get(self.claimed_by[0])
            if len(self.claimed_by) == 1 else None)
        self.guest_has_it: Optional[bool] = (
            facts.guest_has_it(self.server.id) if self.server else None)
        self._disks = facts.disks

    @property
    def disk(self) -> Optional[Disk]:
        """The mapping of the server, as the API shows it."""
        return self._disks.get(self.server.id) if self.server else None

    @property
    def is_unfinished(self) -> bool:
        """An attach from before Queens, which ended half way."""
        return (self.volume.status == 'attaching' and self.is_stuck
                and self.server is not None and not self.server.is_busy
                and not self.server.keep and not self.server.is_shelved
                and self.disk is not None
                and self.disk.attachment_id is None)

    @property
    def may_be_under_way(self) -> bool:
        return (self.is_young
                if self.volume.status in ('in-use', 'available')
                else not self.is_stuck)

    # Words

    @property
    def why_unused(self) -> str:
        return ('the volume is %s, and neither Nova nor an attachment says '
                'by whom' % self.volume.status)

    @property
    def wanted(self) -> str:
        return wanted(None)
