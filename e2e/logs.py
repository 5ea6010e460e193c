# SPDX-License-Identifier: Apache-2.0
"""Reading the services' logs: only what was written since a mark."""

from __future__ import annotations

import datetime
import re

from e2e import lab as lab_mod

_STAMP = re.compile(r'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d')
#: Those whose logs a failure keeps.
SERVICES = ('nova-compute', 'nova-api', 'nova-conductor', 'cinder-api',
            'cinder-volume', *(f'nova-compute-{name}'
                               for name in lab_mod.HOSTS))


class Logs:
    """The logs of one lab from now on."""

    def __init__(self, lab: lab_mod.Lab) -> None:
        self.lab = lab
        self._marks: dict[str, int] = {}
        self.mark()

    def mark(self) -> None:
        """Forget what is in the logs so far."""
        for service in SERVICES:
            path = self.lab.log_of(service)
            self._marks[service] = path.stat().st_size if path.exists() else 0

    def lines(self, service: str, *words: str) -> list[str]:
        """The new lines that contain all the words."""
        path = self.lab.log_of(service)
        if not path.exists():
            return []
        with path.open('rb') as stream:
            stream.seek(self._marks[service])
            text = stream.read().decode(errors='replace')
        return [line for line in text.splitlines()
                if all(word in line for word in words)]

    def first(self, service: str,
              *words: str) -> datetime.datetime | None:
        """When the first such line was written: the second, which is what a
        database knows, too.
        """
        for line in self.lines(service, *words):
            stamp = _STAMP.match(line)
            if stamp:
                # All services of one machine share a time zone.
                return datetime.datetime.fromisoformat(stamp.group())
        return None
