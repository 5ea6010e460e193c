# SPDX-License-Identifier: Apache-2.0
"""The diffs of contributor/adding.rst, applied to a copy of this tree.

Each section that shows a diff names the tests that run with it.  If one fails
here, that page is out of date.  If only the lines around a diff have changed,
this writes the page again::

    python3 -m nova_bdm_cleanup.tests.unit.test_adding
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap

import testscenarios

from nova_bdm_cleanup.tests.unit import base, test_docs

load_tests = testscenarios.load_tests_apply_scenarios

ROOT = test_docs.ROOT
PAGE = ROOT / 'doc' / 'source' / 'contributor' / 'adding.rst'

#: The folders that a diff may change, or that its tests may read.
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


def copy_tree(copy: pathlib.Path) -> None:
    """Copy what a diff may change, or its tests may read."""
    for name in COPIED:
        shutil.copytree(ROOT / name, copy / name,
                        ignore=shutil.ignore_patterns(
                            '__pycache__', 'build', 'environments'))
    for path in ROOT.glob('*.*'):
        if path.is_file():
            shutil.copy(path, copy)


def git(copy: pathlib.Path, *arguments: str, text: str = '') -> str:
    """Return the output of git in a copy of the tree."""
    return subprocess.run(
        ['git', *arguments], cwd=copy, input=text, text=True, check=True,
        stdout=subprocess.PIPE,
        # Works also if the copy is below a repository.
        env={**os.environ, 'GIT_CEILING_DIRECTORIES': str(copy.parent)}
    ).stdout


def apply(copy: pathlib.Path, diff: str) -> None:
    """Apply a diff, also if most lines around it have changed."""
    git(copy, 'apply', '-C1', '-', text=diff)


def renew(diff: str) -> str:
    """Return a diff as it is for the tree of today."""
    with tempfile.TemporaryDirectory() as name:
        copy = pathlib.Path(name, 'tree')
        copy.mkdir()
        copy_tree(copy)
        git(copy, 'init', '--quiet')
        git(copy, 'add', '--all')
        apply(copy, diff)
        git(copy, 'add', '--all', '--intent-to-add')
        text = git(copy, 'diff', '--unified=2')
    text = re.sub('^(diff --git|index |new file mode).*\n', '', text,
                  flags=re.MULTILINE)
    # Pages have no space at the end of a line.
    return re.sub('^ $', '', text, flags=re.MULTILINE)


class AddingTest(base.TestCase):

    scenarios = base.scenarios(
        ((title, title) for title in recipes()), 'title')

    title = ''

    def test_diff_applies_and_its_tests_pass(self) -> None:
        diff, modules = recipes()[self.title]
        copy = pathlib.Path(self.tempdir())
        copy_tree(copy)
        apply(copy, diff)
        played = subprocess.run(
            [sys.executable, '-m', 'testtools.run', *modules], cwd=copy,
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, 'PYTHONPATH': str(copy),
                 'PYTHONDONTWRITEBYTECODE': '1'})
        self.assertEqual(0, played.returncode, played.stdout)


def main() -> None:
    """Write the diffs of the page for the tree of today."""
    page = PAGE.read_text(encoding='utf-8')
    for title, (diff, _) in recipes().items():
        print(title)
        before, after = (textwrap.indent(text.rstrip('\n'), '   ')
                         for text in (diff, renew(diff)))
        page = page.replace(before, after)
    PAGE.write_text(page, encoding='utf-8')


if __name__ == '__main__':
    main()
