# SPDX-License-Identifier: Apache-2.0
"""MariaDB: brought up, filled with schemas, and read by the tests.

The tests read Nova's rows through a user that may do nothing else; only Nova
changes the tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent import futures
import datetime
import shutil
from typing import Any

from e2e import config, lab as lab_mod, processes

DATABASES = ('keystone', 'glance', 'placement', 'nova_api', 'nova',
             'nova_cell0', 'cinder', 'cinder_empty', 'neutron')


def start(lab: lab_mod.Lab, procs: processes.Processes,
          name: str = 'mariadb') -> None:
    """Start MariaDB, or the replica of that name."""
    conf = lab.etc / f'{name}.cnf'
    data = lab.directory / ('mysql' if name == 'mariadb' else name)
    if not (data / 'mysql').exists():
        for path in (data, lab.run, lab.tmp):
            shutil.chown(path, 'mysql', 'mysql')
        lab_mod.run('mariadb-install-db', f'--defaults-file={conf}',
                    '--user=mysql', '--skip-test-db',
                    '--auth-root-authentication-method=socket')
    procs.start(name, ['mariadbd', f'--defaults-file={conf}'])
    processes.wait_until(lambda: run_as_root(lab, 'select 1', name), name)


def run_as_root(lab: lab_mod.Lab, statement: str,
                name: str = 'mariadb') -> bool:
    """Run a statement; return true."""
    lab_mod.run('mariadb', f'--socket={lab.run}/{name}.sock', '-uroot',
                '-e', statement)
    return True


def create(lab: lab_mod.Lab) -> None:
    """Create the databases and upgrade every schema to its head."""
    run_as_root(lab, "create user if not exists e2e@'127.0.0.1' "
                 f"identified by '{lab_mod.PASSWORD}'")
    run_as_root(lab, "create user if not exists reader@'127.0.0.1' "
                 f"identified by '{lab_mod.PASSWORD}'")
    for name in DATABASES:
        run_as_root(lab, f'create database if not exists {name}')
        run_as_root(lab, f"grant all on {name}.* to e2e@'127.0.0.1'")
        run_as_root(lab, f"grant select on {name}.* to reader@'127.0.0.1'")
    etc = lab.etc
    keystone = ['keystone-manage',
                f'--config-file={etc}/keystone/keystone.conf']
    nova = ['nova-manage', '--config-file', str(lab.nova_conf),
            '--config-file', f'{etc}/nova/nova-db.conf']
    url = 'http://127.0.0.1:5000/v3/'
    cell0 = f'{config.database_url()}/nova_cell0'
    as_root = ['--keystone-user', 'root', '--keystone-group', 'root']
    jobs = (
        (
            [*keystone, 'db_sync'],
            [*keystone, 'fernet_setup', *as_root],
            [*keystone, 'credential_setup', *as_root],
            [*keystone, 'bootstrap',
             '--bootstrap-password', lab_mod.PASSWORD,
             '--bootstrap-region-id', lab_mod.REGION,
             *(f'--bootstrap-{kind}-url={url}'
               for kind in ('admin', 'internal', 'public'))],
            ['glance-manage', '--config-file',
             f'{etc}/glance/glance-api.conf', 'db_sync'],
        ),
        (
            ['placement-manage', '--config-file',
             f'{etc}/placement/placement.conf', 'db', 'sync'],
            [*nova, 'api_db', 'sync'],
            [*nova, 'cell_v2', 'map_cell0', '--database_connection', cell0],
            [*nova, 'db', 'sync'],
            [*nova, 'cell_v2', 'create_cell', '--name', 'cell1'],
        ),
        (
            ['cinder-manage', '--config-file', f'{etc}/cinder/cinder.conf',
             'db', 'sync'],
            ['neutron-db-manage', '--config-file',
             f'{etc}/neutron/neutron.conf', 'upgrade', 'heads'],
        ),
    )
    for name in ('fernet', 'credential'):
        (lab.directory / 'keystone' / name).mkdir(parents=True, exist_ok=True)
    with futures.ThreadPoolExecutor(len(jobs)) as pool:
        list(pool.map(_run_all, jobs))


def _run_all(commands: Iterable[list[str]]) -> None:
    for command in commands:
        lab_mod.run(*command)


def query(statement: str, *values: Any) -> list[Any]:
    """Read a column of Nova's rows, as the read-only user."""
    import pymysql
    link = pymysql.connect(
        host='127.0.0.1', port=lab_mod.PORTS['mariadb'], user='reader',
        password=lab_mod.PASSWORD, database='nova')
    try:
        with link.cursor() as cursor:
            cursor.execute(statement, values)
            return [value for value, in cursor.fetchall()]
    finally:
        link.close()


def mapped_volumes(server: str) -> list[str | None]:
    """Return the volumes of a server's live block device mappings."""
    return query('select volume_id from block_device_mapping '
                 'where instance_uuid = %s and deleted = 0', server)


def mapped_attachments(server: str) -> dict[str, str]:
    """Return the attachment that each of these mappings names, by volume."""
    return dict(words.split() for words in query(
        "select concat(volume_id, ' ', attachment_id) "
        'from block_device_mapping where instance_uuid = %s and deleted = 0',
        server))


def mapping_deleted_at(server: str, volume: str) -> datetime.datetime | None:
    """Return when Nova soft-deleted its row of a volume, to the second."""
    rows = query(
        'select deleted_at from block_device_mapping where instance_uuid = %s '
        'and volume_id = %s and deleted <> 0 order by id desc limit 1',
        server, volume)
    return rows[0] if rows else None
