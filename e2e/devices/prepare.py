# SPDX-License-Identifier: Apache-2.0
"""The parts of the virtual machine: a kernel, programs, a first process.

The machine's file system is this host's own, read-only, under a layer of the
packages that the host lacks.  Nothing is installed on the host: the packages
are only unpacked, into a directory of their own.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import time

from e2e import machine

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]

QEMU = 'qemu-system-x86_64'
#: The environment of tools/environments for the machine's Python.
ENVIRONMENT = 'nova-34'
#: The packages of a compute host with block storage, and busybox to boot.
PACKAGES = ('busybox-static', 'cryptsetup-bin', 'kmod', 'multipath-tools',
            'nvme-cli', 'open-iscsi', 'udev')
#: The modules that the initramfs needs to reach the host's files.
_BOOT_MODULES = ('virtio_pci', '9pnet_virtio', '9p', 'overlay')
#: In Debian these are links to their namesakes in /usr.
_MERGED = ('bin', 'lib', 'lib64', 'sbin')


def check() -> None:
    """Check the requirements before anything else.

    :raises Unsuitable: something is missing; one line lists it
    """
    missing = []
    if os.geteuid() != 0:
        missing.append('root (QEMU shows this host\'s files to the machine)')
    if not shutil.which(QEMU):
        missing.append(f'{QEMU} (the package qemu-system-x86)')
    if not (shutil.which('apt-get') and shutil.which('dpkg-deb')):
        missing.append('apt and dpkg (the kernel and the storage programs '
                       'are Debian\'s)')
    if missing:
        raise machine.Unsuitable('missing: ' + ', '.join(missing))


class Machine:
    """The parts of the machine, made once and kept.

    :param directory: the directory of all parts
    """

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self.layer = directory / 'layer'
        self.kernel = directory / 'vmlinuz'
        self.initramfs = directory / 'initramfs.img'
        self.sources = directory / 'sources'
        self._stamp = directory / 'made-of'

    def prepare(self) -> None:
        """Make the parts that are missing or outdated.

        :raises Unsuitable: apt or a program fails
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            kernel = _kernel_package()
            fingerprint = _fingerprint(kernel)
            if not (self._stamp.exists()
                    and self._stamp.read_text() == fingerprint):
                began = time.monotonic()
                self._stamp.unlink(missing_ok=True)
                self._unpack(_download(kernel, self.directory / 'packages'))
                self._build(_release_of(kernel))
                self._stamp.write_text(fingerprint)
                _print(f'{kernel} and its programs are in {self.directory} '
                       f'after {time.monotonic() - began:.0f} s')
        except subprocess.CalledProcessError as exc:
            raise machine.Unsuitable(
                f'{exc.cmd[0]} failed: '
                + _last_line(exc.stderr or exc.stdout)) from exc

    def copy_sources(self, python: pathlib.Path) -> None:
        """Copy the plugin and this suite, and compile them here: the machine
        is slow at that.
        """
        shutil.rmtree(self.sources, ignore_errors=True)
        for package in ('nova_bdm_cleanup', 'e2e'):
            shutil.copytree(
                ROOT / package, self.sources / package,
                ignore=shutil.ignore_patterns(
                    '__pycache__', 'unit', 'functional', 'simulation',
                    'rig'))
        subprocess.run([python, '-m', 'compileall', '-q', self.sources],
                       check=True)

    def _unpack(self, packages: list[pathlib.Path]) -> None:
        shutil.rmtree(self.layer, ignore_errors=True)
        for name in _MERGED:
            if os.path.islink(f'/{name}'):
                (self.layer / 'usr' / name).mkdir(parents=True)
                (self.layer / name).symlink_to(f'usr/{name}')
        for package in packages:
            with subprocess.Popen(['dpkg-deb', '--fsys-tarfile', package],
                                  stdout=subprocess.PIPE) as process:
                # tar follows the links just made; Python's own extraction
                # would replace them.
                subprocess.run(
                    ['tar', '--extract', '--keep-directory-symlink',
                     '--directory', self.layer], stdin=process.stdout,
                    check=True, capture_output=True)

    def _build(self, release: str) -> None:
        """Copy the kernel and build its initramfs."""
        self._kmod('depmod', '-b', self.layer, release)
        shutil.copyfile(self.layer / f'boot/vmlinuz-{release}', self.kernel)
        tree = self.directory / 'initramfs'
        shutil.rmtree(tree, ignore_errors=True)
        for name in ('bin', 'dev', 'proc', 'modules', 'host', 'layer',
                     'memory', 'root'):
            (tree / name).mkdir(parents=True)
        # Lines of "insmod" and a file, each after its dependencies.
        shown = self._kmod('modprobe', '-d', self.layer, '-S', release,
                           '--show-depends', '--all', *_BOOT_MODULES)
        files = dict.fromkeys(shown.split()[1::2])
        for file in files:
            shutil.copy(file, tree / 'modules')
        (tree / 'modules/order').write_text(''.join(
            f'{pathlib.Path(file).name}\n' for file in files))
        busybox = self._program('busybox')
        shutil.copy(busybox, tree / 'bin/busybox')
        shutil.copy(HERE / 'machine/init', tree / 'init')
        (tree / 'init').chmod(0o755)
        names = subprocess.run(['find', '.'], cwd=tree, check=True,
                               capture_output=True).stdout
        with open(self.initramfs, 'wb') as archive:
            subprocess.run([busybox, 'cpio', '-o', '-H', 'newc'], cwd=tree,
                           input=names, stdout=archive, check=True,
                           stderr=subprocess.PIPE)

    def _kmod(self, name: str, *arguments: pathlib.Path | str) -> str:
        """Call kmod by one of its names and return its output."""
        return subprocess.run(
            [name, *map(str, arguments)], executable=self._program('kmod'),
            check=True, capture_output=True, text=True).stdout

    def _program(self, name: str) -> pathlib.Path:
        """Return a program of the layer, or else this host's own."""
        return next(path for path in (
            self.layer / 'usr/bin' / name, self.layer / 'bin' / name,
            pathlib.Path('/bin', name)) if path.exists())


