# SPDX-License-Identifier: Apache-2.0
"""The fate of a disk: whether the driver is given it.

It is decided apart from the removal of its mapping, and after all guards: the
disk of a mapping that must stay may still not be connected, since Cinder may
give the volume, or its address, to another server at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
import enum

from nova_bdm_cleanup.rules.facts import Bdm, Finding, InCinder, Plan
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.rules.table import first, Row, Table


class Fate(enum.Enum):
    """The fate of a disk whose mapping exists when Nova starts the guest.

    The value is the text in the documentation.
    """

    GIVEN = 'given to the driver'
    NOT_CONNECTED = '**not connected**'
    ANOTHERS = '**not connected**: its address may be another disk\'s'

    def __str__(self) -> str:
        return self.value


#: The first row that holds decides.
DISKS: Table[Row[Finding, Fate]] = Table(
    ('The disk', 'It is'), (

    # No driver can connect it.
    Row('has a volume that certainly does not exist',
        lambda f: f.in_cinder is InCinder.MISSING,
        Fate.NOT_CONNECTED,
        'the guest comes back without the disk: no driver can connect a '
        'volume that does not exist'),

    # The other volume may have what the guest has written since.
    Row('was half swapped, the swap is not ended, and its guest is not known '
        'to have had it when the operation began',
        lambda f: f.reason is Reason.SWAP_INTERRUPTED and not f.is_due
        and not f.guest_had_disk
        and not (f.was_open and f.guest_had is None),
        Fate.NOT_CONNECTED,
        'the guest comes back without both disks: choose one, and attach it'),

    Row('has an address that must not be connected, by the table of '
        'addresses; that Cinder connects it elsewhere is known for '
        '``settle_time``',
        lambda f: f.address and not (f.is_out_of_date and f.settles_in),
        Fate.ANOTHERS,
        'the driver is not given it, and the guest comes back without the '
        'disk: {it.address}'),

    Row('is not attached to the server, and Cinder attaches its volume, which '
        'is not multiattach, to another server',
        lambda f: f.lacks_attachment and f.in_cinder is InCinder.ELSEWHERE,
        Fate.NOT_CONNECTED,
        'the guest comes back without the disk: another server has it'),

    Row('is not attached to the server; it is the root disk, or a limit keeps '
        'its mapping',
        lambda f: f.lacks_attachment and (
            f.is_root or f.withheld is Reason.OVER_LIMIT),
        Fate.GIVEN,
        'the guest comes back with the disk, although Cinder shows no '
        'attachment of this server'),

    Row('is not attached to the server; this is known for ``settle_time``',
        lambda f: f.lacks_attachment,
        Fate.NOT_CONNECTED,
        'the guest comes back without the disk: while Cinder shows no '
        'attachment of this server, another server may have the disk'),

    Row('is any other',
        lambda f: True,
        Fate.GIVEN,
        'nothing keeps the guest from coming back with the disk'),
))


def fate_of(finding: Finding) -> Fate:
    """Return the fate of the disk of a finding."""
    return first(DISKS.rows, finding).outcome


def effect_of(finding: Finding) -> str:
    """Return the effect on the guest, in plain words."""
    return first(DISKS.rows, finding).explain(finding)


def not_given(plan: Plan) -> Mapping[str, Finding]:
    """Return the findings about disks that the driver is not given, by the
    uuid of the mapping.
    """
    return {f.bdm.uuid: f for f in plan.findings
            if f.bdm is not None and fate_of(f) is not Fate.GIVEN}


def unconnected(plan: Plan) -> tuple[Bdm, ...]:
    """Return the disks that are given by an address, although Cinder does not
    connect them: it may give the address to another server.
    """
    return tuple(f.bdm for f in plan.findings
                 if f.bdm is not None and f.bdm.addresses
                 and not f.is_connected and fate_of(f) is Fate.GIVEN)
