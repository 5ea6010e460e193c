# SPDX-License-Identifier: Apache-2.0
"""The same version everywhere."""

from __future__ import annotations

import pathlib
import re

from nova_bdm_cleanup import VERSION
from nova_bdm_cleanup.tests.unit import base

ROOT = pathlib.Path(__file__).resolve().parents[3]
DOCS = ROOT / 'doc' / 'source'

#: The version to be released next, also while it is in development.
NEXT = VERSION.partition('.dev')[0]


class VersionTest(base.TestCase):

    def test_version_is_final_or_in_development(self) -> None:
        self.assertRegex(VERSION, r'^\d+\.\d+\.\d+(\.dev0)?$')

    def test_documentation_names_the_version(self) -> None:
        named = [
            version for page in sorted(DOCS.rglob('*.rst'))
            for version in re.findall(r'\bbdm-cleanup (\d[\w.]*)',
                                      page.read_text(encoding='utf-8'))]
        self.assertEqual({NEXT}, set(named))

    def test_debian_changelog_has_the_version(self) -> None:
        # "dch" adds an entry; the number after the version counts packages of
        # one version.
        changelog = ROOT / 'packaging' / 'debian' / 'changelog'
        first = changelog.read_text(encoding='utf-8').splitlines()[0]
        self.assertRegex(first, r'^nova-bdm-cleanup \(%s-\d+\) '
                         % re.escape(NEXT))
