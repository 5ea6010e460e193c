# SPDX-License-Identifier: Apache-2.0
"""What the search finds and what is not mended yet.

Each stands for a risk that the documentation names, or for an open issue.  A
finding that comes up no more must be taken out here.
"""

from __future__ import annotations

from typing import NamedTuple

from nova_bdm_cleanup.tests.simulation import properties
from nova_bdm_cleanup.tests.simulation.scheduler import Broken


class Finding(NamedTuple):
    """A finding that is expected."""

    #: The properties that it breaks, and in which situation: by the scenario
    #: it would hide whatever else breaks the same there.
    broken: tuple[str, ...]
    situation: str
    #: What is wrong, for the reader.
    words: str


FINDINGS: dict[str, Finding] = {
    # A risk that the documentation names.  It would take os-brick's lock of
    # the back end, and nothing tells whose a volume was that is gone.
    'address-in-no-row-yet': Finding(
        ('healthy-disks-stay',), properties.BEGAN_LATER,
        'a neighbour gets the address of the disk that is just being '
        'disconnected'),
    # The same, and longer: Nova's driver disconnects it, when it has waited
    # for the guest to shut down.
    'address-taken-while-the-guest-shuts-down': Finding(
        ('healthy-disks-stay',), properties.WHILE_MOVING,
        'a neighbour gets the address of the disk before a move disconnects '
        'it'),
    # Nova's own, whose row has the address of another host by then.
    'half-moved-by-a-kill': Finding(
        ('own-volumes-only',), properties.HALF_MOVED,
        'nova-compute died in a move, and Nova starts the guest with an '
        'address that is no longer its own'),
    # Nova's own: the guest runs where Nova does not know of it.
    'evacuated-by-a-nova-that-died': Finding(
        ('one-host-only',), properties.HALF_MOVED,
        'nova-compute died in an evacuation when the guest ran, and Nova has '
        'it on its old host'),
    # What Nova does then is the same without a mapping that dangles.
    'in-hand-when-the-move-begins': Finding(
        ('moves-end-well', 'own-volumes-only'), properties.IN_HAND,
        'a disk was being attached or detached when the move began, and Nova '
        'breaks off at it, or connects it on both hosts'),
    'attached-when-the-move-begins': Finding(
        ('one-host-only',), properties.IN_HAND,
        'a disk was being attached when the move began, and the old host '
        'stays let in to it'),
    'deleted-in-a-move': Finding(
        ('one-host-only',), properties.DELETED,
        'the server was deleted in a move, and Nova goes by what it read '
        'before that'),
    # The guest runs: nothing can be taken from it by then.
    'taken-after-the-check': Finding(
        ('no-strangers-disk',), properties.AFTER_CHECK,
        'a volume that was free when a live migration was checked is given to '
        'somebody before Nova connects it'),
    # Nova's own: it gives no room back when a revert fails.
    'room-of-a-refused-revert': Finding(
        ('one-host-only',), properties.WAY_BACK,
        'the plugin refused a revert, and Placement keeps room on both hosts'),
}


def finding_of(broken: Broken) -> str | None:
    """The name of the finding that a broken property is expected for."""
    return next((name for name, finding in FINDINGS.items()
                 if broken.name in finding.broken
                 and broken.situation == finding.situation), None)
