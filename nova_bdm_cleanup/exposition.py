# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""What Prometheus is told, in its own text format.

Each metric is declared once, for the code and for the documentation.  What
has been counted is handed over as it is (a custom collector): the counters of
prometheus_client live as long as the process, in a registry that is not ours.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Iterable, Iterator, Mapping, Protocol, Tuple, Union

from prometheus_client import core
from prometheus_client import generate_latest

_FAMILIES = {'gauge': core.GaugeMetricFamily,
             'counter': core.CounterMetricFamily,
             'summary': core.SummaryMetricFamily}

#: A number; of a summary, how many there were and their sum.
Value = Union[float, Tuple[float, float]]


@dataclasses.dataclass(frozen=True)
class Metric:
    """One metric: its name, its labels and its help are interfaces.

    :param name: as it is in the text; a counter's ends in ``_total``
    :param kind: gauge, counter or summary
    :param help: what it says, in one sentence
    """

    name: str
    kind: str
    help: str
    labels: Tuple[str, ...] = ()

    def by(self, values: Mapping[Any, Value]) -> Any:
        """Its family.

        :param values: by the values of its labels, a tuple of texts
        """
        found = _FAMILIES[self.kind](self.name, self.help, labels=self.labels)
        for labels, value in sorted(values.items()):
            found.add_metric(labels, *(
                value if isinstance(value, tuple) else (value,)))
        return found

    def of(self, value: Value) -> Any:
        """Its family, where there is no label."""
        return self.by({(): value})

    @property
    def series(self) -> Tuple[str, ...]:
        """The names by which a query finds it."""
        if self.kind == 'summary':
            return (self.name + '_count', self.name + '_sum')
        return (self.name,)


@dataclasses.dataclass(frozen=True)
class Metrics:
    """All metrics of one side, as a table of the documentation."""

    metrics: Tuple[Metric, ...]
    header: Tuple[str, ...] = ('Metric', 'Type', 'What it says')

    def lines(self) -> Iterator[Tuple[str, ...]]:
        """A row each."""
        for metric in self.metrics:
            yield ('``%s%s``' % (metric.name, '{%s}' % ','.join(metric.labels)
                                 if metric.labels else ''),
                   metric.kind, metric.help)


class Collector(Protocol):
    """What gives the families."""

    def collect(self) -> Iterable[Any]:
        """All of them, with their samples."""


def text(collector: Collector) -> bytes:
    """What a file for the textfile collector has in it."""
    # It asks a registry for nothing but what a collector has, too.
    written: bytes = generate_latest(collector)
    return written
