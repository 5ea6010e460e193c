# SPDX-License-Identifier: Apache-2.0
"""The decision tables: one pure function from a snapshot to a plan.

No input or output, no Nova, no Cinder, no clock.  Each table is a tuple of
rows in a module of its own: the order of the rows is the order of the
questions, and the first row that holds decides.  The documentation is made
from the same rows.

* :mod:`mappings`: the state of each mapping, and which dangling ones are kept
* :mod:`attachments`: the attachments that no mapping names
* :mod:`guards`: why an action is not carried out
* :mod:`addresses`: which disks the driver is given
* :mod:`settling`: how young the records are that a removal rests on
* :mod:`decision`: the tables applied to a snapshot, and two looks compared
"""

from nova_bdm_cleanup.rules.decision import confirm, decide, needs_witness
from nova_bdm_cleanup.rules.settling import unsettled_for

__all__ = ('confirm', 'decide', 'needs_witness', 'unsettled_for')
