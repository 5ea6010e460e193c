# SPDX-License-Identifier: Apache-2.0
"""A replica of Cinder's database that lags, and a cinder-api that reads it.

A proxy lets nova-compute read from that cinder-api and write to the other one,
as behind a load balancer.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import shutil
import threading
from typing import Any

from e2e import api, database, lab as lab_mod, processes, stack as stack_mod
from nova_bdm_cleanup.tests.cloud import proxy as proxy_mod

_DATABASE, _API = 'mariadb-replica', 'cinder-replica'


class Replica:
    """The replica, the cinder-api that reads it, and the proxy."""

    def __init__(self, stack: stack_mod.Stack) -> None:
        self._stack = stack
        self._timer: threading.Timer | None = None
        self._proxy = proxy_mod.Proxy(_address('cinder-api'))
        #: The option ``[cinder] endpoint_template`` for nova-compute.
        self.endpoint = f'{self._proxy.url}/v3/%(project_id)s'

    @contextlib.contextmanager
    def running(self) -> Iterator[Replica]:
        """Start it; at first nova-compute does not read from it."""
        try:
            self._start_database()
            self._stack.start(_API)
            port = lab_mod.PORTS[_API]
            processes.wait_until(
                lambda: stack_mod.answers_http(port), _API, 90)
            yield self
        finally:
            if self._timer:
                self._timer.cancel()
            self._proxy.close()
            for name in (_API, _DATABASE):
                self._stack.procs.stop(name)

    def _start_database(self) -> None:
        lab = self._stack.lab
        shutil.rmtree(lab.directory / _DATABASE, ignore_errors=True)
        (lab.directory / _DATABASE).mkdir()
        database.start(lab, self._stack.procs, _DATABASE)
        database.run_as_root(
            lab, "create user if not exists replica@'127.0.0.1' identified "
            f"by '{lab_mod.PASSWORD}'; grant replication slave on *.* to "
            "replica@'127.0.0.1'")
        port = lab_mod.PORTS['mariadb']
        database.run_as_root(
            lab, f"create user e2e@'127.0.0.1' identified by "
            f"'{lab_mod.PASSWORD}'; grant all on cinder.* to "
            "e2e@'127.0.0.1'; change master to master_host='127.0.0.1', "
            f"master_port={port}, master_user='replica', "
            f"master_password='{lab_mod.PASSWORD}', master_use_gtid=no",
            _DATABASE)
        dump = lab.tmp / 'cinder.sql'
        # The dump begins with its position in the log of the changes.
        dump.write_text(lab_mod.run(
            'mariadb-dump', f'--socket={lab.run}/mariadb.sock', '-uroot',
            '--single-transaction', '--master-data=1', '--databases',
            'cinder').stdout)
        database.run_as_root(lab, f'source {dump}; start slave', _DATABASE)

    def _run(self, statement: str) -> None:
        database.run_as_root(self._stack.lab, statement, _DATABASE)

    def pause(self) -> None:
        """Let the replica lag from now on."""
        self._run('stop slave sql_thread')

    def read(self, seconds: float) -> None:
        """Let nova-compute read from the replica from now on.

        :param seconds: when the replica catches up
        """
        self._proxy.on('GET', '', proxy_mod.forward_to(_address(_API)))
        self._timer = threading.Timer(
            seconds, self._run, ['start slave sql_thread'])
        self._timer.start()

    @staticmethod
    def volume(volume: str) -> dict[str, Any]:
        """Return a volume as the replica has it."""
        session = api.login(api.ADMIN)
        shown: dict[str, Any] = session.get(
            f'{_address(_API)}/v3/{session.get_project_id()}/volumes/'
            f'{volume}').json()['volume']
        return shown


def _address(service: str) -> str:
    return f'http://127.0.0.1:{lab_mod.PORTS[service]}'
