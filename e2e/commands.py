# SPDX-License-Identifier: Apache-2.0
"""The operators' commands on the real APIs, with Keystone's real tokens.

``openstack bdm`` finds what is broken, explains it, has a hard reboot clean
it and releases what is held for servers that are gone; who may not do that is
told so.  ``nova-bdm-cleanup check`` judges the compute host.
"""

from __future__ import annotations

from collections.abc import Callable
import json
from typing import Any

from e2e import client as client_mod, lab as lab_mod
from e2e.client import ADMIN, MEMBER
from e2e.scenarios import Scenario
from e2e.trial import Failed, HEALTHY, Trial

COMMANDS: list[Scenario] = []

#: The exit codes of the documentation.
OK, LOGIN_FAILED, BAD_INPUT, REFUSED = 0, 1, 2, 3
PARTLY, FINDINGS = 4, 5

#: Of ``nova-bdm-cleanup check``.
CHECK_FAILED = 2

#: The numbers of oslo.upgradecheck.
_CODES = {0: 'Success', 1: 'Warning', 2: 'Failure'}

Run = Callable[[Trial, client_mod.Client], str]


def command(title: str) -> Callable[[Run], Run]:
    """Put a function into the list under its own name."""
    def add(function: Run) -> Run:
        def run(t: Trial) -> str:
            return function(t, client_mod.Client(t.lab))

        COMMANDS.append(Scenario(function.__name__.replace('_', '-'), title,
                                 run, stock=False))
        return function
    return add


def expect(answer: client_mod.Answer, code: int,
           *words: str) -> client_mod.Answer:
    """The exit code must be this, and these words on standard error."""
    missing = [word for word in words if word not in answer.errors]
    if answer.code != code or missing:
        raise Failed(f'exit code {code} and {missing} expected: {answer}')
    return answer


def refused(answer: client_mod.Answer, *words: str) -> None:
    """Refused in one clear line, and no table that could be believed."""
    expect(answer, REFUSED, *words)
    Trial.equal('table of a refusal', answer.output.strip(), '')
    lines = answer.errors.strip().splitlines()
    if len(lines) != 1 or 'Traceback' in answer.errors:
        raise Failed(f'not one line: {answer}')


def rows(answer: client_mod.Answer, *columns: str) -> list[tuple[Any, ...]]:
    """Some columns of the table, sorted."""
    return sorted((tuple(row[column] for column in columns)
                   for row in answer.rows), key=str)


def damaged(t: Trial) -> str:
    """A server with a dangling B, and an attachment of X to it left over."""
    server = t.server('A', 'B')
    t.lose_attachment(server, 'B')
    t.volume('X')
    t.cloud.add_attachment(server, t.volumes['X'], connected=True)
    return server


def found(t: Trial) -> list[tuple[Any, ...]]:
    """What an audit must say of it."""
    return sorted([(t.volumes['B'], 'volume-available'),
                   (t.volumes['X'], 'stale-attachment')])


def cleaned(t: Trial, server: str) -> None:
    t.expect(server, 'ACTIVE', 'root A')
    for name in ('B', 'X'):
        t.expect_volume(name, 'available', on_host=False)


# -- audit and show --------------------------------------------------------


@command('``audit`` and ``show`` after an attachment was deleted, and with '
         'a stale one')
def audit_finds(t: Trial, c: client_mod.Client) -> str:
    server = damaged(t)
    healthy = t.server('Y', root='other-root')
    answer = expect(c.bdm(ADMIN, 'audit', '--all-projects'), FINDINGS)
    t.equal('rows', rows(answer, 'Volume', 'Reason'), found(t))
    t.equal('what to do', rows(answer, 'Server', 'Action'),
            [(server, f'openstack bdm clean {server}')] * 2)
    answer = expect(c.bdm(ADMIN, 'audit', '--all-projects', '--fail-on',
                          'server-gone'), OK)
    t.equal('rows', len(answer.rows), 2)
    answer = expect(c.bdm(ADMIN, 'show', server), FINDINGS)
    t.equal('rows', rows(answer, 'Volume', 'Verdict', 'Hard Reboot'), sorted([
        (t.volumes['root'], 'healthy', 'keeps it'),
        (t.volumes['A'], 'healthy', 'keeps it'),
        (t.volumes['B'], 'volume-available', 'removes the mapping'),
        (t.volumes['X'], 'stale-attachment', 'deletes the attachment')]))
    expect(c.bdm(ADMIN, 'show', healthy), OK)
    expect(c.bdm(ADMIN, 'show', 'no-such-server'), BAD_INPUT)
    t.expect(server, 'ACTIVE', 'root A B', attachments=(
        f'{HEALTHY} X:attached'))
    t.expect_no_removal()
    return 'both found with reason and what to do, exit code 5'


@command('``audit`` without Cinder, with too few requests, with a wrong '
         'password')
