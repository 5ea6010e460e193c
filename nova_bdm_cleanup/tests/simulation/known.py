# SPDX-License-Identifier: Apache-2.0
"""What the search finds and what is not mended yet.

Each stands for a risk that the documentation names, or for an open issue.  A
finding that comes up no more must be taken out here.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Optional

from nova_bdm_cleanup.tests.simulation.scheduler import Broken


@dataclasses.dataclass(frozen=True)
class Finding:
    """A finding that is expected."""

    name: str
    #: What is wrong, for the reader.
    words: str
    #: The property that it breaks, and in which scenarios.
    broken: str
    scenarios: str

    def is_it(self, scenario: str, broken: Broken) -> bool:
        return (broken.name == self.broken
                and re.fullmatch(self.scenarios, scenario) is not None)


FINDINGS: tuple[Finding, ...] = (
    # A risk that the documentation names.  It would take os-brick's lock of
    # the back end, and nothing tells whose a volume was that is gone.
    Finding(
        name='address-in-no-row',
        words='a neighbour gets the address of the disk that is just being '
        'disconnected, or nova-compute died in an attach of a neighbour '
        'before it wrote the address down',
        broken='healthy-disks-stay',
        scenarios='.*-(neighbour-attaches|neighbour-swaps|somebody-comes'
        '|delete-and-reuse)'),
)


def finding_of(scenario: str, broken: Broken) -> Optional[Finding]:
    """The finding that a broken property is expected for."""
    return next((f for f in FINDINGS if f.is_it(scenario, broken)), None)
