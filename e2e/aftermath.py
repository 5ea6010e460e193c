# SPDX-License-Identifier: Apache-2.0
"""States that failures of Nova leave, ended as an operator does it.

An operation fails in Cinder, or with its nova-compute.  Then the audit finds
what it has left, and exactly the commands that it prints are run, until it
finds nothing.  At the end the server runs with all disks; Nova and
Cinder agree on one attachment for each; and a hard reboot changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
import contextlib
import functools
import re

from e2e import (
    cloud,
    database,
    lab as lab_mod,
    moves,
    stack as stack_mod,
    trial as trial_mod,
)
from e2e.client import ADMIN
from e2e.commands import bdm, expect, FINDINGS, OK
from e2e.moves import ALL, DESTINATION, SOURCE
from nova_bdm_cleanup.tests.cloud import proxy as proxy_mod

#: Options that treat all of it as if it had happened long ago.
_NO_WAITING = ('--grace-period', '0', '--stuck-after', '0')

#: The requests to Cinder that fail.
_DELETE = 'DELETE', '/attachments/'
_UPDATE = 'PUT', '/attachments/'
_COMPLETE = 'POST', '/attachments/.*/action'

_DISKS = ('root', 'A', 'B')

#: The command of a host, as the audit prints it.
_ON_HOST = re.compile(r'on host (\S+): (nova-bdm-cleanup \S+ \S+)')

#: With these words Debian's client fails to show a server, once Nova has
#: accepted its evacuation.
_NOT_SHOWN = "object has no attribute 'to_dict'"

_UUID = re.compile('[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}')


class Aftermath(moves.Moves):
    """A trial in which a load balancer is between Nova and Cinder."""

    balancer: proxy_mod.Proxy

    def __init__(self, stack: stack_mod.Stack, plugin: bool) -> None:
        super().__init__(stack, plugin)
        # Nova leaves some, which the plugin does not touch.
        self.compares_allocations = False
        #: The commands that were run.
        self.commands_run: list[str] = []

    @contextlib.contextmanager
    def balanced(self) -> Iterator[None]:
        """Have the hosts ask Cinder through the load balancer."""
        self.balancer = proxy_mod.Proxy(
            f'http://127.0.0.1:{lab_mod.PORTS["cinder-api"]}')
        try:
            self.restart(cinder={'endpoint_template':
                                 f'{self.balancer.url}/v3/%(project_id)s'})
            yield
        finally:
            self.balancer.close()

    # -- failures ----------------------------------------------------------

    def refuse(self, request: tuple[str, str], nth: int = 1) -> None:
        """Have the load balancer find no cinder-api for one request.

        Nova does not repeat it.
        """
        self.balancer.on(*request, proxy_mod.status(503), nth=nth)

    def kill_after(self, request: tuple[str, str], host: str) -> None:
        """Kill the nova-compute of a host when Cinder has done what it has
        requested.
        """
        compute = self.compute_hosts[host].compute
        self.balancer.on(*request, proxy_mod.after(
            lambda: self.stack.procs.kill(compute)), nth=1)

    def wait_restarted(self, host: str) -> None:
        """Wait until the nova-compute of a host is killed, and start it."""
        self.wait_killed(self.compute_hosts[host].compute)
        self.compute.start()

    def fail_rollback(self, server: str) -> None:
        """Let a live migration fail in the hypervisor, and Cinder in its
        rollback: the attachments of the other host are not deleted.
        """
        for _ in _DISKS:
            self.refuse(_DELETE)
        self.restart_one(SOURCE, self.environment_to_stop(
            'nova.virt.libvirt.guest:Guest.migrate:before', 'fail'))
        self.run_action(server, 'os-migrateLive', host=DESTINATION,
                        block_migration='auto')

    # -- what an operator does ---------------------------------------------

    def expect_left(self, server: str, line: str, *findings: str
                    ) -> list[str]:
        """Check what a failure has left, and that the audit finds it.

        :param line: the state of the server, as of
            :meth:`e2e.moves.Moves.expect_line`
        :param findings: the findings about its disks, as ``volume:reason``
        :returns: the commands that the audit prints, each once
        """
        self.lines_seen.append(self.expect_line(server, line))
        found = bdm(self, FINDINGS, ADMIN, 'audit', '--all-projects',
                    '--long', *_NO_WAITING).rows
        self.equal('findings', sorted(
            f'{self.short_name(row["Volume"])}:{row["Reason"]}'
            for row in found if row['Volume']), sorted(findings))
        hosts = [f'on host {name}: {command}' for row in found
                 for name, command in _ON_HOST.findall(row['Explanation'])]
        return list(dict.fromkeys([
            line for row in found
            for line in row['Action'].removeprefix('look: ').split('; ')
        ] + hosts))

    def run_printed(self, server: str, line: str) -> None:
        """Run a command that the audit has printed."""
        self.commands_run.append(f'``{_UUID.sub("ID", line)}``')
        on_host = _ON_HOST.fullmatch(line)
        program, *words = (on_host[2] if on_host else line).split()
        if on_host:
            host = self.compute_hosts[on_host[1]]
            expect(host.run(program, *words, '--yes'), OK)
        elif words[0] == 'bdm':
            bdm(self, OK, ADMIN, words[1], '--yes', *words[2:])
        else:
            answer = self.client.openstack(ADMIN, *words)
            if _NOT_SHOWN not in answer.errors:
                expect(answer, OK)
            self.wait_server(server)

    # -- the end -----------------------------------------------------------

    def expect_ended(self, server: str) -> None:
        """Check that all is well, and that a hard reboot changes nothing."""
        self._expect_well(server)
        self.logs.mark()
        self.run_action(server, 'reboot', type='HARD')
        self._expect_well(server)
        self.equal('changes in a further reboot', [
            line for line in self.log_lines()
            for word in ('removed', 'reconnected', 'adopted')
            if f'event={word}' in line], [])

    def _expect_well(self, server: str) -> None:
        host = moves.host_of(self.show_server(server))
        self.expect_line(server, f'ACTIVE{moves.PLACES[host]}, {ALL}')
        named = database.mapped_attachments(server)
        for name in _DISKS:
            shown = self.show_volume(self.volumes[name]) or {}
            self.equal(f'status of {name}', shown['status'], 'in-use')
            self.equal(f'attachments of {name}', [
                (one['server_id'], one['host_name'], one['attachment_id'])
                for one in shown['attachments']],
                [(server, host, named[self.volumes[name]])])
        bdm(self, OK, ADMIN, 'audit', '--all-projects', '--thorough',
            *_NO_WAITING)
        self.last_counters = self.expect_writes(
            'root', 'A', since=self.last_counters)


Play = Callable[[Aftermath, str], None]

PLAYS: dict[str, tuple[str, Play]] = {}


def _play(title: str) -> Callable[[Play], Play]:
    """Add a function under its own name."""
    def register(play: Play) -> Play:
        PLAYS[play.__name__.replace('_', '-')] = title, play
        return play
    return register


#: The attachments of both hosts are left.
_BOTH = ', '.join((f'ACTIVE here, {ALL}', 'attachments ' + ' '.join(
    f'{name}:attached {name}:attached' for name in sorted(_DISKS))))

_OFF = 'no guest, mappings A B root, attachments'


@_play('Live migration that fails, and Cinder refuses the rollback of the '
       'disks')
def rollback_adopted(t: Aftermath, server: str) -> None:
    """Check that the plugin mends it at once."""
    t.fail_rollback(server)
    t.expect_line(server, f'ACTIVE here, {ALL}')
    for name in _DISKS:
        t.expect_log_line('event=adopted', t.volumes[name])


@_play('The same, while the plugin is off on the host')
def rollback_repaired(t: Aftermath, server: str) -> None:
    """Check that a repair mends it later, without a reboot."""
    with t.switched_off(SOURCE):
        t.fail_rollback(server)
    host = t.compute_hosts[SOURCE]
    guest = host.virsh('domid', server)
    *_, repair = t.expect_left(
        server, _BOTH, *(f'{name}:half-moved' for name in _DISKS))
    t.equal('command of the host', repair,
            f'on host {SOURCE}: nova-bdm-cleanup repair {server}')
    t.run_printed(server, repair)
    t.equal('guest', host.virsh('domid', server), guest)


@_play('Cold migration, and Cinder refuses to connect the first disk to the '
       'other host')
def migrate_refused(t: Aftermath, server: str) -> None:
    t.refuse(_UPDATE)
    t.run_action(server, 'migrate', host=DESTINATION)
    _end(t, server, f'ERROR there, {_OFF} A:reserved B:reserved root:reserved',
         *(f'{name}:reserved-only' for name in _DISKS))


@_play('Unshelve, and Cinder refuses to complete the attachment of the root '
       'disk')
def unshelve_refused(t: Aftermath, server: str) -> None:
    t.run_action(server, 'shelve')
    t.refuse(_COMPLETE)
    t.run_action(server, 'unshelve', host=DESTINATION)
    _end(t, server, f'SHELVED_OFFLOADED, {_OFF} A:reserved B:reserved',
         'root:root-volume-dangling')


@_play('Evacuation, and Cinder refuses to delete the second attachment of the '
       'old host')
def evacuate_refused(t: Aftermath, server: str) -> None:
    t.crash_source()
    t.refuse(_DELETE, 2)
    t.run_action(server, 'evacuate', host=DESTINATION)
    _end(t, server, f'ERROR here, {_OFF} A:attached A:reserved B:attached '
         'root:reserved', 'root:reserved-only', 'A:stale-attachment')
    t.compute.start()


@_play('Cold migration, SIGKILL when Cinder has connected the first disk to '
       'the other host')
def migrate_killed(t: Aftermath, server: str) -> None:
    t.kill_after(_UPDATE, DESTINATION)
    t.request(server, 'migrate', host=DESTINATION)
    t.wait_restarted(DESTINATION)
    _end(t, server, f'RESIZE there, {_OFF} A:reserved B:reserved '
         'root:attaching', 'root:half-moved', 'A:reserved-only',
         'B:reserved-only')


@_play('Attach, SIGKILL when Cinder has connected the disk')
def attach_killed(t: Aftermath, server: str) -> None:
    t.volume('C')
    t.kill_after(_UPDATE, SOURCE)
    cloud.nova('POST', f'/servers/{server}/os-volume_attachments',
               {'volumeAttachment': {'volumeId': t.volumes['C']}})
    t.wait_restarted(SOURCE)
    _end(t, server, f'ACTIVE here, {ALL}, mappings A B C root, attachments '
         'A:attached B:attached C:attaching root:attached', 'C:half-moved')
    t.expect_volume('C', 'available')


def _end(t: Aftermath, server: str, left: str, *findings: str) -> None:
    """Check what is left, and end it by the command that the audit prints."""
    for line in t.expect_left(server, left, *findings):
        if not _ON_HOST.fullmatch(line):
            t.run_printed(server, line)


def _run(play: Play, trial: trial_mod.Trial) -> str:
    assert isinstance(trial, Aftermath)
    t = trial
    with t.balanced():
        server = t.server('A', 'B')
        t.last_counters = t.expect_writes('root', 'A')
        play(t, server)
        t.expect_ended(server)
    host = moves.host_of(t.show_server(server))
    return '; then '.join([*t.lines_seen, *t.commands_run,
                           f'ACTIVE{moves.PLACES[host]}, {ALL}'])


AFTERMATH = [
    trial_mod.Scenario(name, title, functools.partial(_run, play))
    for name, (title, play) in PLAYS.items()]
