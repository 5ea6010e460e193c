# SPDX-License-Identifier: Apache-2.0
"""The cases: a disk dangles, and a cleanup must have a certain result.

Each is a function of a :class:`e2e.devices.case.Case`; unless it is one of a
series, its docstring is its title.  It runs in its own process and directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import functools
import itertools
import json
import os
import re
import shlex
import subprocess
import time
from typing import Any

from nova.compute import task_states

from e2e import processes
from e2e.devices import compute_host, guests, kernel, storage, volumes
from e2e.devices.case import Case, Disk

Run = Callable[[Case], None]

#: The id and the value of the only key of Nova's key manager for tests.
_KEY_ID = '00000000-0000-0000-0000-000000000000'
_KEY = '0123456789abcdef' * 4


@dataclasses.dataclass(frozen=True)
class CaseDefinition:
    """A case and its properties.

    :ivar run: the case
    :ivar name: its name
    :ivar title: its title in the table
    :ivar plugin: whether it is about the plugin, whose hooks must then run,
        or about Nova alone
    :ivar multipath: whether Nova uses multipath
    :ivar disconnects: whether it must fail when nothing is disconnected
    :ivar alone: whether no other case may run at the same time
    :ivar weight: the approximate seconds that it takes, beside others
    """

    run: Run
    name: str
    title: str
    plugin: bool = True
    multipath: bool = False
    disconnects: bool = True
    alone: bool = False
    weight: int = 30


CASES: list[CaseDefinition] = []


def _case(**more: Any) -> Callable[[Run], Run]:
    """Add a function under its own name, with its docstring as title."""
    def register(run: Run) -> Run:
        CASES.append(CaseDefinition(
            run, run.__name__.replace('_', '-'),
            ' '.join((run.__doc__ or '').split()).rstrip('.'), **more))
        return run
    return register


def _clean(case: Case, disk: Disk) -> None:
    """Reboot the server of a dangling disk and check the cleanup."""
    status = case.reboot_and_record(disk)
    case.expect(status == 0, f'the reboot ended with {status}')
    _expect_clean(case, disk)


def _expect_clean(case: Case, disk: Disk) -> None:
    """Check that the disk is gone everywhere and nothing is left to do."""
    case.expect_gone(disk)
    case.expect_nothing_to_do(disk.server)


# -- CVE-2023-2088, three cleanups ------------------------------------------


def _reboot_with_reused_lun(case: Case, cleanup: str
                            ) -> tuple[dict[str, bool], Disk, str]:
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
            _write_reaches(device, other) for device in disks),
        'the mapping is left': bool(case.host.mappings(disk.volume))}
    case.fact('after', ' '.join(
        [os.path.basename(device) for device in disks]
        + [f'{kernel.sessions(target)} session'] * bool(disks))
        or 'nothing')
    for heading, is_so in now.items():
        case.fact(heading, 'yes' if is_so else 'no')
    return now, other, server


def _write_reaches(device: str, other: Disk) -> bool:
    """Return whether a write to a device reaches the other volume."""
    offset = 1 << 20
    kernel.run('dd', 'if=/dev/zero', f'of={device}', 'bs=4096', 'count=1',
               f'seek={offset // 4096}', 'oflag=direct',
               'conv=notrunc,nocreat', check=False)
    return not other.volume.read(offset).startswith('B')


@_case(plugin=False, disconnects=False)
def cve_row_kept(case: Case) -> None:
    """CVE-2023-2088, no cleanup: Nova before 28, without the plugin."""
    now, _, _ = _reboot_with_reused_lun(case, 'none')
    case.expect(all(now.values()), f'expected all to be true: {now}')


@_case(plugin=False, disconnects=False)
def cve_builtin(case: Case) -> None:
    """CVE-2023-2088, Nova's own cleanup: Nova 28 and later, without the
    plugin.
    """
    now, _, _ = _reboot_with_reused_lun(case, 'builtin')
    case.expect(list(now.values()) == [True, False, True, False],
                f'unexpected: {now}')


@_case()
def cve_plugin(case: Case) -> None:
    """CVE-2023-2088, the plugin."""
    now, other, server = _reboot_with_reused_lun(case, 'plugin')
    case.expect(not any(now.values()), f'expected all to be false: {now}')
    case.expect_nothing_to_do(server)
    case.expect(other.volume.is_untouched(), 'volume B was changed')


# -- transports and paths --------------------------------------------------


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
    _stop_queueing(case, disk)
    _clean(case, disk)


@_case(multipath=True)
def one_path_dead(case: Case) -> None:
    """iSCSI, two paths, one of them failed; the volume is available in
    Cinder and has an attachment.
    """
    disk = case.running(paths=2)
    disk.target.lose_path()
    case.reset_status(disk)
    _clean(case, disk)
    case.expect(case.cinder.changes == [
        f'DELETE /attachments/{disk.attached.id}'],
        f'requests to Cinder: {case.cinder.changes}')


def _expect_stuck(case: Case, disk: Disk) -> None:
    """Reboot a server while its guest waits for its disk and cannot be killed.

    Nova's own reboot fails; check that nothing has changed.
    """
    case.reboot(disk.server)
    case.record('while the guest cannot be killed', disk)
    case.expect_log('event=failed', 'power-off')
    case.expect(case.host.mappings(disk.volume), 'the mapping is deleted')
    case.expect(disk.connected(), 'nothing is connected: the case does not '
                'test what its title says')
    case.expect(not case.cinder.changes,
                f'requests to Cinder: {case.cinder.changes}')


def _stop_queueing(case: Case, disk: Disk) -> None:
    """Have multipathd stop waiting for a path now, and not only a minute
    after the last one was lost.
    """
    kernel.stop_queueing(disk.connected().maps)
    processes.wait_until(lambda: 'queues' not in str(disk.connected()),
                         'the end of the queueing', 20)


@_case(multipath=True, weight=50)
def all_paths_dead(case: Case) -> None:
    """iSCSI, two paths, both failed; the guest cannot be killed while
    multipathd waits for a path.
    """
    disk = case.running(paths=2)
    disk.target.remove()
    case.cinder.attachments.clear()
    _expect_stuck(case, disk)
    _stop_queueing(case, disk)
    _clean(case, disk)


@_case(multipath=True, weight=110)
def held_open(case: Case) -> None:
    """iSCSI, two failed paths, and a process that holds the multipath device
    open with data that it cannot write.
    """
    disk = case.running(paths=2)
    device = disk.device()
    # The guest's writes would wait for a path, and it could not be killed.
    case.host.libvirt.stop(disk.server)
    holder = _hold_open(device)
    try:
        case.reset_status(disk)
        disk.target.remove()
        case.reboot_and_record(disk)
        _expect_left(case, disk, case.result.logged, device)
        _expect_left(case, disk, case.reboot_next(disk.server), device)
        # Only the commands that the plugin gives an operator.
        commands = re.findall(r'`([^`]+)`', ' '.join(case.result.logged))
        case.expect(len(commands) == 2, f'the commands in the log: {commands}')
        release, remove = map(shlex.split, commands)
        kernel.run(*release)
    finally:
        # The holder could not be killed while its data waits for a path.
        kernel.fail_queued(disk.connected().maps)
        holder.kill()
        holder.wait(60)
    kernel.run(*remove)
    case.expect(not disk.connected().maps,
                f'left after the commands {commands}: {disk.connected()}')
    case.reboot_next(disk.server)
    case.expect_gone(disk)


def _expect_left(case: Case, disk: Disk, logged: list[str],
                 device: str) -> None:
    """Check that nothing changes in Cinder while a device is left."""
    left = disk.connected()
    case.expect(left.maps and not left.disks,
                f'{left} is left: the case does not test what its '
                'title says')
    case.expect(not case.cinder.changes,
                f'requests to Cinder: {case.cinder.changes}')
    case.expect(case.host.mappings(disk.volume), 'the mapping is deleted')
    case.expect(any('event=failed' in line and device in line
                    and 'multipath -f' in line for line in logged),
                f'no log line has {device} and the command: {logged}')


@_case(weight=110)
def held_open_one_path(case: Case) -> None:
    """iSCSI, one failed path, and a process that holds the disk open with data
    that it cannot write.
    """
    disk = case.running()
    holder = _hold_open(disk.device())
    try:
        disk.target.remove()
        case.cinder.attachments.clear()
        _clean(case, disk)
    finally:
        holder.kill()
        holder.wait(60)


def _hold_open(device: str) -> subprocess.Popen[bytes]:
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
    """NVMe/TCP; the volume is available in Cinder and has an attachment."""
    disk = case.subsystem()
    case.server(disk)
    case.reset_status(disk)
    _clean(case, disk)


@_case(disconnects=False)
def nvme_tcp_dead(case: Case) -> None:
    """NVMe/TCP, the subsystem is removed; the guest cannot be killed while the
    kernel tries to reconnect.
    """
    disk = case.subsystem()
    case.server(disk)
    case.lose_attachment(disk)
    _expect_stuck(case, disk)
    case.fact('its ctrl_loss_tmo',
              kernel.stop_reconnecting(disk.target.address))
    processes.wait_until(lambda: not disk.connected(),
                         'the end of the connection', 20)
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
                'the encryption is not that of the title')
    case.lose_attachment(disk)
    _clean(case, disk)


@_case()
def luks_by_os_brick(case: Case) -> None:
    """LUKS 2 over iSCSI, decrypted by os-brick."""
    _encrypted(case, 'luks2')


@_case()
def luks_by_qemu(case: Case) -> None:
    """LUKS 1 over iSCSI, decrypted by QEMU with a secret in libvirt."""
    _encrypted(case, 'luks')


# -- neighbours ------------------------------------------------------------


@dataclasses.dataclass
class _Neighbour:
    """A server of another project with a disk that its guest writes to."""

    disk: Disk
    device: str = ''
    #: The word for it in the table.
    word: str = 'neighbour'

    def start(self, case: Case) -> None:
        """Start its guest, for the first time or once more."""
        if self.device:
            case.reboot(self.disk.server, 'none', is_setup=True)
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
            f'a write of the guest of volume {volume.letter}', 20)
        case.expect_running(self.disk.server, 1)
        found = self.disk.connected()
        case.fact(self.word, found)
        case.expect(self.device in ('/dev/' + name for name in
                                    (*found.disks, *found.maps)),
                    f'the {self.word} no longer has {self.device}')
        case.expect(volume.is_untouched((guests.OFFSET, mark)),
                    'another program has written to the volume')
        case.expect(storage.read_device(self.device).startswith(
            volume.letter), f'the device of the {self.word} has other data')


@_case()
def shared_target(case: Case) -> None:
    """iSCSI, a shared target; a neighbour has another LUN of it."""
    target = case.target()
    disk = case.disk('a', target=target)
    neighbour = _Neighbour(
        case.disk('n', target=target, lun=2, project='other'))
    case.server(disk)
    neighbour.start(case)
    case.lose_attachment(disk)
    case.reboot_and_record(disk)
    after = disk.connected()
    case.expect(not after.disks, f'still connected: {after}')
    case.expect(after.sessions == 1, 'the session of the neighbour is closed')
    case.expect(not case.host.mappings(disk.volume),
                'the mapping is not deleted')
    case.expect_running(disk.server, 0)
    case.expect_nothing_to_do(disk.server)
    neighbour.expect_writing(case)


def _stop_and_lose(case: Case, disk: Disk) -> None:
    """Stop the guest of a disk, and delete the attachment of the disk.

    udev then opens the disk; an open while its LUN is gone would make the
    disk empty, so wait for udev first.
    """
    case.host.libvirt.stop(disk.server)
    kernel.run('udevadm', 'settle')
    case.lose_attachment(disk)


def _reuse_lun(case: Case) -> tuple[Disk, Disk, str]:
    """Connect another volume with the LUN of a lost disk, on this host.

    The kernel keeps the old device for the new disk.

    :returns: the lost disk, the new disk, the device
    """
    disk = case.running()
    _stop_and_lose(case, disk)
    new_disk = case.disk('n', target=disk.target, project='other')
    # As an attach does, or a live migration beforehand; a reboot would
    # disconnect the address first.
    case.connect(new_disk)
    _expect_new_disk(case, new_disk, disk.device())
    return disk, new_disk, disk.device()


def _expect_new_disk(case: Case, new_disk: Disk, device: str) -> None:
    case.expect(device in kernel.disks_of(new_disk.target.address),
                f'{device} of the new disk is gone')
    text = storage.read_device(device)
    case.expect(text.startswith('n'), f'{device} has the data {text!r}')
    case.expect(new_disk.volume.is_untouched(),
                'the new volume was changed')


def _reboot_in_attach(case: Case, disk: Disk, new_disk: Disk,
                      device: str) -> None:
    """Reboot while a neighbour gets the LUN, which only Cinder has named."""
    case.record('before', disk)
    case.reboot(disk.server, given=new_disk)
    case.record('after', disk)
    _expect_new_disk(case, new_disk, device)
    case.expect_log('event=still-connected', new_disk.server)
    case.expect(not case.host.mappings(disk.volume),
                'the mapping is not deleted')
    case.expect_running(disk.server, 0)
    case.expect_nothing_to_do(disk.server)


@_case(disconnects=False)
def reused_lun_attached(case: Case) -> None:
    """A neighbour has the LUN of the lost disk; its attach is complete."""
    disk, new_disk, device = _reuse_lun(case)
    case.host.server(new_disk.attached, project='other')
    case.reboot_and_record(disk)
    _expect_new_disk(case, new_disk, device)
    case.expect_log('event=still-connected')
    case.expect(not case.host.mappings(disk.volume),
                'the mapping is not deleted')
    case.expect_nothing_to_do(disk.server)


@_case(disconnects=False)
def reused_lun_later(case: Case) -> None:
    """The same; then Nova no longer has the disk of the neighbour, and
    nova-compute starts once more.
    """
    disk, new_disk, device = _reuse_lun(case)
    case.host.server(new_disk.attached, project='other')
    case.reboot_and_record(disk)
    case.expect_log('event=still-connected')
    _expect_new_disk(case, new_disk, device)
    for row in case.host.mappings(new_disk.volume):
        row.destroy()
    status = case.start_again()
    case.expect(status == 0, f'nova-compute ended with {status}')
    found = new_disk.connected()
    case.fact('after the start', found)
    case.expect(not found.disks, f'still connected: {found}')
    case.expect(new_disk.volume.is_untouched(), 'the new volume was changed')


@_case(disconnects=False)
def reused_lun_attaching(case: Case) -> None:
    """A neighbour gets the LUN of the lost disk; its attach is in progress:
    the mapping has no connection information yet.
    """
    disk, new_disk, device = _reuse_lun(case)
    new_disk.attached.status = 'attaching'
    case.host.server(new_disk.attached, project='other')
    row, = case.host.mappings(new_disk.volume)
    row.connection_info = None
    row.save()
    _reboot_in_attach(case, disk, new_disk, device)


@_case(disconnects=False)
def reused_lun_migrating(case: Case) -> None:
    """A server that is live-migrated to this host has the LUN of the lost
    disk; its devices are connected, but its mapping has the former host's
    address.
    """
    disk, new_disk, device = _reuse_lun(case)
    neighbour = case.host.server(new_disk.attached, project='other',
                                 host='compute2')
    instance = case.host.instance(neighbour)
    instance.task_state = task_states.MIGRATING
    instance.save()
    row, = case.host.mappings(new_disk.volume)
    former = json.loads(row.connection_info)
    former['data']['target_lun'] += 1
    row.connection_info = json.dumps(former)
    row.save()
    _reboot_in_attach(case, disk, new_disk, device)


@_case(disconnects=False)
def forged_attached(case: Case) -> None:
    """A neighbour has the LUN of a disk that Cinder attaches to this server,
    too: a member has updated his attachment and completed it; the server is
    rebooted, then stopped and started.
    """
    disk = case.running()
    _stop_and_lose(case, disk)
    neighbour = _Neighbour(
        case.disk('n', target=disk.target, project='other'))
    neighbour.start(case)
    case.cinder.forge(disk.attached)
    for operate in (case.reboot, case.start):
        case.host.libvirt.stop(disk.server)
        with _undisturbed(case, neighbour):
            status = operate(disk.server)
        case.expect(status == 0, f'nova-compute ended with {status}')
        case.expect_running(disk.server, 0)
    case.expect_log('event=not-connected', neighbour.disk.server)


@_case(disconnects=False)
def forged_connector(case: Case) -> None:
    """An attachment with a forged connector has the LUN of a disk that this
    host uses, but not for a server.
    """
    target = case.target()
    neighbour = case.disk('n', target=target, project='other')
    case.connect(neighbour)
    device = neighbour.device()
    server = case.server(case.disk('a', lun=2, target=target))
    forged = case.volume('i')
    case.cinder.attach(
        forged, server, dict(target.connection(1, forged)), lambda: None)
    case.record('before', neighbour)
    case.reboot(server)
    case.record('after', neighbour)
    case.expect_running(server, 1)
    case.expect(not case.cinder.attachments_of(forged.id),
                'the forged attachment is not deleted')
    case.expect_nothing_to_do(server, disks=1)
    _expect_new_disk(case, neighbour, device)


# -- targets that are gone -------------------------------------------------


def _with_neighbours(case: Case,
                     paths: int = 1) -> tuple[Disk, list[_Neighbour]]:
    """Start a server and two neighbours, each with its own target, at the
    same portals and with the same LUN; Cinder returns only the first portal.
    """
    # Create all before the first connection, which may discover targets.
    disk, *others = (
        case.disk(letter, target=case.target(paths, returns_portals=False),
                  project=project)
        for letter, project in (('a', 'project'), ('n', 'other'),
                                ('m', 'other')))
    case.server(disk)
    neighbours = [_Neighbour(other) for other in others]
    for neighbour in neighbours:
        neighbour.start(case)
    return disk, neighbours


def _expect_only_gone(case: Case, disk: Disk,
                      neighbours: list[_Neighbour]) -> None:
    """Check that the disk is gone and no neighbour has lost anything."""
    for neighbour in neighbours:
        neighbour.expect_writing(case)
    _expect_clean(case, disk)


@_case(alone=True, weight=60)
def one_discovery(case: Case) -> None:
    """The target is removed, then an operator discovers those of two
    neighbours; one path.
    """
    disk, neighbours = _with_neighbours(case)
    disk.target.remove()
    case.lose_attachment(disk)
    case.discover()
    case.reboot_and_record(disk)
    _expect_only_gone(case, disk, neighbours)


@_case(alone=True, weight=60)
def second_disconnect(case: Case) -> None:
    """Cinder first refuses to delete the attachment; then the target is
    removed, and an operator discovers those of two neighbours; one path.
    """
    disk, neighbours = _with_neighbours(case)
    case.reset_status(disk)
    case.cinder.refuse = 500
    case.reboot_and_record(disk)
    case.cinder.refuse = None
    disk.target.remove()
    case.discover()
    case.reboot_next(disk.server)
    _expect_only_gone(case, disk, neighbours)


@_case(multipath=True, disconnects=False, alone=True, weight=90)
def power_loss(case: Case) -> None:
    """After a power failure of the host the target is gone, and the servers of
    two neighbours are resumed; two paths.
    """
    disk, neighbours = _with_neighbours(case, paths=2)
    case.record('before', disk)
    case.lose_power()
    disk.target.remove()
    case.lose_attachment(disk)
    for neighbour in neighbours:
        neighbour.start(case)
    case.reboot(disk.server)
    case.record('after', disk)
    _expect_only_gone(case, disk, neighbours)


@_case(disconnects=False, alone=True, weight=60)
def luks_name_reused(case: Case) -> None:
    """LUKS 2; after a power failure of the host an encrypted disk of a
    neighbour has the device name of the lost one.
    """
    disk = _encrypted_disk(case, 'luks2', 'a')
    neighbour = _Neighbour(_encrypted_disk(case, 'luks2', 'n', 'other'))
    case.server(disk)
    neighbour.start(case)
    case.record('before', disk)
    lost_disks = disk.connected().disks
    case.lose_power()
    disk.target.remove()
    case.lose_attachment(disk)
    neighbour.start(case)
    found = neighbour.disk.connected()
    case.expect(found.disks == lost_disks,
                f'the neighbour has {found.disks}, not {lost_disks}')
    case.reboot(disk.server)
    case.record('after', disk)
    case.fact('neighbour', neighbour.disk.connected())
    case.expect(neighbour.disk.connected() == found,
                f'the neighbour no longer has {found}')
    source, = case.host.libvirt.disks(neighbour.disk.server)
    case.expect(os.path.exists(source), f'{source} is gone')
    case.expect_running(neighbour.disk.server, 1)
    _expect_clean(case, disk)


# -- a server that is deleted ----------------------------------------------


def _delete_former_server(case: Case, cleanup: str) -> _Neighbour:
    """Attach a lost disk to another server of the host, then delete its
    former server.
    """
    disk = case.running()
    _stop_and_lose(case, disk)
    neighbour = _Neighbour(case.disk(volume=disk.volume, target=disk.target))
    neighbour.start(case)
    neighbour.expect_writing(case)
    case.record('before', neighbour.disk)
    status = case.delete(disk.server, cleanup)
    case.expect(status == 0, f'the delete ended with {status}')
    case.record('after', neighbour.disk)
    return neighbour


@_case(plugin=False, disconnects=False)
def delete_stock(case: Case) -> None:
    """A server is deleted; its former disk is attached to another guest of
    this host, without the plugin.
    """
    neighbour = _delete_former_server(case, 'none')
    found = neighbour.disk.connected()
    case.expect(not found.disks,
                f'expected the disk to be disconnected: {found}')


@_case(disconnects=False)
def delete_plugin(case: Case) -> None:
    """The same, with the plugin and its trigger "delete"."""
    neighbour = _delete_former_server(case, 'plugin')
    neighbour.expect_writing(case)
    case.expect_log('event=still-connected', neighbour.disk.server)
    case.expect_nothing_to_do(neighbour.disk.server, disks=1)


# -- two rows with one address ----------------------------------------------

#: What happens to the server that has lost its disk.
_OPERATIONS: dict[str, Callable[[Case, str], int]] = {
    'rebooted': Case.reboot, 'started': Case.start, 'deleted': Case.delete}

#: What Cinder answers; it always denies the lost disk.
_CINDER: dict[str, Callable[[Case, Disk], None]] = {
    'right': lambda case, neighbour: None,
    'denies': lambda case, neighbour: case.cinder.deny(neighbour.attached),
    'silent': lambda case, neighbour: case.cinder.fall_silent()}

_CINDER_WORDS = {
    'right': 'Cinder is right',
    'denies': 'Cinder denies the attachment of the neighbour, too',
    'silent': 'Cinder is silent'}


def _share_address(case: Case) -> tuple[str, _Neighbour]:
    """Give the address of a lost disk to a neighbour, whose guest runs.

    Nova's rows of both servers then name it.

    :returns: the server that has lost its disk and is off; the neighbour
    """
    disk = case.running()
    _stop_and_lose(case, disk)
    neighbour = _Neighbour(
        case.disk('n', target=disk.target, project='other'))
    neighbour.start(case)
    return disk.server, neighbour


@contextlib.contextmanager
def _undisturbed(case: Case, neighbour: _Neighbour) -> Iterator[None]:
    """Check that a neighbour does not lose its disk, not even for a moment."""
    server, word = neighbour.disk.server, neighbour.word
    neighbour.expect_writing(case)
    before = neighbour.disk.connected()
    process = case.host.libvirt.process(server)
    yield
    after = neighbour.disk.connected()
    failed = case.host.libvirt.failed_writes(server)
    case.fact(f'failed writes of the {word}', len(failed))
    case.expect(after == before, f'the {word} had {before}, has {after}')
    case.expect(not failed,
                f'{len(failed)} writes of the {word} failed: {failed[:1]}')
    case.expect(case.host.libvirt.process(server) == process,
                f'the {word} is another process')
    neighbour.expect_writing(case)


def _operate_beside_neighbour(operation: str, cinder: str,
                              case: Case) -> None:
    server, neighbour = _share_address(case)
    _CINDER[cinder](case, neighbour.disk)
    with _undisturbed(case, neighbour):
        status = _OPERATIONS[operation](case, server)
        case.fact('disks of the server', len(case.host.libvirt.disks(server)))
    case.expect(status == 0, f'nova-compute ended with {status}')
    if operation != 'deleted':
        case.expect_running(server, 0)


def _add_operations_beside_neighbour() -> None:
    for operation in _OPERATIONS:
        for cinder, words in _CINDER_WORDS.items():
            CASES.append(CaseDefinition(
                functools.partial(_operate_beside_neighbour, operation,
                                  cinder),
                f'one-address-{operation}-{cinder}',
                f'A neighbour has the address of the lost disk, and {words}; '
                f'the server is {operation}', disconnects=False))


_add_operations_beside_neighbour()


@_case(disconnects=False)
def one_address_neighbour_silent(case: Case) -> None:
    """A neighbour has the address of the lost disk, and Cinder is silent; the
    neighbour is rebooted.
    """
    _, neighbour = _share_address(case)
    case.cinder.fall_silent()
    case.record('before', neighbour.disk)
    status = case.reboot(neighbour.disk.server)
    case.record('after', neighbour.disk)
    case.expect(status == 0, f'nova-compute ended with {status}')
    neighbour.device = neighbour.disk.device()
    neighbour.expect_writing(case)


# -- an address of a former host --------------------------------------------


def _boot(case: Case, server: str, volume: str, cleanup: str) -> int:
    case.host.libvirt.stop(server)
    return case.resume(server, cleanup)


#: What happens to a server that came from another host.
_LATER: dict[str, Callable[[Case, str, str, str], int]] = {
    'booted': _boot,
    'rebooted': lambda case, server, volume, cleanup:
        case.reboot(server, cleanup),
    'detached': lambda case, server, volume, cleanup:
        case.detach(server, volume, cleanup)}


def _share_address_across_hosts(case: Case, host: str
                                ) -> tuple[Disk, _Neighbour]:
    """Give a neighbour on this host the address that a lost disk had on
    another one.

    :param host: the host of the server that has lost the disk
    """
    disk = case.disk(host='compute2')
    case.host.server(disk.attached, host=host)
    case.lose_attachment(disk)
    neighbour = _Neighbour(
        case.disk('n', target=disk.target, project='other'))
    neighbour.start(case)
    return disk, neighbour


@_case(disconnects=False, weight=60)
def evacuated_plugin(case: Case) -> None:
    """A neighbour has on this host the address that the lost disk of a server
    had on its former one; the server is evacuated; then this host boots, the
    server is rebooted, and its owner detaches the disk, while Cinder is
    silent.
    """
    disk, neighbour = _share_address_across_hosts(case, 'compute2')
    server = disk.server
    with _undisturbed(case, neighbour):
        status = case.evacuate(server)
    case.expect(status == 0, f'the evacuation ended with {status}')
    case.expect_running(server, 0)
    case.expect_log('event=removed', disk.volume.id)
    case.expect(not case.host.mappings(disk.volume),
                'the mapping is not deleted')
    case.cinder.fall_silent()
    case.record('before', neighbour.disk)
    for operate in _LATER.values():
        with _undisturbed(case, neighbour):
            status = operate(case, server, disk.volume.id, 'plugin')
        case.expect(status == 0, f'nova-compute ended with {status}')
        case.expect_running(server, 0)
    case.record('after', neighbour.disk)


def _former_address(operation: str, case: Case) -> None:
    disk, neighbour = _share_address_across_hosts(case, compute_host.HOST)
    neighbour.expect_writing(case)
    case.record('before', neighbour.disk)
    if operation != 'detached':  # Nova asks for the volume first
        case.cinder.fall_silent()
    _LATER[operation](case, disk.server, disk.volume.id, 'none')
    reads = [storage.read_device(device)
             for device in case.host.libvirt.disks(disk.server)]
    case.record('after', neighbour.disk)
    case.fact('the server reads', ', '.join(reads) or 'no disk')
    left = neighbour.disk.connected().disks
    case.expect(os.path.basename(neighbour.device) not in left,
                'the neighbour has not lost its device')
    case.expect(any(text.startswith('n') for text in reads)
                == (operation != 'detached'),
                f'the server reads {reads}')


for _operation in _LATER:
    CASES.append(CaseDefinition(
        functools.partial(_former_address, _operation),
        f'former-address-{_operation}',
        'Without the plugin, a mapping that has such an address: ' + {
            'booted': 'this host boots while Cinder is silent',
            'rebooted': 'the server is rebooted while Cinder is silent',
            'detached': 'the owner detaches the disk'}[_operation],
        plugin=False, disconnects=False))


# -- a move that has ended half way -----------------------------------------


def _name(case: Case, disk: Disk, attached: volumes.Attached) -> None:
    """Have the mapping of a disk name another attachment."""
    row, = case.host.mappings(disk.volume)
    row.attachment_id = attached.id
    row.save()


def _export(case: Case, disk: Disk, lun: int) -> None:
    """Have the array connect a disk by another LUN of its target."""
    def export() -> volumes.Export:
        disk.target.map(lun, disk.volume)
        return (disk.target.connection(lun, disk.volume),
                lambda: disk.target.unmap(lun))

    case.cinder.exports[disk.volume.id] = export


def _expect_back(case: Case, disk: Disk, event: str) -> None:
    """Check that the guest has its disk, by one attachment and one device.

    :param event: what the plugin has done
    """
    server = disk.server
    case.expect_running(server, 1)
    read = list(map(storage.read_device, case.host.libvirt.disks(server)))
    case.expect([text[:1] for text in read] == [disk.volume.letter],
                f'the guest reads {read}')
    processes.wait_until(
        lambda: disk.volume.read(guests.OFFSET) == guests.mark(server),
        'a write of the guest', 20)
    found = [(one.host, one.status)
             for one in case.cinder.attachments_of(disk.volume.id)]
    case.expect(found == [(compute_host.HOST, 'attached')],
                f'the attachments are {found}')
    case.expect_log(f'event={event}', disk.volume.id)
    case.expect_nothing_to_do(server, disks=1)


@_case(disconnects=False, weight=60)
def migration_failed(case: Case) -> None:
    """A cold migration has failed: the attachment only reserves the volume,
    and the mapping has the address of the other host, which a neighbour has on
    this one.
    """
    disk, neighbour = _share_address_across_hosts(case, compute_host.HOST)
    _name(case, disk, case.cinder.reserve(disk.volume.id, disk.server))
    _export(case, disk, 2)
    case.record('before', neighbour.disk)
    with _undisturbed(case, neighbour):
        status = case.reboot(disk.server)
    case.record('after', disk)
    case.expect(status == 0, f'the reboot ended with {status}')
    _expect_back(case, disk, 'reconnected')
    neighbour.expect_writing(case)


def _fail_rollback(case: Case) -> Disk:
    """Leave a disk as a live migration does whose rollback has failed."""
    disk = case.running()
    elsewhere = case.target()
    elsewhere.map(2, disk.volume)
    there = case.cinder.attach(
        disk.volume, disk.server, elsewhere.connection(2, disk.volume),
        lambda: elsewhere.unmap(2), 'compute2')
    _name(case, disk, there)
    row, = case.host.mappings(disk.volume)
    row.connection_info = json.dumps(compute_host.connection_info(there))
    row.save()
    _export(case, disk, 3)
    return disk


@_case(disconnects=False, weight=60)
def rollback_failed(case: Case) -> None:
    """The rollback of a live migration has failed: the guest runs here, and
    the mapping has the attachment and the address of the other host.
    """
    disk = _fail_rollback(case)
    status = case.reboot_and_record(disk)
    case.expect(status == 0, f'the reboot ended with {status}')
    found = disk.connected()
    case.expect(len(found.disks) == 1, f'connected is {found}')
    _expect_back(case, disk, 'adopted')


@_case(disconnects=False, weight=60)
def repair_requested(case: Case) -> None:
    """The same, and an operator requests a repair while the guest writes;
    then the server is rebooted, stopped, and loses the disk by a detach.
    """
    disk = _fail_rollback(case)
    guest = _Neighbour(disk, disk.device(), 'guest')
    case.record('before', disk)
    with _undisturbed(case, guest):
        status = case.repair(disk.server)
    case.record('after', disk)
    case.expect(status == 0, f'the repair ended with {status}')
    _expect_back(case, disk, 'adopted')
    case.host.libvirt.stop(disk.server)
    status = case.detach(disk.server, disk.volume.id)
    case.expect(status == 0, f'the detach ended with {status}')
    case.expect(not disk.connected(), f'still connected: {disk.connected()}')
    case.expect(not case.host.mappings(disk.volume),
                'the mapping is not deleted')
    case.expect(not case.cinder.attachments_of(disk.volume.id),
                'the attachment is not deleted')


# -- SIGKILL between any two steps -----------------------------------------


def _kill_before_steps(case: Case, paths: int, first: int) -> None:
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
        case.expect(case.cinder.attachments_of(disk.volume.id) or not left,
                    f'{at}: the attachment is deleted, but connected is '
                    f'{left}')
        status = case.reboot(disk.server)
        case.expect(status == 0, f'{at}: the next reboot ended with {status}')
        problems = len(case.result.problems)
        case.expect_gone(disk)
        for index in range(problems, len(case.result.problems)):
            case.result.problems[index] += f' ({at})'
        case.host.libvirt.stop(disk.server)
        killed.append(f'{done[-1] if done else "the start"} ({left})')
    case.expect(killed, 'no step was killed')
    case.fact('killed after (still connected)', ', '.join(killed))
    _expect_clean(case, disk)


@_case(weight=200)
def killed_one_path_odd(case: Case) -> None:
    """SIGKILL before each odd step, one path."""
    _kill_before_steps(case, 1, 0)


@_case(weight=200)
def killed_one_path_even(case: Case) -> None:
    """SIGKILL before each even step, one path."""
    _kill_before_steps(case, 1, 1)


@_case(multipath=True, weight=260)
def killed_two_paths_odd(case: Case) -> None:
    """SIGKILL before each odd step, two paths."""
    _kill_before_steps(case, 2, 0)


@_case(multipath=True, weight=260)
def killed_two_paths_even(case: Case) -> None:
    """SIGKILL before each even step, two paths."""
    _kill_before_steps(case, 2, 1)