def _print(text: str) -> None:
    print(f'e2e: {text}', flush=True)


def _last_line(output: str | bytes | None) -> str:
    text = output.decode(errors='replace') if isinstance(
        output, bytes) else output or ''
    return (text.strip().splitlines() or ['no output'])[-1]


def _kernel_package() -> str:
    """Return the newest generic kernel; the "cloud" one has no SCSI target."""
    shown = subprocess.run(['apt-cache', 'depends', 'linux-image-amd64'],
                           capture_output=True, text=True, check=True).stdout
    found = re.search(r'Depends: (linux-image-\d\S*)', shown)
    if not found:
        raise machine.Unsuitable(
            'missing: Debian\'s package linux-image-amd64 (is the list of '
            'packages there? apt-get update)')
    return found.group(1)


def _release_of(kernel: str) -> str:
    return kernel.removeprefix('linux-image-').removesuffix('-unsigned')


def _fingerprint(kernel: str) -> str:
    """Return a digest of all that the parts are made of."""
    shown = subprocess.run(
        ['dpkg-query', '-W', '-f', '${Package} ${Version} ${Status}\n',
         *PACKAGES], capture_output=True, text=True).stdout
    digest = hashlib.sha256()
    for part in (kernel, shown, (HERE / 'machine/init').read_text(),
                 pathlib.Path(__file__).read_text()):
        digest.update(part.encode())
    return digest.hexdigest()


def _download(kernel: str, directory: pathlib.Path) -> list[pathlib.Path]:
    """Download the kernel, the missing packages, and their dependencies."""
    shutil.rmtree(directory, ignore_errors=True)
    (directory / 'partial').mkdir(parents=True)
    _print(f'downloading {kernel} and the storage programs (about 75 MB)')
    # Another apt may hold the lock on this host for a while.
    subprocess.run(
        ['apt-get', 'install', '--yes', '--quiet', '--download-only',
         '--no-install-recommends', '-o', 'DPkg::Lock::Timeout=600',
         '-o', f'Dir::Cache::archives={directory}',
         '-o', 'APT::Sandbox::User=root', kernel, *PACKAGES],
        check=True, capture_output=True)
    return sorted(directory.glob('*.deb'))
