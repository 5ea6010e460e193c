# SPDX-License-Identifier: Apache-2.0
"""The scenarios: one function each, run on both back ends, with and without
the plugin.

A function builds its servers, breaks something, reboots, and checks what
must hold, for stock Nova as strictly as with the plugin: what the plugin
mends is only worth a line in the table when it is really broken without.
It returns the words for its cell of the table.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses

from e2e import api, cloud as cloud_mod, stack as stack_mod
from e2e.trial import Failed, HEALTHY, Trial


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A scenario and what the table calls it."""

    name: str
    title: str
    run: Callable[[Trial], str]
    #: Whether the outcome without the plugin is known and checked, too.
    stock: bool = True


SCENARIOS: list[Scenario] = []


def scenario(title: str, stock: bool = True) -> Callable[
        [Callable[[Trial], str]], Callable[[Trial], str]]:
    """Put a function into the list under its own name."""
    def add(function: Callable[[Trial], str]) -> Callable[[Trial], str]:
        SCENARIOS.append(Scenario(
            function.__name__.replace('_', '-'), title, function, stock))
        return function
    return add


DIES = 'reboot fails, server in ERROR'
BACK = 'disk comes back, unknown to Cinder'
CLEAN = 'reboot succeeds, mapping removed'
SAME = 'reboot succeeds, nothing changed'


@scenario('Healthy server')
def healthy(t: Trial) -> str:
    server = t.server('A', 'B')
    for _ in range(2):
        t.cloud.reboot(server)
        t.expect(server, 'ACTIVE', 'root A B')
    t.cloud.reboot(server, 'SOFT')
    t.expect(server, 'ACTIVE', 'root A B')
    t.expect_no_removal()
    return SAME


@scenario('Attachment deleted in Cinder')
def attachment_deleted(t: Trial) -> str:
    server = t.server('A', 'B')
    t.lose_attachment(server, 'B')
    t.expect_volume('B', 'available')
    t.cloud.reboot(server)
    if t.plugin:
        t.expect(server, 'ACTIVE', 'root A')
        t.expect_volume('B', 'available', on_host=False)
        t.expect_order(server, 'B')
        t.expect_audit('event=removing', 'reason=volume-available')
        t.cloud.attach(server, t.volumes['B'])
        t.expect(server, 'ACTIVE', 'root A B')
        return CLEAN + '; volume can be attached again'
    return _stock_twice(t, server)


def _back(t: Trial, server: str) -> str:
    t.expect(server, 'ACTIVE', 'root A B', attachments=HEALTHY)
    return BACK


def _dies(t: Trial, server: str) -> str:
    t.expect(server, 'ERROR', 'root A B', attachments=HEALTHY, off=True)
    return DIES


def _stock(t: Trial, server: str) -> str:
    """What Nova does where Cinder no longer exports B to the host."""
    return (_back if t.backend == 'rbd' else _dies)(t, server)


def _stock_twice(t: Trial, server: str) -> str:
    outcome = _stock(t, server)
    if outcome == BACK:
        t.expect_volume('B', 'available', on_host=True)
        return outcome
    t.cloud.reboot(server)
    return _dies(t, server) + ', every time'


@scenario('Volume deleted in Cinder')
def volume_deleted(t: Trial) -> str:
    server = t.server('A', 'B')
    t.lose_attachment(server, 'B')
    t.cloud.delete_volume(t.volumes['B'])
    for _ in range(3 if t.plugin else 2):
        t.cloud.reboot(server)
        if t.plugin:
            t.expect(server, 'ACTIVE', 'root A')
            t.expect_volume('B', 'gone', on_host=False)
        else:
            _dies(t, server)
    if not t.plugin:
        return DIES + ', every time'
    t.expect_order(server, 'B')
    t.expect_audit('event=removing', 'reason=volume-missing')
    return CLEAN + ', three times'


@scenario('Server in ERROR from an earlier stock reboot')
def error_healed(t: Trial) -> str:
    server = t.server('A', 'B')
    t.lose_attachment(server, 'B')
    t.cloud.delete_volume(t.volumes['B'])
    if t.plugin:
        t.compute.restart(plugin=False)
    t.cloud.reboot(server)
    _dies(t, server)
    if t.plugin:
        t.compute.restart(plugin=True)
    t.cloud.reboot(server)
    if not t.plugin:
        _dies(t, server)
        return 'stays in ERROR'
    t.expect(server, 'ACTIVE', 'root A')
    t.expect_volume('B', 'gone', on_host=False)
    return 'healed: ACTIVE, mapping removed'


