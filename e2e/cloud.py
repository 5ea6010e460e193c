# SPDX-License-Identifier: Apache-2.0
"""Operations of users and programs on servers and volumes in the tests."""

from __future__ import annotations

from collections.abc import Callable
import functools
import pathlib
import time
from typing import Any

from e2e import (
    api,
    ceph,
    guest,
    identity,
    lab as lab_mod,
    processes,
    stack as stack_mod,
)

#: The connector properties that a compute node sends to Cinder.
CONNECTOR = {
    'platform': 'x86_64', 'os_type': 'linux', 'ip': '127.0.0.1',
    'host': lab_mod.HOST, 'multipath': False, 'do_local_attach': False,
    'initiator': 'iqn.2004-10.org.debian:01:e2e', 'mountpoint': '/dev/vdz',
}


def nova(method: str, path: str, body: Any = None,
         who: tuple[str, str] = api.MEMBER) -> Any:
    return api.call('compute', method, path, body, who)


def cinder(method: str, path: str, body: Any = None,
           who: tuple[str, str] = api.MEMBER, service: bool = False) -> Any:
    headers = api.service_token() if service else None
    return api.call('volumev3', method, path, body, who, headers)


def or_none(read: Callable[[], Any]) -> Any:
    """Return the answer, or None where the API answers 404."""
    try:
        return read()
    except api.ApiError as exc:
        if exc.code == 404:
            return None
        raise


