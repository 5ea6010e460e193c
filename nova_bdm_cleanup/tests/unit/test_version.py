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
"""The version that the log and the journal show."""

from __future__ import annotations

from importlib import metadata

import fixtures

from nova_bdm_cleanup.tests.unit import base
from nova_bdm_cleanup import version


class VersionTest(base.TestCase):

    def installed(self, found):
        def look_up(name):
            self.assertEqual('nova-bdm-cleanup', name)
            if found is None:
                raise metadata.PackageNotFoundError(name)
            return found

        self.useFixture(fixtures.MonkeyPatch(
            'importlib.metadata.version', look_up))
        return version.version()

    def test_as_installed(self):
        self.assertEqual('1.2.3', self.installed('1.2.3'))

    def test_a_checkout_has_none(self):
        self.assertEqual('checkout', self.installed(None))
