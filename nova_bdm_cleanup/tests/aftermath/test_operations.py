# SPDX-License-Identifier: Apache-2.0
r"""Each operation, with a fault at each of its points.

A run writes the lists of open states::

    NOVA_BDM_CLEANUP_WRITE_PAGES=1 python3 tools/run_tests.py --aftermath 34

With ``NOVA_BDM_CLEANUP_POINTS=request`` only requests to Cinder fail, and no
saves of rows and calls to the host; a list names the points that it is of.
What a run has seen becomes a table by ``tools/aftermaths.py``.
"""

from __future__ import annotations

from typing import Any, TypeVar

from nova_bdm_cleanup.tests.aftermath import generator
from nova_bdm_cleanup.tests.functional.aftermath import OPERATIONS

_Class = TypeVar('_Class', bound=type)


def _all_operations(owner: _Class) -> _Class:
    """Add a test for each operation to a class."""
    for operation in OPERATIONS:
        def test(self: Any, operation: str = operation) -> None:
            self.check_operation(operation)

        test.__name__ = 'test_open_states_of_%s_are_known' % (
            operation.replace('-', '_'))
        setattr(owner, test.__name__, test)
    return owner


@_all_operations
class OperationsTest(generator.GeneratorTestCase):
    pass
