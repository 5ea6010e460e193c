# SPDX-License-Identifier: Apache-2.0
"""A whole Cinder in one process: API, scheduler and volume service.

Started by :mod:`nova_bdm_cleanup.tests.cloud.cinder` with the interpreter of
an environment that has Cinder.  It prints one JSON line when it is ready and
runs until its standard input is closed, which any end of the parent causes;
then it removes its state directory.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import pathlib
import shutil
import sqlite3
import sys
import threading
import time
from typing import Any


def _end_with_parent(state: pathlib.Path) -> None:
    """Wait until the other end of standard input is closed."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    shutil.rmtree(state, ignore_errors=True)
    # No cleanup is needed, and some threads would delay it.
    os._exit(0)


if __name__ == '__main__':
    # From the start: the parent may end before the imports below are
    # finished.
    threading.Thread(target=_end_with_parent, daemon=True,
                     args=(pathlib.Path(sys.argv[1]),)).start()

# Before the rest of Cinder is imported, threads must be selected and its
# objects registered.
os.environ['OS_CINDER_DISABLE_EVENTLET_PATCHING'] = 'true'
from cinder import monkey_patch

monkey_patch.patch(backend='threading')
from cinder import objects

objects.register_all()

from cheroot import wsgi as cheroot
from cinder import context, coordination, rpc, service, version
from cinder.common import config as cinder_config
from cinder.db import api as db, migration
import cinder.scheduler.manager  # noqa: F401 (registers options)
from cinder.volume import volume_types
import cinder.volume.manager  # noqa: F401 (registers options)
import os_brick
from oslo_config import cfg
from oslo_log import log as logging
from oslo_service import wsgi
import sqlalchemy
from sqlalchemy import pool

from nova_bdm_cleanup.tests.cloud import identity, messages

CONF = cfg.CONF
BACK_END = 'lab'
MULTIATTACH_TYPE = 'multiattach'
#: Longer than a run, and more connections than there are.
_KEEP_ALIVE_SECONDS = 1 << 20
_MAX_CONNECTIONS = 1 << 10

_CONFIGURATION = """\
[DEFAULT]
host = cinder
my_ip = 127.0.0.1
state_path = {state}
log_file = {state}/cinder.log
api_paste_config = {state}/api-paste.ini
resource_query_filters_file = {state}/resource_filters.json
# Scheduler and volume service share this process, so memory will do.
transport_url = fake://
auth_strategy = keystone
enabled_backends = {back_end}
default_volume_type = {back_end}
glance_api_servers = {image_url}
# The default takes hexadecimal digits only.
project_id_regex = [0-9a-zA-Z_-]+
quota_volumes = -1
quota_gigabytes = -1
quota_snapshots = -1
# Two services in one process overwrite each other's heart beat, so there is
# none, and no service is taken for dead.
report_interval = 0
service_down_time = 2000000000
# A fixed sleep; one second is the least it takes.
scheduler_driver_init_wait_time = 1
[{back_end}]
volume_driver = nova_bdm_cleanup.tests.cloud.cinder_driver.RecordingDriver
volume_backend_name = {back_end}
[database]
connection = sqlite:///{state}/cinder.sqlite?timeout=30
# It need not survive a power failure.
sqlite_synchronous = false
max_pool_size = 20
max_overflow = 30
[oslo_concurrency]
lock_path = {state}/locks
[coordination]
backend_url = file://{state}/coordination
[oslo_messaging_notifications]
driver = noop
[oslo_policy]
policy_file = {state}/policy.yaml
[keystone_authtoken]
service_token_roles = service
service_token_roles_required = true
[nova]
# Where Cinder takes the token of a user who wants to delete an attachment.
token_auth_url = {identity_url}
interface = public
"""


def write_configuration(state: pathlib.Path, identity_url: str,
                        image_url: str) -> pathlib.Path:
    share = pathlib.Path(sys.prefix) / 'etc' / 'cinder'
    shutil.copy(share / 'resource_filters.json', state)
    (state / 'api-paste.ini').write_text(identity.with_text_tokens(
        (share / 'api-paste.ini').read_text()))
    (state / 'policy.yaml').write_text('{}\n')
    path = state / 'cinder.conf'
    path.write_text(_CONFIGURATION.format(
        state=state, back_end=BACK_END,
        identity_url=identity_url, image_url=image_url))
    return path


