# SPDX-License-Identifier: Apache-2.0
"""The tool that makes a release, on git repositories of its own.

Here it refuses, or its parts are called; it builds in the gate "package".
"""

from __future__ import annotations

import importlib
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
from typing import Any
from unittest import mock

from nova_bdm_cleanup.tests.unit import base

ROOT = pathlib.Path(__file__).resolve().parents[3]
TOOLS = ROOT / 'tools'

CHANGELOG = 'CHANGELOG.rst'
NOTES = 'releasenotes/notes'

_GIT = {
    # Not that of the user, who may sign commits or have hooks.
    'GIT_CONFIG_GLOBAL': os.devnull, 'GIT_CONFIG_SYSTEM': os.devnull,
    'GIT_AUTHOR_NAME': 'A', 'GIT_AUTHOR_EMAIL': 'a@example.org',
    'GIT_COMMITTER_NAME': 'A', 'GIT_COMMITTER_EMAIL': 'a@example.org',
}


def load(name: str) -> Any:
    """Import a module of tools/."""
    with mock.patch.object(sys, 'path', [str(TOOLS), *sys.path]):
        return importlib.import_module(name)


def write(root: pathlib.Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding='utf-8')


def git(root: pathlib.Path, *arguments: str) -> str:
    return subprocess.run(
        ['git', *arguments], cwd=root, check=True, text=True,
        stdout=subprocess.PIPE, env={**os.environ, **_GIT}).stdout.rstrip()


def section(version: str) -> str:
    return f'{version}\n{"=" * len(version)}\n'


class ProjectTestCase(base.TestCase):
    """A test case with a git repository that has the tool."""

    def setUp(self) -> None:
        super().setUp()
        self.root = pathlib.Path(self.tempdir()).resolve()
        for name in ('environments.py', 'release.py', 'release_notes.py'):
            write(self.root, f'tools/{name}',
                  (TOOLS / name).read_text(encoding='utf-8'))
        write(self.root, '.gitignore', '__pycache__/\ndist/\n')
        write(self.root, 'releasenotes/config.yaml', 'encoding: utf-8\n')
        self.set_version('1.0.0')
        write(self.root, CHANGELOG, section('1.0.0'))
        write(self.root, f'{NOTES}/first.yaml', 'fixes: [one]\n')
        git(self.root, 'init', '--quiet')
        self.commit()

    def set_version(self, version: str) -> None:
        write(self.root, 'nova_bdm_cleanup/__init__.py',
              f"VERSION = '{version}'\n")

    def commit(self) -> None:
        git(self.root, 'add', '--all')
        git(self.root, 'commit', '--quiet', '--allow-empty', '--message', 'x')

    def clone(self, *options: str) -> pathlib.Path:
        clone = pathlib.Path(self.tempdir()).resolve() / 'clone'
        git(self.root, 'clone', '--quiet', *options, f'file://{self.root}',
            str(clone))
        return clone


