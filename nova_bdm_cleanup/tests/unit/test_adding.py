# SPDX-License-Identifier: Apache-2.0
"""The diffs of contributor/adding.rst, applied to a copy of this tree.

Each section that shows a diff names the tests that run with it.  If one fails
here, that page is out of date.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap

import testscenarios

from nova_bdm_cleanup.tests.unit import base, test_docs

load_tests = testscenarios.load_tests_apply_scenarios

ROOT = test_docs.ROOT
PAGE = ROOT / 'doc' / 'source' / 'contributor' / 'adding.rst'

#: The files that a diff may change, or that its tests may read.
COPIED = ('nova_bdm_cleanup', 'doc', 'etc', 'releasenotes', 'tools')

_BLOCK = re.compile(r'^\.\. code-block:: (diff|console)\n\n((?:   .*\n|\n)+)',
                    re.MULTILINE)


def recipes() -> dict[str, tuple[str, list[str]]]:
    """Return the diff and the test modules of each section with a diff."""
    found = {}
    for title, text in test_docs.sections(PAGE).items():
        blocks = {kind: textwrap.dedent(block)
                  for kind, block in _BLOCK.findall(text)}
        if 'diff' in blocks:
            found[title] = (blocks['diff'].rstrip('\n') + '\n', re.findall(
                r'nova_bdm_cleanup(?:\.\w+)+', blocks['console']))
    return found


class AddingTest(base.TestCase):

    scenarios = base.scenarios(
        ((title, title) for title in recipes()), 'title')

    title = ''

    def test_diff_applies_and_its_tests_pass(self) -> None:
        diff, modules = recipes()[self.title]
        copy = pathlib.Path(self.tempdir())
        for name in COPIED:
            shutil.copytree(ROOT / name, copy / name,
                            ignore=shutil.ignore_patterns(
                                '__pycache__', 'build', 'environments'))
        for path in ROOT.glob('*.*'):
            if path.is_file():
                shutil.copy(path, copy)
        applied = subprocess.run(
            ['git', 'apply', '-'], cwd=copy, input=diff, text=True,
            capture_output=True,
            # Works also if the copy is below a repository.
            env={**os.environ, 'GIT_CEILING_DIRECTORIES': str(copy.parent)})
        self.assertEqual('', applied.stderr)
        played = subprocess.run(
            [sys.executable, '-m', 'testtools.run', *modules], cwd=copy,
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, 'PYTHONPATH': str(copy),
                 'PYTHONDONTWRITEBYTECODE': '1'})
        self.assertEqual(0, played.returncode, played.stdout)
