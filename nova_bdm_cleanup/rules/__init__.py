# SPDX-License-Identifier: Apache-2.0
"""The decision tables, and :func:`judge`, which applies them to a snapshot.

No Nova, no Cinder, no clock: what costs a request is asked by way of
:class:`Sources`.  Each table is a tuple of
rows in a module of its own: the order of the rows is the order of the
questions, and the first row that holds decides.  The documentation is made
from the same rows.

* :mod:`mappings`: the state of each mapping, and which dangling ones are kept
* :mod:`attachments`: the attachments that no mapping names
* :mod:`guards`: why a removal is withheld
* :mod:`addresses`: whose an address is
* :mod:`disks`: whether the driver is given a disk
* :mod:`settling`: how young the records are that a verdict rests on
* :mod:`decision`: all of them in their order, and two looks compared
"""

from nova_bdm_cleanup.rules.decision import confirm, judge, Sources
from nova_bdm_cleanup.rules.disks import not_given, unconnected
from nova_bdm_cleanup.rules.settling import agreed

__all__ = ('agreed', 'confirm', 'judge', 'not_given', 'Sources',
           'unconnected')
