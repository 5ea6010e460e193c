# SPDX-License-Identifier: Apache-2.0
"""The cases: how a disk comes to dangle, and what the cleanup must do with it.

Each is a function of a :class:`e2e.devices.case.Case`; its docstring is its
title.  It runs in its own process and directory.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import itertools
import os
import re
import shlex
import subprocess
import time
from typing import Any
import uuid

from nova import objects
from nova.compute import task_states

from e2e import processes
from e2e.devices import compute_host, guests, kernel, storage
from e2e.devices.case import Case, Disk

Run = Callable[[Case], None]

#: The id and the value of the only key of Nova's key manager for tests.
_KEY_ID = '00000000-0000-0000-0000-000000000000'
_KEY = '0123456789abcdef' * 4


@dataclasses.dataclass(frozen=True)
class Described:
    """A case and its properties.

    :ivar run: the case
    :ivar multipath: whether Nova uses multipath
    :ivar disconnects: whether it must fail when nothing is disconnected
    :ivar alone: whether no other case may run meanwhile
    :ivar weight: the approximate seconds that it takes, beside others
    """

    run: Run
    multipath: bool = False
    disconnects: bool = True
    alone: bool = False
    weight: int = 30

    @property
    def name(self) -> str:
        return self.run.__name__.replace('_', '-')

    @property
    def title(self) -> str:
        return ' '.join((self.run.__doc__ or '').split()).rstrip('.')


CASES: list[Described] = []


def _case(**more: Any) -> Callable[[Run], Run]:
    def register(run: Run) -> Run:
        CASES.append(Described(run, **more))
        return run
    return register


def _clean(case: Case, disk: Disk) -> None:
    """Reboot the server of a dangling disk and check the cleanup."""
    status = case.reboot_and_look(disk)
    case.expect(status == 0, f'the reboot ended with {status}')
    _expect_clean(case, disk)


def _expect_clean(case: Case, disk: Disk) -> None:
    """Check that the disk is gone everywhere and nothing is left to do."""
    case.expect_gone(disk)
    case.expect_idle(disk.server)


# -- CVE-2023-2088 side by side --------------------------------------------


def _cve(case: Case, cleanup: str) -> tuple[dict[str, bool], Disk, str]:
    """Map another volume at the LUN of a dangling disk and reboot.

    :returns: the facts afterwards, the disk of the other volume, the server
    """
    disk = case.running('A')
    server, target = disk.server, disk.target.address
    case.lose_attachment(disk)
    other = case.disk('B', target=disk.target, project='other',
                      host='compute2')
    case.fact('before', disk.connected())
    # The guest of server 1 has written to it already; restore its data.
    case.host.libvirt.stop(server)
    other.volume.path.write_bytes(b'B' * other.volume.size)
    status = case.reboot(server, cleanup)
    case.expect(status == 0, f'the reboot ended with {status}')
    time.sleep(1)
    disks = kernel.disks_of(target)
    read = [storage.read_device(device) for device in disks]
    now = {
        'this host reads volume B': any(
            text.startswith('B') for text in read),
        'guest 1 writes to volume B':
            guests.mark(server) in other.volume.read(guests.OFFSET),
        'this host can write to volume B': any(
            _reaches(device, other) for device in disks),
        "Nova's row is left": bool(case.host.mappings(disk.volume))}
    case.fact('after', ' '.join(
        [os.path.basename(device) for device in disks]
        + [f'{kernel.sessions(target)} session'] * bool(disks))
        or 'nothing')
    for heading, is_so in now.items():
        case.fact(heading, 'yes' if is_so else 'no')
    return now, other, server


def _reaches(device: str, other: Disk) -> bool:
    """Return whether a write to a device reaches the other volume."""
    offset = 1 << 20
    kernel.run('dd', 'if=/dev/zero', f'of={device}', 'bs=4096', 'count=1',
               f'seek={offset // 4096}', 'oflag=direct',
               'conv=notrunc,nocreat', check=False)
    return not other.volume.read(offset).startswith('B')


@_case(disconnects=False)
def cve_row_kept(case: Case) -> None:
    """CVE-2023-2088, Nova's row kept: before 28, without the plugin."""
    now, _, _ = _cve(case, 'none')
    case.expect(all(now.values()), f'it is not as bad as that: {now}')