@scenario('Stale attachment, reserved')
def stale_reserved(t: Trial) -> str:
    return _stale(t, connected=False)


@scenario('Stale attachment, connected')
def stale_connected(t: Trial) -> str:
    return _stale(t, connected=True)


def _stale(t: Trial, connected: bool) -> str:
    server = t.server('A')
    t.volume('X')
    attachment = t.cloud.add_attachment(server, t.volumes['X'], connected)
    kind = 'attached' if connected else 'reserved'
    word = 'in-use' if connected else 'reserved'
    t.expect_volume('X', word)
    t.cloud.reboot(server)
    if t.plugin:
        t.expect(server, 'ACTIVE', 'root A')
        t.expect_volume('X', 'available', on_host=False)
        t.expect_audit('event=removed', 'reason=stale-attachment',
                       f'attachment={attachment}')
        return 'attachment removed, volume available'
    t.expect(server, 'ACTIVE', 'root A',
             attachments=f'{HEALTHY} X:{kind}')
    t.expect_volume('X', word)
    return f'volume stays {word}'


@scenario('Status reset to available, attachment left')
def status_reset(t: Trial) -> str:
    server = t.server('A', 'B')
    attachment = t.attachment_of(server, 'B')
    t.cloud.reset_volume(t.volumes['B'], 'available')
    t.cloud.reboot(server)
    if t.plugin:
        t.expect(server, 'ACTIVE', 'root A')
        t.expect_volume('B', 'available', on_host=False)
        t.expect_order(server, 'B', attachment)
        return 'mapping and attachment removed together'
    t.expect(server, 'ACTIVE', 'root A B')
    t.expect_volume('B', 'available', on_host=True)
    return 'server keeps a disk that Cinder offers to others'


@scenario('Volume handed to another server, then the first rebooted')
def handed_over(t: Trial) -> str:
    first = t.server('A', 'B')
    t.lose_attachment(first, 'B')
    if t.backend == 'loop':
        # QEMU's lock on the file keeps the second server from starting
        # while the first has the disk open: it has to be off for a moment.
        t.stop(first)
    second = t.server('B', root='other-root')
    t.expect(second, 'ACTIVE', 'other-root B')
    t.cloud.reboot(first)
    t.expect(second, 'ACTIVE', 'other-root B')
    if t.plugin:
        t.expect(first, 'ACTIVE', 'root A')
        t.expect_audit('event=removing', 'reason=attached-elsewhere')
        if t.backend == 'rbd':
            t.equal('watchers of B', len(
                t.observer.on_host(t.volumes['B'])), 1)
        t.cloud.reboot(second)
        t.expect(second, 'ACTIVE', 'other-root B')
        return 'the other server alone has the disk'
    if t.backend == 'rbd':
        _back(t, first)
        t.equal('watchers of B', len(
            t.observer.on_host(t.volumes['B'])), 2)
        return '**both guests have the disk read-write**'
    return _dies(t, first)


@scenario('Root volume dangling')
def root_dangling(t: Trial) -> str:
    server = t.server('A')
    t.lose_attachment(server, 'root')
    t.cloud.reboot(server)
    if t.plugin:
        t.expect_audit('ERROR', 'reason=root-volume-dangling')
        t.expect_no_removal()
    if t.backend == 'rbd':
        t.expect(server, 'ACTIVE', 'root A', attachments='A:attached')
        outcome = 'reboot succeeds'
    else:
        t.expect(server, 'ERROR', 'root A', attachments='A:attached',
                 off=True)
        outcome = DIES
    return outcome + ('; mapping kept, ERROR in the log' if t.plugin else '')


@scenario('Multiattach volume of two guests of this host, one dangling')
def multiattach(t: Trial) -> str:
    t.volume('B', multiattach=True)
    first = t.server('A', 'B')
    second = t.server('B', root='other-root')
    t.lose_attachment(first, 'B')
    t.expect_volume('B', 'in-use')
    t.cloud.reboot(first)
    t.expect(second, 'ACTIVE', 'other-root B')
    if t.plugin:
        t.expect(first, 'ACTIVE', 'root A')
        t.expect_audit('event=removing', 'reason=attached-elsewhere')
        outcome = 'mapping removed, the other guest keeps the disk'
    else:
        outcome = _back(t, first)
    t.cloud.reboot(second)
    t.expect(second, 'ACTIVE', 'other-root B')
    t.expect_volume('B', 'in-use', on_host=True)
    return outcome


