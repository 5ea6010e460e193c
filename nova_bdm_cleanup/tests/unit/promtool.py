# SPDX-License-Identifier: Apache-2.0
"""The promtool of Prometheus, where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any, NamedTuple
import unittest

PROMTOOL = shutil.which('promtool')

needs_promtool = unittest.skipUnless(
    PROMTOOL, 'there is no promtool; it is in the package prometheus of '
    'Debian and Ubuntu')


def promtool(*arguments: str, given: bytes = b'', **options: Any) -> str:
    """Run promtool and return the problems that it reports, if any."""
    done = subprocess.run(
        [str(PROMTOOL), *arguments], input=given, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, check=False, timeout=120, **options)
    return done.stdout.decode() if done.returncode else ''


def problems_of_metrics(text: bytes) -> str:
    """Return what ``promtool check metrics`` reports, if anything."""
    return promtool('check', 'metrics', given=text)


class Declared(NamedTuple):
    """The declaration of a metric."""

    name: str
    kind: str
    labels: tuple[str, ...]

    @property
    def series(self) -> list[str]:
        """Return the names by which a query finds the metric."""
        return [self.name + end for end in (
            ('_count', '_sum') if self.kind == 'summary' else ('',))]


def declared(metric: Any) -> Declared:
    """Return the declaration of a metric of prometheus_client."""
    [family] = metric.describe()
    return Declared(
        family.name + ('_total' if family.type == 'counter' else ''),
        family.type,
        metric._labelnames)
