# SPDX-License-Identifier: Apache-2.0
"""The processes beside the command: ``serve`` a cloud, ``ask`` it in a loop.

Each has its own processor time and its own peak of memory.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from keystoneauth1 import adapter, exceptions, session as ksa_session
from keystoneauth1.identity import v3

from nova_bdm_cleanup.tests.unit.loopback import LoopbackCloud
from nova_bdm_cleanup.tests.unit.wire import LoopbackServer


def serve(servers: int, volumes_each: int, lost: int) -> None:
    """Serve a cloud in which the attachments of some volumes are lost.

    It prints its URL, and for each line of standard input the number of
    requests since the last one.
    """
    cloud = LoopbackCloud()
    cloud.populate(servers, volumes_each)
    volumes = list(cloud.volumes)
    for number in range(lost):
        cloud.lose_attachment(volumes[number * len(volumes) // lost])
    with LoopbackServer(cloud) as server:
        print(server.url, flush=True)
        for _ in sys.stdin:
            print(len(cloud.requests), flush=True)
            cloud.requests.clear()


def ask(url: str) -> None:
    """List the servers, ask for each of their volumes, and print the wrong.

    This is the loop that an operator writes, in one process with one token.
    """
    session = ksa_session.Session(auth=v3.Password(
        auth_url=url + '/identity/v3', username='admin', password='x',
        project_name='own', user_domain_id='default',
        project_domain_id='default'))
    compute = adapter.Adapter(session, service_type='compute')
    storage = adapter.Adapter(session, service_type='block-storage')
    servers: list[dict[str, Any]] = []
    while True:
        page = compute.get('/servers/detail', params={
            'all_tenants': 1,
            **({'marker': servers[-1]['id']} if servers else {})})
        found = page.json()['servers']
        if not found:
            break
        servers += found
    wrong: list[str] = []
    for server in servers:
        for named in server['os-extended-volumes:volumes_attached']:
            try:
                volume = storage.get('/volumes/' + named['id']).json()
            except exceptions.NotFound:
                wrong.append(named['id'])
                continue
            if server['id'] not in {
                    each['server_id']
                    for each in volume['volume']['attachments']}:
                wrong.append(named['id'])
    print(json.dumps(wrong))


if __name__ == '__main__':
    if sys.argv[1] == 'serve':
        serve(*map(int, sys.argv[2:]))
    else:
        ask(sys.argv[2])
