# SPDX-License-Identifier: Apache-2.0
"""The packages, as far as they can be tried without building them."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess

from nova_bdm_cleanup.tests.unit import base

ROOT = pathlib.Path(__file__).resolve().parents[3]


class IndexTest(base.TestCase):

    def test_nothing_is_installed_by_name(self) -> None:
        """Its name on an index may belong to others."""
        for path in [*ROOT.glob('*.rst'), *ROOT.glob('releasenotes/**/*.yaml'),
                     *ROOT.glob('doc/**/*.rst'), *(
                         path for path in ROOT.glob('nova_bdm_cleanup/**/*.*')
                         if 'tests' not in path.parts
                         and path.suffix in ('.py', '.rst'))]:
            self.assertNotRegex(path.read_text(encoding='utf-8'),
                                r'pip install [^`\n]*nova-bdm-cleanup', path)


class ThreatModelTest(base.TestCase):

    def test_the_tests_of_the_table_exist(self) -> None:
        tests = ROOT / 'nova_bdm_cleanup' / 'tests' / 'unit'
        named = re.findall(r'``(test_\w+)\.(\w+)``',
                           ROOT.joinpath('SECURITY.rst').read_text())
        self.assertTrue(named)
        for module, name in named:
            [path] = tests.rglob(module + '.py')
            self.assertIn(f'class {name}(', path.read_text())


class PostrmTest(base.TestCase):
    """The script that ``apt`` runs after a removal."""

    def setUp(self) -> None:
        super().setUp()
        self.root = pathlib.Path(self.tempdir())
        self.store = self.root / 'lib/nova/bdm-cleanup'
        self.store.mkdir(parents=True)
        self.script = self.root / 'postrm'
        self.script.write_text(re.sub(
            r'/var\b', str(self.root),
            ROOT.joinpath('packaging/debian/postrm').read_text()))

    def postrm(self, action: str) -> None:
        subprocess.run(['/bin/sh', self.script, action], check=True)

    def test_without_a_journal(self) -> None:
        self.postrm('remove')
        self.assertFalse(self.store.exists())
        self.postrm('purge')

    def test_journal_is_purged(self) -> None:
        self.store.joinpath('store.sqlite').write_text('')
        self.postrm('remove')
        self.assertTrue(self.store.joinpath('store.sqlite').exists())
        self.postrm('purge')
        self.assertFalse(self.store.exists())

    def test_link(self) -> None:
        """Keep the target of the link, which is the operator's."""
        there = self.root / 'there'
        there.mkdir()
        self.store.rmdir()
        self.store.symlink_to(there)
        there.joinpath('store.sqlite').write_text('')
        self.postrm('remove')
        self.assertTrue(self.store.is_symlink())
        self.postrm('purge')
        self.assertFalse(self.store.is_symlink())
        self.assertTrue(there.joinpath('store.sqlite').exists())

    def test_mount_point(self) -> None:
        """The directory stays, since it is not the package's."""
        if os.geteuid() != 0:
            self.skipTest('only root can mount')
        there = self.root / 'there'
        there.mkdir()
        mount = subprocess.run(
            ['mount', '--bind', there, self.store], check=False)
        if mount.returncode:
            self.skipTest('nothing can be mounted here')
        self.addCleanup(subprocess.run, ['umount', self.store], check=True)
        self.postrm('remove')
        there.joinpath('store.sqlite').write_text('')
        self.postrm('purge')
        self.assertEqual([], list(there.iterdir()))
