# SPDX-License-Identifier: Apache-2.0
"""A cloud in a process of its own, whose nova-compute loads the plugin itself.

Run by :mod:`nova_bdm_cleanup.tests.combinations.processes`, with the Python of
any release of Nova and any version of the plugin.  It takes one request per
line, a JSON list of a method of :class:`ComputeHost` and its arguments, and
prints the result as one line of JSON.
"""

from __future__ import annotations

# Nova's harness first: it may monkey patch what the others import.
from nova_bdm_cleanup.tests.cloud import fixture  # isort: skip

import json
import os
import pathlib
import select
import sys
import time
import traceback
from typing import Any

from nova import version
import os_vif
from oslo_config import cfg

HOST = 'compute1'


class ComputeHost:
    """One host with a nova-compute.

    :param options: nova.conf by section and name, besides that of the cloud
    """

    def __init__(self, options: dict[str, dict[str, Any]]) -> None:
        options.setdefault('DEFAULT', {})['host'] = HOST
        self.cloud = fixture.Cloud(nova_options=options, hosts=(HOST,))
        self.cloud.setUp()
        # As the main() of nova-compute does, before it imports its manager.
        sys.modules['nova.cmd.compute'] = sys
        os_vif.initialize(reset=True)
        del sys.modules['nova.cmd.compute']
        self.restart()

    @property
    def _configuration(self) -> pathlib.Path:
        return self.cloud.state / 'etc' / 'nova' / 'nova.conf'

    def about(self) -> dict[str, Any]:
        """Return where this host is, and which Nova it has."""
        return {'nova.conf': str(self._configuration), 'pid': os.getpid(),
                'nova': version.version_string()}

    def restart(self) -> None:
        """Start nova-compute again in this process."""
        self.cloud.restart_compute(HOST, reports_resources=True)

    def reload(self, text: str) -> None:
        """Add to nova.conf, and reload it as nova-compute does on SIGHUP."""
        with self._configuration.open('a', encoding='utf-8') as file:
            file.write(text)
        cfg.CONF.reload_config_files()
        self.restart()

    def reboot(self) -> dict[str, Any]:
        """Reboot a new server that has lost one of two volumes."""
        server = self.cloud.server(fixture.Disk(at_boot=True),
                                   fixture.Disk(at_boot=True))
        kept, lost = server.volumes
        self.cloud.lose_attachment(server, lost)
        self.cloud.reboot(server)
        view = self.cloud.look(server)
        return {'server': server.id, 'kept': kept, 'lost': lost,
                'status': view.status,
                'mappings': sorted(
                    row.volume_id for row in view.block_devices
                    if row.volume_id),
                'disks': sorted(disk.volume_id for disk in view.disks
                                if disk.volume_id),
                'connected': sorted(view.connected)}

    def server(self) -> str:
        """Create a server with a volume; return its id."""
        return self.cloud.server(fixture.Disk(at_boot=True)).id

    def run(self, action: str, server: str) -> str:
        """Run an action on a server and return its status."""
        made = fixture.Server(server, 'server', HOST, None, ())
        if action == 'delete':
            self.cloud.delete(made)
            return 'DELETED'
        self.cloud.act(made, {action: None}, by=self.cloud.admin)
        return self.cloud.request(
            'GET', f'/servers/{server}', by=self.cloud.admin
        )['server']['status']

    def audit(self) -> None:
        """Run the plugin's periodic task and a round of the audit."""
        from nova_bdm_cleanup.node import periodic

        manager = self.cloud.nova.computes[HOST].manager
        watcher = periodic._watchers[manager]
        watcher._wait = lambda seconds: None
        # A round begins now.
        watcher._next = time.monotonic()
        watcher.tick()
        watcher._round_thread.join()

    def stop(self) -> None:
        """Shut nova-compute down."""
        self.cloud.nova.computes[HOST].stop()

    def log(self) -> list[str]:
        """Return the log of this Nova."""
        return self.cloud.log()

    def modules(self) -> list[str]:
        """Return the modules of the plugin that were imported."""
        return sorted(
            name for name in sys.modules
            if name.split('.')[0] == 'nova_bdm_cleanup'
            and not name.startswith('nova_bdm_cleanup.tests'))


def main() -> None:
    # Nova may print to the standard output.
    answers = os.fdopen(os.dup(1), 'w')
    os.dup2(2, 1)
    host = ComputeHost(json.loads(sys.stdin.readline()))
    try:
        print(json.dumps(host.about()), file=answers, flush=True)
        while True:
            # Green threads, such as the proxy, run until there is a line.
            select.select([sys.stdin], [], [])
            line = sys.stdin.readline()
            if not line:
                break
            name, *arguments = json.loads(line)
            print(json.dumps(getattr(host, name)(*arguments)), file=answers,
                  flush=True)
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        host.cloud.cleanUp()


if __name__ == '__main__':
    main()
