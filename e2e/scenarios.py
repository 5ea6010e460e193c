# SPDX-License-Identifier: Apache-2.0
"""Further conditions of a reboot, on both back ends, with and without the
plugin.

Stock Nova is checked as strictly as the plugin: a repair by the plugin is only
worth a line in the table when stock Nova really fails.
"""

from __future__ import annotations

import re

from e2e import api, plugin as plugin_mod, processes, stack as stack_mod
from e2e.trial import Failed, HEALTHY, Suite, Trial

SCENARIOS = Suite()

REBOOT_FAILS = 'reboot fails, server in ERROR'
DISK_RETURNS = 'disk is connected without an attachment in Cinder'
MAPPING_REMOVED = 'reboot succeeds, mapping removed'
NOTHING_CHANGED = 'reboot succeeds, nothing changed'


def expect_stock(t: Trial, server: str, is_gone: bool = False) -> str:
    """Check the outcome on stock Nova when the attachment of B is gone.

    The disk comes back where nothing checks that the host may have it.

    :param is_gone: the volume is deleted, too
    """
    is_back = t.backend == 'rbd' and not is_gone
    t.expect(server, 'ACTIVE' if is_back else 'ERROR', 'root A B',
             attachments=HEALTHY, off=not is_back)
    return DISK_RETURNS if is_back else REBOOT_FAILS


def expect_stock_again(t: Trial, server: str, is_gone: bool = False) -> str:
    """Check the same, and then the status of B or a second reboot."""
    outcome = expect_stock(t, server, is_gone)
    if outcome == DISK_RETURNS:
        t.expect_volume('B', 'available', on_host=True)
        return outcome
    t.reboot(server)
    return expect_stock(t, server, is_gone) + ', every time'


@SCENARIOS.add('Healthy server', stock=True)
def healthy(t: Trial) -> str:
    server = t.server('A', 'B')
    for _ in range(2):
        t.reboot(server)
        t.expect(server, 'ACTIVE', 'root A B')
    t.reboot(server, 'SOFT')
    t.expect(server, 'ACTIVE', 'root A B')
    t.expect_no_removal()
    return NOTHING_CHANGED


@SCENARIOS.add('Server in ERROR after a reboot by stock Nova', stock=True)
def error_healed(t: Trial) -> str:
    server = t.damaged_in_error()
    t.reboot(server)
    if not t.plugin:
        expect_stock(t, server, is_gone=True)
        return 'stays in ERROR'
    t.expect(server, 'ACTIVE', 'root A')
    t.expect_volume('B', 'gone', on_host=False)
    return 'server ACTIVE, mapping removed'


@SCENARIOS.add('Stale attachment, reserved', stock=True)
def stale_reserved(t: Trial) -> str:
    server = t.server('A')
    t.volume('left-over')
    attachment = t.create_attachment(server, 'left-over', connected=False)
    t.reboot(server)
    if t.plugin:
        t.expect(server, 'ACTIVE', 'root A')
        t.expect_volume('left-over', 'available', on_host=False)
        t.expect_log_line('event=removed', 'reason=stale-attachment',
                          f'attachment={attachment}')
        return 'attachment removed, volume available'
    t.expect(server, 'ACTIVE', 'root A',
             attachments=f'{HEALTHY} left-over:reserved')
    return 'volume stays reserved'


@SCENARIOS.add('Multiattach volume of two guests of this host, dangling in '
               'one', stock=True)
def multiattach(t: Trial) -> str:
    t.volume('B', multiattach=True)
    first = t.server('A', 'B')
    second = t.server('B', root='other-root')
    t.lose_attachment(first, 'B')
    t.expect_volume('B', 'in-use')
    t.reboot(first)
    t.expect(second, 'ACTIVE', 'other-root B')
    if t.plugin:
        t.expect(first, 'ACTIVE', 'root A')
        t.expect_log_line('event=removing', 'reason=attached-elsewhere')
        outcome = 'mapping removed, the other guest keeps the disk'
    else:
        outcome = expect_stock(t, first)
    t.reboot(second)
    t.expect(second, 'ACTIVE', 'other-root B')
    t.expect_volume('B', 'in-use', on_host=True)
    return outcome


@SCENARIOS.add('Rescued server', stock=True)
def rescued(t: Trial) -> str:
    """Check that Nova refuses a hard reboot in rescue, but not after it."""
    server = t.server('A', 'B')
    image = t.rescue_image()
    t.action(server, {'rescue': {'rescue_image_ref': image}})
    t.equal('status', t.wait_server(server), 'RESCUE')
    t.lose_attachment(server, 'B')
    try:
        t.request_reboot(server)
        raise Failed('the reboot was accepted')
    except api.ApiError as exc:
        t.equal('answer to the reboot', exc.code, 409)
    t.equal('status', t.wait_server(server), 'RESCUE')
    t.expect_no_removal()
    t.action(server, {'unrescue': None})
    t.wait_server(server)
    t.reboot(server)
    if t.plugin:
        t.expect_clean(server)
    return 'reboot refused (409); after unrescue: ' + (
        MAPPING_REMOVED if t.plugin else expect_stock(t, server))


