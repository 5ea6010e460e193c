# SPDX-License-Identifier: Apache-2.0
"""The end of an operation, compared with its end without the plugin."""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
from typing import Any

from nova_bdm_cleanup.tests.simulation import compute_moves, properties
from nova_bdm_cleanup.tests.simulation.move_operations import Cloud
from nova_bdm_cleanup.tests.simulation.ports import Harness
from nova_bdm_cleanup.tests.simulation.scenarios import (
    DANGLING,
    Scenario,
    SERVER,
)
from nova_bdm_cleanup.tests.simulation.scheduler import Scheduler
from nova_bdm_cleanup.tests.simulation.world import World


@dataclasses.dataclass(frozen=True)
class End:
    """The state of the server and of all that belongs to it."""

    #: All but the dangling volume in Cinder, by name.
    parts: Mapping[str, Any]
    #: That volume: its status, attachments and exports.
    dangling: Any


def check(harness: Harness, scenario: Scenario, world: World) -> None:
    """Check that an operation has ended as one of the permitted ones.

    Where Cinder falls silent after the row was deleted, Cinder's records of
    the volume stay as they were.
    """
    permitted = {'without the plugin': _permitted_end(
        harness, scenario, world, compute_moves.MANAGERS[scenario.release])}
    if not world.withholds:
        permitted['with all answers'] = _permitted_end(
            harness, scenario, world,
            harness.manager(scenario.release, scenario.triggers))
    end = _end_of(world)
    if (any(end.parts == other.parts for other in permitted.values())
            and (world.is_silent or end in permitted.values())):
        return
    world.violated('ends-as-without-the-plugin', '; '.join(
        f'{name} it ends with {part} {theirs}, and not {end.parts[part]}'
        for name, other in permitted.items()
        for part, theirs in {**other.parts, DANGLING: other.dangling}.items()
        if theirs != {**end.parts, DANGLING: end.dangling}[part]))


def _permitted_end(harness: Harness, scenario: Scenario, world: World,
                   manager: type[compute_moves.Manager26]) -> End:
    """Return the end of an operation from the same initial state.

    :param manager: the class of Nova's ComputeManager
    """
    key = scenario.name, world.initial_choices, manager
    if key not in harness.permitted_ends:
        scheduler = Scheduler(
            dict(enumerate(world.initial_choices)), lambda *_: None)
        other = harness.world = World(scheduler)
        cloud = Cloud(other, manager)
        try:
            scenario.setup(cloud)
            other.may_fall_silent = False
            other.unchecked_properties = frozenset(properties.PROPERTIES)
            scheduler.run()
            harness.permitted_ends[key] = _end_of(other)
        finally:
            scheduler.close()
            harness.world = world
    found: End = harness.permitted_ends[key]
    return found


def _end_of(world: World) -> End:
    record = world.servers.get(SERVER)
    cinder = world.cinder
    volumes = {
        volume.id: (volume.status, sorted(
            (a.server, a.status, a.host or '', a.number or 0)
            for a in cinder.of_volume(volume.id)),
            [(host, number) for host, units in cinder.back_end.exports.items()
             for number, name in units.items() if name == volume.id])
        for volume in cinder.volumes.values()}
    return End({
        'server': record and (record.host, record.vm_state,
                              record.task_state, record.power_state),
        'guests': {name: (host.guests[SERVER].is_running,
                          host.guests[SERVER].disks)
                   for name, host in world.hosts.items()
                   if SERVER in host.guests},
        'devices': {name: sorted(number for number, users
                                 in host.devices.items() if users == {SERVER})
                    for name, host in world.hosts.items()},
        'rows': {row.volume_id: (
            row.device_name, row.number, row.host_of_address,
            row.attachment_id in cinder.attachments)
            for row in world.volumes_of(SERVER)},
        'allocations': dict(world.allocations),
        'migrations': [(m.source_compute, m.dest_compute, m.status)
                       for m in world.migration_records],
        'volumes': volumes}, volumes.pop(DANGLING, None))
