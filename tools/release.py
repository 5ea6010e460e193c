#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make a release: build it, check it, and put it below dist/.

It changes nothing in the repository and uploads nothing; at its end it prints
the commands that do.  ``doc/source/contributor/releasing.rst`` has the steps
of a release::

    python3 tools/release.py                # the release of the last commit
    python3 tools/release.py --check        # the same build of any tree
    python3 tools/release.py --changelog    # write CHANGELOG.rst

Only the standard library is used: this installs what it needs.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
import contextlib
import email
import gzip
import hashlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import types
import zipfile

import environments
import release_notes

ROOT = release_notes.ROOT
NAME = 'nova-bdm-cleanup'
REQUIREMENTS = 'tools/release-requirements.txt'
CHANGELOG = 'CHANGELOG.rst'
RENEW = 'python3 tools/release.py --changelog'
TITLE = 'Changelog'

#: Files that only a checkout needs.
NOT_IN_SDIST = ('.gitignore',)

#: What the package adds to the openstack command.
CLI_GROUPS = ('openstack.cli.extension', 'openstack.bdm_cleanup.v1')

#: No variables besides those that every command sees.
NOTHING: Mapping[str, str] = types.MappingProxyType({})

#: Two surroundings that must not change a byte of what is built.
SURROUNDINGS = (
    ('one', {'TZ': 'UTC', 'PYTHONHASHSEED': '1'}),
    ('the/other', {'TZ': 'Pacific/Auckland', 'PYTHONHASHSEED': '2'}),
)


class Refusal(Exception):
    """There can be no release; the text is one line and says what to do."""


class Failure(Exception):
    """A step of the release failed; the text has the end of its output."""


