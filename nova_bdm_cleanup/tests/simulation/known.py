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
    #: The property that it breaks, and in which situation: by the scenario
    #: it would hide whatever else breaks the same there.
    broken: str
    situation: str

    def is_it(self, broken: Broken) -> bool:
        return (broken.name, broken.situation) == (self.broken,
                                                   self.situation)


# A risk that the documentation names.  It would take os-brick's lock of the
# back end, and nothing tells whose a volume was that is gone.
FINDINGS: tuple[Finding, ...] = (
    Finding(
        name='address-in-no-row-yet',
        words='a neighbour gets the address of the disk that is just being '
        'disconnected',
        broken='healthy-disks-stay',
        situation=properties.BEGAN_LATER),
)


def finding_of(broken: Broken) -> Finding | None:
    """The finding that a broken property is expected for."""
    return next((f for f in FINDINGS if f.is_it(broken)), None)
