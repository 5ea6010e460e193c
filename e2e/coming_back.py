# SPDX-License-Identifier: Apache-2.0
"""Servers that come back in another way than a reboot.

By stop and start, and when the host boots: its guests end without Nova, as
they do when it loses power, and nova-compute starts anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Optional

from e2e import faults, stack as stack_mod
from e2e.scenarios import Scenario
from e2e.trial import HEALTHY, Trial

SCENARIOS: list[Scenario] = []

_OPTIONS = {
    'DEFAULT': {'resume_guests_state_on_host_boot': 'true'},
    'bdm_cleanup': {'triggers': 'hard_reboot, start, host_boot'}}

#: Breaks volume B of a server; the other server that it makes, if it does.
Break = Callable[[Trial, str], Optional[str]]


def _volume_deleted(t: Trial, server: str) -> None:
    t.lose_attachment(server, 'B')
    t.cloud.delete_volume(t.volumes['B'])


def _status_reset(t: Trial, server: str) -> None:
    t.cloud.reset_volume(t.volumes['B'], 'available')


def _given_away(t: Trial, server: str) -> str:
    t.lose_attachment(server, 'B')
    return t.server('B', root='other-root')


def _stale(t: Trial, server: str) -> None:
    t.lose_attachment(server, 'B')
    t.volume('X')
    t.cloud.add_attachment(server, t.volumes['X'], connected=True)


#: What happens to a server, in words, and what becomes of B.
_WAYS: dict[str, tuple[str, Break, str, str]] = {
    'volume-deleted': ('its volume is deleted', _volume_deleted,
                       'volume-missing', 'gone'),
    'status-reset': ("its volume's status is reset", _status_reset,
                     'volume-available', 'available'),
    'given-away': ('its volume is handed to another server', _given_away,
                   'attached-elsewhere', 'in-use'),
    'stale-attachment': ('another attachment is left over', _stale,
                         'volume-available', 'available'),
}


def _begin(t: Trial) -> str:
    """A server, and a nova-compute that cleans up whatever comes back."""
    t.restart(**_OPTIONS)
    return t.server('A', 'B')


def _lose_power(t: Trial, *servers: str) -> None:
    """Guests end, and nova-compute does not see it."""
    t.stack.procs.stop('nova-compute')
    for server in servers:
        stack_mod.virsh('destroy', server)


def _check(t: Trial, server: str, other: str | None, reason: str,
           status: str, stale: str | None = None) -> str:
    t.expect(server, 'ACTIVE', 'root A', attachments=' '.join(filter(
        None, (HEALTHY, stale))))
    t.expect_audit('event=removing', f'reason={reason}')
    if other:
        t.expect(other, 'ACTIVE', 'other-root B')
    else:
        t.expect_volume('B', status, on_host=False)
    return 'server runs, mapping removed'


def _add_start(name: str) -> None:
    words, break_it, reason, status = _WAYS[name]

    def run(t: Trial) -> str:
        server = _begin(t)
        t.stop(server)
        other = break_it(t, server)
        t.logs.mark()
        t.start(server)
        outcome = _check(t, server, other, reason, status)
        if 'X' in t.volumes:
            t.expect_volume('X', 'available', on_host=False)
        return outcome

    SCENARIOS.append(Scenario(f'start-{name}', f'Stopped, {words}, started',
                              run, stock=False))


def _add_boot(name: str) -> None:
    words, break_it, reason, status = _WAYS[name]

    def run(t: Trial) -> str:
        server = _begin(t)
        if t.backend == 'loop' and name == 'given-away':
            # The other server has to be made while this one runs.
            return 'not played: QEMU locks the file'
        other = break_it(t, server)
        _lose_power(t, server, *filter(None, [other]))
        t.logs.mark()
        t.compute.start()
        t.cloud.wait_server(server)
        return _check(t, server, other, reason, status,
                      # It can wait until the server is rebooted.
                      'X:attached' if 'X' in t.volumes else None)

    SCENARIOS.append(Scenario(f'host-boot-{name}',
                              f'The host loses power, {words}, it boots',
                              run, stock=False))


def healthy_boot(t: Trial) -> str:
    """Guests that were killed come back with all their disks."""
    first = _begin(t)
    second = t.server('X', root='other-root')
    _lose_power(t, first, second)
    t.logs.mark()
    t.compute.start()
    t.expect(first, 'ACTIVE', 'root A B')
    t.expect(second, 'ACTIVE', 'other-root X')
    t.expect_no_removal()
    return 'both servers run, nothing changed'


def killed_boot(t: Trial) -> str:
    """nova-compute is killed while it resumes, and starts once more."""
    server = _begin(t)
    t.lose_attachment(server, 'B')
    _lose_power(t, server)
    t.stop_at(faults.PLACES['host-disconnected'], 'kill', at_start=True)
    t.wait_killed()
    t.logs.mark()
    t.compute.start()
    t.cloud.wait_server(server)
    return _check(t, server, None, 'volume-available', 'available')


for _name in _WAYS:
    _add_start(_name)
    _add_boot(_name)
SCENARIOS += [
    Scenario('host-boot-healthy', 'The host of two healthy servers boots',
             healthy_boot, stock=False),
    Scenario('host-boot-killed', 'SIGKILL while the host boots, then again',
             killed_boot, stock=False)]