class Release:
    """A release in the making, in a directory that is deleted afterwards.

    :param checkout: the checkout to release
    :param scratch: an empty directory
    :param checking: whether the files are taken as they are
    :param url: the address of the repository, for the metadata
    """

    def __init__(self, checkout: release_notes.Checkout, scratch: pathlib.Path,
                 checking: bool, url: str | None) -> None:
        self.checkout = checkout
        self.version = checkout.version
        self.artefacts = scratch / 'artefacts'
        self.artefacts.mkdir()
        self._scratch = scratch
        self._checking = checking
        self._url = url
        self._tools = pathlib.Path()
        self._empty = scratch / 'empty' / 'bin'
        #: What every command sees.
        self._variables = {
            'LC_ALL': 'C.UTF-8',
            'PIP_DISABLE_PIP_VERSION_CHECK': '1',
            'PIP_NO_INPUT': '1',
            'PYTHONDONTWRITEBYTECODE': '1',
            'SOURCE_DATE_EPOCH': str(checkout.time),
        }

    def prepare(self) -> None:
        """Install the tools, if they are not there."""
        self._tools = tools_environment() / 'bin'

    def make(self) -> None:
        """Build and check all artefacts."""
        with phase(f'{CHANGELOG} and the notes of {self.version}'):
            self._make_notes()
        with phase('files of the commit, twice' if not self._checking
                   else 'files as they are, twice'):
            for name, _ in SURROUNDINGS:
                self._unpack(self._scratch / name)
        with phase('source distribution and wheel, twice'):
            for name, variables in SURROUNDINGS:
                self._build(self._scratch / name, variables)
            self._keep_if_equal('dist', '*')
        with phase('contents'):
            self._check_contents()
        with phase('empty environment: installation, imports, --help'):
            self._install()
        with phase('SBOM of that environment'):
            self._make_sbom()
        with phase('empty environment: extra "cli", openstack'):
            self._install_cli()
        with phase('documentation, twice'):
            self._make_documentation()
            self._keep_if_equal('html', '*.tar.gz')
        self._write_checksums()

    @property
    def wheel(self) -> pathlib.Path:
        [wheel] = self.artefacts.glob('*.whl')
        return wheel

    @property
    def sdist(self) -> pathlib.Path:
        return self.artefacts / (
            f'{NAME.replace("-", "_")}-{self.version}.tar.gz')

    def changelog(self) -> str:
        """Return what CHANGELOG.rst should be.

        :raises Refusal: if no release note is of a version to be released
        """
        prepared = (is_final(self.version)
                    and self.version not in self.checkout.releases())
        text = self._report('changelog', self.version if prepared else None,
                            '--title', TITLE)
        if prepared and self.version not in versions_in(text):
            raise Refusal(f'There is no release note of {self.version}. Make '
                          'one with "tox -e venv -- reno new some-name".')
        return text

    def _make_notes(self) -> None:
        missing = missing_tags(self.checkout)
        if missing and self._checking:
            print(f'    {CHANGELOG} is not compared: {missing}')
        else:
            check_changelog(self.checkout.root, self.changelog())
        version = self.version.partition('.dev')[0]
        notes = self._report('notes', version, '--version', version)
        (self.artefacts / f'{NAME}-{self.version}-notes.rst').write_text(
            notes, encoding='utf-8')

    def _report(self, name: str, title: str | None, *options: str) -> str:
        history = self._scratch / name
        release_notes.make_history(self.checkout, history, title)
        text = history.with_suffix('.rst')
        self._run(self._tools / 'reno', '--quiet', 'report',
                  '--no-show-source', '--output', text, *options,
                  directory=history)
        # A title that is followed by two empty lines has one too many.
        lines = re.sub(r'\n{3,}', '\n\n', text.read_text(encoding='utf-8'))
        return lines.rstrip('\n') + '\n'

    def _unpack(self, target: pathlib.Path) -> None:
        target.mkdir(parents=True)
        tree = target / 'tree'
        if self._checking:
            self.checkout.unpack_changed(tree)
        else:
            self.checkout.unpack('HEAD', tree)
        if self._url:
            set_url(tree / 'setup.cfg', self._url)

    def _build(self, target: pathlib.Path, variables: dict[str, str]) -> None:
        """Build the source distribution, and the wheel from it."""
        build = (self._tools / 'python', '-m', 'build', '--no-isolation')
        built = target / 'built'
        self._run(*build, '--sdist', '--outdir', built, target / 'tree',
                  variables=variables)
        [sdist] = built.iterdir()
        unpacked = target / 'sdist'
        with tarfile.open(sdist) as files:
            files.extractall(unpacked, filter='data')
        [top] = unpacked.iterdir()
        # setuptools keeps times and owners, and gzip the time of the build.
        dist = target / 'dist'
        dist.mkdir()
        pack(top, dist / sdist.name, self.checkout.time)
        self._run(*build, '--wheel', '--outdir', dist, dist / sdist.name,
                  variables=variables)

    def _keep_if_equal(self, directory: str, pattern: str) -> None:
        """Keep the artefacts if both builds have the same bytes."""
        first, second = (self._scratch / name / directory
                         for name, _ in SURROUNDINGS)
        for path in sorted(first.glob(pattern)):
            other = second / path.name
            if path.read_bytes() != other.read_bytes():
                raise Failure(
                    f'Two builds of {path.name} differ: '
                    + ', '.join(differences(path, other) or ['the container']))
            path.rename(self.artefacts / path.name)

    def _check_contents(self) -> None:
        self._run(self._tools / 'twine', 'check', '--strict', self.wheel,
                  self.sdist)
        self._run(self._tools / 'check-wheel-contents', self.wheel)
        tests = [name for name in members(self.wheel) if '/tests/' in name]
        if tests:
            raise Failure(f'The wheel has tests: {tests[0]}')
        tree = self._scratch / SURROUNDINGS[0][0] / 'tree'
        lacking = ({str(path.relative_to(tree)) for path in tree.rglob('*')
                    if path.is_file()}
                   - {name.partition('/')[2] for name in members(self.sdist)}
                   - set(NOT_IN_SDIST))
        lacking = {name for name in lacking if '.egg-info/' not in name}
        if lacking:
            raise Failure('MANIFEST.in leaves out '
                          + ', '.join(sorted(lacking)))

    def _install(self) -> None:
        self._run(self._tools / 'python', '-m', 'venv', '--without-pip',
                  self._empty.parent)
        # By name: the path of a file would be recorded, and in the SBOM.
        self._pip('--no-deps', '--no-index', '--find-links', self.artefacts,
                  f'{NAME}=={self.version}')
        self._pip(f'{NAME}=={self.version}')
        self._run(self._empty / NAME, '--help')
        self._check_package()

    def _install_cli(self) -> None:
        self._pip(f'{NAME}[cli]=={self.version}')
        self._run(self._empty / 'openstack', 'bdm', 'audit', '--help')
        self._check_package(*CLI_GROUPS)

    def _pip(self, *arguments: str | pathlib.Path) -> None:
        self._run(self._tools / 'python', '-m', 'pip', '--python',
                  self._empty / 'python', 'install', '--quiet', *arguments)

    def _check_package(self, *groups: str) -> None:
        # A copy: next to it are files of the checkout.
        checker = self._scratch / 'check_package.py'
        shutil.copy(self.checkout.root / 'tools' / checker.name, checker)
        self._run(self._empty / 'python', checker, *groups)

    def _make_sbom(self) -> None:
        # It knows the package that the others are for only from such a file.
        project = self._scratch / 'pyproject.toml'
        project.write_text(
            f"[project]\nname = '{NAME}'\nversion = '{self.version}'\n"
            f"license = 'Apache-2.0'\ndependencies = {self._requirements()}\n",
            encoding='utf-8')
        self._run(
            self._tools / 'cyclonedx-py', 'environment', '--mc-type',
            'library', '--pyproject', project, '--output-reproducible',
            '--output-format', 'JSON', '--output-file',
            self.artefacts / f'{NAME}-{self.version}.cdx.json',
            self._empty / 'python')

    def _requirements(self) -> list[str]:
        """Return what the package requires, without its extras."""
        [metadata] = (text for name, text in members(self.wheel).items()
                      if name.endswith('.dist-info/METADATA'))
        required = email.message_from_bytes(metadata).get_all('Requires-Dist')
        return [str(line) for line in required or () if 'extra ==' not in line]

    def _make_documentation(self) -> None:
        tree = self._scratch / SURROUNDINGS[0][0] / 'tree'
        self._pip('--requirement', tree / 'doc' / 'requirements.txt')
        for name, variables in SURROUNDINGS:
            target = self._scratch / name
            title = f'{NAME}-{self.version}-html'
            html = target / 'html' / title
            self._run(self._empty / 'sphinx-build', '-W', '--keep-going', '-q',
                      '-b', 'html', '-d', target / 'doctrees', 'doc/source',
                      html, directory=target / 'tree', variables=variables)
            pack(html, target / 'html' / f'{title}.tar.gz', self.checkout.time)

    def _write_checksums(self) -> None:
        lines = [
            f'{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n'
            for path in sorted(self.artefacts.iterdir())]
        (self.artefacts / 'SHA256SUMS').write_text(''.join(lines),
                                                   encoding='ascii')

    def _run(self, *command: str | pathlib.Path,
             directory: pathlib.Path | None = None,
             variables: Mapping[str, str] = NOTHING) -> None:
        run(*command, directory=directory or self._scratch,
            variables={**self._variables, **variables})


