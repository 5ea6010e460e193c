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
"""What every unit test starts from."""

from __future__ import annotations

import fixtures
import testtools


class TestCase(testtools.TestCase):
    """Logging is captured, and shown when a test fails."""

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())

    def tempdir(self) -> str:
        """A new directory, deleted after the test."""
        path: str = self.useFixture(fixtures.TempDir()).path
        return path
