# SPDX-License-Identifier: Apache-2.0
"""The embedded cloud, set up as one would for measuring."""

from __future__ import annotations

# First: its import of Nova decides whether this process may use eventlet.
from nova_bdm_cleanup.tests.cloud import fixture  # isort: skip

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import json
import logging
import time
from typing import Any, NamedTuple

from nova import objects
from nova.compute import manager
from oslo_utils import uuidutils
from sqlalchemy import engine, event

from benchmarks import report
from nova_bdm_cleanup.tests.cloud.server import Disk, Server

CLEANUP = '_delete_dangling_bdms'
#: Nova's own, before the plugin takes its place.
BUILT_IN: Callable[..., None] = vars(manager.ComputeManager)[CLEANUP]


def current() -> Callable[..., None]:
    """Return the function that nova-compute calls as its cleanup now."""
    function: Callable[..., None] = vars(manager.ComputeManager)[CLEANUP]
    return function


@contextlib.contextmanager
def running(nova_options: Mapping[str, Mapping[str, Any]] | None = None,
            hosts: Sequence[str] = ('compute1',),
            **plugin_options: Any) -> Iterator[fixture.Cloud]:
    """Run a cloud with the plugin, which logs as in production."""
    report.progress('starting Nova and Cinder')
    # Nova's log goes to its file.
    logging.root.handlers[:] = [logging.NullHandler()]
    logging.disable(logging.NOTSET)
    with fixture.Cloud(plugin=True, plugin_options=plugin_options,
                       hosts=hosts, nova_options=nova_options) as cloud:
        # Nova's harness formats every debug message to see that it can be.
        # The clients alone make dozens of each request.
        logging.getLogger().setLevel(logging.INFO)
        yield cloud
        report.progress('')


def server(cloud: fixture.Cloud, volumes: int) -> Server:
    """Make a server with an image-backed root disk and volumes."""
    report.progress(f'making a server with {volumes} volumes')
    return cloud.server(*[Disk()] * volumes)


@contextlib.contextmanager
def neighbours(cloud: fixture.Cloud, server: Server, number: int,
               volumes: int) -> Iterator[None]:
    """Have Nova know other servers on the host of a server meanwhile.

    :param number: how many servers
    :param volumes: how many volumes each of them has
    """
    context = cloud.nova.context()
    made = []
    for _ in range(number):
        instance = objects.Instance(
            context, uuid=uuidutils.generate_uuid(), host=server.host,
            project_id='other', user_id='other', vm_state='active')
        instance.create()
        made.append(instance)
        for _ in range(volumes):
            volume = uuidutils.generate_uuid()
            objects.BlockDeviceMapping(
                context, instance_uuid=instance.uuid, source_type='volume',
                destination_type='volume', volume_id=volume,
                attachment_id=uuidutils.generate_uuid(),
                connection_info=json.dumps({
                    'driver_volume_type': 'iscsi', 'data': {
                        'target_iqn': 'iqn.2010-10.org.openstack:' + volume,
                        'target_portal': '192.0.2.1:3260', 'target_lun': 1,
                        'volume_id': volume}})).create()
    try:
        yield
    finally:
        for instance in made:
            instance.destroy()


class Taken(NamedTuple):
    """What a cleanup took, in seconds."""

    time: float
    #: Of the processor, by Cinder.  It is the same on a busy machine.
    cinder: float
    #: The SQL statements of Nova meanwhile.
    statements: int


@contextlib.contextmanager
def cleanup(cloud: fixture.Cloud,
            function: Callable[..., None]) -> Iterator[list[Taken]]:
    """Have nova-compute call this as its cleanup.

    :returns: a list that gets what each call takes
    """
    # The clock that clock_getcpuclockid(3) gives for the process.
    clock = (~cloud.cinder.pid << 3) | 2
    taken: list[Taken] = []

    def timed(*arguments: Any) -> None:
        before = time.clock_gettime(clock)
        with statements() as executed:
            begun = time.perf_counter()
            try:
                function(*arguments)
            finally:
                ended = time.perf_counter()
                taken.append(Taken(ended - begun,
                                   time.clock_gettime(clock) - before,
                                   len(executed)))

    before = current()
    setattr(manager.ComputeManager, CLEANUP, timed)
    try:
        yield taken
    finally:
        setattr(manager.ComputeManager, CLEANUP, before)


@contextlib.contextmanager
def statements() -> Iterator[list[str]]:
    """Collect the SQL statements that Nova executes meanwhile.

    Without those that only begin or end a transaction, and without those of
    the services, which report their state in the background.
    """
    executed: list[str] = []

    def collect(connection: Any, cursor: Any, statement: str,
                *more: Any) -> None:
        if (statement.startswith(('SELECT', 'INSERT', 'UPDATE', 'DELETE'))
                and ' services ' not in ' '.join(statement.split())):
            executed.append(statement)

    name = 'before_cursor_execute'
    event.listen(engine.Engine, name, collect)
    try:
        yield executed
    finally:
        event.remove(engine.Engine, name, collect)


def nothing(*arguments: Any) -> None:
    """Do no cleanup, as Nova 25 to 27."""
