# SPDX-License-Identifier: Apache-2.0
"""The triggers of what takes a server from its host.

In none of them Nova makes the guest's definition anew before it asks Cinder
for the attachments: what dangles makes the operation end half done, or is
attached again.
"""

from __future__ import annotations

from nova_bdm_cleanup.node.cleanup.triggers import Trigger
from nova_bdm_cleanup.rules.facts import Reason

#: The source's part of a resize or a cold migration, and the destination's
#: part of taking it back.
MOVE = Trigger(
    name='move',
    states=frozenset(('resize_migrating', 'resize_reverting')),
    lost=Reason.MOVE_LOST,
    goes_on='the move goes on',
    next_try='a hard reboot tries again')

#: The server leaves its host.
SHELVE = Trigger(
    name='shelve',
    states=frozenset(('shelving', 'shelving_offloading')),
    lost=Reason.MOVE_LOST,
    goes_on='the server is shelved',
    next_try='an unshelve tries again',
    is_locked=True)

#: It comes back, perhaps on another host.
UNSHELVE = Trigger(
    name='unshelve',
    states=frozenset(('spawning',)),
    lost=Reason.MOVE_LOST,
    goes_on='the server is unshelved',
    next_try='the next unshelve or hard reboot tries again',
    is_locked=True,
    is_hostless=True)

#: The host that the server was on is dead, and may come back and disconnect
#: what its rows name.
EVACUATE = Trigger(
    name='evacuate',
    states=frozenset(('rebuilding',)),
    lost=Reason.MOVE_LOST,
    goes_on='the evacuation goes on',
    next_try='the next hard reboot or start removes it',
    comes_from_elsewhere=True,
    only_reports=Reason.EVACUATED)

#: The guest runs, and keeps what it has.
LIVE_MIGRATION = Trigger(
    name='live_migration',
    states=frozenset(('migrating',)),
    lost=Reason.MOVE_LOST,
    goes_on='the live migration goes on',
    next_try='a hard reboot removes it',
    only_reports=Reason.GUEST_RUNNING,
    longest=10.0)

#: Its disks are disconnected once more, and then the server is gone.
DELETE = Trigger(
    name='delete',
    states=frozenset(('deleting',)),
    lost=Reason.MOVE_LOST,
    goes_on='the server is deleted',
    next_try='nothing is left to be done')
