# SPDX-License-Identifier: Apache-2.0
"""The base of every unit test.

Property tests are deterministic: each run uses the same few examples.  A
failing example is shown as found, because shrinking it may take minutes.  To
use random examples, and this number of them for each test::

    NOVA_BDM_CLEANUP_EXAMPLES=20000 stestr run promises
"""

from __future__ import annotations

from collections.abc import Iterable
import contextlib
import os
import sqlite3
from typing import Any

import fixtures
import hypothesis
import testtools

from nova_bdm_cleanup.node.store.journal import _spent, Journal

_EXAMPLES = int(os.environ.get('NOVA_BDM_CLEANUP_EXAMPLES', '0'))

hypothesis.settings.register_profile(
    'ci', max_examples=200, derandomize=True, database=None, print_blob=True,
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    # The duration of an example depends on the load of the machine.
    deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
hypothesis.settings.register_profile(
    'random', hypothesis.settings.get_profile('ci'),
    max_examples=_EXAMPLES or 200, derandomize=False,
    phases=list(hypothesis.Phase))
hypothesis.settings.load_profile('random' if _EXAMPLES else 'ci')


class TestCase(testtools.TestCase):
    """A test case that captures logging and shows it on failure."""

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())

    def tempdir(self) -> str:
        """Return a new directory, deleted after the test."""
        path: str = self.useFixture(fixtures.TempDir()).path
        return path


def scenarios(rows: Iterable[Any], *fields: str
              ) -> list[tuple[str, dict[str, Any]]]:
    """Return testscenarios from rows of a name and these fields."""
    return [(name, dict(zip(fields, values))) for name, *values in rows]


def sql(path: str, statement: str, *values: object) -> list[Any]:
    """Run a statement on a store, bypassing its code; return the rows."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(statement, values).fetchall()


class NoSyncing(fixtures.Fixture):
    """A store that does not sync, so that thousands of changes are fast.

    Not for tests of what survives a crash.
    """

    def _setUp(self) -> None:
        self.useFixture(fixtures.MonkeyPatch(
            'nova_bdm_cleanup.node.store.database.SYNCHRONOUS', 'OFF'))
        self.useFixture(fixtures.MonkeyPatch('os.fsync', lambda fd: None))


def spent_of(journal: Journal, account: str) -> int:
    """Return how much of an hourly limit was used in the last hour."""
    journal.correct_dates()
    return journal._database.read(lambda connection: _spent(
        connection, account, journal._now())) or 0
