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
    # Only the memory of nova-compute has such an address.
    'forgotten-by-a-killed-nova-compute': KnownViolation(
        ('healthy-disks-stay', 'devices-of-running-guests-stay',
         'no-address-of-a-running-guest'), properties.FORGOTTEN,
        'nova-compute was killed between the answer of Cinder with an address '
        'and the guest or the row that shows it, and the address is '
        'disconnected'),
    # The guest gets nothing that it did not have before.
    'open-when-the-operation-began': KnownViolation(
        ('healthy-disks-stay',), properties.OPEN,
        'Cinder does not answer, and the guest keeps a disk that is that of '
        'another server, which is off'),
    # The operator has reset the records of Cinder; as with Nova alone.
    'export-without-a-record': KnownViolation(
        ('own-volumes-only',), properties.LEFT_EXPORT,
        'the array still exports a volume whose records were reset, by an '
        'address that a mapping of another volume has'),
    # It is kept, and reported: the guest may be there.
    'left-out-and-not-proved': KnownViolation(
        ('in-order-at-the-end',), properties.UNPROVED,
        'a question was not answered, so the guest came back without a disk '
        'that Cinder attaches to another host, and nothing proves later that '
        'it was here with the disk; or without the disks of a swap, and '
        'nothing tells later which one it had'),
    # Only the guest tells that it had another disk.
    'swapped-and-nothing-tells': KnownViolation(
        ('last-disk-only',), properties.UNPROVED,
        'a guest that was off is started after a swap while Cinder does not '
        'answer; or Nova has rolled back a swap that the guest had made, and '
        'the hypervisor did not answer, or the journal could not be written '
        'when the guest came back without the disk'),
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
