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
"""The parts of the fleet benchmark, each a process of its own.

``serve`` is a cloud as large as one likes, ``audit`` the engine of
``openstack bdm audit``, ``naive`` the loop that an operator would write.  So
each has its own processor time and its own peak of memory.
"""

from __future__ import annotations

from collections.abc import Callable
import datetime
import json
import re
import sys
import time
import types
from typing import Any

from cinderclient import client as cinderclient
from cinderclient import exceptions as cinder_exceptions
from keystoneauth1 import adapter
from keystoneauth1 import session as ksa_session
from keystoneauth1.identity import v3

from nova_bdm_cleanup.api import Budget
from nova_bdm_cleanup.fleet import audit
from nova_bdm_cleanup.model import Policy
from nova_bdm_cleanup.osc import client
from nova_bdm_cleanup.tests.unit.loopback import LoopbackCloud
from nova_bdm_cleanup.tests.unit.wire import LoopbackServer


def serve(servers: str, volumes_each: str, broken: str) -> None:
    """Serve a cloud in which some attachments were lost."""
    cloud = LoopbackCloud()
    cloud.populate(int(servers), int(volumes_each))
    volumes = list(cloud.volumes)
    for number in range(int(broken)):
        cloud.lose_attachment(volumes[number * len(volumes) // int(broken)])
    with LoopbackServer(cloud) as server:
        print(server.url, flush=True)
        # Until the parent closes it.
        sys.stdin.read()


def audit_all(session: Any) -> tuple[int, int]:
    """What ``openstack bdm audit --all-projects`` does.

    :returns: how much is inconsistent, and the number of requests
    """
    budget = Budget()
    clients = client.Client(session, types.SimpleNamespace(
        get_interface=lambda service: 'public',
        get_region_name=lambda service: None,
        get_endpoint=lambda service: None))
    auditor = audit.Audit(
        clients.nova(budget), clients.cinder(budget), Policy(),
        audit.Scope(all_projects=True), lambda what, count: None,
        lambda: datetime.datetime.now(datetime.timezone.utc), None)
    found = sum(1 for _ in auditor.issues())
    assert not auditor.gaps, auditor.gaps
    return found, sum(budget.made.values())


def ask_for_each(session: Any) -> tuple[int, int]:
    """List the servers, and ask Cinder for each of their volumes.

    :returns: how much is inconsistent, and the number of requests
    """
    compute = adapter.Adapter(session, service_type='compute')
    storage = cinderclient.Client('3.44', session=session,
                                  service_type='block-storage')
    servers: list[dict[str, Any]] = []
    requests = found = 0
    while True:
        query = '/servers/detail?all_tenants=1'
        if servers:
            query += f'&marker={servers[-1]["id"]}'
        page = compute.get(query).json()['servers']
        requests += 1
        if not page:
            break
        servers.extend(page)
    for server in servers:
        for named in server['os-extended-volumes:volumes_attached']:
            requests += 1
            try:
                volume = storage.volumes.get(named['id'])
            except cinder_exceptions.NotFound:
                found += 1
                continue
            found += server['id'] not in {
                each['server_id'] for each in volume.attachments}
    return found, requests


def measure(function: Callable[[Any], tuple[int, int]], url: str) -> None:
    """Run one of the two and print what it took as JSON."""
    session = ksa_session.Session(auth=v3.Password(
        auth_url=url + '/identity/v3', username='admin', password='x',
        project_name='own', user_domain_id='default',
        project_domain_id='default'))
    session.get_token()
    before = _peak()
    begun, used = time.perf_counter(), time.process_time()
    found, requests = function(session)
    print(json.dumps({
        'seconds': time.perf_counter() - begun,
        'cpu': time.process_time() - used,
        'found': found, 'requests': requests,
        'peak': _peak(), 'grown': _peak() - before}))


def _peak() -> float:
    """The most memory this process ever had, in MiB.

    What getrusage(2) says would include that of the parent.
    """
    with open('/proc/self/status', encoding='ascii') as status:
        found = re.search(r'VmHWM:\s+(\d+) kB', status.read())
    assert found is not None
    return int(found.group(1)) / 1024


def main() -> None:
    role, *arguments = sys.argv[1:]
    if role == 'serve':
        serve(*arguments)
    else:
        measure({'audit': audit_all, 'naive': ask_for_each}[role],
                *arguments)


if __name__ == '__main__':
    main()
