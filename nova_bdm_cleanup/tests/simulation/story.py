# SPDX-License-Identifier: Apache-2.0
"""A schedule as a person reads it: who did what, and what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import contextlib
import logging
from unittest import mock

from nova_bdm_cleanup.tests.simulation import properties, search
from nova_bdm_cleanup.tests.simulation.ports import Stage
from nova_bdm_cleanup.tests.simulation.scenarios import Scenario
from nova_bdm_cleanup.tests.simulation.world import World

#: What the plugin logs about what is in order is left out.
_DULL = 'reason=healthy'


@contextlib.contextmanager
def _listening(lines: list[tuple[str, str]]) -> Iterator[None]:
    """Take what the plugin logs."""
    def take(record: logging.LogRecord) -> None:
        text = record.getMessage()
        if _DULL not in text:
            lines.append(('', f'logs: {text}'))

    with mock.patch.multiple(logging.getLogger('nova_bdm_cleanup.audit'),
                             handle=take, level=logging.DEBUG):
        logging.disable(logging.NOTSET)
        try:
            yield
        finally:
            logging.disable(logging.CRITICAL)


def tell(stage: Stage, scenario: Scenario, choices: search.Choices,
         again: str = '') -> str:
    """Play a schedule again, and tell it.

    :param again: the arguments that tell it again, if others than these
    """
    lines: list[tuple[str, str]] = []
    with _listening(lines):
        run = search.play(stage, scenario, choices,
                          lambda who, what: lines.append((who, what)))
    told = [f'scenario: {scenario.name}', f'  {scenario.words}', '']
    last = ''
    for who, what in lines:
        told.append(f'  {"" if who == last else who:28} {what}')
        last = who or last
    told += ['', *_verdict(run, stage.world), '',
             'replay: python3 -m nova_bdm_cleanup.tests.simulation '
             + (again or f'--replay {scenario.name} {written(choices)}')]
    return '\n'.join(told)


def _verdict(run: search.Run, world: World) -> Sequence[str]:
    if run.broken is None:
        return ['All properties hold.']
    return [f'broken: {run.broken}',
            f'  ({properties.PROPERTIES[run.broken.name]})', '',
            'What there is:', *_state(world)]


def _state(world: World) -> Iterator[str]:
    for volume in world.cinder.volumes.values():
        held = ', '.join(
            f'{a.id} ({a.status}) to {a.server}'
            + (f' on {a.host} by unit {a.number}' if a.host else '')
            for a in world.cinder.of_volume(volume.id))
        yield f'  volume {volume.id}: {volume.status}; {held or "nobody"}'
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


def written(choices: search.Choices) -> str:
    """Choices as the command takes them: ``12:1,30:3``."""
    return ','.join(f'{number}:{option}'
                    for number, option in sorted(choices.items())) or '-'


def read(text: str) -> search.Choices:
    """The same back.

    :raises ValueError: when it is something else
    """
    if text == '-':
        return {}
    pairs = (part.split(':') for part in text.split(','))
    return {int(number): int(option) for number, option in pairs}