class RefusalTest(ProjectTestCase):

    def refused(self, *arguments: str, root: pathlib.Path | None = None
                ) -> str:
        """Return the line with which the tool refuses."""
        root = root or self.root
        before = sorted(root.rglob('*'))
        done = subprocess.run(
            [sys.executable, str(root / 'tools' / 'release.py'), *arguments],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, **_GIT, 'PYTHONDONTWRITEBYTECODE': '1',
                 # If it did not refuse, it would have to install its tools.
                 'NOVA_BDM_CLEANUP_ENVIRONMENTS': os.devnull})
        self.assertEqual((1, ''), (done.returncode, done.stdout), done.stderr)
        self.assertEqual(before, sorted(root.rglob('*')))
        [line] = done.stderr.splitlines()
        return line

    def test_changed_file_is_refused(self) -> None:
        write(self.root, CHANGELOG, '')
        self.assertIn('differs from the last commit: CHANGELOG.rst',
                      self.refused())

    def test_hidden_untracked_files_are_refused(self) -> None:
        git(self.root, 'config', 'status.showUntrackedFiles', 'no')
        write(self.root, 'one', '')
        write(self.root, 'two', '')
        self.assertIn(': one and 1 more.', self.refused())

    def test_staged_file_is_refused(self) -> None:
        write(self.root, 'one', '')
        git(self.root, 'add', 'one')
        self.assertIn(': one.', self.refused())

    def test_directory_without_git_is_refused(self) -> None:
        shutil.rmtree(self.root / '.git')
        with mock.patch.dict(
                os.environ, GIT_CEILING_DIRECTORIES=str(self.root.parent)):
            self.assertIn('is no git checkout', self.refused())

    def test_checkout_of_another_project_is_refused(self) -> None:
        inner = self.root / 'inner'
        shutil.copytree(self.root / 'tools', inner / 'tools')
        self.assertIn('is another one', self.refused(root=inner))

    def test_repository_without_a_commit_is_refused(self) -> None:
        shutil.rmtree(self.root / '.git')
        git(self.root, 'init', '--quiet')
        self.assertIn('is no git checkout with a commit', self.refused())

    def test_version_in_development_is_refused(self) -> None:
        self.set_version('1.0.0.dev0')
        self.commit()
        self.assertIn('is not a final version', self.refused())

    def test_tag_on_an_earlier_commit_is_refused(self) -> None:
        git(self.root, 'tag', '1.0.0')
        self.commit()
        self.assertIn('The tag 1.0.0 exists', self.refused())

    def test_tag_on_another_branch_is_refused(self) -> None:
        git(self.root, 'checkout', '--quiet', '-b', 'other')
        self.commit()
        git(self.root, 'tag', '1.0.0')
        git(self.root, 'checkout', '--quiet', '-')
        self.assertIn('The tag 1.0.0 exists', self.refused())

    def test_changelog_without_the_version_is_refused(self) -> None:
        for text in ('', section('1.0.0').replace('1', '2', 1), '1.0.0\n'):
            write(self.root, CHANGELOG, text)
            git(self.root, 'tag', '--force', '2.0.0')
            self.commit()
            self.assertIn('does not have 1.0.0', self.refused())

    def test_clone_without_earlier_tags_is_refused(self) -> None:
        git(self.root, 'tag', '1.0.0')
        self.set_version('1.1.0')
        write(self.root, CHANGELOG, section('1.1.0') + section('1.0.0'))
        self.commit()
        for options in (('--no-tags',), ('--depth', '1')):
            clone = self.clone(*options)
            for mode in ((), ('--changelog',)):
                self.assertIn('has no tag 1.0.0',
                              self.refused(*mode, root=clone))

    def test_existing_directory_is_refused(self) -> None:
        (self.root / 'dist' / '1.0.0').mkdir(parents=True)
        self.assertIn('dist/1.0.0 exists already', self.refused())
        self.assertIn('dist exists already',
                      self.refused('--output', str(self.root / 'dist')))


