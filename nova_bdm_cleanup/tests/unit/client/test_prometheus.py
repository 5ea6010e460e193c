# SPDX-License-Identifier: Apache-2.0
"""The metrics file of ``openstack bdm audit --prometheus``."""

from __future__ import annotations

import os
import pathlib
import time
from typing import Any

from prometheus_client import parser

from nova_bdm_cleanup.client.cloud import metrics
from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.unit import loopback, promtool
from nova_bdm_cleanup.tests.unit.client import commandcase

Samples = dict[tuple[str, ...], float]


class PrometheusCase(commandcase.CommandCase):

    def setUp(self) -> None:
        super().setUp()
        self.path_of_metrics = pathlib.Path(self.path('bdm-audit.prom'))

    def audit(self, *arguments: str, **keywords: Any) -> int:
        return self.bdm('audit', '--prometheus', str(self.path_of_metrics),
                        *arguments, **keywords)[0]

    def samples(self, name: str) -> Samples:
        """Return the values of a metric by its label values."""
        return {tuple(dict(sorted(sample.labels.items())).values()):
                sample.value
                for family in parser.text_string_to_metric_families(
                    self.path_of_metrics.read_text(encoding='utf-8'))
                for sample in family.samples if sample.name == name}

    def findings(self) -> Samples:
        """Return the findings that are not zero."""
        found = self.samples('nova_bdm_audit_findings')
        return {labels: count for labels, count in found.items() if count}


class MetricsTest(PrometheusCase):

    def test_findings_are_counted_by_host_and_reason(self) -> None:
        begun = time.time()
        self.break_volume()
        self.cloud.lose_volume(self.other)
        self.cloud.volume('nobodys', 'in-use')
        self.assertEqual(ExitCode.FINDINGS, self.audit('--all-projects'))
        self.assertEqual({('compute1', 'volume-available'): 1,
                          ('compute1', 'volume-missing'): 1,
                          ('', 'volume-unreferenced'): 1}, self.findings())
        for name, value in (('servers', 2), ('volumes', 2),
                            ('attachments', 0)):
            self.assertEqual({(): value},
                             self.samples('nova_bdm_audit_' + name))
        self.assertEqual({(): 1}, self.samples('nova_bdm_audit_complete'))
        [ended] = self.samples(
            'nova_bdm_audit_last_success_timestamp_seconds').values()
        self.assertTrue(begun < ended < time.time())

    def test_reasons_without_findings_are_zero(self) -> None:
        self.assertEqual(ExitCode.OK, self.audit())
        every = self.samples('nova_bdm_audit_findings')
        self.assertEqual({0.0}, set(every.values()))
        self.assertIn(('', 'volume-missing'), every)
        self.assertIn(('', 'server-gone'), every)
        # As in the table, they are reported only on request.
        self.assertNotIn(('', 'operation-in-flight'), every)
        self.audit('--reason', 'stuck')
        self.assertEqual({('', 'stuck'): 0.0},
                         self.samples('nova_bdm_audit_findings'))

    def test_summed_up_findings_are_counted(self) -> None:
        volume = self.cloud.volume('flooded', 'reserved')
        for number in range(60):
            self.cloud.attachment(
                'flood-%d' % number, loopback.uid('nobody-%d' % number),
                volume, 'reserved', connected=False)
        self.audit('--all-projects')
        self.assertEqual({('', 'server-gone'): 60}, self.findings())

    def test_audit_of_one_host_has_no_size(self) -> None:
        self.audit('--host', 'compute1')
        self.assertEqual({}, self.samples('nova_bdm_audit_servers'))

    def test_unknown_host_of_an_attachment_is_no_label(self) -> None:
        """Ignore unknown hosts: a tenant can make up any number."""
        for number, host in enumerate((
                'compute1', 'no"such\nhost', 'x' * 255, '\ud800',
                'COMPUTE1')):
            volume = self.cloud.volume('volume %d' % number, 'in-use')
            self.cloud.attachment(
                'attachment %d' % number, loopback.uid('ghost'), volume,
                'attached')
            self.cloud.attachments[loopback.uid(
                'attachment %d' % number)]['host'] = host
        self.assertEqual(ExitCode.FINDINGS, self.audit('--all-projects'))
        self.assertEqual({('compute1', 'server-gone'): 2,
                          ('', 'server-gone'): 3}, self.findings())

    def test_every_metric_is_written(self) -> None:
        self.audit('--all-projects')
        for metric in map(promtool.declared, metrics.AUDIT_METRICS):
            self.assertTrue(self.samples(metric.name), metric.name)

    @promtool.needs_promtool
    def test_promtool_accepts_the_file(self) -> None:
        self.break_volume()
        self.audit('--all-projects')
        self.assertEqual('', promtool.problems_of_metrics(
            self.path_of_metrics.read_bytes()))


