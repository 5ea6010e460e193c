# SPDX-License-Identifier: Apache-2.0
"""A real Cinder in a child process, seen from the parent's side.

Starting one takes about three seconds, so tests share: see :func:`shared`.
Each test uses projects of its own, so that tests do not interfere.
"""

from __future__ import annotations

import atexit
from collections.abc import Iterator, Mapping, Sequence
import contextlib
import datetime
import functools
import itertools
import json
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from typing import Any
import uuid

from cinderclient import client as cinderclient
from keystoneauth1 import plugin, session

from nova_bdm_cleanup.tests.cloud import identity, standin, template

ENVIRONMENT = 'cinder-29'
MULTIATTACH_TYPE = 'multiattach'
#: High enough for everything the tests look at.
MICROVERSION = '3.60'
#: The tables of users' resources.
_VOLUME_TABLES = (
    'volumes', 'volume_attachment', 'attachment_specs', 'volume_metadata',
    'volume_admin_metadata', 'volume_glance_metadata', 'snapshots',
    'snapshot_metadata', 'transfers', 'workers', 'messages', 'quota_usages',
    'reservations')
_CHECKOUT = pathlib.Path(__file__).resolve().parents[3]


class _TextToken(plugin.BaseAuthPlugin):
    """Auth plugin that sends a caller's and a service's token to Cinder."""

    def __init__(self, url: str, caller: identity.Caller,
                 service: identity.Caller | None) -> None:
        super().__init__()
        self._url, self._caller, self._service = url, caller, service

    def get_headers(self, session: Any, **kwargs: Any) -> dict[str, str]:
        headers = {'X-Auth-Token': self._caller.token}
        if self._service:
            headers['X-Service-Token'] = self._service.token
        return headers

    def get_endpoint(self, session: Any, **kwargs: Any) -> str:
        return f'{self._url}/v3/{self._caller.project}'

    def get_project_id(self, session: Any, **kwargs: Any) -> str:
        return self._caller.project

    def get_user_id(self, session: Any, **kwargs: Any) -> str:
        return self._caller.user


def client(url: str, caller: identity.Caller, service: bool = False) -> Any:
    """Create a python-cinderclient handle.

    :param url: URL of a Cinder, or of a proxy in front of it
    :param caller: the caller that sends its token
    :param service: send Nova's service token along
    """
    auth = _TextToken(url, caller, identity.NOVA_SERVICE if service else None)
    return cinderclient.Client(
        MICROVERSION, session=session.Session(auth=auth))


class StartFailure(Exception):
    """Cinder did not start; the text is the end of its output."""