@SCENARIOS.add('Soft reboot', stock=True)
def soft_reboot(t: Trial) -> str:
    """Check that nothing is removed: Nova keeps the old domain."""
    server = t.damaged('attachment-deleted')
    t.reboot(server, 'SOFT')
    # Where the old domain cannot be restarted, Nova makes it a hard reboot.
    return _after_soft_reboot(t, server, becomes_hard=t.backend != 'rbd')


@SCENARIOS.add('Soft reboot of a paused guest', stock=True)
def soft_reboot_paused(t: Trial) -> str:
    """Check that nothing is removed in a reboot that only libvirt's driver
    makes a hard one.
    """
    server = t.damaged('attachment-deleted')
    stack_mod.virsh('suspend', server)
    t.reboot(server, 'SOFT')
    return _after_soft_reboot(t, server, becomes_hard=True)


def _after_soft_reboot(t: Trial, server: str, becomes_hard: bool) -> str:
    if t.plugin:
        t.expect_no_removal()
        t.expect_log_line('WARNING', 'event=withheld', 'soft-reboot')
        t.expect(server, 'ACTIVE', 'root A B', attachments=HEALTHY,
                 inside='root A' if becomes_hard else 'root A B')
        t.reboot(server)
        t.expect_clean(server)
        return ('reboot succeeds with%s the disk, mapping kept; a hard '
                'reboot removes it' % ('out' * becomes_hard))
    if expect_stock(t, server) == DISK_RETURNS:
        return 'reboot succeeds with the disk'
    return REBOOT_FAILS


@SCENARIOS.add('Hard reboot by an administrator of another project',
               stock=True)
def other_project(t: Trial) -> str:
    """Reboot with a token that sees none of the server's attachments."""
    server = t.server('A', 'B')
    t.reboot(server, who=api.ADMIN)
    t.expect(server, 'ACTIVE', 'root A B')
    t.expect_no_removal()
    t.lose_attachment(server, 'B')
    t.reboot(server, who=api.ADMIN)
    if t.plugin:
        t.expect_clean(server)
        return 'healthy disks stay, the dangling one is removed'
    return expect_stock_again(t, server)


@SCENARIOS.add('Hard reboot resumed at the start of nova-compute', stock=True)
def resumed(t: Trial) -> str:
    """Kill nova-compute in a reboot that it resumes at its next start.

    It is killed after the old guest is gone and before the new one is
    defined, with everything healthy; B is made to dangle while it is down.
    """
    server = t.server('A', 'B')
    t.kill_in_reboot(
        server,
        'nova.virt.libvirt.driver:LibvirtDriver._get_guest_xml:before')
    t.lose_attachment(server, 'B')
    t.logs.mark()
    if t.backend == 'loop' and not t.plugin:
        # The failure of that one reboot aborts the start of the service.
        t.stack.start('nova-compute')
        processes.wait_until(
            lambda: t.logs.lines('nova-compute', 'Error starting thread'),
            'the failure of nova-compute')
        t.stack.procs.stop('nova-compute')
        t.compute.start()
        expect_stock_again(t, server)
        return ('**nova-compute does not start**; at its second start: '
                + REBOOT_FAILS)
    t.compute.start()
    t.wait_server(server)
    if t.plugin:
        t.expect_clean(server)
        return MAPPING_REMOVED
    return expect_stock_again(t, server)


@SCENARIOS.add('Attachments of the server that another project created')
def foreign_attachments(t: Trial) -> str:
    """Check that they neither keep a dangling disk nor are touched."""
    server = t.damaged('attachment-deleted')
    foreign = [t.add_foreign_attachment(server, number < 8)
               for number in range(12)]
    t.reboot(server)
    t.equal('mappings', t.state_of(server).bdms, ('A', 'root'))
    t.expect_volume('B', 'available', on_host=False)
    known = {one['id'] for one in t.attachments(server)}
    t.equal('foreign attachments', sorted(known.intersection(foreign)),
            sorted(foreign))
    return 'mapping removed, the twelve of the other project unchanged'


