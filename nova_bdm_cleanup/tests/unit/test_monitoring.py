# SPDX-License-Identifier: Apache-2.0
"""The alerts and the dashboard in etc/, which query existing metrics."""

from __future__ import annotations

from collections.abc import Iterator
import json
import pathlib
import re
import subprocess
from typing import Any

import yaml

from nova_bdm_cleanup.client.cloud import metrics
from nova_bdm_cleanup.node.audit import metrics as node_metrics
from nova_bdm_cleanup.rules.reasons import DANGLING, Reason
from nova_bdm_cleanup.tests.unit import base, promtool

ROOT = pathlib.Path(__file__).resolve().parents[3]
RULES = ROOT / 'etc' / 'prometheus' / 'bdm-cleanup.rules.yaml'
RULES_TEST = RULES.with_name('bdm-cleanup.test.yaml')
DASHBOARD = ROOT / 'etc' / 'grafana' / 'bdm-cleanup.json'
GUIDE = ROOT / 'doc' / 'source' / 'guide'
RUNBOOK = ROOT / 'nova_bdm_cleanup' / 'runbook.rst'

METRICS = list(map(promtool.declared, (
    *node_metrics.NODE_METRICS, *metrics.AUDIT_METRICS)))

#: The labels that Prometheus adds.
SCRAPED = {'instance', 'job'}

#: Metrics of node_exporter itself.
THEIRS = {'node_systemd_unit_state'}

#: The base address of the runbook, which an operator replaces.
BASE = 'https://docs.example.com/nova-bdm-cleanup'


def rules() -> list[dict[str, Any]]:
    content = yaml.safe_load(RULES.read_text(encoding='utf-8'))
    return [rule for group in content['groups'] for rule in group['rules']]


def reasons(rule: dict[str, Any]) -> set[str]:
    """Return the reasons that an alert queries."""
    return {reason for found in re.findall('reason=~?"(.*?)"', rule['expr'])
            for reason in found.split('|')}


def panels() -> list[dict[str, Any]]:
    dashboard = json.loads(DASHBOARD.read_text(encoding='utf-8'))
    return [p for p in dashboard['panels'] if p['type'] != 'row']


def queries() -> Iterator[tuple[str, str]]:
    """Yield the title of each panel and its queries."""
    for panel in panels():
        for target in panel['targets']:
            yield panel['title'], target['expr'].replace(
                '$__rate_interval', '5m').replace('$host', '.*')


class NamesTest(base.TestCase):

    def assertExist(self, where: str, query: str) -> None:
        known = {name: set(metric.labels)
                 for metric in METRICS for name in metric.series}
        found = re.findall(r'\b((?:node|nova)_\w+)(?:\{(.*?)\})?', query)
        self.assertTrue(found, where)
        for name, selection in found:
            if name in THEIRS:
                continue
            self.assertIn(name, known, where)
            labels = set(re.findall(r'(\w+)\s*=', selection))
            self.assertEqual(
                set(), labels - known[name] - SCRAPED, where)
        for grouped in re.findall(r'\bby \((.*?)\)', query):
            names = set(re.split(r',\s*', grouped))
            self.assertEqual(set(), names - SCRAPED - set().union(
                *(known[name] for name, _ in found)), where)

    def test_alerts_ask_for_metrics_that_exist(self) -> None:
        for rule in rules():
            self.assertExist(rule['alert'], rule['expr'])

    def test_the_dashboard_asks_for_metrics_that_exist(self) -> None:
        for title, query in queries():
            self.assertExist(title, query)

    def test_every_metric_is_asked_for(self) -> None:
        asked = ' '.join([*(rule['expr'] for rule in rules()),
                          *(query for _, query in queries())])
        for metric in METRICS:
            for name in metric.series:
                self.assertRegex(asked, r'\b%s\b' % name)

    def test_reasons_exist(self) -> None:
        """Check that alerts and rules have the same dangling reasons."""
        known = {str(r) for r in Reason}
        for rule in rules():
            self.assertEqual(set(), reasons(rule) - known, rule['alert'])
        self.assertEqual(
            [{str(r) for r in DANGLING}] * 2,
            [reasons(r) for r in rules() if 'DiskDangling' in r['alert']])


class AlertsTest(base.TestCase):

    def test_each_says_what_and_where_and_what_to_do(self) -> None:
        for rule in rules():
            notes = rule['annotations']
            self.assertEqual({'summary', 'description', 'runbook_url'},
                             set(notes), rule['alert'])
            self.assertRegex(notes['summary'],
                             r'\$labels\.(instance|host)\b')
            self.assertIn(rule['labels']['severity'],
                          ('critical', 'warning'))

    def test_the_sections_exist(self) -> None:
        for rule in rules():
            base, _, place = rule['annotations']['runbook_url'].partition(
                '/guide/')
            self.assertEqual(BASE, base)
            page, _, anchor = place.partition('#')
            text = (RUNBOOK if page == 'runbook.html' else
                    (GUIDE / page).with_suffix('.rst')).read_text(
                encoding='utf-8')
            for name in (reasons(rule) if '{{' in anchor
                         else [anchor] if anchor else []):
                self.assertIn('\n.. _%s:\n' % name, text)

    def test_documented_command_changes_every_link(self) -> None:
        change, = re.findall(r"sed -i '(.*)'", (
            GUIDE / 'monitoring.rst').read_text(encoding='utf-8'))
        changed = subprocess.run(
            ['sed', change, str(RULES)], capture_output=True, text=True,
            check=True).stdout
        self.assertNotIn(BASE, changed)
        self.assertEqual(len(rules()), changed.count(
            'runbook_url: https://docs.cloud.internal/bdm/guide/'))

    def test_each_alert_fires_in_a_test_and_is_documented(self) -> None:
        tests = yaml.safe_load(RULES_TEST.read_text(encoding='utf-8'))
        fired = {case['alertname'] for test in tests['tests']
                 for case in test['alert_rule_test']
                 if case.get('exp_alerts')}
        documented: set[str] = set(re.findall(
            r'``(Bdm\w+)``', (GUIDE / 'monitoring.rst').read_text(
                encoding='utf-8')))
        names = {rule['alert'] for rule in rules()}
        self.assertEqual(names, fired)
        self.assertEqual(names, documented)

    @promtool.needs_promtool
    def test_promtool_tests_of_the_alerts_pass(self) -> None:
        self.assertEqual('', promtool.promtool(
            'test', 'rules', RULES_TEST.name, cwd=RULES_TEST.parent))


class DashboardTest(base.TestCase):

    @promtool.needs_promtool
    def test_prometheus_understands_every_query(self) -> None:
        path = pathlib.Path(self.tempdir()) / 'rules.yaml'
        path.write_text(yaml.safe_dump({'groups': [{
            'name': 'queries',
            'rules': [{'record': 'query:%d' % number, 'expr': query}
                      for number, (_, query) in enumerate(queries())]}]}))
        self.assertEqual('', promtool.promtool('check', 'rules', str(path)))

    def test_the_data_source_can_be_chosen(self) -> None:
        dashboard = json.loads(DASHBOARD.read_text(encoding='utf-8'))
        self.assertEqual(
            {'datasource': 'datasource', 'host': 'query'},
            {v['name']: v['type'] for v in dashboard['templating']['list']})
        self.assertIsNone(dashboard['id'])
        for panel in panels():
            for place in (panel, *panel['targets']):
                self.assertEqual('${datasource}', place['datasource']['uid'])
