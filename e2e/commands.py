# SPDX-License-Identifier: Apache-2.0
"""The operators' commands on the real APIs, with Keystone's real tokens.

``openstack bdm`` finds and explains damage, cleans it up by a hard reboot and
releases volumes of deleted servers; it refuses users without permission in a
clear line.  ``nova-bdm-cleanup check`` judges the compute host.
"""

from __future__ import annotations

import json
from typing import Any

from e2e import client as client_mod, lab as lab_mod
from e2e.client import ADMIN, MEMBER
from e2e.trial import Failed, HEALTHY, Suite, Trial

COMMANDS = Suite()

#: The documented exit codes.
OK, LOGIN_FAILED, BAD_INPUT, REFUSED = 0, 1, 2, 3
PARTLY, FINDINGS = 4, 5

#: The exit code of ``nova-bdm-cleanup check`` for a failure.
CHECK_FAILED = 2

#: The result codes of oslo.upgradecheck.
_CODES = {0: 'Success', 1: 'Warning', 2: 'Failure'}


def expect(answer: client_mod.Answer, code: int,
           says: str = '') -> client_mod.Answer:
    """Check the exit code and the text on standard error."""
    if answer.code != code or says not in answer.errors:
        raise Failed(f'exit code {code} and {says!r} expected: {answer}')
    return answer


def bdm(t: Trial, code: int, who: str, *words: str,
        says: str = '') -> client_mod.Answer:
    """Run ``openstack bdm`` and check its exit code."""
    return expect(t.client.bdm(who, *words), code, says)


def expect_refused(t: Trial, *words: str) -> None:
    """Check that a member is refused in one clear line, without a table that
    could be believed.
    """
    answer = bdm(t, REFUSED, MEMBER, *words, says='admin role')
    t.equal('output of a refused command', answer.output.strip(), '')
    lines = answer.errors.strip().splitlines()
    if len(lines) != 1 or 'Traceback' in answer.errors:
        raise Failed(f'the error is not one line: {answer}')


def rows(answer: client_mod.Answer, *columns: str) -> list[tuple[Any, ...]]:
    """Return some columns of the table, sorted."""
    return sorted((tuple(row[column] for column in columns)
                   for row in answer.rows), key=str)


def damaged(t: Trial) -> str:
    """Boot a server; make B dangle and leave another attachment over."""
    return t.damaged('attachment-deleted', 'stale-attachment')


def expected_findings(t: Trial) -> list[tuple[Any, ...]]:
    """Return the findings that an audit must report for it."""
    return sorted([(t.volumes['B'], 'volume-available'),
                   (t.volumes['left-over'], 'stale-attachment')])


# -- audit and show --------------------------------------------------------


@COMMANDS.add('``audit`` and ``show`` with a deleted attachment and a stale '
              'one')
def audit_finds(t: Trial) -> str:
    server = damaged(t)
    healthy = t.server('C', root='other-root')
    answer = bdm(t, FINDINGS, ADMIN, 'audit', '--all-projects')
    t.equal('rows', rows(answer, 'Volume', 'Reason'), expected_findings(t))
    t.equal('actions', rows(answer, 'Server', 'Action'),
            [(server, f'openstack bdm clean {server}')] * 2)
    answer = bdm(t, OK, ADMIN, 'audit', '--all-projects', '--fail-on',
                 'server-gone')
    t.equal('rows', len(answer.rows), 2)
    answer = bdm(t, FINDINGS, ADMIN, 'show', server)
    t.equal('rows', rows(answer, 'Volume', 'Verdict', 'Hard Reboot'), sorted([
        (t.volumes['root'], 'healthy', 'keeps it'),
        (t.volumes['A'], 'healthy', 'keeps it'),
        (t.volumes['B'], 'volume-available', 'removes the mapping'),
        (t.volumes['left-over'], 'stale-attachment',
         'deletes the attachment')]))
    bdm(t, OK, ADMIN, 'show', healthy)
    bdm(t, BAD_INPUT, ADMIN, 'show', 'no-such-server')
    t.expect(server, 'ACTIVE', 'root A B', attachments=(
        f'{HEALTHY} left-over:attached'))
    t.expect_no_removal()
    return 'both are found, with reason and action, exit code 5'


