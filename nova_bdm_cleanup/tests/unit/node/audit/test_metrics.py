# SPDX-License-Identifier: Apache-2.0
"""What Prometheus reads, by its own parser and its own linter."""

from __future__ import annotations

import dataclasses

from prometheus_client import parser

from nova_bdm_cleanup import prometheus
from nova_bdm_cleanup.node.audit import metrics
from nova_bdm_cleanup.node.cleanup import triggers
from nova_bdm_cleanup.node.cleanup.tally import Tally
from nova_bdm_cleanup.node.store.findings import Round, Sighting
from nova_bdm_cleanup.node.store.processes import Process
from nova_bdm_cleanup.rules.facts import Reason
from nova_bdm_cleanup.tests.unit import base, promtool

NOON = 1_800_014_400.0

PREFIX = 'nova_bdm_cleanup_'

#: Each series with its type, and its labels beside the host.
NAMES = {
    name[len(PREFIX):]: (metric.kind, {*metric.labels} - {'host'})
    for metric in metrics.TABLE.metrics
    for name in promtool.series(metric)}


def known(reason, first, announced=True):
    return Sighting('server-1', 'bdm-1', reason, None, None, None, 'because',
                    first, announced)


class MetricsTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.tally = Tally()
        self.state = metrics.Told(
            moment=NOON, process=Process(
                'compute1', 7, NOON - 7200, '',
                {'version': '1.0', 'nova_version': '34.0.0-1',
                 'mode': 'enforce', 'triggers': 'start',
                 'audit_interval': 3600, 'max_removals_per_hour': 32}),
            known=(known('stuck', NOON - 60), known('stuck', NOON - 3600.5),
                   known('volume-missing', NOON - 5),
                   known('cross-wired', NOON - 9999, announced=False)),
            last=Round(succeeded=NOON - 900, servers=7, volumes=21,
                       requests=3, seconds=0.25, failed=2, problem='no',
                       next=NOON),
            removals_last_hour=5, counted=self.tally)

    def count(self):
        """Something of everything."""
        for trigger in (triggers.HARD_REBOOT, triggers.START):
            self.tally.removed(Reason.VOLUME_MISSING, trigger.name)
            self.tally.refused(Reason.OVER_LIMIT, trigger.name, 3)
            self.tally.looked(trigger.name, 0.5)
        self.tally.looked('start', 0.25)

    def samples(self, **changes):
        """By name without its prefix: labels and value of each sample."""
        text = prometheus.text(
            dataclasses.replace(self.state, **changes)).decode()
        found = {}
        for family in parser.text_string_to_metric_families(text):
            for sample in family.samples:
                name = sample.name[len(PREFIX):]
                self.assertEqual(PREFIX + name, sample.name)
                labels = dict(sample.labels)
                self.assertEqual('compute1', labels.pop('host'))
                found.setdefault(name, []).append(
                    (family.type, labels, sample.value))
        return found

    def value(self, name, **changes):
        [(_, labels, value)] = self.samples(**changes)[name]
        self.assertEqual({}, labels)
        return value

    def test_all_is_told_and_nothing_else(self):
        self.count()
        found = self.samples()
        self.assertEqual(
            NAMES, {name: (samples[0][0], set(samples[0][1]))
                    for name, samples in found.items()})

    def test_every_family_has_help(self):
        text = prometheus.text(self.state).decode()
        for family in parser.text_string_to_metric_families(text):
            self.assertRegex(family.documentation, r'^[A-Z].{15,}\.$')

    def test_values(self):
        self.count()
        found = self.samples()
        self.assertEqual({
            'active': 1, 'start_timestamp_seconds': NOON - 7200,
            'heartbeat_timestamp_seconds': NOON, 'removals_last_hour': 5,
            'removals_per_hour_limit': 32, 'audit_interval_seconds': 3600,
            'audit_last_success_timestamp_seconds': NOON - 900,
            'audit_duration_seconds': 0.25, 'audit_servers': 7},
            {name: samples[0][2] for name, samples in found.items()
             if not NAMES[name][1]})
        self.assertEqual(
            [({'version': '1.0', 'nova_version': '34.0.0-1',
               'mode': 'enforce', 'triggers': 'start'}, 1)],
            [sample[1:] for sample in found['info']])
        for name, value in (('removals_total', 1), ('refusals_total', 3)):
            self.assertEqual(
                [('hard_reboot', value), ('start', value)],
                [(s[1]['trigger'], s[2]) for s in found[name]])
        self.assertEqual(
            [('over-limit', 'hard_reboot'), ('over-limit', 'start')],
            [(s[1]['reason'], s[1]['trigger'])
             for s in found['refusals_total']])
        self.assertEqual(
            [({'trigger': 'hard_reboot'}, 1), ({'trigger': 'start'}, 2)],
            [s[1:] for s in found['look_duration_seconds_count']])
        self.assertEqual(
            [0.5, 0.75], [s[2] for s in found['look_duration_seconds_sum']])

    def test_findings_that_were_told(self):
        found = self.samples()
        self.assertEqual(
            [({'reason': 'stuck'}, 2), ({'reason': 'volume-missing'}, 1)],
            [s[1:] for s in found['findings']])
        self.assertEqual(
            [({'reason': 'stuck'}, NOON - 3600.5),
             ({'reason': 'volume-missing'}, NOON - 5)],
            [s[1:] for s in found['findings_oldest_timestamp_seconds']])

    def test_refused(self):
        refused = dataclasses.replace(
            self.state.process, problem='not this Nova', facts={
                'version': '1.0', 'nova_version': '34.0.0-1', 'triggers': ''})
        found = self.samples(process=refused)
        self.assertEqual(0, found['active'][0][2])
        self.assertEqual({'info', 'active', 'start_timestamp_seconds',
                          'heartbeat_timestamp_seconds'}, set(found))

    def test_before_the_first_round(self):
        found = self.samples(last=Round(), known=())
        for name in ('audit_last_success_timestamp_seconds',
                     'audit_duration_seconds', 'audit_servers', 'findings'):
            self.assertNotIn(name, found)

    @promtool.needs_promtool
    def test_promtool(self):
        self.count()
        for state in (self.state, dataclasses.replace(
                self.state, known=(), last=Round(), counted=Tally())):
            self.assertEqual('', promtool.problems_of_metrics(
                prometheus.text(state)))
