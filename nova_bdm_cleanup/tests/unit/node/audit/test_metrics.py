# SPDX-License-Identifier: Apache-2.0
"""The metrics file: whole files, Prometheus's own parser and linter."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import threading
import time
from unittest import mock

import fixtures
import prometheus_client
from prometheus_client import parser

from nova_bdm_cleanup.node import options
from nova_bdm_cleanup.node.audit import metrics
from nova_bdm_cleanup.node.cleanup import log_lines, triggers
from nova_bdm_cleanup.node.option_group import GROUP
from nova_bdm_cleanup.node.store.findings import (
    FindingStore,
    RecordedFinding,
    Round,
)
from nova_bdm_cleanup.node.store.journal import (
    account_of,
    Charge,
    Journal,
    MAPPINGS,
)
from nova_bdm_cleanup.node.store.processes import Process
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.tests.unit import base, promtool

NOON = 1_800_014_400.0

PREFIX = 'nova_bdm_cleanup_'

PROCESS = Process(
    'compute1', 7, NOON - 7200, '',
    {'version': '1.0', 'nova_version': '34.0.0-1', 'mode': 'enforce',
     'triggers': 'start', 'audit_interval': 3600,
     'max_removals_per_hour': 32})

REFUSED = dataclasses.replace(
    PROCESS, problem='not this Nova', facts={
        'version': '1.0', 'nova_version': '34.0.0-1', 'triggers': ''})

LAST_ROUND = Round(
    succeeded=NOON - 900, servers=7, volumes=21, seconds=0.25, failed=2,
    problem='no', next=NOON)


def finding(reason, first, announced=True):
    return RecordedFinding('server-1', 'bdm-1', reason, None, None, None,
                           'because', first, announced)


FINDINGS = (
    finding('stuck', NOON - 60), finding('stuck', NOON - 3600.5),
    finding('volume-missing', NOON - 5),
    finding('cross-wired', NOON - 9999, announced=False))


class MetricsTestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        for metric in metrics.NODE_METRICS:
            metric.clear()
            self.addCleanup(metric.clear)
        self.counters = metrics.HostCounters('compute1')

    def count(self):
        """Count at least one of each metric."""
        for trigger in (triggers.HARD_REBOOT.name, triggers.START.name):
            self.counters.count_removal(Reason.VOLUME_MISSING, trigger)
            self.counters.count_reconnect(Reason.HALF_MOVED, trigger)
            self.counters.count_adoption(Reason.HALF_MOVED, trigger)
            self.counters.count_refusals(Reason.OVER_LIMIT, trigger, 3)
            self.counters.add_cinder_seconds(trigger, 0.5)
        self.counters.add_cinder_seconds('start', 0.25)
        self.counters.count_interrupted('shelving')

    def text(self, process=PROCESS, findings=(), last_round=None, removals=0):
        return prometheus_client.generate_latest(metrics.registry_of(
            process, findings, last_round or Round(), removals, NOON))

    def samples(self, name):
        """Return labels and value of each sample of a metric."""
        return [(sample.labels, sample.value)
                for family in parser.text_string_to_metric_families(
                    self.text().decode())
                for sample in family.samples if sample.name == PREFIX + name]


class TextTest(MetricsTestCase):
    """Whole files, unchanged since the first release."""

    def assert_same(self, name, text):
        path = pathlib.Path(__file__).with_name(name)
        self.assertEqual(path.read_text(encoding='utf-8'), text.decode())

    def test_file_of_a_new_process_is_unchanged(self):
        self.assert_same('started.prom', self.text())

    def test_file_with_findings_is_unchanged(self):
        self.count()
        self.assert_same('enforce.prom', self.text(
            findings=FINDINGS, last_round=LAST_ROUND, removals=5))

    def test_file_of_refused_start_is_unchanged(self):
        self.count()
        self.assert_same('refused.prom', self.text(process=REFUSED))

    def test_earlier_findings_and_modes_are_dropped(self):
        before = self.text()
        self.text(findings=FINDINGS, last_round=LAST_ROUND)
        self.text(process=dataclasses.replace(
            PROCESS, facts={**PROCESS.facts, 'mode': 'observe'}))
        self.assertEqual(before, self.text())

    def test_every_metric_is_there(self):
        self.count()
        text = self.text(findings=FINDINGS, last_round=LAST_ROUND).decode()
        declared = list(map(promtool.declared, metrics.NODE_METRICS))
        self.assertEqual(
            {each.name: each.kind for each in declared},
            dict(line.split()[2:] for line in text.splitlines()
                 if line.startswith('# TYPE ')))
        for family in parser.text_string_to_metric_families(text):
            self.assertRegex(family.documentation, r'^[A-Z].{15,}\.$')

    @promtool.needs_promtool
    def test_promtool_accepts_the_file(self):
        self.assertEqual('', promtool.problems_of_metrics(self.text()))
        self.count()
        text = self.text(findings=FINDINGS, last_round=LAST_ROUND)
        self.assertEqual('', promtool.problems_of_metrics(text))
        self.assertIn('counter metrics should have', (
            promtool.problems_of_metrics(text.replace(b'_total', b''))))


class CountersTest(MetricsTestCase):

    def conf(self, metrics_file):
        return mock.MagicMock(host='compute1', **{
            '__getitem__.side_effect': {
                GROUP: mock.Mock(metrics_file=metrics_file)}.__getitem__})

    def test_counters_count_only_with_a_metrics_file(self):
        self.assertIs(log_lines.Counters,
                      type(options.counters(self.conf(''))))
        counters = options.counters(self.conf('x.prom'))
        counters.count_removal(Reason.STUCK, 'start')
        self.assertEqual(
            [({'host': 'compute1', 'reason': 'stuck', 'trigger': 'start'},
              1.0)], self.samples('removals_total'))

    def test_no_count_of_a_thread_is_lost(self):
        def count():
            for _ in range(2000):
                self.counters.count_removal(Reason.STUCK, 'start')
                self.counters.add_cinder_seconds('start', 1.0)

        threads = [threading.Thread(target=count) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        [(_, removals)] = self.samples('removals_total')
        [(_, seconds)] = self.samples('look_duration_seconds_sum')
        self.assertEqual((8000, 8000), (removals, seconds))


class FileTest(MetricsTestCase):

    def setUp(self):
        super().setUp()
        self.path = os.path.join(self.tempdir(), 'bdm.prom')
        self.store = os.path.join(
            os.path.dirname(self.path), 'none', 'store')
        group = mock.Mock(metrics_file=self.path, store=self.store)
        conf = mock.MagicMock(host='compute1', **{
            '__getitem__.side_effect': {GROUP: group}.__getitem__})
        self.file = metrics.MetricsFile(conf, PROCESS)

    def test_two_threads_write_at_the_same_time(self):
        """Check that the periodic task and a round can both write."""
        stop = threading.Event()
        reason = [finding('stuck', NOON)]
        self.useFixture(fixtures.MockPatchObject(
            FindingStore, 'findings', lambda store: reason))

        def write():
            while not stop.is_set():
                self.file.write()

        self.file.write()
        threads = [threading.Thread(target=write) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(200):
            with open(self.path, encoding='utf-8') as file:
                self.assertIn('_findings{host="compute1",reason="stuck"} 1.0',
                              file.read())
        stop.set()
        for thread in threads:
            thread.join()
        self.assertEqual(['bdm.prom'],
                         os.listdir(os.path.dirname(self.path)))

    def test_removals_of_a_clock_ahead_count_for_an_hour(self):
        """Check that its removals are in the metric for an hour."""
        self.useFixture(base.NoSyncing())
        Journal(self.store, clock=lambda: time.time() + 10 ** 6).begin(
            {}, [Charge(account_of(MAPPINGS, 'one'), 5, 9)], server='s')
        self.file.write()
        with open(self.path, encoding='utf-8') as file:
            self.assertIn('removals_last_hour{host="compute1"} 5.0',
                          file.read())
        later = Journal(self.store, clock=lambda: time.time() + 3601)
        self.assertEqual(('', 0), later.most_charged(MAPPINGS))

    def test_a_problem_is_logged_once(self):
        os.mkdir(self.path)
        for _ in range(3):
            self.file.write()
        self.assertEqual(1, self.log.output.count(
            '[bdm_cleanup] metrics_file: %s: it is not a regular file'
            % self.path))
        os.rmdir(self.path)
        self.file.write()
        self.assertTrue(os.path.isfile(self.path))