class FileTest(PrometheusCase):

    def test_a_failed_audit_only_says_so(self) -> None:
        """Keep the findings and the time of the last complete audit."""
        self.break_volume()
        self.audit('--all-projects')
        before = self.path_of_metrics.read_text()
        self.assertEqual(ExitCode.BAD_INPUT, self.audit('--host', 'nowhere'))
        self.assertEqual(before, self.path_of_metrics.read_text())
        failed = sorted(before.replace('_complete 1.0', '_complete 0.0')
                        .splitlines())
        self.assertEqual(ExitCode.REFUSED,
                         self.audit('--all-projects', user='member'))
        self.assertEqual(failed, sorted(
            self.path_of_metrics.read_text().splitlines()))
        for silent, arguments in ((['compute7'], ()),
                                  ([], ('--max-requests', '3'))):
            self.cloud.silent_hosts = silent
            self.path_of_metrics.write_text(before)
            self.assertEqual(ExitCode.PARTLY,
                             self.audit('--all-projects', *arguments))
            self.assertEqual(failed, sorted(
                self.path_of_metrics.read_text().splitlines()))

    def test_file_that_others_can_write_is_not_kept(self) -> None:
        self.break_volume()
        self.audit('--all-projects')
        self.assertTrue(self.findings())
        self.path_of_metrics.chmod(0o664)
        self.audit('--all-projects', user='member')
        self.assertEqual({}, self.findings())
        self.assertEqual({(): 0}, self.samples('nova_bdm_audit_complete'))

    def test_only_metrics_of_an_audit_are_kept(self) -> None:
        self.path_of_metrics.write_text('root:x:0:0\n')
        self.audit('--all-projects', user='member')
        self.assertNotIn('root', self.path_of_metrics.read_text())

    def test_pipe_is_refused(self) -> None:
        os.mkfifo(self.path_of_metrics)
        self.assertEqual(ExitCode.BAD_INPUT, self.audit())

    def test_first_audit_that_fails_writes_a_file(self) -> None:
        """Write a file, or no alert would say that none ever succeeded."""
        self.audit('--all-projects', user='member')
        self.assertEqual({(): 0}, self.samples('nova_bdm_audit_complete'))
        self.assertEqual({}, self.samples(
            'nova_bdm_audit_last_success_timestamp_seconds'))

    def test_unusable_path_is_refused_before_any_request(self) -> None:
        """Send no request, change nothing and leave no file behind."""
        directory = self.path_of_metrics.parent
        link = str(directory / 'link.prom')
        os.symlink(directory / 'target', link)
        good = {'--prometheus': str(self.path_of_metrics),
                '--report': str(directory / 'report.html')}
        for option, path, words in (
                ('--prometheus', link, 'metrics file %s: it is a symbolic '
                 'link' % link),
                ('--prometheus', '', 'metrics file : the name has to end in '
                 '.prom'),
                ('--report', link, 'report %s: it is a symbolic link' % link),
                ('--report', '', 'report : name a file')):
            code, _ = self.bdm('audit', *(
                word for pair in {**good, option: path}.items()
                for word in pair))
            self.assertEqual(ExitCode.BAD_INPUT, code)
            self.assertIn(words, self.stderr.getvalue())
        self.assertEqual(['link.prom'], os.listdir(directory))
        self.assertEqual([], self.cloud.requests)