def run(*command: str | pathlib.Path, directory: pathlib.Path,
        variables: Mapping[str, str] = NOTHING) -> None:
    """Run a command, which ends with this process.

    :param variables: added to the environment
    :raises Failure: with its output, if it fails
    """
    inherited = {name: value for name, value in os.environ.items()
                 if not name.startswith('PYTHON') and name != 'VIRTUAL_ENV'}
    child = subprocess.Popen(
        command, cwd=directory, env={**inherited, **variables},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors='replace',
        start_new_session=True)
    try:
        output, _ = child.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    if child.returncode:
        words = ' '.join(map(str, command))
        raise Failure(f'{output.rstrip()}\n{words} failed with exit code '
                      f'{child.returncode}.')


@contextlib.contextmanager
def phase(title: str) -> Iterator[None]:
    """Print what is done, and then how long it took."""
    begun = time.monotonic()
    print(f'{title} ...', flush=True)
    yield
    print(f'    done in {time.monotonic() - begun:.1f} s', flush=True)


def is_final(version: str) -> bool:
    return bool(release_notes.FINAL.fullmatch(version))


def refuse(checkout: release_notes.Checkout) -> None:
    """Refuse to release a checkout that is not ready.

    :raises Refusal: if it is not
    """
    version = checkout.version
    changes = checkout.changes()
    if changes:
        more = f' and {len(changes) - 1} more' if len(changes) > 1 else ''
        raise Refusal(f'The tree differs from the last commit: {changes[0]}'
                      f'{more}. Commit, remove or ignore it.')
    if not is_final(version):
        raise Refusal(f'{version} in {release_notes.VERSION_FILE} is not a '
                      'final version, such as 1.2.3. Commit the one to '
                      'release.')
    if checkout.has_tag(version):
        raise Refusal(f'The tag {version} exists already. Commit a later '
                      f'version in {release_notes.VERSION_FILE}.')
    missing = missing_tags(checkout)
    if missing:
        raise Refusal(missing)
    if version not in versions_in(read_changelog(checkout.root)):
        raise Refusal(f'{CHANGELOG} does not have {version}. Run "{RENEW}" '
                      'and commit it.')


