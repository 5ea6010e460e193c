# SPDX-License-Identifier: Apache-2.0
"""One cell of each operation of the table of moves.

``tests/moves`` has all of them.
"""

from __future__ import annotations

from nova_bdm_cleanup.tests.functional import move_table


@move_table.cells(
    ('cold_migration', 'graceful_stop_of_only_plugin'),
    ('resize', 'address_on_new_host'),
    ('revert', 'root'),
    ('live_migration', 'multiattach_on_new_host'),
    ('live_migration', 'shared_and_silence'),
    ('evacuation', 'locked_by_administrator'),
    ('shelve', 'address_on_old_host'),
    ('shelve_with_image', 'over_hourly_limit'),
    ('unshelve', 'not_selected'),
    ('delete', 'attached_on_same_host'))
class MoveTableTest(move_table.MoveTableTestCase):
    """Each row differs; most of them once ended worse than with Nova alone."""
