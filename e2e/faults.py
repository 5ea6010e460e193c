# SPDX-License-Identifier: Apache-2.0
"""Faults of real services in the middle of a cleanup.

Each begins with the same damage.  The status of B was reset to available and
its attachment still exists, so that all four steps are due: power off the
guest, disconnect the host, delete the block device mapping, delete the
attachment.  Another volume has an attachment without a mapping.  At the end
the server runs with its healthy disks, and the next hard reboot completes the
steps that the fault has left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
import contextlib
import functools
import pathlib
import subprocess
import time

from e2e import (
    api,
    database,
    lab as lab_mod,
    processes,
    replica,
    stack as stack_mod,
)
from e2e.trial import Failed, HEALTHY, Scenario, Suite, Trial

FAULTS = Suite()

#: The attachments of the server after the damage.
_ATTACHMENTS_LEFT = f'{HEALTHY} B:attached left-over:attached'

#: When nova-compute is killed: in words, and as
#: ``module:Class.method:before`` or ``:after``.
POINTS = {
    'plan-recorded': (
        'the plan is recorded and the guest still runs',
        'nova_bdm_cleanup.node.store.journal:Journal.begin:after'),
    'guest-off': (
        'the guest is off',
        'nova.virt.libvirt.driver:LibvirtDriver.power_off:after'),
    'host-disconnected': (
        'the host is disconnected',
        'nova_bdm_cleanup.node.instance:NovaInstance.disconnect:after'),
    'row-deleted': (
        'the mapping is deleted',
        'nova.objects.block_device:BlockDeviceMapping.destroy:after'),
    'attachment-deleted': (
        'the attachment is deleted',
        'nova_bdm_cleanup.openstack.cinder:Cinder.delete_attachment:after'),
}
KILL_POINTS = {name: place for name, (_, place) in POINTS.items()}


def damaged(t: Trial) -> str:
    """Boot a server that has something to clean up in every step."""
    return t.damaged('status-reset', 'stale-attachment')


def expect_unchanged(t: Trial, server: str) -> None:
    """Check that the server runs and nothing of it was changed."""
    t.expect(server, 'ACTIVE', 'root A B', attachments=_ATTACHMENTS_LEFT)


def reboot_and_expect_clean(t: Trial, server: str) -> None:
    t.logs.mark()
    t.reboot(server)
    t.expect_clean(server)


# -- nova-compute is killed ------------------------------------------------

def _killed(name: str, t: Trial) -> str:
    server = damaged(t)
    attachment = t.attachment_of(server, 'B')
    t.kill_in_reboot(server, KILL_POINTS[name])
    _expect_order_kept(t, server, attachment)
    t.compute.start()
    if name != 'plan-recorded':
        # Nova resumes the reboot once the guest is off.
        t.wait_server(server)
        t.expect_clean(server)
        return 'completed at the start of nova-compute'
    t.equal('status', t.show_server(server)['status'], 'HARD_REBOOT')
    reboot_and_expect_clean(t, server)
    return 'the guest keeps running; completed by the next reboot'


def _expect_order_kept(t: Trial, server: str, attachment: str) -> None:
    """Check that no step was done before an earlier one."""
    rows = database.mapped_volumes(server)
    known = {one['id'] for one in t.attachments(server)}
    off = t.domain(server) is None
    attachment_deleted = attachment not in known
    row_deleted = t.volumes['B'] not in rows
    if (row_deleted and not off) or (attachment_deleted and not row_deleted):
        raise Failed(f'out of order: guest off {off}, row deleted '
                     f'{row_deleted}, attachment deleted '
                     f'{attachment_deleted}')
    for name in ('root', 'A'):
        if t.volumes[name] not in rows:
            raise Failed(f'the mapping of the healthy disk {name} is deleted')
    t.equal('healthy attachments', sorted(
        one['volume_id'] for one in t.attachments(server)
        if one['volume_id'] in (t.volumes['root'], t.volumes['A'])),
        sorted((t.volumes['root'], t.volumes['A'])))


def _killed_in_error(name: str, t: Trial) -> str:
    """Kill in the reboot of a server in ERROR.

    Nova does not resume that reboot, so its owner must be able to reboot it
    again.
    """
    server = damaged(t)
    t.action(server, {'os-resetState': {'state': 'error'}}, api.ADMIN)
    t.kill_in_reboot(server, KILL_POINTS[name])
    t.compute.start()
    reboot_and_expect_clean(t, server)
    return 'completed by the next reboot, which its owner may request'


def _switched_off(name: str, disks: str, t: Trial) -> str:
    """Kill nova-compute, and start it without the plugin.

    :param disks: the disks that stock Nova then connects
    """
    server = damaged(t)
    t.kill_in_reboot(server, KILL_POINTS[name])
    t.compute.configure(plugin=False)
    t.compute.start()
    t.equal('status', t.wait_server(server), 'ACTIVE')
    _expect_stock_operations(t, server, disks)
    t.compute.restart(t.plugin)
    reboot_and_expect_clean(t, server)
    return f'stock Nova reboots, stops and starts the server with {disks}'


def _expect_stock_operations(t: Trial, server: str, disks: str) -> None:
    operations: tuple[tuple[Callable[[str], object], ...], ...] = (
        (t.reboot,), (t.stop, t.start))
    for steps in operations:
        for step in steps:
            step(server)
        t.equal('status', t.show_server(server)['status'], 'ACTIVE')
        t.equal('disks', t.domain(server),
                tuple(sorted(disks.split())))


FAULTS += [
    Scenario(f'kill-{name}', f'SIGKILL when {words}',
             functools.partial(_killed, name))
    for name, (words, _) in POINTS.items()]
FAULTS += [
    Scenario(f'error-kill-{name}',
             f'Server in ERROR, SIGKILL when {POINTS[name][0]}',
             functools.partial(_killed_in_error, name))
    for name in ('guest-off', 'row-deleted')]
FAULTS += [
    Scenario(f'off-after-{name}',
             f'SIGKILL when {POINTS[name][0]}, then without the plugin',
             functools.partial(_switched_off, name, disks))
    for name, disks in (('host-disconnected', 'root A B'),
                        ('row-deleted', 'root A'))]


# -- Cinder ----------------------------------------------------------------

@FAULTS.add('cinder-api stopped before the reboot')
def cinder_stopped(t: Trial) -> str:
    server = damaged(t)
    with t.without_cinder():
        t.reboot(server)
    t.expect_log_line('WARNING', 'event=skipped', 'reason=cinder-unknown')
    expect_unchanged(t, server)
    reboot_and_expect_clean(t, server)
    return 'reboot succeeds, nothing changed; the next one cleans up'


@FAULTS.add('cinder-api hangs before the reboot')
def cinder_hangs(t: Trial) -> str:
    server = damaged(t)
    t.restart(bdm_cleanup={'timeout': '5'})
    t.stack.procs.pause('cinder-api')
    try:
        t.reboot(server, seconds=60)
    finally:
        t.stack.procs.resume('cinder-api')
    t.expect_log_line('WARNING', 'event=skipped')
    expect_unchanged(t, server)
    # On a slow machine the short timeout ends before the stale attachments.
    t.restart()
    reboot_and_expect_clean(t, server)
    return ('reboot succeeds after [bdm_cleanup] timeout, nothing changed; '
            'the next one cleans up')


@FAULTS.add('cinder-api killed during the cleanup')
def cinder_killed(t: Trial) -> str:
    server = damaged(t)
    t.pause_in_reboot(server, KILL_POINTS['host-disconnected'])
    with t.without_cinder():
        t.let_continue()
        t.wait_server(server)
    t.expect_log_line('WARNING', 'event=failed')
    # Nova's row is deleted before Cinder's attachment.
    t.expect(server, 'ACTIVE', 'root A', attachments=_ATTACHMENTS_LEFT)
    reboot_and_expect_clean(t, server)
    return ('reboot succeeds without the disk, since Cinder may have deleted '
            'its attachment; the next one deletes the rest in Cinder')


@FAULTS.add('No service token configured')
def no_service_token(t: Trial) -> str:
    server = damaged(t)
    t.restart(service_user={'send_service_user_token': 'false'})
    t.reboot(server)
    t.expect_clean(server)
    return ('Cinder asks Nova, which no longer has the attachment, and '
            'deletes it; the server is cleaned up')


@FAULTS.add('Nova configured with another, empty Cinder')
def empty_cinder(t: Trial) -> str:
    server = damaged(t)
    t.stack.start('cinder-empty')
    lab_mod.run('cinder-manage', '--config-file',
                str(t.lab.empty_cinder_conf), 'db', 'sync')
    port = lab_mod.PORTS['cinder-empty']
    processes.wait_until(
        lambda: stack_mod.answers_http(port), 'the other Cinder')
    t.restart(cinder={
        'endpoint_template': f'http://127.0.0.1:{port}/v3/%(project_id)s'})
    try:
        t.reboot(server)
    finally:
        t.stack.procs.stop('cinder-empty')
    t.expect_log_line('WARNING', 'cinder-suspect')
    t.expect_no_removal()
    expect_unchanged(t, server)
    t.restart()
    reboot_and_expect_clean(t, server)
    return 'reboot succeeds, nothing changed (cinder-suspect)'


# -- a database whose replica lags -----------------------------------------

#: How many seconds after the request to reboot the replica catches up, and the
#: settle_time: on a busy machine a reboot reads Cinder after ten seconds.
_LAG, _SETTLE_TIME = 30, 60
#: Longer than a restart of nova-compute, and shorter than it may take.
_SHORT_SETTLE_TIME = 30


@contextlib.contextmanager
def _lagging(t: Trial, volume: str) -> Iterator[replica.Replica]:
    """Start a replica that has a free volume, and no later change."""
    lagging = replica.Replica(t.stack)
    with lagging.running():
        t.restart(cinder={'endpoint_template': lagging.endpoint},
                  bdm_cleanup={'settle_time': str(_SETTLE_TIME)})
        processes.wait_until(lambda: lagging.volume(t.volumes[volume])[
            'status'] == 'available', 'the replica')
        lagging.pause()
        yield lagging
        t.restart()


def _reboot_at_once(t: Trial, server: str, lagging: replica.Replica,
                    volume: str) -> str:
    """Reboot a server hard while reads are from before it got a volume."""
    t.logs.mark()
    lagging.read(_LAG)
    began = time.monotonic()
    t.reboot(server)
    seconds = time.monotonic() - began
    t.expect_log_line('event=waiting', t.volumes[volume])
    t.expect_no_removal()
    t.expect(server, 'ACTIVE', f'root {volume}')
    return f'reboot succeeds with the disk after {seconds:.0f} s'


@FAULTS.add('Attached, then rebooted at once; a replica of Cinder\'s database '
            f'lags, until {_LAG} s after that')
def lag_attach(t: Trial) -> str:
    server = t.server()
    t.volume('B')
    with _lagging(t, 'B') as lagging:
        t.attach(server, t.volumes['B'])
        return _reboot_at_once(t, server, lagging, 'B')


@FAULTS.add('Swapped, then rebooted at once; a replica of Cinder\'s database '
            f'lags, until {_LAG} s after that')
def lag_swap(t: Trial) -> str:
    if t.backend == 'rbd':
        # libvirt's driver swaps only block devices.
        return 'not run'
    server = t.server('small')
    t.volume('swapped')
    with _lagging(t, 'swapped') as lagging:
        t.swap(server, t.volumes['small'], t.volumes['swapped'])
        return _reboot_at_once(t, server, lagging, 'swapped')


# -- changes in the middle of a cleanup --------------------------------------

@FAULTS.add('A disk is attached; its attachment and its volume are deleted '
            'while the guest is switched off to remove another one')
def lost_while_off(t: Trial) -> str:
    server = t.damaged('attachment-deleted')
    t.volume('C')
    t.attach(server, t.volumes['C'])
    t.pause_in_reboot(server, KILL_POINTS['guest-off'])
    t.lose_volume(server, 'C')
    t.let_continue()
    t.equal('status', t.wait_server(server), 'ACTIVE')
    t.equal('disks', t.domain(server), ('A', 'root'))
    reboot_and_expect_clean(t, server)
    return 'reboot succeeds without either disk'


@FAULTS.add('SIGKILL while the cleanup waits for ``settle_time``')
def kill_waiting(t: Trial) -> str:
    t.restart(bdm_cleanup={'settle_time': str(_SHORT_SETTLE_TIME)})
    server = t.damaged('attachment-deleted')
    t.kill_in_reboot(server, 'nova_bdm_cleanup.node.cleanup.log_lines:'
                     'LogLines.waiting:after')
    t.compute.start()
    t.wait_server(server)
    t.expect_clean(server)
    t.restart()
    return 'completed at the start of nova-compute'


@FAULTS.add('A soft reboot of a paused guest, right after an attachment was '
            'deleted')
def soft_at_once(t: Trial) -> str:
    t.restart(bdm_cleanup={'settle_time': str(_SHORT_SETTLE_TIME)})
    server = t.server('A', 'B')
    stack_mod.virsh('suspend', server)
    t.lose_attachment(server, 'B')
    t.reboot(server, 'SOFT')
    t.expect_log_line('event=waiting', t.volumes['B'])
    t.expect(server, 'ACTIVE', 'root A B', attachments=HEALTHY,
             inside='root A')
    t.restart()
    reboot_and_expect_clean(t, server)
    return 'reboot succeeds without the disk, mapping kept'


# -- other parts of the node -----------------------------------------------

@FAULTS.add('RabbitMQ restarted during the cleanup')
def rabbitmq_restarted(t: Trial) -> str:
    server = damaged(t)
    t.pause_in_reboot(server, KILL_POINTS['guest-off'])
    t.stack.restart_rabbitmq()
    t.let_continue()
    try:
        t.wait_server(server, 240)
        t.expect_clean(server)
        return 'cleaned up in the same reboot'
    except (processes.TimedOut, Failed):
        reboot_and_expect_clean(t, server)
    return 'completed by the next reboot'


@FAULTS.add('Disk full for the journal')
def journal_full(t: Trial) -> str:
    server = damaged(t)
    journal = t.lab.nova_state / 'bdm-cleanup'
    journal.mkdir(exist_ok=True)
    subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=64k,mode=0700',
                    'e2e-full', str(journal)], check=True)
    try:
        _fill(journal)
        t.reboot(server)
        t.expect_log_line('WARNING', 'journal-unwritable')
        t.expect_log_line('WARNING', 'event=not-connected')
        t.expect_no_removal()
        # Cinder offers the volume to all users.
        t.expect(server, 'ACTIVE', 'root A B', inside='root A',
                 attachments=_ATTACHMENTS_LEFT)
    finally:
        subprocess.run(['umount', str(journal)], check=True)
    reboot_and_expect_clean(t, server)
    return ('reboot succeeds without the disk, nothing is removed; the next '
            'one, with space, cleans up')


def _fill(directory: pathlib.Path) -> None:
    try:
        with (directory / 'filler').open('wb', buffering=0) as stream:
            while True:
                stream.write(bytes(4096))
    except OSError:
        pass


@FAULTS.add('More removals than max_removals')
def over_limit(t: Trial) -> str:
    server = damaged(t)
    t.reset_status('A')
    t.restart(bdm_cleanup={'max_removals': '1'})
    t.reboot(server)
    t.expect_log_line('WARNING', 'over-limit')
    # The limit for mappings does not protect a stale attachment.
    t.expect(server, 'ACTIVE', 'root A B')
    t.expect_volume('left-over', 'available', on_host=False)
    t.restart()
    t.reboot(server)
    t.expect(server, 'ACTIVE', 'root')
    return 'no mapping is removed; with a higher limit all are'
