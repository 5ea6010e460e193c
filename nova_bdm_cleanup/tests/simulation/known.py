# SPDX-License-Identifier: Apache-2.0
"""What the search finds and what is not mended yet.

Each stands for a risk that the documentation names, or for an open issue.  A
finding that comes up no more must be taken out here.
"""

from __future__ import annotations

import dataclasses

from nova_bdm_cleanup.tests.simulation import properties
from nova_bdm_cleanup.tests.simulation.scheduler import Broken


@dataclasses.dataclass(frozen=True)
class Finding:
    """A finding that is expected."""

    name: str
    #: What is wrong, for the reader.
    words: str
    #: The properties that it breaks, and in which situation: by the scenario
    #: it would hide whatever else breaks the same there.
    broken: tuple[str, ...]
    situation: str

    def is_it(self, broken: Broken) -> bool:
        return (broken.name in self.broken
                and broken.situation == self.situation)


# A risk that the documentation names.  It would take os-brick's lock of the
# back end, and nothing tells whose a volume was that is gone.
FINDINGS: tuple[Finding, ...] = (
    Finding(
        name='address-in-no-row-yet',
        words='a neighbour gets the address of the disk that is just being '
        'disconnected',
        broken=('healthy-disks-stay',),
        situation=properties.BEGAN_LATER),
    # The same, and longer: Nova's driver disconnects it, when it has waited
    # for the guest to shut down.
    Finding(
        name='address-taken-while-the-guest-shuts-down',
        words='a neighbour gets the address of the disk before a move '
        'disconnects it',
        broken=('healthy-disks-stay',),
        situation=properties.WHILE_MOVING),
    # Nova's own, whose row has the address of another host by then.
    Finding(
        name='half-moved-by-a-kill',
        words='nova-compute died in a move, and Nova starts the guest with '
        'an address that is no longer its own',
        broken=('own-volumes-only',),
        situation=properties.HALF_MOVED),
    # Nova's own: the guest runs where Nova does not know of it.
    Finding(
        name='evacuated-by-a-nova-that-died',
        words='nova-compute died in an evacuation when the guest ran, and '
        'Nova has it on its old host',
        broken=('one-host-only',),
        situation=properties.HALF_MOVED),
    # What Nova does then is the same without a mapping that dangles.
    Finding(
        name='in-hand-when-the-move-begins',
        words='a disk was being attached or detached when the move began, '
        'and Nova breaks off at it, or connects it on both hosts',
        broken=('moves-end-well', 'own-volumes-only'),
        situation=properties.IN_HAND),
    Finding(
        name='attached-when-the-move-begins',
        words='a disk was being attached when the move began, and the old '
        'host stays let in to it',
        broken=('one-host-only',),
        situation=properties.IN_HAND),
    Finding(
        name='deleted-in-a-move',
        words='the server was deleted in a move, and Nova goes by what it '
        'read before that',
        broken=('one-host-only',),
        situation=properties.DELETED),
    # The guest runs: nothing can be taken from it by then.
    Finding(
        name='taken-after-the-check',
        words='a volume that was free when a live migration was checked is '
        'given to somebody before Nova connects it',
        broken=('no-strangers-disk',),
        situation=properties.AFTER_CHECK),
    # Nova's own: it gives no room back when a revert fails.
    Finding(
        name='room-of-a-refused-revert',
        words='the plugin refused a revert, and Placement keeps room on both '
        'hosts',
        broken=('one-host-only',),
        situation=properties.WAY_BACK),
)


def finding_of(broken: Broken) -> Finding | None:
    """The finding that a broken property is expected for."""
    return next((f for f in FINDINGS if f.is_it(broken)), None)
