# SPDX-License-Identifier: Apache-2.0
"""The services' logs, read only from a mark on."""

from __future__ import annotations

import datetime
import re

from e2e import lab as lab_mod

_TIMESTAMP = re.compile(r'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d')
#: The services whose logs are kept after a failure.
SERVICES = ('nova-compute', 'nova-api', 'nova-conductor', 'cinder-api',
            'cinder-volume', *(f'nova-compute-{name}'
                               for name in lab_mod.HOSTS))


class Logs:
    """The logs of one lab from a mark on."""

    def __init__(self, lab: lab_mod.Lab) -> None:
        self.lab = lab
        self._marks: dict[str, int] = {}
        self.mark()

    def mark(self) -> None:
        """Ignore the lines in the logs so far."""
        for service in SERVICES:
            path = self.lab.log_of(service)
            self._marks[service] = path.stat().st_size if path.exists() else 0

    def lines(self, service: str, *words: str) -> list[str]:
        """Return the new lines that contain all the words."""
        path = self.lab.log_of(service)
        if not path.exists():
            return []
        with path.open('rb') as stream:
            stream.seek(self._marks[service])
            text = stream.read().decode(errors='replace')
        return [line for line in text.splitlines()
                if all(word in line for word in words)]

    def first_time(self, service: str,
                   *words: str) -> datetime.datetime | None:
        """Return the time of the first such line, to the second as in a
        database.
        """
        for line in self.lines(service, *words):
            stamp = _TIMESTAMP.match(line)
            if stamp:
                # All services of one machine share a time zone.
                return datetime.datetime.fromisoformat(stamp.group())
        return None