def audit_incomplete(t: Trial, c: client_mod.Client) -> str:
    """What was not asked is never taken for clean, nor for dangling."""
    t.server('A')
    answer = expect(c.bdm(ADMIN, 'audit', '--all-projects', '--max-requests',
                          '4'), PARTLY, 'INCOMPLETE:')
    t.equal('rows', answer.rows, [])
    t.stack.procs.stop('cinder-api')
    try:
        answer = expect(c.bdm(ADMIN, 'audit', '--all-projects'), PARTLY)
    finally:
        t.restart_cinder_api()
    t.equal('table', answer.output.strip() in ('', '[]'), True)
    expect(c.openstack(ADMIN, '--os-password', 'wrong', 'bdm', 'audit'),
           LOGIN_FAILED, '401')
    expect(c.bdm(ADMIN, 'audit', '--all-projects'), OK)
    return 'nothing concluded: exit codes 4, 4 and 1'


# -- clean -----------------------------------------------------------------

@command('``clean`` of a running server')
def clean_running(t: Trial, c: client_mod.Client) -> str:
    server = damaged(t)
    t.logs.mark()
    expect(c.bdm(ADMIN, 'clean', '--dry-run', server), FINDINGS)
    expect(c.bdm(ADMIN, 'clean', server), BAD_INPUT, '--yes')
    t.equal('reboots', t.logs.lines('nova-compute', 'Rebooting instance'), [])
    answer = expect(c.bdm(ADMIN, 'clean', '--yes', server), OK)
    t.equal('rows', rows(answer, 'Volume', 'Reason', 'Result'), sorted(
        (*one, 'removed') for one in found(t)))
    cleaned(t, server)
    t.expect_order(server, 'B')
    expect(c.bdm(ADMIN, 'clean', '--yes', server), OK)
    expect(c.bdm(ADMIN, 'audit', '--all-projects'), OK)
    return 'cleaned by one hard reboot and read back, exit code 0'


@command('``clean --plan`` of a server in ERROR')
def clean_error(t: Trial, c: client_mod.Client) -> str:
    """The reboot that failed on stock Nova comes first."""
    server = t.server('A', 'B')
    t.lose_attachment(server, 'B')
    t.cloud.delete_volume(t.volumes['B'])
    t.compute.restart(plugin=False)
    t.cloud.reboot(server)
    t.expect(server, 'ERROR', 'root A B', off=True,
             attachments=HEALTHY)
    t.compute.restart(plugin=True)
    plan = t.lab.run / 'plan.json'
    answer = expect(c.bdm(ADMIN, 'audit', '--all-projects'), FINDINGS)
    plan.write_text(answer.output)
    t.equal('rows', rows(answer, 'Volume', 'Reason'),
            [(t.volumes['B'], 'volume-missing')])
    expect(c.bdm(ADMIN, 'clean', '--yes', '--plan', str(plan)), OK)
    t.expect(server, 'ACTIVE', 'root A')
    answer = expect(c.bdm(ADMIN, 'clean', '--yes', '--plan', str(plan)), OK)
    t.equal('rows of the same plan again', rows(answer, 'Result'),
            [('skipped: it is gone already',)])
    return 'ACTIVE, mapping removed, exit code 0; the same plan again: skipped'


# -- release ---------------------------------------------------------------

def abandoned(t: Trial) -> tuple[str, str]:
    """A server deleted while Cinder could not be told, and one that is left.

    Both have the multiattach volume B.
    """
    t.volume('B', multiattach=True)
    gone = t.server('A', 'B')
    left = t.server('B', root='other-root')
    t.stack.procs.stop('cinder-api')
    try:
        t.cloud.delete_server(gone)
    finally:
        t.restart_cinder_api()
    for name in ('root', 'A', 'B'):
        t.expect_volume(name, 'in-use')
    return gone, left


@command('``release`` of the volumes of a server that was deleted while '
         'Cinder was down')
def release_gone(t: Trial, c: client_mod.Client) -> str:
    gone, left = abandoned(t)
    answer = expect(c.bdm(ADMIN, 'audit', '--all-projects'), FINDINGS)
    t.equal('rows', rows(answer, 'Server', 'Volume', 'Reason'), sorted(
        (gone, t.volumes[name], 'server-gone')
        for name in ('root', 'A', 'B')))
    volume = t.volumes['A']
    answer = expect(c.bdm(ADMIN, 'release', '--dry-run', volume), FINDINGS)
    t.equal('plan', rows(answer, 'Volume', 'Call', 'Result'),
            [(volume, 'attachment delete', 'planned')])
    t.expect_volume('A', 'in-use')
    answer = expect(c.bdm(ADMIN, 'release', '--yes', volume), OK)
    t.equal('result', rows(answer, 'Volume', 'Result'),
            [(volume, 'released: the volume is available')])
    t.expect_volume('A', 'available', on_host=False)
    t.expect_volume('root', 'in-use')
    expect(c.bdm(ADMIN, 'release', '--orphans', '--yes', '--max', '1'),
           REFUSED, '--max')
    t.expect_volume('root', 'in-use')
    expect(c.bdm(ADMIN, 'release', '--orphans', '--yes'), OK)
    t.expect_volume('root', 'available', on_host=False)
    t.expect_volume('B', 'in-use', on_host=True)
    t.expect(left, 'ACTIVE', 'other-root B')
    t.cloud.reboot(left)
    t.expect(left, 'ACTIVE', 'other-root B')
    expect(c.bdm(ADMIN, 'release', '--orphans', '--yes'), OK)
    expect(c.bdm(ADMIN, 'audit', '--all-projects'), OK)
    return ('volumes available, nothing on the host, the other server keeps '
            'the multiattach volume, exit code 0')


