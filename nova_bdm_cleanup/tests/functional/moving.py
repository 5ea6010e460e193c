# SPDX-License-Identifier: Apache-2.0
"""Base class of the tests of servers that leave their host.

Casts are asynchronous here, as in a real cloud: the caller of a part of an
operation does not wait for its end.
"""

from __future__ import annotations

from collections.abc import Iterable
import dataclasses
import json
import threading
from typing import Any

import fixtures

from nova_bdm_cleanup.tests.cloud import fixture, identity, messages, snapshot
from nova_bdm_cleanup.tests.cloud.damage import DAMAGE
from nova_bdm_cleanup.tests.functional import scenario

HERE, THERE = 'compute1', 'compute2'
SAME_HOST = 'attached-on-the-same-host'


EVACUATION = {'evacuate': {'host': THERE}}


def live_migration(host: str) -> dict[str, Any]:
    """Return the request for a live migration to a host."""
    return {'os-migrateLive': {'host': host, 'block_migration': 'auto'}}


class Hold:
    """A method of Nova that waits before it does anything."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._over = threading.Event()

    def wait_until_reached(self) -> None:
        assert self._reached.wait(fixture.TIMEOUT)

    def end(self) -> None:
        self._over.set()

    def wait_for_end(self) -> None:
        self._reached.set()
        assert self._over.wait(fixture.TIMEOUT)


class MoveTestCase(scenario.ScenarioTestCase):
    """Base class: two healthy disks and a dangling one between them."""

    ARGUMENTS = {
        'hosts': (HERE, THERE), 'casts': True,
        'plugin_options': {'triggers': 'all'},
        'nova_options': {'DEFAULT': {'shelved_offload_time': 0}}}

    def healthy_server(self, root: str = 'volume', disks: int = 3
                ) -> fixture.Server:
        """Return a server of the first host."""
        server = self.create_server(*[scenario.BOOT_DISK] * disks, host=HERE,
                           root=root)
        self.cloud.allocate(server)
        return server

    def damaged_server(self, kind: str, root: str = 'volume'
               ) -> tuple[fixture.Server, str]:
        """Return a server, and its volume that dangles."""
        server = self.healthy_server(root)
        lost = server.volumes[1]
        self.damage(server, lost, kind)
        return server, lost

    def damage(self, server: fixture.Server, lost: str, kind: str) -> None:
        """Have the mapping of a volume dangle.

        :param kind: a damage, or SAME_HOST to give it to a server of this host
        """
        if kind == SAME_HOST:
            self.cloud.attach_elsewhere(server, lost, host=HERE)
        else:
            DAMAGE[kind].inflict(self.cloud, server, lost)

    def add_neighbour(self, server: fixture.Server, lost: str, host: str,
                      owner: identity.Caller | None = None
                      ) -> tuple[fixture.Server, str]:
        """Have another guest of a host have the address in a row.

        The back end does not give the address to the lost volume again.

        :returns: the other server, and its volume
        """
        current = dataclasses.replace(
            server, host=self.host_of(server) or server.host)
        self.cloud.change_connection_data(
            current, lost, target_iqn='iqn.2010-10.org.openstack:' + lost)
        neighbour = self.create_server(
            scenario.BOOT_DISK, name='neighbour', host=host, owner=owner)
        theirs, = neighbour.volumes
        self.reuse_address(server, lost, neighbour, theirs)
        return neighbour, theirs

    def reuse_address(self, server: fixture.Server, lost: str,
                      neighbour: fixture.Server, theirs: str) -> None:
        """Have a back end give the address in a row to another volume."""
        data = json.loads(
            self.cloud.row(server, lost).connection_info)['data']
        self.cloud.change_connection_data(neighbour, theirs, **{
            name: data[name] for name in ('target_iqn', 'target_lun')})

    def hold(self, owner: type, name: str) -> Hold:
        """Have a method of Nova wait before it does anything."""
        method, held = getattr(owner, name), Hold()

        def wait(*args: Any, **kwargs: Any) -> Any:
            held.wait_for_end()
            return method(*args, **kwargs)

        self.useFixture(fixtures.MockPatchObject(owner, name, wait))
        self.addCleanup(held.end)
        return held

    def block_store(self) -> None:
        """Have the plugin record nothing until :meth:`free_store`."""
        blocked = self.store_path.parent / 'blocked'
        blocked.touch()
        self.set_options(store=str(blocked / 'store.sqlite'))

    def free_store(self) -> None:
        self.set_options(store=str(self.store_path))

    def switch_plugin_off(self) -> None:
        """Go on with Nova alone."""
        self.cloud.switch_plugin_off()
        self.restart()

    def restart(self) -> None:
        """Restart both hosts: Nova 34 caches the methods for RPC messages."""
        for host in (HERE, THERE):
            self.cloud.restart_compute(host)

    # -- operations --------------------------------------------------------

    def act(self, server: fixture.Server, action: dict[str, Any]
            ) -> fixture.APIError | None:
        """Have Nova do something, which it may refuse."""
        self.start_recording()
        try:
            self.cloud.act(server, action, by=self.cloud.admin)
        except fixture.APIError as error:
            return error
        return None

    def begin(self, server: fixture.Server, action: dict[str, Any]) -> None:
        """Have Nova begin something, and do not wait for its end."""
        self.cloud.request('POST', f'/servers/{server.id}/action', action,
                           by=self.cloud.admin)

    def is_left(self, server: fixture.Server, task_state: str) -> bool:
        """Return whether nova-compute has died in a state of a server."""
        return (not messages.methods_in_progress() and task_state
                == self.cloud.nova.instance(server.id).task_state)

    def migrate(self, server: fixture.Server) -> fixture.APIError | None:
        return self.act(server, {'migrate': {'host': THERE}})

    def confirm(self, server: fixture.Server) -> fixture.APIError | None:
        return self.act(server, {'confirmResize': None})

    def revert(self, server: fixture.Server) -> fixture.APIError | None:
        return self.act(server, {'revertResize': None})

    def resize(self, server: fixture.Server) -> fixture.APIError | None:
        return self.act(server, {'resize': {'flavorRef': '2'}})

    def migrate_live(self, server: fixture.Server, host: str = THERE
                     ) -> fixture.APIError | None:
        return self.act(server, live_migration(host))

    def shelve(self, server: fixture.Server) -> fixture.APIError | None:
        return self.act(server, {'shelve': None})

    def unshelve(self, server: fixture.Server) -> fixture.APIError | None:
        return self.act(server, {'unshelve': None})

    def evacuate(self, server: fixture.Server) -> fixture.APIError | None:
        """Evacuate a server; its host stays down until :meth:`come_back`."""
        self.go_down()
        return self.act(server, EVACUATION)

    def go_down(self) -> None:
        """Have the first host be down until :meth:`come_back`."""
        if not self._dead:
            self.cloud.nova.computes[HERE].stop()
            self.addCleanup(self.come_back)
            services = self.cloud.request(
                'GET', '/os-services?host=' + HERE, by=self.cloud.admin)
            self._dead = services['services'][0]['id']
            self._set_down(True)

    #: The service of the dead host.
    _dead: str | None = None

    def come_back(self, server: fixture.Server | None = None) -> None:
        """Bring the dead host back."""
        if self._dead:
            self.cloud.restart_compute(HERE, reports_resources=True)
            self._set_down(False)
            self._dead = None

    def _set_down(self, is_down: bool) -> None:
        self.cloud.request(
            'PUT', f'/os-services/{self._dead}', {'forced_down': is_down},
            by=self.cloud.admin)

    # -- outcome -----------------------------------------------------------

    def host_of(self, server: fixture.Server) -> str | None:
        host: str | None = self.cloud.nova.instance(server.id).host
        return host

    def look_on_current_host(self, server: fixture.Server
                             ) -> snapshot.Snapshot:
        """Look at a server on its current host."""
        return self.cloud.look(dataclasses.replace(
            server, host=self.host_of(server) or HERE))

    def other_volumes(self, server: fixture.Server, lost: str | None
                   ) -> list[str]:
        """Return the disks other than the lost one."""
        return [volume for volume in (server.root, *server.volumes)
                if volume and volume != lost]

    def allocated_hosts(self, server: fixture.Server) -> set[str]:
        """Return the hosts with allocations of a server."""
        with self.cloud.nova.database('cell1') as database:
            migrations = database.execute(
                'SELECT uuid FROM migrations WHERE instance_uuid = ?',
                (server.id,)).fetchall()
        return {host for consumer, host in self.cloud.allocations()
                if consumer == server.id or (consumer,) in migrations}

    def check_moved(self, server: fixture.Server, lost: str | None,
                    where: str = THERE, connected_before: bool = False
                    ) -> snapshot.Snapshot:
        """Check that the server runs there, with all its disks but one.

        :param connected_before: the former host is down, and still has them
        """
        self.assertEqual(where, self.host_of(server))
        view = self.look_on_current_host(server)
        for volume in self.other_volumes(server, lost):
            self.assert_healthy(view, volume)
            self.assertEqual(1, self.cloud.nova.connected[where][volume])
            self.assertEqual(int(connected_before), self.cloud.nova.connected[
                HERE if where == THERE else THERE][volume])
        self.assertEqual((), view.attachments_of(lost or ''))
        return view

    def check_untouched(self, server: fixture.Server, lost: str) -> None:
        """Check that the server runs where it did, with all records."""
        self.assertEqual(HERE, self.host_of(server))
        view = self.look(server)
        self.assert_healthy(view, *self.other_volumes(server, lost))
        self.assertIsNotNone(view.block_device(lost))

    def check_attached(self, view: snapshot.Snapshot, volumes: Iterable[str]
                       ) -> None:
        """Check that Cinder has one complete attachment of each volume."""
        for volume in volumes:
            self.assertEqual(['attached'], [
                each.status for each in view.attachments_of(volume)])
