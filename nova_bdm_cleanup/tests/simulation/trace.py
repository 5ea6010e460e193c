# SPDX-License-Identifier: Apache-2.0
"""Trace of a schedule: its steps, and the violation that it found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import contextlib
import logging
from unittest import mock

from nova_bdm_cleanup.tests.simulation import properties, search
from nova_bdm_cleanup.tests.simulation.ports import Harness
from nova_bdm_cleanup.tests.simulation.scenarios import Scenario
from nova_bdm_cleanup.tests.simulation.world import World

#: Log lines about healthy disks are not printed.
_HEALTHY = 'reason=healthy'


@contextlib.contextmanager
def _collected_log_lines(lines: list[tuple[str, str]]) -> Iterator[None]:
    """Collect the plugin's log lines."""
    def take(record: logging.LogRecord) -> None:
        text = record.getMessage()
        if _HEALTHY not in text:
            lines.append(('', f'logs: {text}'))

    with mock.patch.multiple(logging.getLogger('nova_bdm_cleanup.audit'),
                             handle=take, level=logging.DEBUG):
        logging.disable(logging.NOTSET)
        try:
            yield
        finally:
            logging.disable(logging.CRITICAL)


def render(harness: Harness, scenario: Scenario, choices: search.Choices,
           replay_arguments: str = '') -> str:
    """Run a schedule again, and return its trace.

    :param replay_arguments: arguments that print the trace again, by default
        ``--replay``
    """
    lines: list[tuple[str, str]] = []
    with _collected_log_lines(lines):
        run = search.run_schedule(
            harness, scenario, choices,
            lambda actor, step: lines.append((actor, step)))
    text = [f'scenario: {scenario.name}', f'  {scenario.description}', '']
    last = ''
    for actor, step in lines:
        text.append(f'  {"" if actor == last else actor:28} {step}')
        last = actor or last
    text += ['', *_result_lines(run, harness.world), '',
             'replay: python3 -m nova_bdm_cleanup.tests.simulation '
             + (replay_arguments or
                f'--replay {scenario.name} {format_choices(choices)}')]
    return '\n'.join(text)


def _result_lines(run: search.Run, world: World) -> Sequence[str]:
    if run.violation is None:
        return ['All properties hold.']
    return [f'violated: {run.violation}',
            f'  ({properties.PROPERTIES[run.violation.name]})', '',
            'State:', *_state_lines(world)]


def _state_lines(world: World) -> Iterator[str]:
    for volume in world.cinder.volumes.values():
        held = ', '.join(
            f'{a.id} ({a.status}) to {a.server}'
            + (f' on {a.host} by unit {a.number}' if a.host else '')
            for a in world.cinder.of_volume(volume.id))
        yield (f'  volume {volume.id}: {volume.status}; '
               f'{held or "no attachment"}')
    for server in world.servers.values():
        guest = (world.hosts[server.host].guests.get(server.uuid)
                 if server.host else None)
        disks = ', '.join(f'{name[5:]}=unit {disk.number}' for name, disk
                          in (guest.disks if guest else {}).items())
        yield (f'  {server.uuid} on {server.host}: {server.vm_state}, task '
               f'{server.task_state}, guest '
               f'{"on" if guest and guest.is_running else "off"}'
               f' ({disks or "no disks"})')
        for row in world.volumes_of(server.uuid):
            yield (f'    row of {row.volume_id}: {row.attachment_id}, unit '
                   f'{row.number}')
    for name, host in world.hosts.items():
        units = world.cinder.back_end.exports.get(name, {})
        yield (f'  {name}: devices {sorted(host.devices)}; units '
               + ', '.join(f'{n}={v}' for n, v in sorted(units.items())))


def format_choices(choices: search.Choices) -> str:
    """Return choices in the format of ``--replay``: ``12:1,30:3``."""
    return ','.join(f'{number}:{option}'
                    for number, option in sorted(choices.items())) or '-'


def parse_choices(text: str) -> search.Choices:
    """Parse the format of ``--replay``.

    :raises ValueError: when the text has another format
    """
    if text == '-':
        return {}
    pairs = (part.split(':') for part in text.split(','))
    return {int(number): int(option) for number, option in pairs}