class Cinder:
    """One Cinder and its child process.

    :param state: an empty directory for its files
    :param stand_in: stand-in for Keystone and Glance
    """

    def __init__(self, state: pathlib.Path, stand_in: standin.StandIn
                 ) -> None:
        self.state = state
        errors = open(state / 'stderr', 'w+')
        # A process group of its own: Ctrl-C must reach only the parent,
        # which may still need a Cinder during its cleanup.
        self._child = subprocess.Popen(
            [interpreter(), '-m',
             'nova_bdm_cleanup.tests.cloud.cinder_server', str(state),
             '--identity-url', stand_in.identity_url,
             '--image-url', stand_in.image_url],
            cwd=_CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=errors, start_new_session=True,
            # The interpreter of another environment must not look into this
            # one's packages.
            env={name: value for name, value in os.environ.items()
                 if not name.startswith('PYTHON')})
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            errors.seek(0)
            raise StartFailure(errors.read()[-3000:])
        errors.close()
        ready = json.loads(line)
        self.version: str = ready['version']
        #: PID of the child, to measure its cost.
        self.pid = self._child.pid
        self.url = f'http://127.0.0.1:{ready["port"]}'
        self._policy_changes = itertools.count(time.time() + 1)
        self._faults: list[dict[str, Any]] = []

    def stop(self) -> None:
        """Stop the child and wait until its files are removed."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        try:
            self._child.wait(10)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        shutil.rmtree(self.state, ignore_errors=True)

    # -- clients -----------------------------------------------------------

    def client(self, caller: identity.Caller, service: bool = False) -> Any:
        """Create a python-cinderclient handle; see :func:`client`."""
        return client(self.url, caller, service)

    def wait(self, volume_id: str, wanted: str | None) -> None:
        """Wait until a volume has a status; None: until it is deleted.

        :raises AssertionError: when it does not reach the status
        """
        deadline = time.monotonic() + 30
        status = self._status(volume_id)
        while status != wanted:
            assert time.monotonic() < deadline and \
                not (status or '').startswith('error'), \
                f'volume {volume_id} is {status}, not {wanted}'
            time.sleep(0.01)
            status = self._status(volume_id)

    def _status(self, volume_id: str) -> str | None:
        """Return a volume's status, or None if there is no such volume.

        Read it from the database: polling the API would be most of
        Cinder's work.  cinder-volume writes its own id, which is the name of
        os-brick's lock, after the status "available".
        """
        with self.database() as database:
            found = database.execute(
                "SELECT CASE WHEN status = 'available' AND service_uuid IS "
                "NULL THEN 'creating' ELSE status END "
                'FROM volumes WHERE id = ? AND NOT deleted',
                (volume_id,)).fetchone()
        return found[0] if found else None

    # -- the policy --------------------------------------------------------

    def set_policy(self, rules: Mapping[str, str]) -> None:
        """Replace the rules that differ from Cinder's defaults."""
        path = self.state / 'policy.yaml'
        partial = path.with_suffix('.partial')
        # JSON is YAML.
        partial.write_text(json.dumps(dict(rules)))
        # Cinder reads a file again whose time has grown.
        os.utime(partial, (next(self._policy_changes),) * 2)
        partial.rename(path)

    # -- the database ------------------------------------------------------

    @contextlib.contextmanager
    def database(self) -> Iterator[sqlite3.Connection]:
        """Open Cinder's database for one transaction."""
        with contextlib.closing(sqlite3.connect(
                self.state / 'cinder.sqlite', timeout=30)) as database, \
                database:
            yield database

    def reserve_many(self, volume_id: str, server_id: str, count: int
                     ) -> None:
        """Reserve a volume for a server many times.

        The result is the same as after API requests, which take 50 ms each.
        """
        # In the format that Cinder compares to find the next page.
        now = datetime.datetime.now(datetime.timezone.utc).replace(
            tzinfo=None)
        created = [str(now.replace(microsecond=number + 1))
                   for number in range(count)]
        with self.database() as database:
            database.executemany(
                'INSERT INTO volume_attachment (created_at, deleted, id,'
                ' volume_id, instance_uuid, attach_status) VALUES'
                " (?, 0, ?, ?, ?, 'reserved')",
                [(moment, str(uuid.uuid4()), volume_id, server_id)
                 for moment in created])
            database.execute("UPDATE volumes SET status = 'reserved'"
                             " WHERE id = ? AND status = 'available'",
                             (volume_id,))

    def reset_attachment(self, volume_id: str, attachment_id: str,
                 status: str = 'reserved') -> None:
        """Reset a connected attachment to an earlier status.

        :param status: ``reserved``, as while the back end has exported the
            volume and cinder-volume has not yet recorded it, or
            ``attaching``, as while the disk is added to the guest
        """
        with self.database() as database:
            database.execute('UPDATE volume_attachment SET attach_status = ?'
                             ' WHERE id = ?', (status, attachment_id))
            database.execute('UPDATE volumes SET status = ? WHERE id = ?',
                             (status, volume_id))

    def change_connection(self, attachment_id: str,
                          data: Mapping[str, Any]) -> None:
        """Change the connection info of an attachment, if it exists.

        :param data: the fields that change
        """
        with self.database() as database:
            for text, in database.execute(
                    'SELECT connection_info FROM volume_attachment'
                    ' WHERE id = ?', (attachment_id,)).fetchall():
                database.execute(
                    'UPDATE volume_attachment SET connection_info = ?'
                    ' WHERE id = ?', (json.dumps(
                        {**json.loads(text or '{}'), **data}), attachment_id))

    def purge_volume(self, volume_id: str) -> None:
        """Remove a volume and all its records from the database."""
        with self.database() as database:
            for table, column in template.VOLUME_COLUMNS:
                database.execute(
                    f'DELETE FROM {table} WHERE {column} = ?',  # noqa: S608
                    (volume_id,))

    def purge(self) -> None:
        """Remove all volumes and their records from the database."""
        self.repair_driver()
        (self.state / 'driver.log').unlink(missing_ok=True)
        with self.database() as database:
            for table in _VOLUME_TABLES:
                database.execute(f'DELETE FROM {table}')  # noqa: S608

    # -- the back end ------------------------------------------------------

    def driver_calls(self, *volume_ids: str) -> list[dict[str, Any]]:
        """Return the calls of the back end, in order.

        :param volume_ids: only calls for these volumes
        :returns: dictionaries with ``time``, ``call``, ``volume``, ``host``
            and ``failed``
        """
        path = self.state / 'driver.log'
        if not path.exists():
            return []
        calls = [json.loads(line) for line in
                 path.read_text().splitlines()]
        return [call for call in calls
                if not volume_ids or call['volume'] in volume_ids]

    def break_driver(self, call: str, volume_id: str | None = None) -> None:
        """Make a call of the back end fail, until it is repaired.

        :param call: a driver method such as ``terminate_connection``
        :param volume_id: only for this volume
        """
        self._faults.append({'call': call, 'volume': volume_id})
        self._write_faults()

    def repair_driver(self) -> None:
        self._faults.clear()
        self._write_faults()

    def _write_faults(self) -> None:
        path = self.state / 'driver-faults.json'
        partial = path.with_suffix('.partial')
        partial.write_text(json.dumps(self._faults))
        partial.rename(path)


