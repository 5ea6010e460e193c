# SPDX-License-Identifier: Apache-2.0
"""A virtual machine that runs one command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import pathlib
import shlex
import shutil
import subprocess
import tempfile
import threading

from e2e.devices import prepare

#: The machine's memory in MiB.  Two cases at a time take 700 with volumes.
MEMORY = 1024
#: QEMU's cache of translated code, in MiB; the default is 1 GiB.
_CODE = 96


class Broken(Exception):
    """The machine did not start, or ended too early."""


def run(machine: prepare.Machine, python: pathlib.Path, name: str,
        arguments: Sequence[str], timeout: float, results: pathlib.Path,
        say: Callable[[str], None]) -> int:
    """Run a command in a machine.

    :param machine: its parts
    :param python: the interpreter, one of this host's
    :param name: tells concurrent machines apart
    :param arguments: the arguments of the interpreter
    :param timeout: seconds after which the machine is switched off
    :param results: the directory that gets a copy of the results
    :param say: called with each line that the command prints
    :returns: the exit status of the command
    :raises Broken: the machine ended without a status
    """
    with tempfile.TemporaryDirectory(dir=machine.directory) as directory:
        share = pathlib.Path(directory)
        shutil.copy(prepare.HERE / 'machine/start', share)
        (share / 'environment').write_text(
            f'export PYTHONPATH={shlex.quote(str(machine.sources))}\n'
            'export PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1\n'
            # Nova's harness would take eventlet; nova-compute does not.
            'export OS_NOVA_DISABLE_EVENTLET_PATCHING=true\n')
        (share / 'command').write_text(
            shlex.join([str(python), *arguments]) + '\n')
        (share / 'results').mkdir()
        console = machine.directory / f'console-{name}.log'
        process = subprocess.Popen(
            _command(machine, share, console), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, text=True, errors='replace')
        watchdog = threading.Timer(timeout, process.kill)
        watchdog.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                say(line.rstrip())
            process.wait()
        finally:
            watchdog.cancel()
            process.kill()
            process.wait()
            shutil.copytree(share / 'results', results, dirs_exist_ok=True)
        try:
            return int((share / 'status').read_text())
        except (OSError, ValueError):
            raise Broken('the machine ended early, or was switched off after '
                         f'{timeout:.0f} s; see {console}') from None


def _command(machine: prepare.Machine, share: pathlib.Path,
             console: pathlib.Path) -> list[str]:
    """Return the QEMU command.

    One virtual processor: with two, and without hardware virtualisation,
    each is half as fast.
    """
    command = [
        'nice', '-n', '10', prepare.QEMU,
        '-machine', 'q35', '-accel', f'tcg,tb-size={_CODE}',
        '-cpu', 'max,la57=off', '-smp', '1',
        '-m', str(MEMORY), '-nodefaults', '-no-user-config', '-no-reboot',
        '-display', 'none', '-kernel', str(machine.kernel),
        '-initrd', str(machine.initramfs),
        # On a busy host the kernel's check of its timer would see no tick.
        '-append', 'console=ttyS0 quiet panic=-1 mitigations=off nokaslr '
        'no_timer_check',
        '-serial', f'file:{console}', '-serial', 'stdio',
        '-device', 'virtio-rng-pci']
    for tag, path, more in (
            ('host', '/', ',readonly=on,multidevs=remap'),
            ('layer', machine.layer, ',readonly=on'), ('suite', share, '')):
        command += ['-virtfs', f'local,path={path},mount_tag={tag},'
                    f'security_model=none{more}']
    return command
