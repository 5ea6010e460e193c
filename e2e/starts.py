# SPDX-License-Identifier: Apache-2.0
"""Each kind of damage, and each way in which a server is started after it.

By a hard reboot, with and without the plugin; by stop and start; and at the
boot of the host: its guests end without Nova, as in a power failure, and
nova-compute is started again.
"""

from __future__ import annotations

import functools

from e2e import faults, stack as stack_mod
from e2e.scenarios import (
    DISK_RETURNS,
    expect_stock,
    expect_stock_again,
    REBOOT_FAILS,
)
from e2e.trial import HEALTHY, Scenario, Suite, Trial
from nova_bdm_cleanup.tests.cloud.damage import DAMAGE

STARTS = Suite()

_OPTIONS = {
    'DEFAULT': {'resume_guests_state_on_host_boot': 'true'},
    'bdm_cleanup': {'triggers': 'start, host_boot'}}

#: The damage before a hard reboot; the root has a trial of its own.
_REBOOT_DAMAGE = ('attachment-deleted', 'volume-deleted', 'status-reset',
                  'attached-elsewhere', 'transferred', 'stale-attachment')

#: The damage before a stop and start, and before the host boots.
_START_DAMAGE = ('volume-deleted', 'status-reset', 'attached-elsewhere',
                 'stale-attachment')


def _expect_cleanup(t: Trial, server: str, name: str, volume: str) -> str:
    """Check the documented result of a cleanup from all sides."""
    damage = DAMAGE[name]
    if damage.status is None:
        t.expect(server, 'ACTIVE', 'root A B')
        t.expect_log_line('event=withheld', damage.reason or '')
        t.expect_no_removal()
        return 'reported, nothing changed'
    t.expect_log_line('event=removed', f'reason={damage.reason}')
    if t.other:
        t.expect(t.other, 'ACTIVE', 'other-root B')
    else:
        t.expect_volume(volume, damage.status, on_host=False)
    if volume != 'B':
        t.expect(server, 'ACTIVE', 'root A B')
        return f'attachment removed, volume {damage.status}'
    t.expect(server, 'ACTIVE', 'root A')
    return f'server runs, mapping removed, volume {damage.status}'


def _hard_reboot(name: str, t: Trial) -> str:
    server = t.server('A', 'B')
    attachment = t.attachment_of(server, 'B')
    volume = t.damage(server, name)
    t.reboot(server)
    if not t.plugin:
        return _stock(t, server, name)
    outcome = _expect_cleanup(t, server, name, volume)
    if t.backend == 'rbd' and t.other:
        t.equal('watchers of B', len(t.traces_on_host('B')), 1)
    elif volume == 'B' and not t.other and DAMAGE[name].status:
        t.expect_order(server, 'B',
                       attachment if name == 'status-reset' else None)
    # Another reboot removes nothing.
    t.logs.mark()
    t.reboot(t.other or server)
    t.reboot(server)
    t.expect_no_removal()
    if t.other:
        t.expect(t.other, 'ACTIVE', 'other-root B')
    elif name == 'attachment-deleted':
        t.attach(server, t.volumes['B'])
        t.expect(server, 'ACTIVE', 'root A B')
        outcome += ', can be attached again'
    return outcome


def _stock(t: Trial, server: str, name: str) -> str:
    """Check the outcome on stock Nova."""
    if name == 'stale-attachment':
        t.expect(server, 'ACTIVE', 'root A B',
                 attachments=f'{HEALTHY} B:attached left-over:attached')
        return 'volume stays in-use'
    if name == 'status-reset':
        t.expect(server, 'ACTIVE', 'root A B')
        t.expect_volume('B', 'available', on_host=True)
        return 'server keeps a disk that Cinder offers to others'
    if not t.other:
        return expect_stock_again(t, server, is_gone=name == 'volume-deleted')
    outcome = expect_stock(t, server)
    t.expect(t.other, 'ACTIVE', 'other-root B')
    if outcome != DISK_RETURNS:
        return outcome
    t.equal('watchers of B', len(t.traces_on_host('B')), 2)
    return '**both guests have the disk read-write**'


def _boot_server(t: Trial) -> str:
    """Boot a server; let nova-compute clean up at start and host boot."""
    t.restart(**_OPTIONS)
    return t.server('A', 'B')


def _start(name: str, t: Trial) -> str:
    server = _boot_server(t)
    t.stop(server)
    volume = t.damage(server, name)
    t.logs.mark()
    t.start(server)
    return _expect_cleanup(t, server, name, volume)


def _host_boot(name: str, t: Trial) -> str:
    server = _boot_server(t)
    if t.backend == 'loop' and name == 'attached-elsewhere':
        # The other server must be created while this one runs.
        return 'not run: QEMU locks the file'
    volume = t.damage(server, name)
    _lose_power(t, server, *filter(None, [t.other]))
    t.compute.start()
    t.wait_server(server)
    if volume == 'B':
        return _expect_cleanup(t, server, name, volume)
    t.expect(server, 'ACTIVE', 'root A B',
             attachments=f'{HEALTHY} B:attached {volume}:attached')
    t.expect_no_removal()
    return 'server runs; the next reboot deletes the attachment'


def _lose_power(t: Trial, *servers: str) -> None:
    """End the guests while nova-compute is stopped."""
    t.stack.procs.stop('nova-compute')
    for server in servers:
        stack_mod.virsh('destroy', server)
    t.logs.mark()


STARTS += [
    Scenario(name, DAMAGE[name].title,
             functools.partial(_hard_reboot, name), stock=True)
    for name in _REBOOT_DAMAGE]
STARTS += [
    Scenario(f'{operation}-{name}', f'{words}: {DAMAGE[name].title}',
             functools.partial(function, name))
    for name in _START_DAMAGE
    for operation, words, function in (
        ('start', 'Between stop and start', _start),
        ('host-boot', 'Before a power failure of the host', _host_boot))]


@STARTS.add('Root volume dangling', stock=True)
def root_detached(t: Trial) -> str:
    server = t.server('A')
    t.damage(server, 'root-detached')
    t.reboot(server)
    if t.plugin:
        t.expect_log_line('ERROR', 'reason=root-volume-dangling')
        t.expect_no_removal()
    is_back = t.backend == 'rbd'
    t.expect(server, 'ACTIVE' if is_back else 'ERROR', 'root A',
             attachments='A:attached', off=not is_back)
    return (('reboot succeeds' if is_back else REBOOT_FAILS)
            + '; mapping kept, ERROR in the log' * t.plugin)


@STARTS.add('The host of two healthy servers boots')
def host_boot_healthy(t: Trial) -> str:
    """Check that killed guests come back with all their disks."""
    first = _boot_server(t)
    second = t.server('C', root='other-root')
    _lose_power(t, first, second)
    t.compute.start()
    t.expect(first, 'ACTIVE', 'root A B')
    t.expect(second, 'ACTIVE', 'other-root C')
    t.expect_no_removal()
    return 'both servers run, nothing changed'


@STARTS.add('SIGKILL while the host boots, then again')
def host_boot_killed(t: Trial) -> str:
    """Kill nova-compute while it resumes guests, and start it again."""
    server = _boot_server(t)
    t.damage(server, 'attachment-deleted')
    _lose_power(t, server)
    t.stop_at(faults.KILL_POINTS['host-disconnected'], 'kill', at_start=True)
    t.wait_killed()
    t.logs.mark()
    t.compute.start()
    t.wait_server(server)
    return _expect_cleanup(t, server, 'attachment-deleted', 'B')