@scenario('Stopped server')
def stopped(t: Trial) -> str:
    server = t.server('A', 'B')
    t.stop(server)
    t.lose_attachment(server, 'B')
    t.cloud.reboot(server)
    if t.plugin:
        t.expect(server, 'ACTIVE', 'root A')
        t.expect_volume('B', 'available', on_host=False)
        return CLEAN
    return _stock(t, server)


@scenario('Rescued server')
def rescued(t: Trial) -> str:
    """Nova refuses a hard reboot in rescue; after it, it is as ever."""
    server = t.server('A', 'B')
    image = t.rescue_image()
    t.cloud.action(server, {'rescue': {'rescue_image_ref': image}})
    t.equal('status', t.cloud.wait_server(server), 'RESCUE')
    t.lose_attachment(server, 'B')
    t.reboot_refused(server)
    t.equal('status', t.cloud.wait_server(server), 'RESCUE')
    t.expect_no_removal()
    t.cloud.action(server, {'unrescue': None})
    t.cloud.wait_server(server)
    t.cloud.reboot(server)
    if t.plugin:
        t.expect(server, 'ACTIVE', 'root A')
        t.expect_volume('B', 'available', on_host=False)
    return 'reboot refused (409); after unrescue: ' + (
        CLEAN if t.plugin else _stock(t, server))


@scenario('Soft reboot')
def soft_reboot(t: Trial) -> str:
    """It keeps the old domain, so nothing may be removed."""
    server = t.server('A', 'B')
    t.lose_attachment(server, 'B')
    t.cloud.reboot(server, 'SOFT')
    # Where the old domain cannot be started again, Nova makes it a hard one.
    return _softly(t, server, becomes_hard=t.backend != 'rbd')


@scenario('Soft reboot of a paused guest')
def soft_reboot_paused(t: Trial) -> str:
    """Libvirt's driver makes a hard one of it, without telling Nova."""
    server = t.server('A', 'B')
    t.lose_attachment(server, 'B')
    stack_mod.virsh('suspend', server)
    t.cloud.reboot(server, 'SOFT')
    return _softly(t, server, becomes_hard=True)


def _softly(t: Trial, server: str, becomes_hard: bool) -> str:
    if t.plugin:
        t.expect_no_removal()
        t.expect_audit('WARNING', 'event=withheld', 'soft-reboot')
        t.expect(server, 'ACTIVE', 'root A B', attachments=HEALTHY,
                 inside='root A' if becomes_hard else 'root A B')
        t.cloud.reboot(server)
        t.expect(server, 'ACTIVE', 'root A')
        t.expect_volume('B', 'available', on_host=False)
        return ('reboot succeeds with%s the disk, mapping kept; a hard '
                'reboot removes it' % ('out' * becomes_hard))
    if t.backend == 'rbd':
        _back(t, server)
        return 'reboot succeeds with the disk'
    return _dies(t, server)


@scenario('Administrator of another project presses reboot')
def other_project(t: Trial) -> str:
    """Cinder shows that token none of the server's attachments."""
    server = t.server('A', 'B')
    t.cloud.reboot(server, who=api.ADMIN)
    t.expect(server, 'ACTIVE', 'root A B')
    t.expect_no_removal()
    t.lose_attachment(server, 'B')
    t.cloud.reboot(server, who=api.ADMIN)
    if t.plugin:
        t.expect(server, 'ACTIVE', 'root A')
        t.expect_volume('B', 'available', on_host=False)
        return 'healthy disks stay, the dangling one goes'
    return _stock_twice(t, server)


@scenario('Reboot resumed by nova-compute at its start')
def resumed(t: Trial) -> str:
    """nova-compute dies in a reboot and takes it up at its next start.

    It is killed where the old guest is gone and the new one not yet defined,
    with everything healthy; what dangles is broken while it is down.
    """
    server = t.server('A', 'B')
    t.stop_at('nova.virt.libvirt.driver:LibvirtDriver._get_guest_xml:before',
              'kill')
    t.cloud.press_reboot(server)
    t.wait_killed()
    t.lose_attachment(server, 'B')
    t.logs.mark()
    if t.backend == 'loop' and not t.plugin:
        # The failure of that one reboot ends the start of the service.
        t.expect_no_start('Error starting thread')
        t.stack.procs.stop('nova-compute')
        t.compute.start()
        _stock_twice(t, server)
        return ('**nova-compute does not come up**; at its second start: '
                + DIES)
    t.compute.start()
    t.cloud.wait_server(server)
    if t.plugin:
        t.expect(server, 'ACTIVE', 'root A')
        t.expect_volume('B', 'available', on_host=False)
        return CLEAN
    return _stock_twice(t, server)