@COMMANDS.add('``audit`` with too few requests, without Cinder, with a wrong '
              'password; ``clean`` and ``release`` without Cinder')
def audit_incomplete(t: Trial) -> str:
    """Check that unread state counts neither as clean nor as dangling."""
    server = t.server('A')
    answer = bdm(t, PARTLY, ADMIN, 'audit', '--all-projects',
                 '--max-requests', '4', says='INCOMPLETE:')
    t.equal('rows', answer.rows, [])
    with t.without_cinder():
        answer = bdm(t, PARTLY, ADMIN, 'audit', '--all-projects')
        for words in (('clean', server), ('release', t.volumes['A'])):
            bdm(t, REFUSED, ADMIN, *words, '--yes',
                says='nothing was changed')
    t.equal('table', answer.output.strip() in ('', '[]'), True)
    expect(t.client.openstack(ADMIN, '--os-password', 'wrong', 'bdm', 'audit'),
           LOGIN_FAILED, '401')
    bdm(t, OK, ADMIN, 'audit', '--all-projects')
    return 'nothing is concluded or changed, exit codes 4, 4, 1; 3 and 3'


# -- clean -----------------------------------------------------------------

@COMMANDS.add('``clean`` of a running server')
def clean_running(t: Trial) -> str:
    server = damaged(t)
    t.logs.mark()
    bdm(t, FINDINGS, ADMIN, 'clean', '--dry-run', server)
    bdm(t, BAD_INPUT, ADMIN, 'clean', server, says='--yes')
    t.equal('reboots', t.logs.lines('nova-compute', 'Rebooting instance'), [])
    answer = bdm(t, OK, ADMIN, 'clean', '--yes', server)
    t.equal('rows', rows(answer, 'Volume', 'Reason', 'Result'), sorted(
        (*one, 'removed') for one in expected_findings(t)))
    t.expect_clean(server)
    t.expect_order(server, 'B')
    bdm(t, OK, ADMIN, 'clean', '--yes', server)
    bdm(t, OK, ADMIN, 'audit', '--all-projects')
    return 'one hard reboot removes both, exit code 0'


@COMMANDS.add('``clean --plan`` of a server in ERROR')
def clean_error(t: Trial) -> str:
    """Clean a server after its reboot failed on stock Nova."""
    server = t.damaged_in_error()
    plan = t.lab.run / 'plan.json'
    answer = bdm(t, FINDINGS, ADMIN, 'audit', '--all-projects')
    plan.write_text(answer.output)
    t.equal('rows', rows(answer, 'Volume', 'Reason'),
            [(t.volumes['B'], 'volume-missing'), (None, 'server-in-error')])
    bdm(t, OK, ADMIN, 'clean', '--yes', '--plan', str(plan))
    t.expect(server, 'ACTIVE', 'root A')
    answer = bdm(t, OK, ADMIN, 'clean', '--yes', '--plan', str(plan))
    t.equal('rows of the second run', rows(answer, 'Result'),
            [('skipped: it no longer exists',)] * 2)
    return 'ACTIVE, mapping removed, exit code 0; a second run skips it'


@COMMANDS.add('``clean`` while the plugin only observes, then while it '
              'enforces')
def clean_observed(t: Trial) -> str:
    """Check that nothing is called removed that the plugin left alone."""
    t.restart(bdm_cleanup={'mode': 'observe'})
    server = t.damaged('volume-deleted')
    bdm(t, REFUSED, ADMIN, 'clean', '--yes', server)
    answer = bdm(t, PARTLY, ADMIN, 'clean', '--yes', '--without-plugin',
                 server)
    (volume, result), = rows(answer, 'Volume', 'Result')
    t.equal('volume', volume, t.volumes['B'])
    for words in ('failed: it is still there (volume-missing)',
                  'the plugin recorded nothing', 'the server is ERROR now',
                  f'host {lab_mod.HOST}, request req-'):
        if words not in result:
            raise Failed(f'{words!r} expected: {answer}')
    t.restart()
    bdm(t, OK, ADMIN, 'clean', '--yes', server)
    t.expect(server, 'ACTIVE', 'root A')
    return ('refused, exit code 3; with ``--without-plugin`` failed, the '
            'server is in ERROR as on stock Nova, exit code 4; then ACTIVE, '
            'mapping removed, exit code 0')