class CheckoutTest(ProjectTestCase):
    """Facts that the tool takes from git."""

    def setUp(self) -> None:
        super().setUp()
        self.release_notes = load('release_notes')

    def files(self, *, changed: bool) -> dict[str, str]:
        """Return the files of the tree with their modes."""
        target = pathlib.Path(self.tempdir())
        checkout = self.release_notes.Checkout(self.root)
        if changed:
            checkout.unpack_changed(target)
        else:
            checkout.unpack('HEAD', target)
        return {str(path.relative_to(target)): oct(path.stat().st_mode & 0o777)
                for path in target.rglob('*') if path.is_file()}

    def test_a_build_takes_the_commit_and_a_check_the_files(self) -> None:
        committed = self.files(changed=False)
        self.assertEqual(committed, self.files(changed=True))
        (self.root / CHANGELOG).unlink()
        write(self.root, 'new', '')
        (self.root / 'new').chmod(0o777)
        write(self.root, 'dist/ignored', '')
        index = (self.root / '.git' / 'index').read_bytes()
        objects = sorted((self.root / '.git' / 'objects').rglob('*'))
        self.assertEqual(committed, self.files(changed=False))
        expected = {**committed, 'new': '0o755'}
        del expected[CHANGELOG]
        self.assertEqual(expected, self.files(changed=True))
        # No trace is left in the checkout.
        self.assertEqual(
            index, (self.root / '.git' / 'index').read_bytes())
        self.assertEqual(
            objects, sorted((self.root / '.git' / 'objects').rglob('*')))

    def test_releases_are_in_the_order_of_their_numbers(self) -> None:
        for tag in ('1.10.0', '1.9.0', 'v2', '2.0.0rc1', 'something'):
            git(self.root, 'tag', tag)
        git(self.root, 'checkout', '--quiet', '-b', 'other')
        self.commit()
        git(self.root, 'tag', '1.11.0')
        git(self.root, 'checkout', '--quiet', '-')
        self.assertEqual(
            ['1.9.0', '1.10.0'],
            self.release_notes.Checkout(self.root).releases())


class HistoryTest(ProjectTestCase):
    """The repository from which reno takes the versions of notes."""

    def history(self, root: pathlib.Path, title: str | None
                ) -> list[tuple[str, list[str]]]:
        """Return the tag and the notes of each commit, the oldest first."""
        release_notes = load('release_notes')
        path = pathlib.Path(self.tempdir()) / 'history'
        release_notes.make_history(
            release_notes.Checkout(root), path, title)
        commits = git(path, 'log', '--reverse', '--format=%H').split()
        return [(git(path, 'tag', '--points-at', commit),
                 [pathlib.PurePath(name).stem for name in git(
                     path, 'ls-tree', '-r', '--name-only', commit,
                     NOTES).split()])
                for commit in commits]

    def test_notes_belong_to_the_version_without_a_tag(self) -> None:
        for root in (self.root, self.clone('--depth', '1')):
            self.assertEqual([('0.0.0', []), ('1.0.0', ['first'])],
                             self.history(root, '1.0.0'))

    def test_notes_after_a_release_belong_to_the_next(self) -> None:
        git(self.root, 'tag', '1.0.0')
        write(self.root, f'{NOTES}/second.yaml', 'fixes: [two]\n')
        self.commit()
        # Not committed yet.
        write(self.root, f'{NOTES}/third.yaml', 'fixes: [three]\n')
        released = [('0.0.0', []), ('1.0.0', ['first'])]
        notes = ['first', 'second', 'third']
        self.assertEqual([*released, ('1.1.0', notes)],
                         self.history(self.root, '1.1.0'))
        self.assertEqual([*released, ('', notes)], self.history(self.root, ''))
        self.assertEqual(released, self.history(self.root, None))
        # A note that comes after the tag is in no release.
        self.assertEqual([*released, ('', notes)],
                         self.history(self.root, '1.0.0'))

    def test_shallow_clone_has_the_same_history(self) -> None:
        git(self.root, 'tag', '1.0.0')
        write(self.root, f'{NOTES}/second.yaml', 'fixes: [two]\n')
        self.commit()
        self.assertEqual(
            [('0.0.0', []), ('1.0.0', ['first']),
             ('1.1.0', ['first', 'second'])],
            self.history(self.clone('--depth', '2'), '1.1.0'))


