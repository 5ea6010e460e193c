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
"""One version everywhere."""

from __future__ import annotations

import pathlib
import re

from nova_bdm_cleanup.tests.unit import base
from nova_bdm_cleanup.version import VERSION

ROOT = pathlib.Path(__file__).resolve().parents[3]
DOCS = ROOT / 'doc' / 'source'


class VersionTest(base.TestCase):

    def test_a_released_version_is_final(self) -> None:
        self.assertRegex(VERSION, r'^\d+\.\d+\.\d+$')

    def test_the_documentation_names_it(self) -> None:
        named = [
            version for page in sorted(DOCS.rglob('*.rst'))
            for version in re.findall(r'\bbdm-cleanup (\d[\w.]*)',
                                      page.read_text(encoding='utf-8'))]
        self.assertEqual({VERSION}, set(named))
