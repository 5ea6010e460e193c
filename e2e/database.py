# SPDX-License-Identifier: Apache-2.0
"""MariaDB: brought up, filled with schemas, and read by the tests.

The tests read Nova's rows through a user that may do nothing else; what is
in the tables is changed by Nova alone.
"""

from __future__ import annotations

from concurrent import futures
import datetime
import subprocess
from typing import Any

from e2e import config, lab as lab_mod, processes

DATABASES = ('keystone', 'glance', 'placement', 'nova_api', 'nova',
             'nova_cell0', 'cinder', 'cinder_empty', 'neutron')


def start(lab: lab_mod.Lab, procs: processes.Processes) -> None:
    conf = lab.etc / 'mariadb.cnf'
    data = lab.directory / 'mysql'
    if not (data / 'mysql').exists():
        for path in (data, lab.run, lab.tmp):
            subprocess.run(['chown', 'mysql:', str(path)], check=True)
        run(lab, 'mariadb-install',
            ['mariadb-install-db', f'--defaults-file={conf}', '--user=mysql',
             '--auth-root-authentication-method=socket', '--skip-test-db'])
    procs.start('mariadb', ['mariadbd', f'--defaults-file={conf}'])
    processes.wait_until(lambda: _root(lab, 'select 1'), 'MariaDB')


def run(lab: lab_mod.Lab, name: str, *commands: list[str]) -> None:
    """Run set-up commands, with a log of their own for when one fails."""
    with lab.log_of(name).open('ab') as log:
        for command in commands:
            subprocess.run(command, check=True, stdout=log, stderr=log,
                           stdin=subprocess.DEVNULL, cwd=lab.directory,
                           env=lab_mod.environment())


def _root(lab: lab_mod.Lab, statement: str) -> bool:
    subprocess.run(
        ['mariadb', f'--socket={lab.run}/mariadb.sock', '-uroot',
         '-e', statement],
        check=True, capture_output=True, env=lab_mod.environment())
    return True


def create(lab: lab_mod.Lab) -> None:
    """Make the databases and bring every schema to its head."""
    _root(lab, "create user if not exists e2e@'127.0.0.1' "
               f"identified by '{lab_mod.PASSWORD}'")
    _root(lab, "create user if not exists reader@'127.0.0.1' "
               f"identified by '{lab_mod.PASSWORD}'")
    for name in DATABASES:
        _root(lab, f'create database if not exists {name}')
        _root(lab, f"grant all on {name}.* to e2e@'127.0.0.1'")
        _root(lab, f"grant select on {name}.* to reader@'127.0.0.1'")
    etc = lab.etc
    keystone = ['keystone-manage',
                f'--config-file={etc}/keystone/keystone.conf']
    nova = ['nova-manage', '--config-file', str(lab.nova_conf),
            '--config-file', f'{etc}/nova/nova-db.conf']
    url = 'http://127.0.0.1:5000/v3/'
    cell0 = f'{config.database_url()}/nova_cell0'
    as_root = ['--keystone-user', 'root', '--keystone-group', 'root']
    jobs = {
        'setup-keystone': (
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
        'setup-nova': (
            ['placement-manage', '--config-file',
             f'{etc}/placement/placement.conf', 'db', 'sync'],
            [*nova, 'api_db', 'sync'],
            [*nova, 'cell_v2', 'map_cell0', '--database_connection', cell0],
            [*nova, 'db', 'sync'],
            [*nova, 'cell_v2', 'create_cell', '--name', 'cell1'],
        ),
        'setup-cinder': (
            ['cinder-manage', '--config-file', f'{etc}/cinder/cinder.conf',
             'db', 'sync'],
            ['neutron-db-manage', '--config-file',
             f'{etc}/neutron/neutron.conf', 'upgrade', 'heads'],
        ),
    }
    for name in ('fernet', 'credential'):
        (lab.directory / 'keystone' / name).mkdir(parents=True, exist_ok=True)
    with futures.ThreadPoolExecutor(len(jobs)) as pool:
        waiting = [pool.submit(run, lab, name, *commands)
                   for name, commands in jobs.items()]
        for one in waiting:
            one.result()


def query(statement: str, *values: Any,
          database: str = 'nova') -> list[dict[str, Any]]:
    """Read rows as dictionaries, as the user that can only read."""
    import pymysql
    import pymysql.cursors
    link = pymysql.connect(
        host='127.0.0.1', port=lab_mod.PORTS['mariadb'], user='reader',
        password=lab_mod.PASSWORD, database=database,
        cursorclass=pymysql.cursors.DictCursor)
    try:
        with link.cursor() as cursor:
            cursor.execute(statement, values)
            return list(cursor.fetchall())
    finally:
        link.close()


def bdm_rows(server: str) -> list[dict[str, Any]]:
    """The live block device mappings of a server."""
    return query(
        'select id, volume_id, attachment_id, device_name, boot_index '
        'from block_device_mapping where instance_uuid = %s and deleted = 0 '
        'order by id', server)


def deleted_at(server: str, volume: str) -> datetime.datetime | None:
    """When Nova soft-deleted its row of a volume, to the second."""
    rows = query(
        'select deleted_at from block_device_mapping where instance_uuid = %s '
        'and volume_id = %s and deleted <> 0 order by id desc limit 1',
        server, volume)
    return rows[0]['deleted_at'] if rows else None
