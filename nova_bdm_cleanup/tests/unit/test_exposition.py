# SPDX-License-Identifier: Apache-2.0
"""The text that Prometheus reads."""

from __future__ import annotations

from nova_bdm_cleanup import prometheus
from nova_bdm_cleanup.prometheus import Metric
from nova_bdm_cleanup.tests.unit import base, promtool

BOILED = Metric('eggs_boiled_total', 'counter', 'Eggs that were boiled.',
                ('size',))
WATER = Metric('water_celsius', 'gauge', 'How hot the water is.')
TIME = Metric('boiling_seconds', 'summary', 'How long eggs were boiled.',
              ('size',))

TEXT = rb"""# HELP eggs_boiled_total Eggs that were boiled.
# TYPE eggs_boiled_total counter
eggs_boiled_total{size="\"L\"\\\n"} 3.0
# HELP water_celsius How hot the water is.
# TYPE water_celsius gauge
water_celsius 99.5
# HELP boiling_seconds How long eggs were boiled.
# TYPE boiling_seconds summary
boiling_seconds_count{size="M"} 2.0
boiling_seconds_sum{size="M"} 480.0
"""


class Kitchen:

    def collect(self):
        yield BOILED.labelled({('"L"\\\n',): 3})
        yield WATER.plain(99.5)
        yield TIME.labelled({('M',): (2, 480)})


class ExpositionTest(base.TestCase):

    def test_the_text(self):
        """No series of prometheus_client's own, such as of its process."""
        self.assertEqual(TEXT, prometheus.text(Kitchen()))

    @promtool.needs_promtool
    def test_prometheus_takes_it(self):
        self.assertEqual('', promtool.problems_of_metrics(TEXT))
        self.assertIn('counter metrics should have', (
            promtool.problems_of_metrics(TEXT.replace(b'_total', b''))))

    def test_as_a_table(self):
        self.assertEqual(
            [('``eggs_boiled_total{size}``', 'counter',
              'Eggs that were boiled.'),
             ('``water_celsius``', 'gauge', 'How hot the water is.')],
            list(prometheus.Metrics((BOILED, WATER)).lines()))
