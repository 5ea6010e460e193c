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
"""Whether this is the Cinder that must know the volumes of a server."""

from __future__ import annotations

from typing import Callable, Iterable, Sequence

from nova_bdm_cleanup.model import WitnessAnswer

#: So many portions of the volumes of other servers are asked for.
_REQUESTS = 3


def ask(portions: Iterable[Sequence[str]],
        knows_any: Callable[[Sequence[str]], bool]) -> WitnessAnswer:
    """Look for a volume that exists, when Cinder says that some are gone.

    :param portions: the volumes of all other servers, those first of which
        the right Cinder is most likely to know one
    :param knows_any: asks Cinder
    """
    asked = 0
    for portion in portions:
        if asked == _REQUESTS:
            return WitnessAnswer.UNPROVED
        if knows_any(portion):
            return WitnessAnswer.KNOWN
        asked += 1
    return WitnessAnswer.REFUTED if asked else WitnessAnswer.NONE_EXISTS
