# SPDX-License-Identifier: Apache-2.0
"""A start waits for the sweep of its server, and for no other."""

from __future__ import annotations

from unittest import mock

from nova_bdm_cleanup.cleanup.clock_triggers import SWEEP
from nova_bdm_cleanup.plugin import sweeping
from nova_bdm_cleanup.tests.unit import base


class WaitingTest(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.calls = mock.Mock()
        patch = mock.patch.object(sweeping, '_sweeps',
                                  {'swept': self.calls.over})
        patch.start()
        self.addCleanup(patch.stop)

    def start(self, server: str) -> list[str]:
        """Start a server, and say what was called."""
        sweeping.waiting(self.calls.power_on)(
            None, None, mock.Mock(uuid=server))
        return [name for name, _, _ in self.calls.mock_calls]

    def test_one_that_is_swept(self) -> None:
        self.assertEqual(['over.wait', 'power_on'], self.start('swept'))
        self.calls.over.wait.assert_called_once_with(SWEEP.longest)

    def test_another_one(self) -> None:
        self.assertEqual(['power_on'], self.start('another'))