def missing_tags(checkout: release_notes.Checkout) -> str:
    """Return what to do to get the tags of earlier releases; empty: nothing.

    Without them reno would take their notes for those of this release.
    """
    known = {checkout.version, *checkout.releases()}
    named = versions_in(read_changelog(checkout.root))
    missing = [version for version in named if version not in known]
    if not missing:
        return ''
    return (f'This checkout has no tag {missing[0]}, which {CHANGELOG} names. '
            'Run "git fetch --tags", with --unshallow in a shallow clone.')


def read_changelog(root: pathlib.Path) -> str:
    """Return the changelog, which may not be there yet."""
    try:
        return (root / CHANGELOG).read_text(encoding='utf-8')
    except FileNotFoundError:
        return ''


def versions_in(changelog: str) -> list[str]:
    """Return the versions that have a section in a changelog."""
    return re.findall(r'^(\d+\.\d+\.\d+)\n=+$', changelog, re.MULTILINE)


def check_changelog(root: pathlib.Path, wanted: str) -> None:
    """Refuse a changelog that is not current.

    :raises Refusal: with the command that renews it
    """
    if read_changelog(root) != wanted:
        raise Refusal(f'{CHANGELOG} differs from the release notes. Run '
                      f'"{RENEW}" and commit it.')


def set_url(setup: pathlib.Path, url: str) -> None:
    """Add the address of the repository to the metadata."""
    text = setup.read_text(encoding='utf-8')
    setup.write_text(text.replace(
        '[metadata]\n', f'[metadata]\nproject_urls =\n    Source = {url}\n',
        1), encoding='utf-8')


def pack(directory: pathlib.Path, archive: pathlib.Path, seconds: int) -> None:
    """Pack a directory, so that the bytes depend on its files only.

    :param seconds: the time of all files, since 1970
    """
    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mtime = seconds
        member.mode = 0o755 if member.mode & 0o100 else 0o644
        member.uid = member.gid = 0
        member.uname = member.gname = ''
        return member

    with open(archive, 'wb') as stream, gzip.GzipFile(
            '', 'wb', fileobj=stream, mtime=seconds) as compressed, \
            tarfile.open(mode='w', fileobj=compressed,
                         format=tarfile.PAX_FORMAT) as files:
        # It adds what is in a directory in the order of the names.
        files.add(directory, directory.name, filter=plain)


def members(archive: pathlib.Path) -> dict[str, bytes]:
    """Return the files of a wheel or a tar archive and their contents."""
    if archive.suffix == '.whl':
        with zipfile.ZipFile(archive) as wheel:
            return {name: wheel.read(name) for name in wheel.namelist()}
    with tarfile.open(archive) as files:
        return {member.name: extracted.read() for member in files
                if (extracted := files.extractfile(member))}


def differences(first: pathlib.Path, second: pathlib.Path) -> list[str]:
    """Return the names of the files in which two archives differ."""
    ours, theirs = members(first), members(second)
    return sorted(name for name in {*ours, *theirs}
                  if ours.get(name) != theirs.get(name))


def tools_environment() -> pathlib.Path:
    """Return a virtual environment with the tools, built when needed."""
    return environments.of_requirements(
        'release', sys.executable, [ROOT / REQUIREMENTS]).parent.parent


