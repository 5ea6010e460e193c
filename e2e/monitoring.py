# SPDX-License-Identifier: Apache-2.0
"""What Prometheus is told, and what it makes of it.

First files with everything that there is an alert for, and then with nothing
of it.  Then nova-compute with the periodic audit and the sweep switched on,
and ``openstack bdm audit``, each with its file.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import time

from e2e import identity, lab as lab_mod, processes
from e2e.client import ADMIN
from e2e.commands import bdm, FINDINGS
from e2e.prometheus import complaints, Prometheus
from e2e.trial import Suite, Trial
from nova_bdm_cleanup import prometheus as metric_files
from nova_bdm_cleanup.cleanup.tally import Tally
from nova_bdm_cleanup.fleet.audit_metrics import AuditMetrics
from nova_bdm_cleanup.fleet.issues import Issue
from nova_bdm_cleanup.rules.facts import Reason
from nova_bdm_cleanup.store.findings import Round, Sighting
from nova_bdm_cleanup.store.processes import Process
from nova_bdm_cleanup.watch import metrics

MONITORING = Suite()

_HOUR, _DAY = 3600.0, 86400.0

#: The shortest that there is, so that a trial need not take long.
_INTERVAL = 60

#: A round is due within an interval, and a finding must be seen in two.
_PATIENCE = 4 * _INTERVAL

#: Alerts that need no more than what the files say of the past.
_AT_ONCE = {
    'BdmAuditRootDangling', 'BdmAuditStale', 'BdmAuditSwapInterrupted',
    'BdmCleanupAuditStale', 'BdmCleanupDiskDangling', 'BdmCleanupLimitHit',
    'BdmCleanupNotLookedAt', 'BdmCleanupRootDangling', 'BdmStuck'}

#: Those that wait whether it passes.
_LATER = {'BdmAuditAttachmentLeft', 'BdmAuditDiskDangling', 'BdmCleanupSilent'}


# -- files of all kinds ----------------------------------------------------

def _node(bad: bool) -> metrics.Told:
    """What nova-compute writes, in good times and in bad ones."""
    now = time.time()
    tally = Tally()
    tally.removed('volume-missing', 'sweep')
    tally.refused('timed-out', 'sweep')
    tally.looked('audit', 0.5)
    reasons = [Reason.VOLUME_MISSING, *(
        [Reason.ROOT_VOLUME_DANGLING, Reason.NOT_LOOKED_AT, Reason.STUCK]
        if bad else [])]
    return metrics.Told(
        moment=now - _HOUR * bad, process=Process(
            lab_mod.HOST, 7, now - 2 * _DAY, '', {
                'version': '0', 'nova_version': '26', 'mode': 'enforce',
                'triggers': 'hard_reboot', 'audit_interval': _HOUR,
                'max_removals_per_hour': 32}),
        known=[Sighting('server', 'mapping', str(reason), None, None, None,
                        '', now - _HOUR - _DAY * bad, announced=True)
               for reason in reasons],
        last=Round(succeeded=now - _DAY * bad, servers=12, seconds=2,
                   failed=3 * bad),
        removals_last_hour=32 if bad else 1, counted=tally)


def _cloud(bad: bool) -> AuditMetrics:
    """What ``openstack bdm audit`` writes."""
    issues = [Issue(reason, '', host=lab_mod.HOST) for reason in (
        Reason.ROOT_VOLUME_DANGLING, Reason.VOLUME_MISSING,
        Reason.STALE_ATTACHMENT, Reason.SWAP_INTERRUPTED) if bad]
    now = datetime.datetime.now(datetime.timezone.utc)
    return AuditMetrics(
        issues, [str(reason) for reason in Reason],
        frozenset((lab_mod.HOST,)), (12, 24, 24),
        now - datetime.timedelta(days=2 * bad))


def _tell(prometheus: Prometheus, bad: bool) -> None:
    _write(prometheus, 'bdm-cleanup.prom', _node(bad))
    _write(prometheus, 'bdm-audit.prom', _cloud(bad))


def _write(prometheus: Prometheus, name: str,
           collector: metrics.Told | AuditMetrics) -> None:
    metric_files.FILE.write(str(prometheus.textfiles / name),
                            metric_files.text(collector))


def _refuse(prometheus: Prometheus) -> None:
    """A nova-compute that has refused the hooks."""
    state = _node(bad=False)
    _write(prometheus, 'bdm-cleanup.prom', dataclasses.replace(
        state, process=dataclasses.replace(state.process, problem='no')))


def _empty(prometheus: Prometheus) -> set[str]:
    return {title for title, shown in prometheus.dashboard().items()
            if not shown}


@MONITORING.add('Files with everything that there is an alert for')
def shipped_alerts(t: Trial) -> str:
    """Every alert that can be had from files, and its end."""
    with Prometheus(t.lab).running() as prometheus:
        _tell(prometheus, bad=False)
        processes.wait_until(
            lambda: prometheus.query('nova_bdm_cleanup_active')
            and prometheus.query('nova_bdm_audit_servers'), 'the metrics')
        # The rules are evaluated once a second.
        time.sleep(3)
        t.equal('alerts', prometheus.alerts(), set())
        _tell(prometheus, bad=True)
        wanted = {*((name, 'firing') for name in _AT_ONCE),
                  *((name, 'pending') for name in _LATER)}
        prometheus.wait_alerts(wanted.__eq__, 'all of the alerts')
        empty = _empty(prometheus)
        _tell(prometheus, bad=False)
        prometheus.wait_alerts(lambda seen: not seen, 'the end of the alerts')
        # What is good news has nothing to show in bad times.
        t.equal('panels of the dashboard that are always empty',
                empty & _empty(prometheus), set())
        _refuse(prometheus)
        prometheus.wait_alerts({('BdmCleanupNotActive', 'pending')}.__eq__,
                               'the alert of a refusal')
    return (f'{len(_AT_ONCE)} alerts fire, {len(_LATER) + 1} are pending, all '
            'of them end; no panel of the dashboard is empty')


# -- by those who write them -----------------------------------------------

@MONITORING.add('The periodic audit, the sweep and ``openstack bdm audit '
                '--prometheus``')
def node_and_cloud(t: Trial) -> str:
    """A root that dangles fires; a disk that dangles is swept away."""
    with Prometheus(t.lab).running() as prometheus:
        path = prometheus.textfiles / 'bdm-cleanup.prom'
        t.restart(bdm_cleanup={
            'audit_interval': str(_INTERVAL), 'sweep_stopped': 'true',
            'metrics_file': str(path)})
        server = t.server('A', 'B')
        other = t.server(root='other-root')
        processes.wait_until(
            lambda: prometheus.value('nova_bdm_cleanup_active') == 1,
            'nova-compute in Prometheus')
        processes.wait_until(
            lambda: prometheus.value('nova_bdm_cleanup_audit_servers') == 2,
            'a round of the audit', _PATIENCE)
        t.equal('alerts', prometheus.alerts(), set())

        t.lose_attachment(server, 'B')
        t.lose_attachment(other, 'other-root')
        prometheus.wait_alerts(
            {('BdmCleanupRootDangling', 'firing')}.__eq__,
            'an alert', _PATIENCE)
        t.equal('findings', _by_reason(
            prometheus, 'nova_bdm_cleanup_findings'),
            {'root-volume-dangling': 1, 'volume-available': 1})
        _audit(t, prometheus)
        _sweep(t, prometheus, server)
        problems = complaints(path.read_text())
        t.equal('promtool check metrics', problems, '')
        t.expect(other, 'ACTIVE', 'other-root', attachments='')
    return ('an alert fires for the dangling root, from the node and from '
            'the audit; the disk of the stopped server is swept away and '
            'counted, and the server takes another, is resized, and starts')


def _by_reason(prometheus: Prometheus, metric: str) -> dict[str, float]:
    return {one['metric']['reason']: float(one['value'][1])
            for one in prometheus.query(f'{metric} > 0')}


def _audit(t: Trial, prometheus: Prometheus) -> None:
    path = prometheus.textfiles / 'bdm-audit.prom'
    bdm(t, FINDINGS, ADMIN, 'audit', '--all-projects', '--prometheus',
        str(path))
    prometheus.wait_alerts(
        lambda seen: ('BdmAuditRootDangling', 'firing') in seen, 'the alert')
    t.equal('findings of the audit', _by_reason(
        prometheus, 'nova_bdm_audit_findings'),
        {'root-volume-dangling': 1, 'volume-available': 1})


def _sweep(t: Trial, prometheus: Prometheus, server: str) -> None:
    t.stop(server)
    processes.wait_until(
        lambda: prometheus.value('sum(nova_bdm_cleanup_removals_total'
                                 '{trigger="sweep"})') >= 1,
        'the sweep', _PATIENCE)
    t.expect_volume('B', 'available', on_host=False)
    t.expect(server, 'SHUTOFF', 'root A', off=True)
    processes.wait_until(
        lambda: 'volume-available' not in _by_reason(
            prometheus, 'nova_bdm_cleanup_findings'),
        'the end of the finding', _PATIENCE)
    # libvirt's definition of the guest has no such disk any more, either.
    t.volume('C')
    t.attach(server, t.volumes['C'])
    t.action(server, {'resize': {'flavorRef': identity.LARGER_FLAVOR}})
    t.equal('status', t.wait_server(server), 'VERIFY_RESIZE')
    t.end_resize(server, 'confirmResize')
    t.start(server)
    t.expect(server, 'ACTIVE', 'root A C')


@MONITORING.add('``nova-bdm-cleanup status`` after a start, a SIGKILL, a '
                'start without the plugin, one with a wrong option, and '
                'another start')
def status(t: Trial) -> str:
    """Which nova-compute has the plugin: this one, none, the old one?"""
    procs = t.stack.procs
    seen = []

    def ask(state: str, code: int) -> None:
        answer = t.client.host('status', '--json')
        told = json.loads(answer.output)
        t.equal('status', (told['state'], answer.code), (state, code))
        seen.append(state)
        if state == 'active':
            t.equal('pid', told['process']['pid'], procs.pid('nova-compute'))

    t.compute.restart(True)
    ask('active', 0)
    procs.kill('nova-compute')
    ask('not-active', 1)
    t.compute.restart(False)
    ask('not-active', 1)
    t.compute.restart(True, {'bdm_cleanup': {'mode': 'all'}})
    ask('refused', 3)
    t.compute.restart(True)
    ask('active', 0)
    return ', '.join(seen)