def interpreter() -> str:
    """Return the Python interpreter of an environment with Cinder.

    NOVA_BDM_CLEANUP_CINDER_PYTHON names it; by default,
    tools/environments.py of the checkout builds or reuses an environment.
    """
    override = os.environ.get('NOVA_BDM_CLEANUP_CINDER_PYTHON')
    if override:
        return override
    return str(environments().interpreter(ENVIRONMENT))


def environments() -> Any:
    """Return the module tools/environments.py of the checkout."""
    sys.path.insert(0, str(_CHECKOUT / 'tools'))
    try:
        import environments
    finally:
        sys.path.pop(0)
    return environments


def allowed(cases: Sequence[Mapping[str, Any]]) -> list[set[str]]:
    """Return the rules of Cinder's policy that users satisfy.

    :param cases: arguments of :func:`cinder_policy.allowed`
    """
    done = subprocess.run(
        [interpreter(), '-W', 'ignore', '-m',
         'nova_bdm_cleanup.tests.cloud.cinder_policy'],
        input=json.dumps(list(cases)), stdout=subprocess.PIPE, text=True,
        check=True, cwd=_CHECKOUT,
        env={name: value for name, value in os.environ.items()
             if not name.startswith('PYTHON')})
    return list(map(set, json.loads(done.stdout)))


class Shared:
    """The resources that tests of one process share, see :func:`shared`."""

    def __init__(self) -> None:
        #: Directory of all files of this process; removed at its end.
        self.root = pathlib.Path(tempfile.mkdtemp(prefix='bdm-cleanup-'))
        self.stand_in = standin.StandIn()
        self.cinders: dict[str, Cinder] = {}
        atexit.register(self.close)

    def cinder(self, name: str = 'cinder') -> Cinder:
        """Return a Cinder; start it at the first call.

        :param name: another name is another Cinder, empty at first, like a
            wrong region or a restored database
        """
        if name not in self.cinders:
            state = self.root / name
            state.mkdir()
            self.cinders[name] = Cinder(state, self.stand_in)
        return self.cinders[name]

    def close(self) -> None:
        """Stop everything; by default this happens at exit."""
        shared.cache_clear()
        atexit.unregister(self.close)
        for cinder in self.cinders.values():
            cinder.stop()
        self.stand_in.close()
        shutil.rmtree(self.root, ignore_errors=True)


@functools.lru_cache(maxsize=None)
def shared() -> Shared:
    return Shared()