@command('``release`` of what is in use')
def release_healthy(t: Trial, c: client_mod.Client) -> str:
    server = t.server('A', 'B')
    attachment = t.attachment_of(server, 'A')
    for target in (t.volumes['A'], attachment):
        answer = expect(c.bdm(ADMIN, 'release', '--yes', target), REFUSED)
        t.equal('rows', rows(answer, 'Call', 'Result'), [(None, 'refused')])
    expect(c.bdm(ADMIN, 'release', '--yes', server), BAD_INPUT)
    t.expect(server, 'ACTIVE', 'root A B')
    return 'refused, nothing changed, exit code 3'


# -- a member of a project -------------------------------------------------

@command('A member of the project, without the admin role')
def member(t: Trial, c: client_mod.Client) -> str:
    """What is beyond the project is refused.

    In the project both are found, but Nova does not show a member which
    volume is the root, nor Cinder whether one is migrating: so nothing is
    called removable, and nothing is removed.
    """
    server = damaged(t)
    admin = 'admin role'
    refused(c.bdm(MEMBER, 'audit', '--all-projects'), admin)
    refused(c.bdm(MEMBER, 'audit', '--host', lab_mod.HOST), admin)
    refused(c.bdm(MEMBER, 'release', '--yes', t.volumes['X']), admin)
    refused(c.bdm(MEMBER, 'release', '--yes', '--orphans'), admin)
    answer = expect(c.bdm(MEMBER, 'audit'), FINDINGS)
    t.equal('rows', rows(answer, 'Volume', 'Reason'), sorted([
        (t.volumes['B'], 'root-volume-dangling'),
        (t.volumes['X'], 'cannot-see-project')]))
    expect(c.bdm(MEMBER, 'clean', '--yes', server), REFUSED,
           'nothing was changed')
    t.expect(server, 'ACTIVE', 'root A B', attachments=(
        f'{HEALTHY} X:attached'))
    expect(c.bdm(ADMIN, 'clean', '--yes', server), OK)
    cleaned(t, server)
    return ('everything beyond the project is refused, exit code 3; in it '
            'both are found, exit code 5, and to clean a server that boots '
            'from a volume is refused, exit code 3')


@command('A member of the project and a server that boots from an image')
def member_cleans(t: Trial, c: client_mod.Client) -> str:
    """No volume can be the root: there is nothing that is not known."""
    t.volume('A')
    t.volume('B')
    server = t.image_server()
    for name in ('A', 'B'):
        t.cloud.attach(server, t.volumes[name])
    expect(c.bdm(MEMBER, 'audit'), OK)
    t.lose_attachment(server, 'B')
    answer = expect(c.bdm(MEMBER, 'audit'), FINDINGS)
    t.equal('rows', rows(answer, 'Volume', 'Reason'),
            [(t.volumes['B'], 'volume-available')])
    expect(c.bdm(MEMBER, 'clean', '--yes', server), OK)
    t.expect_volume('B', 'available', on_host=False)
    t.equal('disks of the domain', t.observer.domain(server), ('A',))
    t.equal('disks of the guest', t.cloud.wait_guest(server, (1, 2)), (1, 2))
    expect(c.bdm(MEMBER, 'audit'), OK)
    return 'found and cleaned as by an administrator, exit codes 5 and 0'


# -- the compute host ------------------------------------------------------

@command('``nova-bdm-cleanup check`` on the compute host')
def host_check(t: Trial, c: client_mod.Client) -> str:
    answer = expect(c.host('check', '--json'), OK)
    t.equal('checks', _verdicts(answer, None), {'Success'})
    _check_fails(t, c, {'service_user': {'send_service_user_token': 'false'}},
                 'Service token', 'send_service_user_token')
    _check_fails(t, c, {'cinder': {'password': 'wrong'}}, 'Cinder', '')
    _check_fails(t, c, {'cinder': {'username': 'demo',
                                   'project_name': 'demo'}},
                 'Cinder', 'admin role')
    t.compute.configure(t.plugin)
    return ('all succeed, exit code 0; without service token, with a wrong '
            'password, without the admin role: that check fails, exit code 2')


def _check_fails(t: Trial, c: client_mod.Client,
                 options: dict[str, dict[str, str]], name: str,
                 says: str) -> None:
    t.compute.configure(t.plugin, options)
    try:
        answer = expect(c.host('check', '--json'), CHECK_FAILED)
    finally:
        t.compute.configure(t.plugin)
    t.equal(name, _verdicts(answer, name), {'Failure'})
    if says not in answer.output:
        raise Failed(f'{says!r} expected: {answer}')


def _verdicts(answer: client_mod.Answer, name: str | None) -> set[str]:
    """The results of all the checks, or of the one of that name."""
    return {_CODES[one['result']]
            for one in json.loads(answer.output)['checks']
            if name in (None, one['check'])}