@_case(disconnects=False)
def cve_builtin(case: Case) -> None:
    """CVE-2023-2088, Nova's own cleanup: 28 and later, without the plugin."""
    now, _, _ = _cve(case, 'builtin')
    case.expect(list(now.values()) == [True, False, True, False],
                f'it is not what was expected: {now}')


@_case()
def cve_plugin(case: Case) -> None:
    """CVE-2023-2088, the plugin."""
    now, other, server = _cve(case, 'plugin')
    case.expect(not any(now.values()), f'not all is safe: {now}')
    case.expect_idle(server)
    case.expect(other.volume.is_untouched(), 'volume B was changed')


# -- the ways to connect ---------------------------------------------------


@_case()
def one_path(case: Case) -> None:
    """iSCSI, one path."""
    disk = case.running()
    case.lose_attachment(disk)
    _clean(case, disk)


@_case(multipath=True)
def two_paths(case: Case) -> None:
    """iSCSI, two paths."""
    disk = case.running(paths=2)
    case.lose_attachment(disk)
    _give_up(case, disk)
    _clean(case, disk)


@_case(multipath=True)
def one_path_dead(case: Case) -> None:
    """iSCSI, two paths, one of them dead; Cinder calls the volume available
    and has an attachment.
    """
    disk = case.running(paths=2)
    disk.target.lose_path()
    case.reset_status(disk)
    _clean(case, disk)
    case.expect(case.cinder.changes == [
        f'DELETE /attachments/{disk.attached.id}'],
        f'Cinder was told {case.cinder.changes}')


def _expect_stuck(case: Case, disk: Disk) -> None:
    """Reboot a server while its guest waits for its disk and cannot be killed.

    Nova's own reboot fails; check that nothing has changed.
    """
    case.reboot(disk.server)
    case.look('the guest stuck', disk)
    case.expect_log('event=failed', 'power-off')
    case.expect(case.host.mappings(disk.volume), 'the row is gone')
    case.expect(disk.connected(), 'there is nothing left: the case is not '
                'what it says')
    case.expect(not case.cinder.changes,
                f'Cinder was told {case.cinder.changes}')


def _give_up(case: Case, disk: Disk) -> None:
    """Have multipathd stop waiting for a path now; it would do so a minute
    after the last one was lost.
    """
    kernel.wait_no_longer(disk.connected().maps)
    processes.wait_until(lambda: 'queues' not in str(disk.connected()),
                         'the end of waiting', 20)


@_case(multipath=True, weight=50)
def all_paths_dead(case: Case) -> None:
    """iSCSI, two paths, both of them dead; the guest cannot be killed while
    multipathd waits for a path.
    """
    disk = case.running(paths=2)
    disk.target.die()
    case.cinder.attachments.clear()
    _expect_stuck(case, disk)
    _give_up(case, disk)
    _clean(case, disk)


@_case(multipath=True, weight=110)
def held_open(case: Case) -> None:
    """iSCSI, two dead paths, and a process that holds the multipath with data
    it could not write.
    """
    disk = case.running(paths=2)
    device = disk.device()
    # The guest's writes would wait for a path, and it could not be killed.
    case.host.libvirt.stop(disk.server)
    holder = _hold(device)
    try:
        case.reset_status(disk)
        disk.target.die()
        case.reboot_and_look(disk)
        _expect_left(case, disk, case.result.logged, device)
        _expect_left(case, disk, case.reboot_next(disk.server), device)
        # Only the commands that the plugin gives an operator.
        commands = re.findall(r'`([^`]+)`', ' '.join(case.result.logged))
        case.expect(len(commands) == 2, f'the log names {commands}')
        release, remove = map(shlex.split, commands)
        kernel.run(*release)
    finally:
        # The holder could not be killed while its data waits for a path.
        kernel.fail_queued(disk.connected().maps)
        holder.kill()
        holder.wait(60)
    kernel.run(*remove)
    case.expect(not disk.connected().maps, f'the commands {commands} leave '
                f'{disk.connected()}')
    case.reboot_next(disk.server)
    case.expect_gone(disk)


def _expect_left(case: Case, disk: Disk, logged: list[str],
                 device: str) -> None:
    """Check that nothing changes in Cinder while a device is left."""
    left = disk.connected()
    case.expect(left.maps and not left.disks,
                f'left is {left}: the case is not what it says')
    case.expect(not case.cinder.changes,
                f'Cinder was told {case.cinder.changes}')
    case.expect(case.host.mappings(disk.volume), 'the row is gone')
    case.expect(any('event=failed' in line and device in line
                    and 'multipath -f' in line for line in logged),
                f'no line names {device} and the command: {logged}')