class ArchiveTest(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.release = load('release')

    def packed(self, names: tuple[str, ...], mode: int, seconds: int
               ) -> pathlib.Path:
        """Pack new files, made in an order, with a mode and a time."""
        top = pathlib.Path(self.tempdir()) / 'top'
        for name in names:
            write(top, name, name)
            (top / name).chmod(mode)
            os.utime(top / name, (seconds, seconds))
        archive = pathlib.Path(self.tempdir()) / 'top.tar.gz'
        self.release.pack(top, archive, 1_700_000_000)
        return archive

    def test_same_files_give_the_same_bytes(self) -> None:
        first = self.packed(('b', 'a/c'), 0o600, 1)
        second = self.packed(('a/c', 'b'), 0o664, 2_000_000_000)
        self.assertEqual(first.read_bytes(), second.read_bytes())
        with tarfile.open(first) as files:
            self.assertEqual(
                [('top', 0o755), ('top/a', 0o755), ('top/a/c', 0o644),
                 ('top/b', 0o644)],
                [(member.name, member.mode) for member in files])
            self.assertEqual(
                {(1_700_000_000, 0, 0, '', '')},
                {(member.mtime, member.uid, member.gid, member.uname,
                  member.gname) for member in files})

    def test_programs_stay_programs(self) -> None:
        with tarfile.open(self.packed(('a',), 0o700, 1)) as files:
            self.assertEqual([0o755, 0o755],
                             [member.mode for member in files])

    def test_files_that_differ_are_named(self) -> None:
        first = self.packed(('a', 'b'), 0o644, 1)
        self.assertEqual(
            ['top/b', 'top/c'], self.release.differences(
                first, self.packed(('a', 'c'), 0o644, 1)))
        self.assertEqual([], self.release.differences(first, first))

    def test_failed_copy_publishes_nothing(self) -> None:
        source = pathlib.Path(self.tempdir())
        write(source, 'one', '1')
        output = pathlib.Path(self.tempdir(), 'dist', '1.0.0')
        self.release.publish(source, output)
        self.assertEqual(['one'], [path.name for path in output.iterdir()])
        self.assertEqual([output], list(output.parent.iterdir()))
        # What cannot be copied whole leaves nothing.
        (source / 'two').symlink_to('nothing')
        other = output.with_name('1.1.0')
        self.assertRaises(shutil.Error, self.release.publish, source, other)
        self.assertEqual([output], list(output.parent.iterdir()))


class MetadataTest(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.release = load('release')

    def test_address_is_written_only_if_given(self) -> None:
        setup = pathlib.Path(self.tempdir(), 'setup.cfg')
        before = (ROOT / 'setup.cfg').read_text(encoding='utf-8')
        self.assertNotIn('\nproject_urls', before)
        shutil.copy(ROOT / 'setup.cfg', setup)
        self.release.set_url(setup, 'https://git.example.org/x')
        self.assertEqual(
            before.replace(
                '[metadata]\n', '[metadata]\nproject_urls =\n'
                '    Source = https://git.example.org/x\n'),
            setup.read_text(encoding='utf-8'))

    def test_an_address_is_one(self) -> None:
        for text in ('example.org/x', 'https://example.org',
                     'https://example.org/x\nlicense = x', 'http://a/b'):
            self.assertRaises(self.release.argparse.ArgumentTypeError,
                              self.release.repository_url, text)

    def test_versions_are_read_from_the_changelog(self) -> None:
        self.assertEqual([], self.release.versions_in(''))
        self.assertEqual(['1.10.0', '1.0.0'], self.release.versions_in(
            '=====\nTitle\n=====\n\n1.10.0\n======\n\nx 1.9.9\n-------\n\n'
            '1.0.0\n=====\n'))

    def test_outdated_changelog_is_refused(self) -> None:
        root = pathlib.Path(self.tempdir())
        self.assertRaises(self.release.Refusal,
                          self.release.check_changelog, root, 'x')
        write(root, CHANGELOG, 'x')
        self.release.check_changelog(root, 'x')
        self.assertRaises(
            self.release.Refusal, self.release.check_changelog, root, 'y')

    def test_a_command_that_fails_ends_the_release(self) -> None:
        self.assertRaises(self.release.Failure, self.release.run, 'false',
                          directory=ROOT)
