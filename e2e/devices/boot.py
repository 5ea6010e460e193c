# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""Starts a virtual machine and runs a command in it."""

from __future__ import annotations

from collections.abc import Sequence
import pathlib
import shlex
import shutil
import subprocess
import tempfile

from e2e.devices import prepare

#: MiB; with QEMU itself the suite is to fit into one and a half GiB.
MEMORY = 1024
#: MiB for translated code, of which QEMU would take a GiB.
_CODE = 256


class Broken(Exception):
    """The machine did not come up, or went down too early."""


def run(machine: prepare.Machine, python: pathlib.Path,
        arguments: Sequence[str], timeout: float,
        results: pathlib.Path) -> int:
    """Run a command in the machine.

    What it prints is printed.

    :param machine: its parts
    :param python: the interpreter, one of this host's
    :param arguments: of the interpreter
    :param timeout: after so many seconds the machine is switched off
    :param results: where what it leaves behind is copied to
    :returns: the exit status
    :raises Broken: it ended without one
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
        console = machine.directory / 'console.log'
        process = subprocess.Popen(_command(machine, share, console),
                                   stdin=subprocess.DEVNULL)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Broken(f'the machine was switched off after {timeout:.0f} '
                         f's; see {console}') from None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            shutil.copytree(share / 'results', results, dirs_exist_ok=True)
        try:
            return int((share / 'status').read_text())
        except (OSError, ValueError):
            raise Broken(f'the machine ended early; see {console}') from None


def _command(machine: prepare.Machine, share: pathlib.Path,
             console: pathlib.Path) -> list[str]:
    """How QEMU is called.

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
        '-append', 'console=ttyS0 quiet panic=-1 mitigations=off nokaslr',
        '-serial', f'file:{console}', '-serial', 'stdio',
        '-device', 'virtio-rng-pci']
    for tag, path, more in (
            ('host', '/', ',readonly=on,multidevs=remap'),
            ('layer', machine.layer, ',readonly=on'), ('suite', share, '')):
        command += ['-virtfs', f'local,path={path},mount_tag={tag},'
                    f'security_model=none{more}']
    return command