@_case(weight=110)
def held_open_one_path(case: Case) -> None:
    """iSCSI, one dead path, and a process that holds the disk with data it
    could not write.
    """
    disk = case.running()
    holder = _hold(disk.device())
    try:
        disk.target.die()
        case.cinder.attachments.clear()
        _clean(case, disk)
    finally:
        holder.kill()
        holder.wait(60)


def _hold(device: str) -> subprocess.Popen[bytes]:
    """Start a process that holds a device and is no guest, like a backup."""
    # Unlike a guest's, its writes stay in this host's cache.
    holder = subprocess.Popen(
        ['sh', '-c', f'exec 3<>{device}; printf %8192s >&3; echo ready; '
         'exec sleep 1000'], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b'ready\n'
    return holder


@_case()
def nvme_tcp(case: Case) -> None:
    """NVMe/TCP; Cinder calls the volume available and has an attachment."""
    disk = case.subsystem()
    case.server(disk)
    case.reset_status(disk)
    _clean(case, disk)


@_case(disconnects=False)
def nvme_tcp_dead(case: Case) -> None:
    """NVMe/TCP, the subsystem is gone; the guest cannot be killed while the
    kernel tries to connect again.
    """
    disk = case.subsystem()
    case.server(disk)
    case.lose_attachment(disk)
    _expect_stuck(case, disk)
    case.fact('its ctrl_loss_tmo', kernel.give_up(disk.target.address))
    processes.wait_until(lambda: not disk.connected(), 'its end', 20)
    _clean(case, disk)


def _encrypted_disk(case: Case, provider: str, letter: str,
                    project: str = 'project') -> Disk:
    volume = case.volume(letter, project, megabytes=32, encryption={
        'provider': provider, 'cipher': 'aes-xts-plain64', 'key_size': 256,
        'control_location': 'front-end', 'encryption_key_id': _KEY_ID})
    # Format beforehand, with a cheap key derivation: os-brick would take half
    # a minute for it here.
    subprocess.run(
        ['cryptsetup', '--batch-mode', 'luksFormat', '--type',
         {'luks': 'luks1', 'luks2': 'luks2'}[provider], '--key-file=-',
         '--pbkdf=pbkdf2', '--pbkdf-force-iterations=1000', volume.path],
        input=_KEY.encode(), check=True, capture_output=True)
    return case.disk(volume=volume, project=project)


def _encrypted(case: Case, provider: str) -> None:
    disk = _encrypted_disk(case, provider, 'a')
    case.server(disk)
    case.expect((bool(case.host.libvirt.secrets()),
                 bool(disk.connected().maps))
                == (provider == 'luks', provider == 'luks2'),
                'the encryption is not what the case says')
    case.lose_attachment(disk)
    _clean(case, disk)


@_case()
def luks_by_os_brick(case: Case) -> None:
    """LUKS 2 over iSCSI, opened by os-brick's encryptor."""
    _encrypted(case, 'luks2')


@_case()
def luks_by_qemu(case: Case) -> None:
    """LUKS 1 over iSCSI, opened by QEMU with a secret of libvirt's."""
    _encrypted(case, 'luks')


# -- neighbours ------------------------------------------------------------


@dataclasses.dataclass
class _Neighbour:
    """A server of another project with a disk that its guest writes to."""

    disk: Disk
    device: str = ''

    def start(self, case: Case) -> None:
        """Start its guest, for the first time or once more."""
        if self.device:
            case.reboot(self.disk.server, 'none', quietly=True)
        else:
            case.server(self.disk, project='other')
        self.device = self.disk.device()

    def expect_writing(self, case: Case) -> None:
        """Check that the writes of its guest arrive, and no others."""
        volume, mark = self.disk.volume, guests.mark(self.disk.server)
        with open(volume.path, 'r+b') as file:
            file.seek(guests.OFFSET)
            file.write(volume.letter.encode() * storage.BLOCK)
        # A read of a multipath device without a path may never return.
        processes.wait_until(
            lambda: volume.read(guests.OFFSET) == mark,
            f'the guest of {volume.letter}, which writes to it', 20)
        case.expect_running(self.disk.server, 1)
        found = self.disk.connected()
        case.fact('neighbour', found)
        case.expect(self.device in ('/dev/' + name for name in
                                    (*found.disks, *found.maps)),
                    f'the neighbour no longer has {self.device}')
        case.expect(volume.is_untouched((guests.OFFSET, mark)),
                    'not the guest of the neighbour alone has written to it')
        case.expect(storage.read_device(self.device).startswith(
            volume.letter), 'the neighbour reads something else')


@_case()
def shared_target(case: Case) -> None:
    """iSCSI, one target for all; a neighbour has its other LUN."""
    target = case.target()
    disk = case.disk('a', target=target)
    neighbour = _Neighbour(
        case.disk('n', target=target, lun=2, project='other'))
    case.server(disk)
    neighbour.start(case)
    case.lose_attachment(disk)
    case.reboot_and_look(disk)
    after = disk.connected()
    case.expect(not after.disks, f'the host still has {after}')
    case.expect(after.sessions == 1, 'the session of the neighbour is gone')
    case.expect(not case.host.mappings(disk.volume), 'Nova has its row')
    case.expect_running(disk.server, 0)
    case.expect_idle(disk.server)
    neighbour.expect_writing(case)


def _let_go(case: Case, disk: Disk) -> None:
    """Have the guest close its disk, and lose its attachment.

    udev then opens the disk; an open while its LUN is gone would make the
    disk empty, so wait for udev first.
    """
    case.host.libvirt.stop(disk.server)
    kernel.run('udevadm', 'settle')
    case.lose_attachment(disk)


def _reused(case: Case) -> tuple[Disk, Disk, str]:
    """Connect another volume at the address of a lost disk, on this host.

    The kernel keeps the old device for the newcomer.

    :returns: the lost disk, the newcomer, the device
    """
    disk = case.running()
    _let_go(case, disk)
    newcomer = case.disk('n', target=disk.target, project='other')
    # As an attach does, or a live migration beforehand; a reboot would
    # disconnect the address first.
    case.connect(newcomer)
    _expect_newcomer(case, newcomer, disk.device())
    return disk, newcomer, disk.device()


def _expect_newcomer(case: Case, newcomer: Disk, device: str) -> None:
    case.expect(device in kernel.disks_of(newcomer.target.address),
                f'{device} of the newcomer is gone')
    text = storage.read_device(device)
    case.expect(text.startswith('n'), f'of the newcomer is read {text!r}')
    case.expect(newcomer.volume.is_untouched(),
                'the volume of the newcomer was changed')


def _reboot_beside(case: Case, disk: Disk, newcomer: Disk, device: str,
                   settle: Callable[[], None]) -> None:
    """Reboot while the owner of the address is uncertain, and afterwards.

    :param settle: completes the newcomer's attach or migration
    """
    case.reboot_and_look(disk)
    _expect_newcomer(case, newcomer, device)
    case.expect_log('event=failed', 'neighbours')
    case.expect(case.host.mappings(disk.volume), 'the row is gone')
    settle()
    case.reboot_next(disk.server)
    _expect_newcomer(case, newcomer, device)
    case.expect(not case.host.mappings(disk.volume), 'Nova has its row')
    case.expect_running(disk.server, 0)


@_case(disconnects=False)
def newcomer_is_attached(case: Case) -> None:
    """The address is a newcomer's whose attach is complete."""
    disk, newcomer, device = _reused(case)
    case.host.server(newcomer.attached, project='other')
    case.reboot_and_look(disk)
    _expect_newcomer(case, newcomer, device)
    case.expect_log('event=left')
    case.expect(not case.host.mappings(disk.volume), 'Nova has its row')
    case.expect_idle(disk.server)


@_case(disconnects=False)
def newcomer_attaches(case: Case) -> None:
    """The address is a newcomer's whose attach is under way: Nova's row has
    no connection information yet.
    """
    disk, newcomer, device = _reused(case)
    newcomer.attached.status = 'attaching'
    case.host.server(newcomer.attached, project='other')
    row, = case.host.mappings(newcomer.volume)
    connection_info, row.connection_info = row.connection_info, None
    row.save()

    def settle() -> None:
        newcomer.attached.status = 'attached'
        row.connection_info = connection_info
        row.save()

    _reboot_beside(case, disk, newcomer, device, settle)


@_case(disconnects=False)
def newcomer_migrates_in(case: Case) -> None:
    """The address is that of a server that arrives by live migration: its
    devices are here, it is not.
    """
    disk, newcomer, device = _reused(case)
    arriving = case.host.server(newcomer.attached, project='other',
                                host='compute2')
    instance = case.host.instance(arriving)
    instance.task_state = task_states.MIGRATING
    instance.save()
    migration = objects.Migration(
        case.host.context(), instance_uuid=arriving, status='running',
        source_compute='compute2', source_node='compute2',
        dest_compute=compute_host.HOST, dest_node=compute_host.HOST,
        dest_compute_id=1,
        migration_type='live-migration', uuid=str(uuid.uuid4()))
    migration.create()

    def settle() -> None:
        instance.host = instance.node = compute_host.HOST
        instance.compute_id = 1
        instance.task_state = None
        instance.save()
        migration.status = 'completed'
        migration.save()

    _reboot_beside(case, disk, newcomer, device, settle)


@_case(disconnects=False)
def invented_connector(case: Case) -> None:
    """A tenant's attachment with a connector that he invented names this host
    and a LUN that it uses for something else than a server.
    """
    target = case.target()
    neighbour = case.disk('n', target=target, project='other')
    case.connect(neighbour)
    device = neighbour.device()
    server = case.server(case.disk('a', lun=2, target=target))
    invented = case.volume('i')
    case.cinder.attach(
        invented, server, dict(target.connection(1, invented)), lambda: None)
    case.look('before', neighbour)
    case.reboot(server)
    case.look('after', neighbour)
    case.expect_running(server, 1)
    case.expect(not case.cinder.of(invented.id),
                'Cinder has what was invented')
    case.expect_idle(server, disks=1)
    _expect_newcomer(case, neighbour, device)


# -- what is not there, or not any more ------------------------------------


def _among_neighbours(case: Case,
                      paths: int = 1) -> tuple[Disk, list[_Neighbour]]:
    """Start a server and two neighbours, each with its own target, at the
    same portals and with the same LUN; Cinder returns only the first portal.
    """
    # Make all before the first is connected: that may discover the targets.
    disk, *others = (
        case.disk(letter, target=case.target(paths, is_told=False),
                  project=project)
        for letter, project in (('a', 'project'), ('n', 'other'),
                                ('m', 'other')))
    case.server(disk)
    neighbours = [_Neighbour(other) for other in others]
    for neighbour in neighbours:
        neighbour.start(case)
    return disk, neighbours


def _expect_gone_alone(case: Case, disk: Disk,
                       neighbours: list[_Neighbour]) -> None:
    """Check that the disk is gone and no neighbour has lost anything."""
    for neighbour in neighbours:
        neighbour.expect_writing(case)
    _expect_clean(case, disk)


@_case(alone=True, weight=60)
def one_discovery(case: Case) -> None:
    """The target is gone, and an operator has discovered those of two
    neighbours since; one path.
    """
    disk, neighbours = _among_neighbours(case)
    disk.target.die()
    case.lose_attachment(disk)
    case.discover()
    case.reboot_and_look(disk)
    _expect_gone_alone(case, disk, neighbours)


@_case(alone=True, weight=60)
def second_disconnect(case: Case) -> None:
    """Cinder refuses to delete the attachment at first; then the target is
    gone, and an operator has discovered those of two neighbours; one path.
    """
    disk, neighbours = _among_neighbours(case)
    case.reset_status(disk)
    case.cinder.refuse = 500
    case.reboot_and_look(disk)
    case.cinder.refuse = None
    disk.target.die()
    case.discover()
    case.reboot_next(disk.server)
    _expect_gone_alone(case, disk, neighbours)


@_case(multipath=True, disconnects=False, alone=True, weight=90)
def power_loss(case: Case) -> None:
    """The host is back from a power loss, the target is gone, and the servers
    of two neighbours are resumed; two paths.
    """
    disk, neighbours = _among_neighbours(case, paths=2)
    case.look('before', disk)
    case.lose_power()
    disk.target.die()
    case.lose_attachment(disk)
    for neighbour in neighbours:
        neighbour.start(case)
    case.reboot(disk.server)
    case.look('after', disk)
    _expect_gone_alone(case, disk, neighbours)


@_case(disconnects=False, alone=True, weight=60)
def luks_name_reused(case: Case) -> None:
    """LUKS 2; the host is back from a power loss, and a neighbour's encrypted
    disk has the name that the lost one had.
    """
    disk = _encrypted_disk(case, 'luks2', 'a')
    neighbour = _Neighbour(_encrypted_disk(case, 'luks2', 'n', 'other'))
    case.server(disk)
    neighbour.start(case)
    case.look('before', disk)
    former = disk.connected().disks
    case.lose_power()
    disk.target.die()
    case.lose_attachment(disk)
    neighbour.start(case)
    found = neighbour.disk.connected()
    case.expect(found.disks == former,
                f'the neighbour has {found.disks}, not {former}')
    case.reboot(disk.server)
    case.look('after', disk)
    case.fact('neighbour', neighbour.disk.connected())
    case.expect(neighbour.disk.connected() == found,
                f'the neighbour no longer has {found}')
    source, = case.host.libvirt.disks(neighbour.disk.server)
    case.expect(os.path.exists(source), f'{source} is gone')
    case.expect_running(neighbour.disk.server, 1)
    _expect_clean(case, disk)


# -- a server that is deleted ----------------------------------------------


def _deleted(case: Case, cleanup: str) -> _Neighbour:
    """Attach a lost disk to another server of the host, then delete its
    former server.
    """
    disk = case.running()
    _let_go(case, disk)
    neighbour = _Neighbour(case.disk(volume=disk.volume, target=disk.target))
    neighbour.start(case)
    neighbour.expect_writing(case)
    case.look('before', neighbour.disk)
    status = case.delete(disk.server, cleanup)
    case.expect(status == 0, f'the delete ended with {status}')
    case.look('after', neighbour.disk)
    return neighbour


@_case(disconnects=False)
def delete_stock(case: Case) -> None:
    """A server is deleted whose disk another guest of this host has by now,
    without the plugin.
    """
    neighbour = _deleted(case, 'none')
    found = neighbour.disk.connected()
    case.expect(not found.disks, f'it is not as bad as that: {found}')


@_case(disconnects=False)
def delete_plugin(case: Case) -> None:
    """The same with the plugin and its trigger "delete"."""
    neighbour = _deleted(case, 'plugin')
    neighbour.expect_writing(case)
    case.expect_log('event=left', 'another server on this host uses')
    case.expect_idle(neighbour.disk.server, disks=1)


# -- killed between any two steps ------------------------------------------


def _killed(case: Case, paths: int, first: int) -> None:
    """Kill nova-compute before every other step, and have the next one finish
    the cleanup.

    Each kill has a new disk, since a device cannot be put back.

    :param first: the step to begin with
    """
    killed: list[str] = []
    for number in itertools.count(first, 2):
        disk = case.running(paths=paths)
        # Cinder keeps the attachment: the last step is its deletion.
        case.reset_status(disk)
        case.result.logged.clear()
        status = case.reboot(disk.server, kill_before=number)
        if status >= 0:
            break
        done = case.steps()
        at = f'killed after {done[-1:]}'
        left = disk.connected()
        case.expect(case.cinder.of(disk.volume.id) or not left,
                    f'{at}: Cinder was told while the host has {left}')
        status = case.reboot(disk.server)
        case.expect(status == 0, f'{at}: the next reboot ended with {status}')
        problems = len(case.result.problems)
        case.expect_gone(disk)
        for index in range(problems, len(case.result.problems)):
            case.result.problems[index] += f' ({at})'
        case.host.libvirt.stop(disk.server)
        killed.append(f'{done[-1] if done else "the start"} ({left})')
    case.expect(killed, 'nothing was killed')
    case.fact('killed after (and what was left)', ', '.join(killed))
    _expect_clean(case, disk)


@_case(weight=200)
def killed_one_path(case: Case) -> None:
    """SIGKILL before the first, third, ... step, one path."""
    _killed(case, 1, 0)


@_case(weight=200)
def killed_one_path_too(case: Case) -> None:
    """SIGKILL before the second, fourth, ... step, one path."""
    _killed(case, 1, 1)


@_case(multipath=True, weight=260)
def killed_two_paths(case: Case) -> None:
    """SIGKILL before the first, third, ... step, two paths."""
    _killed(case, 2, 0)


@_case(multipath=True, weight=260)
def killed_two_paths_too(case: Case) -> None:
    """SIGKILL before the second, fourth, ... step, two paths."""
    _killed(case, 2, 1)