@scenario('Attachments that another project made for the server',
          stock=False)
def foreign_attachments(t: Trial) -> str:
    """They neither keep a dangling disk nor are they touched."""
    server = t.server('A', 'B')
    t.lose_attachment(server, 'B')
    foreign = [t.cloud.foreign_attachment(server, number < 8)
               for number in range(12)]
    t.cloud.reboot(server)
    t.equal('mappings', t.observer.view(server).bdms, ('A', 'root'))
    t.expect_volume('B', 'available', on_host=False)
    known = {one['id'] for one in t.cloud.attachments(server)}
    t.equal('foreign attachments', sorted(known.intersection(foreign)),
            sorted(foreign))
    return 'mapping removed, the twelve of the other project left alone'


@scenario('A flood of reserved attachments of the own project', stock=False)
def flood(t: Trial) -> str:
    """It is worked off bit by bit, and keeps no mapping from its removal."""
    server = t.server('A', 'B')
    t.lose_attachment(server, 'B')
    t.volume('X', multiattach=True)
    for _ in range(60):
        t.cloud.add_attachment(server, t.volumes['X'], connected=False)
    t.cloud.reboot(server)
    t.equal('mappings', t.observer.view(server).bdms, ('A', 'root'))
    left = len(t.cloud.attachments(server)) - 2
    if not 0 < left < 60:
        raise Failed(f'{left} of 60 attachments are left')
    lines = len(t.audit_lines())
    if lines > 60:
        raise Failed(f'{lines} lines in the log')
    return f'mapping removed, {60 - left} of 60 attachments, {lines} lines'


@scenario('Installed, not enabled')
def not_enabled(t: Trial) -> str:
    server = t.server('A', 'B')
    t.lose_attachment(server, 'B')
    if t.plugin:
        t.compute.restart(plugin=False)
    t.cloud.reboot(server)
    try:
        outcome = _stock_twice(t, server)
        t.equal('audit lines', t.audit_lines(), [])
    finally:
        if t.plugin:
            t.compute.restart(plugin=True)
    return 'as without: ' + outcome if t.plugin else outcome


@scenario('Mode observe', stock=False)
def observe_mode(t: Trial) -> str:
    server = t.server('A', 'B')
    attachment = t.attachment_of(server, 'B')
    t.cloud.reset_volume(t.volumes['B'], 'available')
    t.compute.restart(plugin=True, extra={'bdm_cleanup': {'mode': 'observe'}})
    try:
        t.cloud.reboot(server)
        t.expect(server, 'ACTIVE', 'root A B')
        t.equal('attachment', t.attachment_of(server, 'B'), attachment)
        t.expect_no_removal()
        t.expect_audit('event=withheld', 'reason=volume-available',
                       'observe-mode')
    finally:
        t.compute.restart(plugin=True)
    return 'reported only, nothing changed'


@scenario('Volume marked bdm_cleanup=keep', stock=False)
def marked_keep(t: Trial) -> str:
    server = t.server('A', 'B')
    cloud_mod.cinder('POST', f'/volumes/{t.volumes["B"]}/metadata',
                     {'metadata': {'bdm_cleanup': 'keep'}})
    t.cloud.reset_volume(t.volumes['B'], 'available')
    t.cloud.reboot(server)
    t.expect(server, 'ACTIVE', 'root A B')
    t.expect_no_removal()
    return 'reported only, nothing changed'


@scenario('Detach and attach through Nova', stock=False)
def ordinary_life(t: Trial) -> str:
    """What the plugin did not touch works as before."""
    server = t.server('A', 'B')
    t.cloud.detach(server, t.volumes['B'])
    t.expect(server, 'ACTIVE', 'root A')
    t.cloud.reboot(server)
    t.cloud.attach(server, t.volumes['B'])
    t.expect(server, 'ACTIVE', 'root A B')
    t.cloud.reboot(server)
    t.expect(server, 'ACTIVE', 'root A B')
    return SAME


