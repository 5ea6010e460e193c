#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the history from which reno takes the version of each release note.

reno finds the versions in the git tags of the commits that it walks through.
It fails in a shallow clone, calls every note 0.0.0 in a clone without tags,
and the version that is about to be released has no tag yet.  So this makes a
small repository for it, with a commit for each release tag and one for the
files as they are::

    python3 tools/release_notes.py releasenotes/build/history

Only the standard library and git are used.
"""

from __future__ import annotations

import io
import os
import pathlib
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
VERSION_FILE = 'nova_bdm_cleanup/__init__.py'
FINAL = re.compile(r'(\d+)\.(\d+)\.(\d+)')

#: The repository for reno does not depend on the user's configuration.
_HISTORY = {
    'GIT_CONFIG_GLOBAL': os.devnull,
    'GIT_AUTHOR_NAME': 'reno', 'GIT_AUTHOR_EMAIL': 'reno@localhost',
    'GIT_COMMITTER_NAME': 'reno', 'GIT_COMMITTER_EMAIL': 'reno@localhost',
}


class GitError(Exception):
    """A git command failed; the text is what it printed."""


def git(directory: pathlib.Path, *arguments: str, **variables: str) -> bytes:
    """Return the output of git in a directory.

    :param variables: added to the environment
    """
    try:
        done = subprocess.run(
            ['git', *arguments], cwd=directory, stdin=subprocess.DEVNULL,
            capture_output=True, env={**os.environ, **variables})
    except OSError as exc:
        raise GitError(f'git does not run: {exc.strerror}') from exc
    if done.returncode:
        raise GitError(done.stderr.decode(errors='replace').strip())
    return done.stdout


class Checkout:
    """A git checkout, which is only read.

    :raises GitError: if the directory is no checkout, or has no commit
    """

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.head = self._git('rev-parse', '--verify', 'HEAD')
        # A source distribution may be unpacked inside another checkout.
        if pathlib.Path(self._git('rev-parse', '--show-toplevel')) != root:
            raise GitError('the checkout that it is in is another one')

    @property
    def version(self) -> str:
        """Return the version that the files have now."""
        version: str = runpy.run_path(str(self.root / VERSION_FILE))['VERSION']
        return version

    @property
    def time(self) -> int:
        """Return the time of the commit, in seconds since 1970."""
        return int(self._git('show', '-s', '--format=%ct', 'HEAD'))

    def changes(self) -> list[str]:
        """Return the files that differ from the commit."""
        # The user may have configured that untracked files are not shown.
        status = self._git('status', '--porcelain', '-z', '--no-renames',
                           '--untracked-files=normal')
        return [entry[3:] for entry in status.split('\0') if entry]

    def has_tag(self, name: str) -> bool:
        return bool(self._git('tag', '--list', name))

    def releases(self) -> list[str]:
        """Return the release tags in the history of the commit, in order."""
        tags = self._git('tag', '--merged', 'HEAD').split()
        return sorted(filter(FINAL.fullmatch, tags),
                      key=lambda tag: [int(part) for part in tag.split('.')])

    def unpack(self, tree: str, target: pathlib.Path, *paths: str) -> None:
        """Write the files of a commit to a directory."""
        self._unpack(tree, target, paths, {})

    def unpack_changed(self, target: pathlib.Path, *paths: str) -> None:
        """Write the files to a directory as they are, changed or new."""
        objects = self._git('rev-parse', '--git-path', 'objects')
        with tempfile.TemporaryDirectory() as scratch:
            # What git would commit, without a trace in the checkout.
            variables = {
                'GIT_INDEX_FILE': str(pathlib.Path(scratch, 'index')),
                'GIT_OBJECT_DIRECTORY': scratch,
                'GIT_ALTERNATE_OBJECT_DIRECTORIES': str(self.root / objects)}
            self._git('read-tree', 'HEAD', **variables)
            self._git('add', '--all', **variables)
            self._unpack(self._git('write-tree', **variables), target, paths,
                         variables)

    def _unpack(self, tree: str, target: pathlib.Path, paths: tuple[str, ...],
                variables: dict[str, str]) -> None:
        archive = git(self.root, 'archive', tree, '--', *paths, **variables)
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(target, filter='data')

    def _git(self, *arguments: str, **variables: str) -> str:
        return git(self.root, *arguments, **variables).decode().rstrip('\n')


def make_history(checkout: Checkout, path: pathlib.Path,
                 title: str | None) -> None:
    """Make the repository that reno reads.

    :param path: the directory to make
    :param title: the version of what is in no release yet; empty: it is the
        title for this in ``releasenotes/config.yaml``; None: leave it out
    """
    releases = checkout.releases()
    path.mkdir(parents=True)
    git(path, 'init', '--quiet', **_HISTORY)
    # Without a tag before it, reno does not use the title.
    _commit(path, '0.0.0')
    for release in releases:
        _empty(path)
        checkout.unpack(release, path, 'releasenotes')
        _commit(path, release)
    _empty(path)
    checkout.unpack_changed(path, 'releasenotes')
    if title is not None:
        _commit(path, title if title not in releases else '')


def _empty(path: pathlib.Path) -> None:
    shutil.rmtree(path / 'releasenotes', ignore_errors=True)


def _commit(path: pathlib.Path, tag: str) -> None:
    git(path, 'add', '--all', **_HISTORY)
    git(path, 'commit', '--quiet', '--allow-empty', '--no-verify', '--message',
        tag or 'not released', **_HISTORY)
    if tag:
        git(path, 'tag', tag, **_HISTORY)


def main() -> int:
    [path] = map(pathlib.Path, sys.argv[1:])
    try:
        checkout = Checkout(ROOT)
        version = checkout.version
        shutil.rmtree(path, ignore_errors=True)
        make_history(checkout, path,
                     version if FINAL.fullmatch(version) else '')
    except GitError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
