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


"""The same scenarios with Nova's own cleanup and with the plugin.

Writes a page of the documentation.  No word in its last two columns is written
by hand: they are what was found.
"""

from __future__ import annotations

# First: its import of Nova decides whether this process may use eventlet.
from nova_bdm_cleanup.tests.cloud import fixture  # isort: skip

import argparse
from collections.abc import Callable
import pathlib
import sys
import time
import traceback
from typing import Any
from unittest import mock

from nova import objects
from nova import version
from nova.compute import rpcapi

from nova_bdm_cleanup.tests.cloud import identity
from nova_bdm_cleanup.tests.cloud import proxy
from nova_bdm_cleanup.tests.cloud import recorder
from nova_bdm_cleanup.tests.cloud import scenarios

PAGE = pathlib.Path('doc', 'source', 'reports', 'builtin.rst')

_NO_QUOTAS = {'quota': {'instances': -1, 'cores': -1, 'ram': -1}}

_TEXT = """\
====================================
Nova's own cleanup, run side by side
====================================

Each scenario was played twice on a new server: with Nova alone, and with the
plugin in it. Then the server was rebooted once, hard unless the scenario says
otherwise. A program wrote down what was found after that.
Device and disk are those of the volume that the scenario is about.

The API waits here for messages that it does not wait for in a real cloud. So
a reboot that fails on the compute node shows as an error of the API (500).

Measured with Nova %s on %s, on the cloud of the functional tests.
To repeat it:

.. code-block:: console

   $ python3 benchmarks builtin

.. list-table::
   :header-rows: 1
   :widths: 24 38 38

   * - What was wrong
     - Nova alone
     - The plugin
"""

#: Breaks a server; returns the volume to look at afterwards.
Play = Callable[['Stage'], str]


class Stage:
    """A cloud, a server with two volumes, and a neighbour."""

    def __init__(self, cloud: fixture.Cloud, *disks: fixture.Disk,
                 root: str = 'image') -> None:
        self.cloud = cloud
        self.server = self._make(
            *(disks or (fixture.Disk(), fixture.Disk())), root=root)
        self.volume = self.server.volumes[0] if self.server.volumes else ''
        self.cinder = cloud.cinder.client(identity.NOVA, service=True)
        #: The arguments of the reboot.
        self.reboot: dict[str, Any] = {}
        #: What became of an operation that was interrupted.
        self.operation: str | None = None
        self.rebooted = False
        #: How the reboot failed, if it did.
        self.failed: str | None = None
        #: What it asked Cinder.
        self.requests: list[proxy.Request] = []

    def _make(self, *disks: fixture.Disk, **arguments: Any
              ) -> fixture.Server:
        return self.cloud.server(*disks, host='compute1', **arguments)

    def neighbour(self, *disks: fixture.Disk) -> fixture.Server:
        return self._make(*disks, name='neighbour')

    def do_reboot(self) -> str | None:
        """Reboot once; the HTTP status when it fails."""
        if self.rebooted:
            return None
        self.rebooted = True
        try:
            self.cloud.reboot(self.server, **self.reboot)
        except fixture.APIError as error:
            return f'fails ({error.status})'
        return None

    def during(self, owner: Any, name: str, operation: Callable[[], Any],
               condition: Callable[..., bool] = lambda *args: True) -> None:
        """Reboot in the middle of an operation."""
        original = getattr(owner, name)

        def rebooting_first(*args: Any, **kwargs: Any) -> Any:
            if not self.rebooted and condition(*args):
                self.cloud.proxy.clear()
                self.failed = self.do_reboot()
            return original(*args, **kwargs)

        with mock.patch.object(owner, name, rebooting_first):
            try:
                operation()
            except (fixture.APIError, AssertionError) as error:
                self.operation = 'fails' if isinstance(
                    error, AssertionError) else f'fails ({error.status})'
            else:
                self.operation = 'completes'


SCENES: list[tuple[str, dict[str, Any], Play]] = []