class Cloud:
    """Operations on one lab's cloud."""

    #: Whether guests write to their first two disks all the time.
    writes_counters = False

    def __init__(self, stack: stack_mod.Stack) -> None:
        self.stack = stack
        self.lab = stack.lab

    # -- volumes -----------------------------------------------------------

    def create_volume(self, name: str, size: int, bootable: bool = False,
                      multiattach: bool = False) -> str:
        kind = identity.MULTIATTACH_TYPE if multiattach else 'e2e'
        made = cinder('POST', '/volumes', {'volume': {
            'name': name, 'size': size, 'volume_type': kind}})
        volume = made['volume']['id']
        self.wait_volume(volume, 'available')
        if bootable:
            self._write(volume, guest.boot_sector(self.writes_counters))
            cinder('POST', f'/volumes/{volume}/action',
                   {'os-set_bootable': {'bootable': True}})
        return str(volume)

    def _write(self, volume: str, data: bytes) -> None:
        if self.lab.is_rbd():
            self.stack.ceph.write(volume, data)
            return
        with (self.lab.volumes / f'volume-{volume}').open('r+b') as stream:
            stream.write(data)

    def counter(self, volume: str) -> int:
        """Return the last count that a guest wrote to a volume."""
        if self.lab.is_rbd():
            data = self.stack.ceph.read(volume, guest.COUNTER, 4)
        else:
            with (self.lab.volumes / f'volume-{volume}').open('rb') as stream:
                stream.seek(guest.COUNTER)
                data = stream.read(4)
        return int.from_bytes(data, 'little')

    def show_volume(self, volume: str) -> dict[str, Any] | None:
        answer = or_none(lambda: cinder('GET', f'/volumes/{volume}',
                                        who=api.ADMIN))
        shown: dict[str, Any] | None = answer and answer['volume']
        return shown

    def wait_volume(self, volume: str, status: str | None,
                    seconds: float = 60) -> None:
        """Wait for a status, or with None until the volume is gone."""
        def reached() -> bool:
            seen = self.show_volume(volume)
            return (seen and seen['status']) == status
        processes.wait_until(
            reached, f'status {status} of volume {volume}', seconds)

    def delete_volume(self, volume: str) -> None:
        cinder('DELETE', f'/volumes/{volume}')
        self.wait_volume(volume, None)

    def reset_volume(self, volume: str, status: str) -> None:
        cinder('POST', f'/volumes/{volume}/action',
               {'os-reset_status': {'status': status}}, api.ADMIN)

    @staticmethod
    def transfer(volume: str, to: tuple[str, str]) -> None:
        """Give a free volume to another project."""
        made = cinder('POST', '/volume-transfers', {
            'transfer': {'volume_id': volume}})['transfer']
        cinder('POST', f'/volume-transfers/{made["id"]}/accept',
               {'accept': {'auth_key': made['auth_key']}}, to)

    # -- attachments, without Nova -----------------------------------------

    def attachments(self, server: str) -> list[dict[str, Any]]:
        """Return every Cinder attachment that names the server."""
        listed = cinder('GET', '/attachments/detail?all_tenants=1&'
                               f'instance_id={server}', who=api.ADMIN)
        rows: list[dict[str, Any]] = listed['attachments']
        return rows

    def delete_attachment(self, attachment: str,
                          who: tuple[str, str] = api.MEMBER) -> None:
        """Delete with a service token, as Nova does and a user may not."""
        cinder('DELETE', f'/attachments/{attachment}', who=who, service=True)

    def add_attachment(self, server: str, volume: str, connected: bool,
                       who: tuple[str, str] = api.MEMBER) -> str:
        """Create an attachment without a block device mapping."""
        made = cinder('POST', '/attachments', {'attachment': {
            'instance_uuid': server, 'volume_uuid': volume,
            'connector': CONNECTOR if connected else None}}, who)
        attachment = made['attachment']['id']
        if connected:
            cinder('POST', f'/attachments/{attachment}/action',
                   {'os-complete': {}}, who)
        return str(attachment)

    def add_foreign_attachment(self, server: str, connected: bool) -> str:
        """Create an attachment to the server as another project, on a volume
        of that project and with a made-up connector.
        """
        made = cinder('POST', '/volumes', {'volume': {
            'name': 'foreign', 'size': 1, 'volume_type': 'e2e'}}, api.ADMIN)
        volume = made['volume']['id']
        self.wait_volume(volume, 'available')
        return self.add_attachment(server, volume, connected, api.ADMIN)

    # -- servers -----------------------------------------------------------

    def boot(self, name: str, root: str,
             others: tuple[str, ...] = ()) -> str:
        """Boot a server from a volume and wait until its guest reports."""
        devices = [{
            'uuid': volume, 'source_type': 'volume',
            'destination_type': 'volume', 'boot_index': index,
            'delete_on_termination': False,
        } for index, volume in zip([0] + [-1] * len(others),
                                   (root, *others))]
        return self.boot_from(name, identity.FLAVOR,
                              {'block_device_mapping_v2': devices})

    def boot_from(self, name: str, flavor: str, disks: dict[str, Any]) -> str:
        made = nova('POST', '/servers', {'server': {
            'name': name, 'flavorRef': flavor, 'networks': 'none', **disks}})
        server = str(made['server']['id'])
        status = self.wait_server(server)
        if status != 'ACTIVE':
            raise AssertionError(f'{name} did not boot: {status}, '
                                 f'{self.show_server(server).get("fault")}')
        self.wait_guest(server)
        return server

    def show_server(self, server: str) -> dict[str, Any]:
        shown: dict[str, Any] = nova('GET', f'/servers/{server}',
                                     who=api.ADMIN)['server']
        return shown

    def wait_server(self, server: str, seconds: float = 180) -> str:
        """Wait until the server has no task; return its status."""
        status = 'BUILD'

        def idle() -> bool:
            nonlocal status
            seen = self.show_server(server)
            status = seen['status']
            return (status != 'BUILD'
                    and seen['OS-EXT-STS:task_state'] is None)
        processes.wait_until(idle, f'the end of the task of server {server}',
                             seconds)
        return status

    def location_of(self, server: str) -> tuple[pathlib.Path, str]:
        """Return its host's instances directory and libvirt address."""
        return self.lab.nova_state / 'instances', ceph.LIBVIRT

    def guest_disks(self, server: str) -> tuple[int, ...] | None:
        instances, _ = self.location_of(server)
        return guest.disks(instances / server / 'console.log')

    def wait_guest(self, server: str,
                   disks: tuple[int, ...] | None = None,
                   seconds: float = 20) -> tuple[int, ...] | None:
        """Wait until the guest reports (these disks); return its report.

        A timeout is no error: the test compares the disks that the guest
        reports instead.
        """
        end = time.monotonic() + seconds
        while True:
            seen = self.guest_disks(server)
            if seen is not None and disks in (None, seen):
                return seen
            if time.monotonic() > end:
                return seen
            time.sleep(0.2)

    def attach(self, server: str, volume: str) -> None:
        nova('POST', f'/servers/{server}/os-volume_attachments',
             {'volumeAttachment': {'volumeId': volume}})
        self.wait_volume(volume, 'in-use')

    def swap(self, server: str, old: str, new: str) -> None:
        """Replace a volume by another one, and wait for the copy."""
        nova('PUT', f'/servers/{server}/os-volume_attachments/{old}',
             {'volumeAttachment': {'volumeId': new}}, api.ADMIN)
        self.wait_volume(old, 'available', 180)
        self.wait_volume(new, 'in-use')

    def detach(self, server: str, volume: str) -> None:
        """Detach through Nova and wait until both have forgotten it."""
        path = f'/servers/{server}/os-volume_attachments/{volume}'
        nova('DELETE', path)
        self.wait_volume(volume, 'available', 90)
        processes.wait_until(
            lambda: or_none(lambda: nova('GET', path)) is None,
            'the detach')

    def action(self, server: str, body: dict[str, Any],
               who: tuple[str, str] = api.MEMBER) -> None:
        nova('POST', f'/servers/{server}/action', body, who)

    def request_reboot(self, server: str, kind: str = 'HARD',
                       who: tuple[str, str] = api.MEMBER) -> None:
        self.action(server, {'reboot': {'type': kind}}, who)

    def reboot(self, server: str, kind: str = 'HARD',
               who: tuple[str, str] = api.MEMBER,
               seconds: float = 180) -> str:
        """Reboot the server and wait; return its status afterwards."""
        self.request_reboot(server, kind, who)
        return self.wait_server(server, seconds)

    def finish_resize(self, server: str, end: str,
                      who: tuple[str, str] = api.MEMBER) -> None:
        """Confirm or revert a resize or a migration."""
        self.action(server, {end: None}, who)
        processes.wait_until(
            lambda: self.wait_server(server) != 'VERIFY_RESIZE',
            f'the end of {end}')

    def delete_server(self, server: str) -> None:
        or_none(lambda: nova('DELETE', f'/servers/{server}', who=api.ADMIN))
        processes.wait_until(
            lambda: or_none(lambda: self.show_server(server)) is None,
            f'the end of server {server}', 90)

    # -- after a test ------------------------------------------------------

    def delete_all(self) -> None:
        """Delete all servers, attachments and volumes, in any status.

        Volumes in a wrong status are reset by Cinder's administrative calls,
        not by the plugin: the next test must begin with an empty cloud.
        """
        for one in nova('GET', '/servers?all_tenants=1',
                        who=api.ADMIN)['servers']:
            nova('POST', f'/servers/{one["id"]}/action',
                 {'os-resetState': {'state': 'active'}}, api.ADMIN)
            self.delete_server(one['id'])
        for one in cinder('GET', '/attachments?all_tenants=1',
                          who=api.ADMIN)['attachments']:
            or_none(functools.partial(
                self.delete_attachment, one['id'], api.ADMIN))
        volumes = cinder('GET', '/volumes/detail?all_tenants=1',
                         who=api.ADMIN)['volumes']
        for one in volumes:
            if one['status'] != 'available':
                self.reset_volume(one['id'], 'available')
            or_none(functools.partial(
                cinder, 'POST', f'/volumes/{one["id"]}/action',
                {'os-force_delete': {}}, api.ADMIN))
        for one in volumes:
            self.wait_volume(one['id'], None)
