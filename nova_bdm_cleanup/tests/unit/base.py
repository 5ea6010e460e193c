# SPDX-License-Identifier: Apache-2.0
"""What every unit test starts from.

Property tests repeat themselves: the same examples in each run, and few of
them.  One that fails is shown as it was found, since to make it smaller may
take minutes.  To look further, at random and with that many examples a test::

    NOVA_BDM_CLEANUP_EXAMPLES=20000 stestr run properties
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

_EXAMPLES = int(os.environ.get('NOVA_BDM_CLEANUP_EXAMPLES', '0'))

hypothesis.settings.register_profile(
    'ci', max_examples=200, derandomize=True, database=None, print_blob=True,
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    # How long an example takes says how busy the machine is.
    deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
hypothesis.settings.register_profile(
    'random', hypothesis.settings.get_profile('ci'),
    max_examples=_EXAMPLES or 200, derandomize=False,
    phases=list(hypothesis.Phase))
hypothesis.settings.load_profile('random' if _EXAMPLES else 'ci')


class TestCase(testtools.TestCase):
    """Logging is captured, and shown when a test fails."""

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())

    def tempdir(self) -> str:
        """A new directory, deleted after the test."""
        path: str = self.useFixture(fixtures.TempDir()).path
        return path


def scenarios(rows: Iterable[Any], *fields: str
              ) -> list[tuple[str, dict[str, Any]]]:
    """For testscenarios: each row of a table is a name, and these fields."""
    return [(name, dict(zip(fields, values))) for name, *values in rows]


def sql(path: str, statement: str, *values: object) -> list[Any]:
    """What a statement finds in a store, or changes behind its back."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(statement, values).fetchall()


class NoSyncing(fixtures.Fixture):
    """The store does not wait for the disk, so that thousands of changes are
    no matter.  Not where a test is about what survives.
    """

    def _setUp(self) -> None:
        self.useFixture(fixtures.MonkeyPatch(
            'nova_bdm_cleanup.node.store.database.SYNCHRONOUS', 'OFF'))
        self.useFixture(fixtures.MonkeyPatch('os.fsync', lambda fd: None))