# -- release ---------------------------------------------------------------

def deleted_without_cinder(t: Trial) -> tuple[str, str]:
    """Delete one of two servers while Cinder is down; return both.

    Both have the multiattach volume B.
    """
    t.volume('B', multiattach=True)
    gone = t.server('A', 'B')
    left = t.server('B', root='other-root')
    with t.without_cinder():
        t.delete_server(gone)
    for name in ('root', 'A', 'B'):
        t.expect_volume(name, 'in-use')
    return gone, left


@COMMANDS.add('``release`` of the volumes of a server that was deleted while '
              'Cinder was down')
def release_gone(t: Trial) -> str:
    gone, left = deleted_without_cinder(t)
    answer = bdm(t, FINDINGS, ADMIN, 'audit', '--all-projects')
    t.equal('rows', rows(answer, 'Server', 'Volume', 'Reason'), sorted(
        (gone, t.volumes[name], 'server-gone')
        for name in ('root', 'A', 'B')))
    volume = t.volumes['A']
    answer = bdm(t, FINDINGS, ADMIN, 'release', '--dry-run', volume)
    t.equal('plan', rows(answer, 'Volume', 'Call', 'Result'),
            [(volume, 'attachment delete', 'planned')])
    t.expect_volume('A', 'in-use')
    answer = bdm(t, OK, ADMIN, 'release', '--yes', volume)
    t.equal('result', rows(answer, 'Volume', 'Result'),
            [(volume, 'released: the volume is available')])
    t.expect_volume('A', 'available', on_host=False)
    t.expect_volume('root', 'in-use')
    bdm(t, REFUSED, ADMIN, 'release', '--orphans', '--yes', '--max', '1',
        says='--max')
    t.expect_volume('root', 'in-use')
    bdm(t, OK, ADMIN, 'release', '--orphans', '--yes')
    t.expect_volume('root', 'available', on_host=False)
    t.expect_volume('B', 'in-use', on_host=True)
    t.expect(left, 'ACTIVE', 'other-root B')
    t.reboot(left)
    t.expect(left, 'ACTIVE', 'other-root B')
    bdm(t, OK, ADMIN, 'release', '--orphans', '--yes')
    bdm(t, OK, ADMIN, 'audit', '--all-projects')
    return ('the volumes are available and disconnected, the other server '
            'keeps the multiattach volume, exit code 0')


@COMMANDS.add('``release`` of a volume and an attachment in use')
def release_healthy(t: Trial) -> str:
    server = t.server('A', 'B')
    attachment = t.attachment_of(server, 'A')
    for target in (t.volumes['A'], attachment):
        answer = bdm(t, REFUSED, ADMIN, 'release', '--yes', target)
        t.equal('rows', rows(answer, 'Call', 'Result'), [(None, 'refused')])
    bdm(t, BAD_INPUT, ADMIN, 'release', '--yes', server)
    t.expect(server, 'ACTIVE', 'root A B')
    return 'refused, nothing changed, exit code 3'


# -- a project member -----------------------------------------------------

@COMMANDS.add('A project member without the admin role')
def member(t: Trial) -> str:
    """Check that a member may read the own project only.

    Both findings of the project are shown. But Nova does not show a member
    which volume is the root, and Cinder not whether a volume is migrating:
    so an administrator has to look, and nothing is removed.
    """
    server = damaged(t)
    expect_refused(t, 'audit', '--all-projects')
    expect_refused(t, 'audit', '--host', lab_mod.HOST)
    expect_refused(t, 'release', '--yes', t.volumes['left-over'])
    expect_refused(t, 'release', '--yes', '--orphans')
    answer = bdm(t, FINDINGS, MEMBER, 'audit')
    t.equal('rows', rows(answer, 'Volume', 'Reason', 'Remedy'), sorted([
        (t.volumes['B'], 'volume-available', 'look'),
        (t.volumes['left-over'], 'cannot-see-project', 'look')]))
    answer = bdm(t, REFUSED, MEMBER, 'clean', '--yes', server,
                 says='nothing was changed')
    if 'whether it is the root disk' not in answer.output:
        raise Failed(f'the reason is missing: {answer}')
    t.expect(server, 'ACTIVE', 'root A B', attachments=(
        f'{HEALTHY} left-over:attached'))
    bdm(t, OK, ADMIN, 'clean', '--yes', server)
    t.expect_clean(server)
    return ('``audit`` of other projects and ``release`` are refused, exit '
            'code 3; both findings of the project are shown, exit code 5; '
            '``clean`` of a server that boots from a volume is refused, exit '
            'code 3')


