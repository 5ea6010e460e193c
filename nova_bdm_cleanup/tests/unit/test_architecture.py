# SPDX-License-Identifier: Apache-2.0
"""The pictures of the contributor's guide, compared with the code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
import pathlib
import re

from nova_bdm_cleanup.tests.unit import base

PACKAGE = pathlib.Path(__file__).resolve().parents[2]
ROOT = PACKAGE.parent
CONTRIBUTOR = ROOT / 'doc' / 'source' / 'contributor'
ARCHITECTURE = CONTRIBUTOR / 'architecture.rst'

#: The directories of the files that the pages name.
FOLDERS = (PACKAGE.name, 'benchmarks', 'demo', 'e2e', 'tools')

#: A file or a folder, in a picture or between backquotes.
PATH = re.compile(r'(?<![\w/])[a-z_0-9]+(?:/[a-z_0-9]+)*(?:\.py|/)(?!\w)')


def picture(name: str) -> str:
    """Return the lines of a named literal block of the page."""
    [_, block] = ARCHITECTURE.read_text(encoding='utf-8').split(
        f'   :name: {name}\n', 1)
    return re.split(r'\n(?=\S)', block, maxsplit=1)[0]


def folders() -> set[str]:
    """Return the packages below ``nova_bdm_cleanup`` except the tests."""
    return {path.parent.relative_to(PACKAGE).as_posix()
            for path in PACKAGE.glob('*/**/__init__.py')
            if path.relative_to(PACKAGE).parts[0] != 'tests'}


def module_file(name: str) -> str | None:
    """Return the file of a module of the package, below the package."""
    path = PACKAGE.parent.joinpath(*name.split('.'))
    for candidate in (path.with_suffix('.py'), path / '__init__.py'):
        if candidate.is_file() and PACKAGE in candidate.parents:
            return candidate.relative_to(PACKAGE).as_posix()
    return None


def imports(file: str) -> set[str]:
    """Return the files of the package that a file imports anywhere."""
    names: set[str] = set()
    for node in ast.walk(ast.parse((PACKAGE / file).read_text('utf-8'))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f'{node.module}.{alias.name}' for alias in node.names)
    return {found for found in map(module_file, names) if found}


def steps() -> Iterator[tuple[str, str]]:
    """Yield each step of the reboot as importing and imported file."""
    above: list[tuple[int, str]] = []
    for line in picture('reboot').split('\n'):
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        file = line.split()[0]
        while above and above[-1][0] >= indent:
            above.pop()
        if above:
            yield above[-1][1], file
        above.append((indent, file))


class ArchitectureTest(base.TestCase):

    def test_every_package_is_in_the_picture_of_the_columns(self) -> None:
        shown = {path.rstrip('/') for path in PATH.findall(picture('columns'))}
        for folder in folders():
            self.assertIn(folder.rpartition('/')[2], shown, folder)
        names = {path.name for path in PACKAGE.rglob('*')}
        self.assertEqual(set(), shown - names)

    def test_each_step_of_a_reboot_is_an_import(self) -> None:
        found = list(steps())
        self.assertGreater(len(found), 10)
        for importing, imported in found:
            self.assertIn(imported, imports(importing), importing)

    def test_files_that_the_guide_names_exist(self) -> None:
        existing = [f'/{path.relative_to(ROOT).as_posix()}'
                    for folder in FOLDERS for path in (
                        ROOT / folder, *(ROOT / folder).rglob('*'))]
        for page in CONTRIBUTOR.glob('*.rst'):
            text = page.read_text(encoding='utf-8')
            for name in filter(PATH.fullmatch,
                               re.findall('``([^`]+)``', text)):
                ending = '/' + name.rstrip('/')
                self.assertTrue(any(path.endswith(ending)
                                    for path in existing),
                                f'{page.name}: {name}')

    def test_modules_and_names_that_the_guide_names_exist(self) -> None:
        packages = '|'.join(sorted(
            {folder.partition('/')[0] for folder in folders()}))
        found = [
            each for page in CONTRIBUTOR.glob('*.rst') for each in re.findall(
                rf'``((?:{packages})(?:\.[a-z_]+)+)(?:\.([A-Z]\w+))?``',
                page.read_text(encoding='utf-8'))]
        self.assertGreater(len(found), 5)
        for module, name in found:
            file = module_file(f'{PACKAGE.name}.{module}')
            assert file is not None, module
            tree = ast.parse((PACKAGE / file).read_text('utf-8'))
            self.assertIn(name or None, {None, *(
                node.name for node in tree.body
                if isinstance(node, ast.ClassDef)), *(
                ast.unparse(target) for node in tree.body
                if isinstance(node, ast.Assign) for target in node.targets)})
