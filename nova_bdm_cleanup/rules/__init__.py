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
"""The decision tables: one pure function from a snapshot to a plan.

No input or output, no Nova, no Cinder, no clock.  Each table is a tuple of
rows in a module of its own: the order of the rows is the order of the
questions, and the first row that holds decides.  The documentation is made
from the same rows.

* :mod:`mappings`: what a mapping is found to be, and which of the dangling
  ones are kept all the same
* :mod:`attachments`: the attachments that no mapping names
* :mod:`guards`: why an action is not carried out
* :mod:`decision`: the tables put to a snapshot, and two looks compared
"""

from nova_bdm_cleanup.rules.decision import confirm
from nova_bdm_cleanup.rules.decision import decide
from nova_bdm_cleanup.rules.decision import needs_swaps
from nova_bdm_cleanup.rules.decision import needs_witness

__all__ = ('confirm', 'decide', 'needs_swaps', 'needs_witness')