@COMMANDS.add('A project member and a server that boots from an image')
def member_cleans(t: Trial) -> str:
    """Check that a member may clean where no volume can be the root."""
    t.volume('A')
    t.volume('B')
    server = t.image_server()
    for name in ('A', 'B'):
        t.attach(server, t.volumes[name])
    bdm(t, OK, MEMBER, 'audit')
    t.lose_attachment(server, 'B')
    answer = bdm(t, FINDINGS, MEMBER, 'audit')
    t.equal('rows', rows(answer, 'Volume', 'Reason'),
            [(t.volumes['B'], 'volume-available')])
    bdm(t, OK, MEMBER, 'clean', '--yes', server)
    t.expect_volume('B', 'available', on_host=False)
    t.equal('disks of the domain', t.domain(server), ('A',))
    t.equal('disks of the guest', t.wait_guest(server, (1, 2)), (1, 2))
    bdm(t, OK, MEMBER, 'audit')
    return 'found and removed as for an administrator, exit codes 5 and 0'


# -- the compute host ------------------------------------------------------

@COMMANDS.add('``nova-bdm-cleanup check`` on the compute host')
def host_check(t: Trial) -> str:
    answer = expect(t.client.host('check', '--json'), OK)
    t.equal('checks', _check_results(answer, None), {'Success'})
    _expect_failed_check(
        t, {'service_user': {'send_service_user_token': 'false'}},
        'Service token', 'send_service_user_token')
    _expect_failed_check(t, {'cinder': {'password': 'wrong'}}, 'Cinder', '')
    _expect_failed_check(
        t, {'cinder': {'username': 'demo', 'project_name': 'demo'}},
        'Cinder', 'admin role')
    return ('all checks succeed, exit code 0; without service token, with a '
            'wrong password, without the admin role one fails, exit code 2')


@COMMANDS.add('``nova-bdm-cleanup status`` after a start, a SIGKILL, a start '
              'with ``mode = off``, one with a wrong value, and a usual one')
def status(t: Trial) -> str:
    """Check that only a running nova-compute with the plugin is active."""
    procs = t.stack.procs
    seen = []

    def ask(state: str, code: int) -> Any:
        answer = t.client.host('status', '--json')
        shown = json.loads(answer.output)
        t.equal('status', (shown['state'], answer.code), (state, code))
        seen.append(state)
        return shown

    def restart(**options: str) -> None:
        t.restart(bdm_cleanup=options)

    restart()
    t.equal('pid', ask('active', 0)['process']['pid'],
            procs.pid('nova-compute'))
    procs.kill('nova-compute')
    ask('not-active', 1)
    restart(mode='off')
    ask('not-active', 1)
    restart(mode='obsrve')
    why = ask('refused', 3)['why']
    for words in ('obsrve', str(t.lab.nova_conf)):
        if words not in why:
            raise Failed(f'{words!r} is missing: {why}')
    restart()
    ask('active', 0)
    return ', '.join(seen)


def _expect_failed_check(t: Trial, options: dict[str, dict[str, str]],
                         name: str, says: str) -> None:
    t.compute.configure(t.plugin, options)
    answer = expect(t.client.host('check', '--json'), CHECK_FAILED)
    t.equal(name, _check_results(answer, name), {'Failure'})
    if says not in answer.output:
        raise Failed(f'{says!r} expected: {answer}')


def _check_results(answer: client_mod.Answer, name: str | None) -> set[str]:
    """Return the results of all checks, or of the one with that name."""
    return {_CODES[one['result']]
            for one in json.loads(answer.output)['checks']
            if name in (None, one['check'])}
