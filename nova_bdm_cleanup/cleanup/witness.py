# SPDX-License-Identifier: Apache-2.0
"""Whether this is the Cinder that must know the volumes of a server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import itertools
from typing import Callable

from nova_bdm_cleanup.rules.facts import WitnessAnswer

#: So many volumes of other servers are asked for at most.
_MOST = 180


def ask(volumes: Iterable[str],
        knows_any: Callable[[Sequence[str]], bool]) -> WitnessAnswer:
    """Look for a volume that exists, when Cinder says that some are gone.

    :param volumes: those of all other servers, those first of which the right
        Cinder is most likely to know one
    :param knows_any: asks Cinder
    """
    asked = list(itertools.islice(volumes, _MOST))
    if not asked:
        return WitnessAnswer.NONE_EXISTS
    return WitnessAnswer.KNOWN if knows_any(asked) else WitnessAnswer.UNKNOWN
