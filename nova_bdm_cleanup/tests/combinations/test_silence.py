# SPDX-License-Identifier: Apache-2.0
"""A move in which Cinder stops answering the plugin, at each request."""

from __future__ import annotations

from nova_bdm_cleanup.tests.functional import move_table


@move_table.cells(('cold_migration', 'silence'))
class SilenceTest(move_table.MoveTableTestCase):
    """The end is that of Nova alone, or as if Cinder had answered."""
