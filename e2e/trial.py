# SPDX-License-Identifier: Apache-2.0
"""One trial: a scenario on one back end, with or without the plugin."""

from __future__ import annotations

import datetime
import json
import pathlib
import subprocess
from typing import Any

from e2e import (
    api,
    client,
    cloud as cloud_mod,
    database,
    guest,
    lab as lab_mod,
    logs as logs_mod,
    observe,
    plugin as plugin_mod,
    processes,
    stack as stack_mod,
)

#: Short name of a volume to its size in GiB.  Guests tell disks by size.
SIZES = {'root': 1, 'A': 2, 'B': 3, 'X': 4, 'other-root': 5, 'Y': 6}

#: The attachments of a server that has lost that of B.
HEALTHY = 'root:attached A:attached'

#: Where Python finds the hook that stops nova-compute at a point.
HOOKS = pathlib.Path(__file__).parent / 'hooks'


class Failed(AssertionError):
    """What was seen is not what must be."""


class Trial:
    """The hands and eyes of one scenario.

    :param plugin: whether the plugin is at work in this trial
    """

    def __init__(self, stack: stack_mod.Stack, plugin: bool) -> None:
        self.stack = stack
        self.lab = stack.lab
        self.plugin = plugin
        self.backend = stack.lab.backend
        self.cloud = cloud_mod.Cloud(stack)
        self.compute = plugin_mod.Compute(stack)
        #: Further options of nova.conf, for the whole trial.
        self.options: dict[str, dict[str, str]] = {}
        self.logs = logs_mod.Logs(stack.lab)
        self.volumes: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self.observer = observe.Observer(
            self.cloud, self._names,
            {size: name for name, size in SIZES.items()})

    # -- building ----------------------------------------------------------

    def volume(self, name: str, multiattach: bool = False) -> str:
        volume = self.cloud.create_volume(
            name, SIZES[name], bootable='root' in name,
            multiattach=multiattach)
        self.volumes[name] = volume
        self._names[volume] = name
        return volume

    def server(self, *disks: str, root: str = 'root') -> str:
        """A running server with these volumes, whose guest has them all."""
        for name in (root, *disks):
            if name not in self.volumes:
                self.volume(name)
        server = self.cloud.boot(
            f'{root}-{"-".join(disks)}', self.volumes[root],
            tuple(self.volumes[name] for name in disks))
        self.logs.mark()
        return server

    def lose_attachment(self, server: str, name: str) -> None:
        self.cloud.lose_attachment(server, self.volumes[name])

    def rescue_image(self) -> str:
        """An image that a volume-backed server can be rescued with."""
        made = api.call('image', 'POST', '/v2/images', {
            'name': 'rescue', 'disk_format': 'raw',
            'container_format': 'bare', 'visibility': 'public',
            'hw_rescue_bus': 'virtio', 'hw_rescue_device': 'disk',
        }, who=api.ADMIN)
        api.call('image', 'PUT', f'/v2/images/{made["id"]}/file',
                 data=guest.boot_sector(), who=api.ADMIN,
                 headers={'Content-Type': 'application/octet-stream'})
        return str(made['id'])

    def image_server(self) -> str:
        """A running server whose root disk is no volume."""
        server = self.cloud.boot_image('image', self.rescue_image())
        self.logs.mark()
        return server

    def stop(self, server: str) -> None:
        self.cloud.action(server, {'os-stop': None})
        self.equal('status', self.cloud.wait_server(server), 'SHUTOFF')

    def start(self, server: str) -> None:
        self.cloud.action(server, {'os-start': None})
        self.cloud.wait_server(server)

    def restart(self, **options: dict[str, str]) -> None:
        """Start nova-compute anew, with these options more than usual."""
        self.options = options
        self.compute.restart(self.plugin, options)
        self.logs.mark()

    # -- stopping nova-compute at a point ----------------------------------

    def stop_at(self, point: str, action: str,
                at_start: bool = False) -> None:
        """Restart nova-compute so that it stops where ``point`` says.

        :param point: ``module:Class.method:before`` or ``:after``
        :param action: ``kill`` or ``pause``
        :param at_start: it gets there before it serves anybody
        """
        for name in ('reached', 'go'):
            (self.lab.run / name).unlink(missing_ok=True)
        environment = {
            'PYTHONPATH': str(HOOKS), 'E2E_POINT': point,
            'E2E_ACTION': action, 'E2E_SIGNALS': str(self.lab.run)}
        if at_start:
            self.stack.procs.stop('nova-compute')
            self.compute.configure(self.plugin, self.options)
            self.logs.mark()
            self.stack.start('nova-compute', environment)
            return
        self.compute.restart(self.plugin, self.options, environment)
        self.logs.mark()

    def wait_killed(self, seconds: float = 60) -> None:
        """Wait until nova-compute has killed itself at its point."""
        processes.wait_until(
            lambda: not self.stack.procs.is_running('nova-compute'),
            'SIGKILL of nova-compute', seconds, 0.1)

    def expect_no_start(self, complaint: str) -> None:
        """nova-compute must fail at its start, and say this."""
        self.stack.start('nova-compute')
        processes.wait_until(
            lambda: self.logs.lines('nova-compute', complaint), complaint)

    def wait_paused(self, seconds: float = 60) -> None:
        processes.wait_until((self.lab.run / 'reached').exists,
                             'nova-compute to pause', seconds, 0.1)

    def go_on(self) -> None:
        (self.lab.run / 'go').touch()

    def restart_cinder_api(self) -> None:
        self.stack.start('cinder-api')
        processes.wait_until(
            lambda: self.cloud.volume(self.volumes['root']), 'cinder-api')

    # -- looking -----------------------------------------------------------

    def expect(self, server: str, status: str, disks: str,
               inside: str | None = None,
               attachments: str | None = None,
               off: bool = False) -> None:
        """The server must look like this from all sides.

        :param disks: names of the volumes of its block device mappings
        :param inside: disks of its domain and its guest, where they differ
            from the mappings
        :param attachments: Cinder's attachments as ``name:status``; unless
            given, each mapping has one that is attached
        :param off: no guest may run
        """
        names = tuple(sorted(disks.split()))
        running: tuple[str, ...] | None = names
        if inside is not None:
            running = tuple(sorted(inside.split()))
        if off:
            running = None
        else:
            self.cloud.wait_guest(server, tuple(sorted(
                SIZES[name] for name in running or ())))
        attached = tuple(f'{name}:attached' for name in names)
        if attachments is not None:
            attached = tuple(sorted(attachments.split()))
        wanted = observe.View(status=status, bdms=names,
                              attachments=attached, domain=running,
                              guest=running)
        seen = self.observer.view(server)
        if seen != wanted:
            fault = self.cloud.server(server).get('fault', {})
            raise Failed(f'server is {seen}\n  instead of {wanted}\n  '
                         f'fault: {fault.get("message")}')

    def expect_volume(self, name: str, status: str,
                      on_host: bool | None = None) -> None:
        """Cinder's status, and whether anything is left on the host."""
        volume = self.volumes[name]
        seen = self.observer.volume(volume)
        self.equal(f'status of {name}', seen, status)
        if on_host is not None:
            left = self.observer.on_host(volume)
            self.equal(f'{name} on the host {left}', bool(left), on_host)

    @staticmethod
    def equal(what: str, seen: Any, wanted: Any) -> None:
        if seen != wanted:
            raise Failed(f'{what}: {seen!r} instead of {wanted!r}')

    def expect_audit(self, *words: str) -> None:
        """The plugin must have logged a line with these words."""
        if not self.logs.lines('nova-compute', 'bdm-cleanup:', *words):
            raise Failed(f'no audit line with {words}; there are:\n  '
                         + '\n  '.join(self.audit_lines()))

    def plugin_files(self, pattern: str = '*') -> list[pathlib.Path]:
        """What the plugin keeps."""
        return list(self.lab.nova_state.glob(f'bdm-cleanup/{pattern}'))

    def audit_lines(self) -> list[str]:
        return self.logs.lines('nova-compute', 'bdm-cleanup:')

    def expect_no_removal(self) -> None:
        lines = [one for one in self.audit_lines() if 'event=removed' in one]
        self.equal('removals in the log', lines, [])

    def expect_order(self, server: str, name: str,
                     attachment: str | None = None) -> None:
        """Guest off, host disconnected, Nova's row gone, Cinder told.

        Read off Nova's libvirt driver, Nova's database and Cinder's API; when
        the host was disconnected nobody tells but the plugin's own journal.
        An attachment that was gone before has no last step.
        """
        volume = self.volumes[name]
        # The database knows whole seconds.
        steps = [
            ('guest off', self._second(self.logs.first(
                'nova-compute', server, 'Instance destroyed successfully'))),
            ('row gone', database.deleted_at(server, volume)),
        ]
        if attachment is not None:
            steps.append(('Cinder told', self._second(self.logs.first(
                'cinder-api', 'DELETE', f'/attachments/{attachment}'))))
        missing = [what for what, when in steps if when is None]
        if missing:
            raise Failed(f'not to be seen: {missing}; audit lines:\n  '
                         + '\n  '.join(self.audit_lines()))
        times = [when for _, when in steps]
        if times != sorted(times):  # type: ignore[type-var]
            raise Failed(f'wrong order: {steps}')
        self._expect_recorded_order(server, volume)

    @staticmethod
    def _second(moment: datetime.datetime | None
                ) -> datetime.datetime | None:
        return moment and moment.replace(microsecond=0)

    def _expect_recorded_order(self, server: str, volume: str) -> None:
        done = subprocess.run(
            [client.HOST_COMMAND, '--config-file', str(self.lab.nova_conf),
             'journal', 'list', '--json', '--server', server],
            check=True, capture_output=True, text=True,
            env=lab_mod.environment())
        *_, entry = json.loads(done.stdout)
        order = ('disconnect', 'destroy', 'delete-attachment')
        seen = [step['name'] for step in entry['steps']
                if step['name'] in order
                and step['subject'].get('volume') == volume]
        self.equal('recorded steps', seen,
                   sorted(seen, key=order.index))
        self.equal('first recorded step', seen[:2], ['disconnect', 'destroy'])

    def attachment_of(self, server: str, name: str) -> str:
        """The id of Cinder's attachment of that volume to that server."""
        ids = [one['id'] for one in self.cloud.attachments(server)
               if one['volume_id'] == self.volumes[name]]
        self.equal(f'attachments of {name}', len(ids), 1)
        return str(ids[0])

    def reboot_refused(self, server: str, kind: str = 'HARD') -> None:
        """Nova's API must answer 409 to the reboot."""
        try:
            self.cloud.press_reboot(server, kind)
        except api.ApiError as exc:
            self.equal('answer to the reboot', exc.code, 409)
        else:
            raise Failed('the reboot was accepted')