@SCENARIOS.add('Sixty reserved attachments that its project created')
def flood(t: Trial) -> str:
    """Check that none is deleted, and the mapping is removed anyway."""
    server = t.damaged('attachment-deleted')
    t.volume('left-over', multiattach=True)
    for _ in range(60):
        t.create_attachment(server, 'left-over', connected=False)
    t.reboot(server)
    t.equal('mappings', t.state_of(server).bdms, ('A', 'root'))
    t.expect_log_line('WARNING', 'reason=stale-attachment', 'over-limit')
    t.equal('attachments', len(t.attachments(server)), 2 + 60)
    lines = len(t.log_lines())
    if lines > 30:
        raise Failed(f'{lines} log lines')
    t.restart(bdm_cleanup={'max_removals': '60',
                           'max_removals_per_hour': '60'})
    t.reboot(server)
    t.expect_clean(server)
    return (f'mapping removed, no attachment deleted, {lines} log lines; with '
            'higher limits all attachments deleted')


@SCENARIOS.add('Server locked by an administrator')
def locked(t: Trial) -> str:
    """Check that nothing is removed and the dangling disk not connected."""
    server = t.damaged('attachment-deleted', 'stale-attachment')
    t.action(server, {'lock': None}, api.ADMIN)
    t.reboot(server, who=api.ADMIN)
    t.expect_no_removal()
    for reason in ('volume-available', 'stale-attachment'):
        t.expect_log_line('event=withheld', f'reason={reason}',
                          'server-locked')
    t.expect(server, 'ACTIVE', 'root A B', inside='root A',
             attachments=f'{HEALTHY} left-over:attached')
    t.action(server, {'unlock': None}, api.ADMIN)
    t.reboot(server)
    t.expect_clean(server)
    return ('reboot succeeds without the disk, nothing is removed; after the '
            'unlock the next one cleans up')


@SCENARIOS.add('``mode = off``')
def mode_off(t: Trial) -> str:
    return _reboot_in_mode(t, 'off')


@SCENARIOS.add('``mode = observe``')
def observe_mode(t: Trial) -> str:
    """Check that nothing is removed; Nova 26 has no cleanup of its own."""
    return _reboot_in_mode(t, 'observe')


def _reboot_in_mode(t: Trial, mode: str) -> str:
    """Reboot a server with a dangling disk as stock Nova does."""
    server = t.damaged('attachment-deleted')
    t.restart(bdm_cleanup={'mode': mode})
    t.reboot(server)
    outcome = expect_stock_again(t, server)
    t.expect_no_removal()
    if mode == 'observe':
        t.expect_log_line('event=withheld', 'reason=volume-available',
                          'observe-mode')
        return 'reported; as without the plugin: ' + outcome
    t.equal('log lines', t.log_lines(), [])
    return 'as without the plugin: ' + outcome


@SCENARIOS.add('An unknown option in ``[bdm_cleanup]``')
def unknown_key(t: Trial) -> str:
    """Check that ``modes = enforce`` keeps the plugin off and logs why."""
    server = t.damaged('attachment-deleted')
    options = {'modes': 'enforce'}
    t.logs.mark()
    # No other options: the mode is the default.
    t.compute.restart(False, {plugin_mod.GROUP: options})
    _expect_refusal(t)
    t.logs.mark()
    t.reboot(server)
    outcome = expect_stock(t, server)
    t.equal('log lines', t.log_lines(), [])
    check = t.client.host('check')
    t.equal('exit code of check', check.code, 2)
    if 'modes' not in check.output + check.errors:
        raise Failed(f'the key is missing: {check}')
    t.logs.mark()
    t.compute.stop()
    t.compute.configure(
        False, {plugin_mod.GROUP: {**options, 'required': 'true'}})
    t.stack.start('nova-compute')
    processes.wait_until(lambda: not t.compute.is_running(),
                         'the end of nova-compute')
    _expect_refusal(t)
    return (f'CRITICAL line, as without the plugin: {outcome}; with '
            '``required`` nova-compute does not start')


def _expect_refusal(t: Trial) -> None:
    """Check that one CRITICAL line names key, file and nearest key."""
    lines = t.logs.lines('nova-compute', 'CRITICAL nova_bdm_cleanup')
    t.equal('CRITICAL lines', len(lines), 1)
    for words in ('modes', 'mode', re.escape(str(t.lab.nova_conf))):
        if not re.search(rf'(?<!\w){words}(?!\w)', lines[0]):
            raise Failed(f'{words} is missing: {lines[0]}')


@SCENARIOS.add('Detach and attach through Nova')
def detach_attach(t: Trial) -> str:
    """Check that operations without a hook work as before."""
    server = t.server('A', 'B')
    t.detach(server, t.volumes['B'])
    t.expect(server, 'ACTIVE', 'root A')
    t.reboot(server)
    t.attach(server, t.volumes['B'])
    t.expect(server, 'ACTIVE', 'root A B')
    t.reboot(server)
    t.expect(server, 'ACTIVE', 'root A B')
    return NOTHING_CHANGED