def _scene(title: str, **arguments: Any) -> Callable[[Play], Play]:
    def register(play: Play) -> Play:
        SCENES.append((title, arguments, play))
        return play
    return register


def _shared(name: str, title: str = '', **arguments: Any) -> None:
    """A scenario that the demonstration plays, too."""
    scenario = scenarios.SCENARIOS[name]

    def play(stage: Stage) -> str:
        return scenario.play(stage.cloud, stage.server)

    SCENES.append((title or scenario.title, arguments, play))


_shared('healthy', 'Nothing is wrong; five volumes.', disks=5)
_shared('attachment-deleted')
_shared('volume-deleted')
_shared('status-reset')
_shared('given-away', 'The volume is given to a server on another host.',
        hosts=2)
_shared('given-away', 'The volume is given to a server on the same host.')
_shared('root-detached', root='volume')
_shared('attachment-reserved')
_shared('row-lost')
_shared('legacy-attachment')
_shared('migration-failed')


@_scene('A soft reboot of a server whose attachment is deleted.')
def _soft(stage: Stage) -> str:
    stage.cloud.lose_attachment(stage.server, stage.volume)
    stage.reboot['hard'] = False
    return stage.volume


@_scene('A volume is being attached: reserved, not yet saved.')
def _attaching(stage: Stage) -> str:
    volume = stage.cloud.volume()
    stage.during(objects.BlockDeviceMapping, 'save',
                 lambda: stage.cloud.attach(stage.server, volume),
                 lambda row: 'attachment_id' in row.obj_what_changed())
    return volume


@_scene('A volume is being detached: the request waits.')
def _detaching(stage: Stage) -> str:
    stage.during(rpcapi.ComputeAPI, 'detach_volume',
                 lambda: stage.cloud.detach(stage.server, stage.volume))
    return stage.volume


@_scene('A volume is being swapped: the request waits.')
def _swapping(stage: Stage) -> str:
    new = stage.cloud.volume()
    stage.cloud.proxy.on('GET', f'/volumes/{stage.volume}', proxy.rewrite(
        lambda body: {'volume': {**body['volume'],
                                 'migration_status': 'migrating'}}))
    path = f'/servers/{stage.server.id}/os-volume_attachments/{stage.volume}'
    admin = identity.Caller('admin', stage.cloud.owner.project,
                            identity.ADMIN)
    stage.during(rpcapi.ComputeAPI, 'swap_volume',
                 lambda: stage.cloud.request(
                     'PUT', path, {'volumeAttachment': {'volumeId': new}},
                     by=admin))
    return new


@_scene('Nova is sent to another Cinder, which is empty (a wrong region).')
def _wrong_region(stage: Stage) -> str:
    stage.neighbour(fixture.Disk())
    stage.cloud.lose_cinder()
    return stage.volume


@_scene('The same, and the server boots from a volume.', root='volume')
def _wrong_region_root(stage: Stage) -> str:
    stage.neighbour(fixture.Disk())
    stage.cloud.lose_cinder()
    assert stage.server.root is not None
    return stage.server.root


@_scene('Cinder cuts every connection.')
def _cut(stage: Stage) -> str:
    stage.cloud.proxy.on('*', '', proxy.reset())
    return stage.volume


@_scene('Cinder answers 503 to everything.')
def _unavailable(stage: Stage) -> str:
    stage.cloud.proxy.on('*', '', proxy.status(503))
    return stage.volume


@_scene('The attachment is deleted, and Cinder answers 503 from its second '
        'request on.')
def _half_unavailable(stage: Stage) -> str:
    stage.cloud.lose_attachment(stage.server, stage.volume)
    seen: list[Any] = []

    def fail_later(request: Any, forward: Any) -> Any:
        seen.append(request)
        if len(seen) == 1:
            return forward()
        return proxy.status(503)(request, forward)

    stage.cloud.proxy.on('*', '', fail_later)
    return stage.volume


@_scene('A load balancer answers 404 with a page of its own.')
def _not_cinder(stage: Stage) -> str:
    stage.cloud.proxy.on('*', '', proxy.html(404))
    return stage.volume