class _ReusedConnections(pool.QueuePool):
    """Pool of as many connections as are needed; each is reused."""

    def __init__(self, creator: Any, **options: Any) -> None:
        super().__init__(creator, pool_size=0, **options)


def prepare_database(path: pathlib.Path) -> sqlite3.Connection:
    """Create the tables and prepare SQLite for concurrent writers.

    :returns: a connection to keep open: when the last one is closed, SQLite
        writes its journal back, and Cinder keeps none between requests
    """
    # A new connection reads all definitions of tables first; oslo.db would
    # make one for each transaction.
    pool.NullPool = _ReusedConnections
    migration.db_sync()
    kept = sqlite3.connect(path)
    kept.execute('PRAGMA journal_mode=WAL')
    _compare_as_mariadb(kept)

    # A transaction that reads first and writes later fails at once, without
    # waiting, when another one has written in between; then Cinder answers
    # 500.  With the write lock from the start, transactions queue.
    @sqlalchemy.event.listens_for(
        db.get_engine(), 'before_cursor_execute', retval=True)
    def begin_immediate(connection: Any, cursor: Any, statement: str,
                        parameters: Any, execution: Any, many: bool
                        ) -> tuple[str, Any]:
        if statement == 'BEGIN':
            statement = 'BEGIN IMMEDIATE'
        return statement, parameters

    return kept


def _compare_as_mariadb(database: sqlite3.Connection) -> None:
    """Compare the ids of servers without case, as most clouds do.

    SQLite cannot change a column, and would have to copy the table.
    """
    version, = database.execute('PRAGMA schema_version').fetchone()
    database.execute('PRAGMA writable_schema = ON')
    with database:
        changed = database.execute(
            "UPDATE sqlite_master SET sql = replace(sql, 'instance_uuid "
            "VARCHAR(36)', 'instance_uuid VARCHAR(36) COLLATE NOCASE') "
            "WHERE name = 'volume_attachment'").rowcount
        # Open connections read the schema again.
        database.execute(f'PRAGMA schema_version = {version + 1}')
    database.execute('PRAGMA writable_schema = OFF')
    assert changed == 1


def start_services() -> None:
    coordination.COORDINATOR.start()
    rpc.init(CONF)
    admin = context.get_admin_context()
    volume_types.create(admin, BACK_END, {})
    volume_types.create(admin, MULTIATTACH_TYPE, {'multiattach': '<is> True'})
    service.Service.create(
        host='cinder', binary='cinder-scheduler').start()
    volumes = service.Service.create(
        host=f'cinder@{BACK_END}', service_name=BACK_END,
        binary='cinder-volume', coordination=True)
    volumes.start()
    # If its own record is new, cinder-volume reads it in its first report: a
    # volume created before has no lock that os-brick could hold.
    volumes.manager.publish_service_capabilities(admin)


def serve() -> int:
    """Start the API on a free port.

    :returns: the port
    """
    application = wsgi.Loader(CONF).load_app('osapi_volume')
    # Connections stay open as long as the client wants: one that is closed
    # here just before the next request looks like a fault of Cinder.
    server = cheroot.Server(('127.0.0.1', 0), application, numthreads=10,
                            request_queue_size=128,
                            timeout=_KEEP_ALIVE_SECONDS)
    server.keep_alive_conn_limit = _MAX_CONNECTIONS
    server.prepare()
    threading.Thread(target=server.serve, daemon=True).start()
    return server.bind_addr[1]


def main() -> None:
    started = time.monotonic()
    parser = argparse.ArgumentParser()
    parser.add_argument('state', type=pathlib.Path)
    parser.add_argument('--identity-url', required=True)
    parser.add_argument('--image-url', required=True)
    arguments = parser.parse_args()
    path = write_configuration(arguments.state, arguments.identity_url,
                               arguments.image_url)
    CONF(['--config-file', str(path)], project='cinder',
         version=version.version_string())
    logging.setup(CONF, 'cinder')
    cinder_config.set_middleware_defaults()
    os_brick.setup(CONF)
    messages.deliver_at_once()
    database = prepare_database(arguments.state / 'cinder.sqlite')
    start_services()
    port = serve()
    # As in Nova's process.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    print(json.dumps({'port': port, 'version': version.version_string(),
                      'seconds': round(time.monotonic() - started, 2)}),
          flush=True)
    with contextlib.closing(database):
        threading.Event().wait()


if __name__ == '__main__':
    main()
