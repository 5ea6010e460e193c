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
"""What the decision alone costs: no Nova, no Cinder, one function."""

from __future__ import annotations

import datetime
import math
import time
import uuid

from benchmarks import report
from nova_bdm_cleanup import model
from nova_bdm_cleanup import rules

QUESTION = 'what does the decision cost, once everything is known?'

HEALTHY, DANGLING, STALE = 'healthy', 'dangling', 'stale'
_KINDS = (HEALTHY, DANGLING, STALE)
_NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
#: Long enough for the clock, short enough for many rounds.
_SECONDS = 0.02


def world(kind: str, size: int) -> model.Snapshot:
    """Make a server of which all disks are in one state.

    :param kind: healthy mappings; mappings whose volumes are available; or
        attachments that no mapping carries
    :param size: how many
    """
    server = model.Server(_uuid(), project='project', host='compute1')
    bdms, volumes, attachments = [], {}, []
    for number in range(size):
        attachment = model.Attachment(
            _uuid(), _uuid(), server.uuid, 'attached', connected=True)
        volume_id = attachment.volume_id
        volumes[volume_id] = model.Volume(
            volume_id, 'available' if kind == DANGLING else 'in-use',
            project='project',
            attached_to=() if kind == DANGLING else (
                model.AttachedServer(server.uuid, attachment.id, 'compute1'),
            ))
        if kind != DANGLING:
            attachments.append(attachment)
        if kind != STALE:
            bdms.append(model.Bdm(
                _uuid(), 'volume', 'volume', volume_id, attachment.id,
                # A server without a root disk would not be believed.
                boot_index=None, device_name=f'/dev/vd{number}',
                has_connection_info=True, created_at=_NOW))
    bdms.append(model.Bdm(_uuid(), 'image', 'local', boot_index=0))
    return model.Snapshot(server, tuple(bdms), volumes, tuple(attachments))


def _uuid() -> str:
    return str(uuid.uuid4())


class Case:
    """One world and how long the decision about it takes."""

    def __init__(self, kind: str, size: int) -> None:
        self._snapshot = world(kind, size)
        self._policy = model.Policy(max_removals=size, max_attachments=size)
        self._kind = kind
        self.size = size
        self._repeats = 1
        self.seconds: list[float] = []

    def calibrate(self) -> None:
        """Find out how many decisions the clock can tell apart."""
        plan = rules.decide(self._snapshot, self._policy, _NOW)
        due = 0 if self._kind == HEALTHY else self.size
        assert len(plan.due) == due, plan
        while self._time() < _SECONDS:
            self._repeats *= 2

    def measure(self) -> None:
        self.seconds.append(self._time() / self._repeats)

    def _time(self) -> float:
        begun = time.process_time()
        for _ in range(self._repeats):
            rules.decide(self._snapshot, self._policy, _NOW)
        return time.process_time() - begun

    @property
    def microseconds(self) -> report.Sample:
        return report.Sample(tuple(s * 1e6 for s in self.seconds), 'us')

    @property
    def each(self) -> report.Sample:
        return report.Sample(
            tuple(s * 1e6 / self.size for s in self.seconds), 'us')


def main() -> None:
    parser = report.arguments(QUESTION)
    parser.add_argument('--sizes', type=int, nargs='+', metavar='N',
                        default=[1, 26, 60, 1000],
                        help='how many disks the servers have')
    parser.add_argument('--rounds', type=int, default=51,
                        help='how often everything is measured')
    options = parser.parse_args()
    result = report.Report('decide', QUESTION, options.json)
    cases = {(kind, size): Case(kind, size)
             for kind in _KINDS for size in options.sizes}
    for case in cases.values():
        case.calibrate()
    for number in range(options.rounds):
        report.progress(f'round {number + 1} of {options.rounds}')
        for case in cases.values():
            case.measure()
    report.progress('')
    for kind in _KINDS:
        result.table(
            f'A server whose disks are all {kind}, us of CPU time',
            ['disks', 'decision', 'per disk'],
            [[size, cases[kind, size].microseconds, cases[kind, size].each]
             for size in options.sizes])
    if len(options.sizes) > 1:
        _judge(result, cases, min(s for s in options.sizes if s > 1),
               max(options.sizes))
    result.end()


def _judge(result: report.Report, cases: dict[tuple[str, int], Case],
           small: int, large: int) -> None:
    """Say whether the time grows with the number and not with its square."""
    for kind in _KINDS:
        times = cases[kind, large].microseconds.against(
            cases[kind, small].microseconds).median
        exponent = math.log(times) / math.log(large / small)
        result.goal(
            f'exponent of the growth from {small} to {large} disks, all '
            f'{kind}; 1 is linear, 2 is quadratic; at most 1.25',
            f'{exponent:.2f}', exponent <= 1.25)


if __name__ == '__main__':
    report.run(main)