@_scene('Reset to ``available``, rebooted by an administrator of another '
        'project.')
def _by_admin(stage: Stage) -> str:
    stage.cloud.reset_status(stage.volume)
    stage.reboot['by'] = stage.cloud.admin
    return stage.volume


def _found(stage: Stage, volume: str, failed: str | None) -> list[str]:
    """What there is after the reboot, in words."""
    view = stage.cloud.look(stage.server, volume)
    facts = [f'reboot {failed or "succeeds"}, server {view.status}']
    if stage.operation:
        facts.append(f'the interrupted operation {stage.operation}')
    row = view.block_device(volume)
    if row is not None:
        facts.append("Nova's row kept")
    elif view.removed_block_device(volume) is not None:
        facts.append("Nova's row removed")
    status = view.volume_status(volume)
    left = view.attachments_of(volume)
    facts.append('volume %s, attachments of this server: %s' % (
        status or 'does not exist',
        ', '.join(sorted(each.status for each in left)) or 'none'))
    facts.append('disk %s the guest' % (
        'in' if view.has_disk(volume) else 'not in'))
    device = 'connected' if volume in view.connected else 'not connected'
    facts.append(f'device {device} on the host')
    told = {event.what for event in stage.cloud.timeline(volume)
            if event.party == recorder.BACK_END}
    if 'terminate_connection' in told:
        facts.append('back end unmapped')
    if not stage.operation:
        facts.append('%d request%s to Cinder' % (
            len(stage.requests), 's' * (len(stage.requests) != 1)))
    return facts


def _play(plugin: bool) -> dict[str, list[str]]:
    """Play all scenes; more than one host only where a scene needs it.

    The nova-computes of the harness share one configuration, and some of
    them therefore take their own servers for another's.
    """
    found: dict[str, list[str]] = {}
    for hosts in (('compute1',), ('compute1', 'compute2')):
        with fixture.Cloud(plugin=plugin, hosts=hosts,
                           nova_options=_NO_QUOTAS) as cloud:
            for title, arguments, play in SCENES:
                if arguments.get('hosts', 1) == len(hosts):
                    found[title] = _play_one(cloud, arguments, play)
                    print('plugin' if plugin else 'stock', title,
                          found[title], file=sys.stderr, flush=True)
    return found


def _play_one(cloud: fixture.Cloud, arguments: dict[str, Any],
              play: Play) -> list[str]:
    disks = [fixture.Disk()] * arguments.get('disks', 2)
    stage = Stage(cloud, *disks, root=arguments.get('root', 'image'))
    cloud.forget()
    volume = play(stage)
    if not stage.rebooted:
        cloud.forget()
        stage.failed = stage.do_reboot()
    # Nova's API asks about a root volume with the user's token.
    stage.requests = [
        request for request in cloud.proxy.requests
        if not (request.method == 'GET' and request.path.endswith(
            f'/volumes/{stage.server.root}'))]
    cloud.proxy.clear()
    cloud.find_cinder()
    return _found(stage, volume, stage.failed)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog='benchmarks builtin',
        description='Play the same scenarios with Nova\'s own cleanup and '
                    'with the plugin, and write down what is found.')
    parser.add_argument('page', nargs='?', default=PAGE, type=pathlib.Path,
                        help=f'the page to write ({PAGE})')
    chosen = parser.parse_args()
    stock, ours = _play(plugin=False), _play(plugin=True)
    text = _TEXT % (version.version_string(),
                    time.strftime('%Y-%m-%d', time.gmtime()))
    for title, _, _ in SCENES:
        text += f'   * - {title}\n'
        for facts in (stock[title], ours[title]):
            text += '     - ' + ';\n       '.join(facts) + '\n'
    chosen.page.write_text(text, encoding='utf-8')


if __name__ == '__main__':
    try:
        main()
    except Exception:
        # Otherwise oslo.log would send it to a log that is gone by then.
        traceback.print_exc()
        sys.exit(1)