def publish(artefacts: pathlib.Path, output: pathlib.Path) -> None:
    """Put the artefacts where they belong, all of them or none."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent,
                                     prefix=f'.{output.name}-') as beside:
        staged = pathlib.Path(beside, output.name)
        shutil.copytree(artefacts, staged)
        staged.rename(output)


def show(release: Release, output: pathlib.Path) -> None:
    """Print the artefacts, their sizes and their numbers of files."""
    print(f'\n{nearer(output)}:')
    for path in sorted(release.artefacts.iterdir()):
        count = (f'{len(members(path)):5d} files'
                 if path.suffix in ('.whl', '.gz') else '')
        print(f'  {path.name:46} {path.stat().st_size:9,d} bytes '
              f'{count}'.rstrip())


def show_commands(release: Release, output: pathlib.Path) -> None:
    """Print the commands of the maintainer."""
    twine = environments.directory() / 'release' / 'bin' / 'twine'
    print(f"""
Nothing is tagged or uploaded yet. Two commands do it:

  git tag -s {release.version} -m '{NAME} {release.version}' \\
      {release.checkout.head}
  {nearer(twine)} upload \\
      {nearer(output / release.sdist.name)} \\
      {nearer(output / release.wheel.name)}""")


def nearer(path: pathlib.Path) -> pathlib.Path:
    """Return a path as seen from the current directory, if it is below."""
    with contextlib.suppress(ValueError):
        return path.absolute().relative_to(pathlib.Path.cwd())
    return path


def repository_url(text: str) -> str:
    """Check the address of the repository."""
    if not re.fullmatch(r'https://[^\s/]+/\S+', text):
        raise argparse.ArgumentTypeError(f'{text!r} is no https address of a '
                                         'repository')
    return text


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description='Build and check the release of the last commit. Print '
        'the commands that tag and upload it; run neither.')
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument(
        '--check', action='store_true',
        help='build and check the files as they are: changed, with any '
        'version, tagged or not')
    modes.add_argument(
        '--changelog', action='store_true',
        help=f'only write {CHANGELOG} from the release notes')
    parser.add_argument(
        '--output', type=pathlib.Path, metavar='DIRECTORY',
        help='the directory to make for the artefacts (dist/VERSION; with '
        '--check none)')
    parser.add_argument(
        '--url', type=repository_url,
        default=os.environ.get('NOVA_BDM_CLEANUP_URL') or None,
        help='the address of the repository, for the metadata '
        '(NOVA_BDM_CLEANUP_URL, or none)')
    return parser.parse_args(arguments)


def make(arguments: argparse.Namespace, scratch: pathlib.Path) -> None:
    """Do what the arguments say.

    :param scratch: an empty directory
    :raises Refusal: if there can be no release
    :raises Failure: if something of it fails
    """
    try:
        checkout = release_notes.Checkout(ROOT)
    except release_notes.GitError as error:
        raise Refusal(f'{ROOT} is no git checkout with a commit: '
                      f'{error}'.splitlines()[0]) from error
    release = Release(checkout, scratch, arguments.check, arguments.url)
    if arguments.changelog:
        missing = missing_tags(checkout)
        if missing:
            raise Refusal(missing)
        release.prepare()
        (ROOT / CHANGELOG).write_text(release.changelog(), encoding='utf-8')
        print(f'{CHANGELOG} is written.')
        return
    output = arguments.output
    if not arguments.check:
        refuse(checkout)
        output = output or ROOT / 'dist' / release.version
    if output and output.exists():
        raise Refusal(f'{nearer(output)} exists already. Remove it, or name '
                      'another directory with --output.')
    print(f'{NAME} {release.version}, commit {checkout.head[:12]}')
    begun = time.monotonic()
    with phase('tools'):
        release.prepare()
    release.make()
    print(f'all checks passed in {time.monotonic() - begun:.0f} s')
    if output:
        publish(release.artefacts, output)
        show(release, output)
    if not arguments.check:
        show_commands(release, output)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _arguments(arguments)
    # A polite kill has to clean up just like Ctrl-C.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    # The wheel keeps the modes of its files.
    os.umask(0o022)
    try:
        with tempfile.TemporaryDirectory(prefix=f'{NAME}-') as scratch:
            make(options, pathlib.Path(scratch))
    except (Refusal, Failure) as problem:
        print(problem, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('interrupted', file=sys.stderr)
        return 130
    return 0


if __name__ == '__main__':
    sys.exit(main())
