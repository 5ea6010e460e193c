# SPDX-License-Identifier: Apache-2.0
"""What Prometheus is told, and the file in which it is told.

Each metric is declared once, for the code and for the documentation.  What
has been counted is handed over as it is (a custom collector): the counters of
prometheus_client live as long as the process, in a registry that is not ours.

The file is for the textfile collector of node_exporter, which reads every file
whose name ends in ``.prom`` whenever it is asked, as a user of its own.  So
anybody may read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import dataclasses
from typing import Any, Union

from prometheus_client import core, generate_latest

from nova_bdm_cleanup import files

#: Whatever the umask says: the collector is another user.
FILE = files.Kind(0o644, '.prom', 'node_exporter')

_FAMILIES = {'gauge': core.GaugeMetricFamily,
             'counter': core.CounterMetricFamily,
             'summary': core.SummaryMetricFamily}

#: A number; of a summary, how many there were and their sum.
Value = Union[float, tuple[float, float]]


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
    labels: tuple[str, ...] = ()

    def labelled(self, values: Mapping[Any, Value]) -> Any:
        """Its family.

        :param values: by the values of its labels, a tuple of texts
        """
        found = _FAMILIES[self.kind](self.name, self.help, labels=self.labels)
        for labels, value in sorted(values.items()):
            found.add_metric(labels, *(
                value if isinstance(value, tuple) else (value,)))
        return found

    def plain(self, value: Value) -> Any:
        """Its family, where there is no label."""
        return self.labelled({(): value})


@dataclasses.dataclass(frozen=True)
class Metrics:
    """All metrics of one side, as a table of the documentation."""

    metrics: tuple[Metric, ...]
    header: tuple[str, ...] = ('Metric', 'Type', 'What it says')

    def lines(self) -> Iterator[tuple[str, ...]]:
        """A row each."""
        for metric in self.metrics:
            yield ('``%s%s``' % (metric.name, '{%s}' % ','.join(metric.labels)
                                 if metric.labels else ''),
                   metric.kind, metric.help)


def text(collector: Any) -> bytes:
    """What a file for the textfile collector has in it.

    :param collector: gives all families with their samples by ``collect()``
    """
    # It asks a registry for nothing but what a collector has, too.
    written: bytes = generate_latest(collector)
    return written
