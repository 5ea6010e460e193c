# SPDX-License-Identifier: Apache-2.0
"""Violations that the search finds and that are not repaired yet.

Each is a risk that the documentation names, or an open issue.  A violation
that is no longer found must be removed here.
"""

from __future__ import annotations

from typing import NamedTuple

from nova_bdm_cleanup.tests.simulation import properties
from nova_bdm_cleanup.tests.simulation.scheduler import Violation


class KnownViolation(NamedTuple):
    """A violation that is expected."""

    #: The properties that it violates, and the situation: an entry for a whole
    #: scenario would hide other violations of the same property.
    property_names: tuple[str, ...]
    situation: str
    #: A description for the reader.
    description: str


KNOWN_VIOLATIONS: dict[str, KnownViolation] = {
    # A risk that the documentation names.  A repair would need os-brick's lock
    # of the back end, and for a deleted volume its back end is not known.
    'address-in-no-row-yet': KnownViolation(
        ('healthy-disks-stay', 'devices-of-running-guests-stay'),
        properties.BEGAN_LATER,
        'a neighbour gets the address of the disk that is just being '
        'disconnected'),
    # The same with a longer window: Nova's driver disconnects the disk after
    # it has waited for the guest to shut down.
    'address-taken-while-the-guest-shuts-down': KnownViolation(
        ('healthy-disks-stay', 'devices-of-running-guests-stay',
         'no-address-of-a-running-guest'), properties.WHILE_MOVING,
        'a neighbour gets the address of the disk before a move disconnects '
        'it, or the driver connects it'),
    # A fault of Nova: the guest runs where Nova does not expect it.
    'evacuated-by-a-nova-that-died': KnownViolation(
        ('one-host-only',), properties.HALF_MOVED,
        'nova-compute died in an evacuation after the guest was started, and '
        'Nova has it on its old host'),
    # Nova does the same without a dangling mapping.
    'operation-when-the-move-begins': KnownViolation(
        ('no-half-done-move', 'own-volumes-only'),
        properties.OPERATION_AT_MOVE,
        'a disk was being attached or detached when the move began, and the '
        'move fails at it, or Nova connects it on both hosts'),
    'attach-when-the-move-begins': KnownViolation(
        ('one-host-only',), properties.OPERATION_AT_MOVE,
        'a disk was being attached when the move began, and the volume stays '
        'exported to the old host'),
    'deleted-in-a-move': KnownViolation(
        ('one-host-only',), properties.DELETED,
        'the server was deleted in a move, and Nova uses the mappings that '
        'it read before'),
    # Cinder does not answer, so the rows alone decide, and an attach in
    # progress must not keep every disk of the host from its guest.
    'address-in-no-row-yet-and-cinder-silent': KnownViolation(
        ('no-address-of-a-running-guest', 'devices-of-running-guests-stay'),
        properties.SILENT,
        'while Cinder does not answer, a disk is connected whose address a '
        'neighbour is just getting'),
    # What is not known is left to Nova.
    'disconnect-that-waited-in-vain': KnownViolation(
        ('healthy-disks-stay', 'devices-of-running-guests-stay'),
        properties.WAITED_IN_VAIN,
        'a disconnect has waited until the deadline for a neighbour that may '
        'be getting the address of the disk'),
    # Cinder says that the disk is healthy, so nothing is removed, and nothing
    # waits.  Nova without the plugin connects it, too.
    'detached-within-the-lag': KnownViolation(
        ('healthy-disks-stay', 'own-volumes-only',
         'no-address-of-a-running-guest', 'devices-of-running-guests-stay'),
        properties.LAGGED,
        'a volume was detached and attached to a neighbour so recently that '
        'reads of Cinder that lag still show it attached to the server'),
    # Only the clock tells how old a record is.
    'clock-ahead-while-reads-lag': KnownViolation(
        ('healthy-disks-stay',), properties.AHEAD,
        'the clock of the host is ahead, so that a record that is not yet '
        'seen everywhere looks old'),
}


def name_of(violation: Violation) -> str | None:
    """Return the name of the known violation, or None."""
    return next((name for name, known in KNOWN_VIOLATIONS.items()
                 if violation.name in known.property_names
                 and violation.situation == known.situation), None)
