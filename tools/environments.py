#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Virtual environments with a real Nova or a real Cinder.

The pins of these services contradict each other, so each one lives in an
environment of its own, installed from a frozen list in ``environments/``
that ``freeze.py`` makes.
An environment is built once and kept until its list changes::

    python3 tools/environments.py nova-34      # prints its interpreter

Only the standard library is used: this runs before anything is installed.
uv installs where pip can get it; pip, which takes much longer, where not.
"""

from __future__ import annotations

import argparse
import collections
from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
from types import MappingProxyType

TOOLS = pathlib.Path(__file__).resolve().parent
LISTS = TOOLS / 'environments'
STAMP = '.complete'
HEARTBEAT = 10.0
#: The environment that pip resolves, without a list.
LATEST = 'nova-latest'
#: The environment of the installer of the others.
INSTALLER = 'uv'
#: What uv calls pip's options for the index.
INDEX_OPTIONS = {'index-url': 'UV_DEFAULT_INDEX', 'cert': 'SSL_CERT_FILE'}
#: Seconds after which it is built again.
LATEST_SECONDS = 24 * 60 * 60

Progress = Callable[[str], None]


class EnvironmentFailure(Exception):
    """The environment could not be built; the text says what to do."""


def names() -> list[str]:
    """Return the environments that have lists, in natural order."""
    def natural(name: str) -> tuple[str, int]:
        service, _, release = name.partition('-')
        return service, int(release)

    return sorted((path.stem for path in LISTS.glob('*.txt')), key=natural)


def directory() -> pathlib.Path:
    """Return the directory of the environments."""
    override = os.environ.get('NOVA_BDM_CLEANUP_ENVIRONMENTS')
    if override:
        return pathlib.Path(override).expanduser().absolute()
    return TOOLS.parent / '.environments'


def interpreter(name: str, progress: Progress | None = None) -> pathlib.Path:
    """Return the interpreter of an environment, building it when needed.

    Any number of processes may ask at the same time: one of them builds,
    the others wait for it.

    :param name: the name of a list, such as ``nova-34``
    :param progress: takes one line of text for each phase of a build
    :returns: the path of the environment's Python interpreter
    :raises EnvironmentFailure: when it cannot be built
    """
    if name not in names():
        raise EnvironmentFailure(
            f'There is no environment {name}. There are: '
            + ', '.join(names()))
    return _built(_Environment(name, progress or _to_stderr))


def build_side_by_side(*names: str) -> None:
    """Build environments that are not built yet, at the same time.

    Each uses one processor, and waits for the package index.

    :raises EnvironmentFailure: when one cannot be built
    """
    builds = {name: subprocess.Popen(
        [sys.executable, __file__, name], stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL) for name in names if not is_built(name)}
    try:
        failed = [name for name, build in builds.items() if build.wait()]
    except BaseException:
        # Each removes what it has built so far.
        for build in builds.values():
            build.terminate()
        for build in builds.values():
            build.wait()
        raise
    if failed:
        raise EnvironmentFailure(
            f'{" and ".join(failed)} could not be built: see above.')


def of_requirements(name: str, python: str,
                    files: Sequence[pathlib.Path],
                    progress: Progress | None = None) -> pathlib.Path:
    """Return the interpreter of an environment with the newest packages.

    It is kept until a file changes.

    :param python: the Python to make it with
    :param files: the files with the requirements
    :raises EnvironmentFailure: when it cannot be built
    """
    return _built(_OfRequirements(
        name, python, files, progress or _to_stderr))


def is_built(name: str) -> bool:
    """Return whether the environment of a list is there and up to date."""
    return _Environment(name, _to_stderr).is_complete()


def latest(packages: Sequence[str], progress: Progress | None = None
           ) -> pathlib.Path:
    """Return the interpreter of an environment that pip resolves.

    It is built with the newest versions on the index.  It is kept for a day,
    or until other packages are asked for.

    :param packages: what pip installs
    :param progress: takes one line of text for each phase of a build
    :raises EnvironmentFailure: when it cannot be built
    """
    return _built(_Latest(packages, progress or _to_stderr))


def _built(environment: _Environment) -> pathlib.Path:
    if not environment.is_complete():
        with environment.locked():
            # Another process may have built it while this one waited.
            if not environment.is_complete():
                environment.build()
    return environment.python


def base_interpreter(name: str, versions: tuple[str, ...]) -> str:
    """Find a Python to make a virtual environment with.

    :param name: what it is for, to be named in an error
    :param versions: those that will do, such as ``3.11``; the first is the
        one that an error recommends
    :raises EnvironmentFailure: when there is none
    """
    candidates = [sys.executable] + [
        path for path in (shutil.which(f'python{v}') for v in versions)
        if path]
    incomplete = []
    for candidate in candidates:
        found = subprocess.run(
            [candidate, '-c', 'import sys; print("%d.%d" % '
             'sys.version_info[:2]); import ensurepip, venv'],
            stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if found.stdout.strip() not in versions:
            continue
        if found.returncode == 0:
            return candidate
        incomplete.append(candidate)
    wanted = ' or '.join(versions)
    if incomplete:
        raise EnvironmentFailure(
            f'{name} needs the venv and ensurepip modules, which '
            f'{incomplete[0]} lacks. Debian and Ubuntu have them in the '
            f'package python{versions[0]}-venv.')
    raise EnvironmentFailure(
        f'{name} needs Python {wanted}; neither {sys.executable} '
        f'nor anything on PATH is one. Install for example '
        f'python{versions[0]}, or start this with it.')


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _for_uv() -> dict[str, str]:
    """Return environment variables with pip's options of the index."""
    listed = subprocess.run(
        [sys.executable, '-m', 'pip', 'config', 'list'],
        stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout
    return {INDEX_OPTIONS[name]: value for name, value in re.findall(
        r"^[^.]+\.([a-z-]+)='(.*)'$", listed, re.M) if name in INDEX_OPTIONS}


class _Environment:
    """One environment: its list, its directory and its build."""

    def __init__(self, name: str, progress: Progress) -> None:
        self.name = name
        self.path = directory() / name
        self.python = self.path / 'bin' / 'python'
        self._log = directory() / f'{name}.log'
        self._progress = progress
        self._started = time.monotonic()

    def is_complete(self) -> bool:
        try:
            stamp = (self.path / STAMP).read_text(encoding='ascii')
        except OSError:
            return False
        # The interpreter the environment was made from may have been removed
        # or replaced; its symbolic link dangles then.
        return stamp == self._fingerprint() and self.python.exists()

    def _fingerprint(self) -> str:
        return hashlib.sha256(self._list.read_bytes()).hexdigest()

    @property
    def _list(self) -> pathlib.Path:
        return LISTS / f'{self.name}.txt'

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the right to build; it vanishes with the process."""
        directory().mkdir(parents=True, exist_ok=True)
        with open(directory() / f'{self.name}.lock', 'w') as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self._say('waiting for another process that is building it')
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def build(self) -> None:
        """Build from nothing; the stamp, written last, makes it count."""
        self._started = time.monotonic()
        requirements = self._requirements()
        shutil.rmtree(self.path, ignore_errors=True)
        try:
            base = self._base()
            self._say(f'creating a virtual environment with {base}')
            self._run([base, '-m', 'venv', str(self.path)])
            self._say(f'installing {len(requirements)} packages')
            self._install(len(requirements))
            partial = self.path / f'{STAMP}.partial'
            partial.write_text(self._fingerprint(), encoding='ascii')
            partial.rename(self.path / STAMP)
        except BaseException:
            # An interrupted build leaves nothing behind that takes up room.
            shutil.rmtree(self.path, ignore_errors=True)
            raise
        self._log.unlink()
        self._say('ready')

    def _install(self, expected: int) -> None:
        """Install the requirements with uv, or with pip if that fails."""
        with contextlib.suppress(EnvironmentFailure):
            uv = _built(_Installer(self._progress)).with_name('uv')
            self._run([
                str(uv), 'pip', 'install', '--quiet', '--no-progress',
                # So that an edit here stays here.
                '--link-mode', 'copy', '--python', str(self.python),
                *self._options()], variables=_for_uv())
            return
        self._install_with_pip(expected)

    def _install_with_pip(self, expected: int) -> None:
        self._run([
            str(self.python), '-m', 'pip', 'install', '--no-input',
            '--progress-bar', 'off', '--disable-pip-version-check',
            # Most modules are never imported; Python compiles the others when
            # they are.
            '--no-compile', *self._options()], expected=expected)

    def _base(self) -> str:
        """Return the Python to make it with."""
        return base_interpreter(self.name, self._pythons())

    def _requirements(self) -> Sequence[str]:
        return [
            line for line in self._list.read_text(encoding='utf-8').split('\n')
            if line and not line.startswith('#')]

    def _options(self) -> Sequence[str]:
        """Return the arguments of ``pip install``, which uv knows, too."""
        # The list is complete, so nothing needs to be resolved; without a
        # resolver the installation is also quick.
        return ['--no-deps', '-r', str(self._list)]

    def _pythons(self) -> tuple[str, ...]:
        """Return the Pythons that the pins of this list were made for."""
        header = re.search(r'^# python: (.+)$',
                           self._list.read_text(encoding='utf-8'), re.M)
        return tuple(header.group(1).split()) if header else ()

    def _run(self, command: list[str], expected: int = 0,
             variables: Mapping[str, str] = MappingProxyType({})) -> None:
        """Run one phase of the build, its output kept for the case of failure.

        The child gets a process group of its own: that of pip includes the
        compilers it starts, and all of them have to go on an interrupt.
        """
        with open(self._log, 'w', encoding='utf-8') as log:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True,
                env={**os.environ, **variables})
        try:
            while True:
                try:
                    code = child.wait(HEARTBEAT)
                    break
                except subprocess.TimeoutExpired:
                    self._report(expected)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise
        if code:
            raise EnvironmentFailure(
                f'{self.name}: {command[0]} {" ".join(command[1:4])} failed '
                f'with exit code {code}. Its last lines were:\n'
                + self._last_lines())

    def _report(self, expected: int) -> None:
        with open(self._log, encoding='utf-8', errors='replace') as log:
            text = log.read()
        found = len(re.findall(r'^Collecting ', text, re.M))
        if 'Installing collected packages' in text:
            self._say('unpacking')
        elif found:
            self._say(f'{found} of {expected} packages fetched')
        else:
            self._say('still at it')

    def _last_lines(self) -> str:
        with open(self._log, encoding='utf-8', errors='replace') as log:
            return ''.join(collections.deque(
                (f'    {line}' for line in log if line.strip()), 15)).rstrip()

    def _say(self, text: str) -> None:
        elapsed = time.monotonic() - self._started
        self._progress(f'{self.name}: {text} ({elapsed:.0f} s)')


class _OfRequirements(_Environment):
    """An environment with the newest packages that some files allow."""

    def __init__(self, name: str, python: str,
                 files: Sequence[pathlib.Path], progress: Progress) -> None:
        super().__init__(name, progress)
        self._python = python
        self._files = files

    def _fingerprint(self) -> str:
        return hashlib.sha256(b''.join(
            path.read_bytes() for path in self._files)).hexdigest()

    def _base(self) -> str:
        return self._python

    def _requirements(self) -> Sequence[str]:
        return [line for path in self._files
                for line in path.read_text(encoding='utf-8').split('\n')
                if line and not line.startswith('#')]

    def _options(self) -> Sequence[str]:
        return [f'--requirement={path}' for path in self._files]


class _Installer(_Environment):
    """The environment of uv."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(INSTALLER, progress)

    def _fingerprint(self) -> str:
        return INSTALLER

    def _base(self) -> str:
        return sys.executable

    def _requirements(self) -> Sequence[str]:
        return [INSTALLER]

    _options = _requirements
    _install = _Environment._install_with_pip


class _Latest(_Environment):
    """An environment that pip resolves, and that grows old."""

    def __init__(self, packages: Sequence[str], progress: Progress) -> None:
        super().__init__(LATEST, progress)
        self._packages = packages

    def is_complete(self) -> bool:
        try:
            built = (self.path / STAMP).stat().st_mtime
        except OSError:
            return False
        return (time.time() - built < LATEST_SECONDS
                and super().is_complete())

    def _fingerprint(self) -> str:
        return hashlib.sha256('\n'.join(self._packages).encode()).hexdigest()

    def _requirements(self) -> Sequence[str]:
        return self._packages

    def _options(self) -> Sequence[str]:
        return self._packages

    def _pythons(self) -> tuple[str, ...]:
        return '3.11', '3.12', '3.13', '3.14'

    _install = _Environment._install_with_pip


def main() -> int:
    parser = argparse.ArgumentParser(
        description='Build environments with a real Nova or a real Cinder and '
                    'print the paths of their interpreters.')
    parser.add_argument('names', nargs='*', metavar='NAME',
                        help='one of: ' + ', '.join(names()))
    arguments = parser.parse_args()
    if not arguments.names:
        parser.error('name at least one of: ' + ', '.join(names()))
    # A polite kill has to clean up just like Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if len(arguments.names) > 1:
            build_side_by_side(*arguments.names)
        for name in arguments.names:
            print(interpreter(name))
    except EnvironmentFailure as failure:
        print(failure, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('interrupted', file=sys.stderr)
        return 130
    return 0


if __name__ == '__main__':
    sys.exit(main())
