# SPDX-License-Identifier: Apache-2.0
"""Fill a new cloud: users, roles, endpoints, flavor, volume types."""

from __future__ import annotations

from typing import Any

from e2e import api, config, lab as lab_mod, processes

ENDPOINTS = {
    'placement': 'http://127.0.0.1:8778',
    'compute': 'http://127.0.0.1:8774/v2.1',
    'volumev3': 'http://127.0.0.1:8776/v3/%(project_id)s',
    'network': 'http://127.0.0.1:9696',
    'image': 'http://127.0.0.1:9292',
}

#: The second has a local root disk; the third has more memory.
FLAVOR, LOCAL_FLAVOR, LARGER_FLAVOR = '1', '2', '3'
MULTIATTACH_TYPE = 'multi'

REQUIRED_SERVICES = {'nova-conductor', 'nova-scheduler', 'nova-compute',
                     'cinder-scheduler', 'cinder-volume'}


def _admin(service: str, method: str, path: str, body: Any = None) -> Any:
    return api.call(service, method, path, body, who=api.ADMIN)


def _identity(method: str, path: str, body: Any = None) -> Any:
    return _admin('identity', method, path, body)


def fill_keystone() -> None:
    """Give service users the roles admin *and* service.

    Keystone's bootstrap of this release does not create the second, and
    Cinder ignores a service token without it.
    """
    roles = {role['name']: role['id']
             for role in _identity('GET', '/roles')['roles']}
    if 'service' not in roles:
        roles['service'] = _identity(
            'POST', '/roles', {'role': {'name': 'service'}})['role']['id']

    def user(name: str, project: str, names: tuple[str, ...]) -> None:
        made = _identity('POST', '/users', {'user': {
            'name': name, 'password': lab_mod.PASSWORD,
            'domain_id': 'default', 'default_project_id': project}})
        for role in names:
            _identity('PUT', f'/projects/{project}/users/'
                             f'{made["user"]["id"]}/roles/{roles[role]}')

    def project(name: str) -> str:
        made = _identity('POST', '/projects', {'project': {
            'name': name, 'domain_id': 'default'}})
        return str(made['project']['id'])

    service = project('service')
    for name in config.SERVICE_USERS:
        user(name, service, ('admin', 'service'))
    user('demo', project('demo'), ('member', 'reader'))
    for kind, url in ENDPOINTS.items():
        made = _identity('POST', '/services',
                         {'service': {'type': kind, 'name': kind}})
        for interface in ('public', 'internal', 'admin'):
            _identity('POST', '/endpoints', {'endpoint': {
                'service_id': made['service']['id'], 'url': url,
                'interface': interface, 'region_id': lab_mod.REGION}})


def wait_for_services() -> None:
    def all_up() -> bool:
        up = {one['binary'] for service in ('compute', 'volumev3')
              for one in _admin(service, 'GET', '/os-services')['services']
              if one['state'] == 'up'}
        # The first port query of a neutron worker fails when no other query
        # ran in it before (its mappers are not configured), so run one.
        _admin('network', 'GET', '/v2.0/networks')
        hypervisors = _admin('compute', 'GET', '/os-hypervisors')
        _admin('image', 'GET', '/v2/images')
        return REQUIRED_SERVICES <= up and bool(hypervisors['hypervisors'])

    processes.wait_until(all_up, 'the services of the cloud', 150, 1)


def fill_cloud() -> None:
    demo = api.login(api.MEMBER).get_project_id()
    for project in (demo, api.login(api.ADMIN).get_project_id()):
        _admin('volumev3', 'PUT', f'/os-quota-sets/{project}', {
            'quota_set': {'volumes': -1, 'gigabytes': -1}})
    _admin('compute', 'PUT', f'/os-quota-sets/{demo}', {
        'quota_set': {'instances': -1, 'cores': -1, 'ram': -1}})
    for flavor, ram, disk in ((FLAVOR, 64, 0), (LOCAL_FLAVOR, 64, 1),
                              (LARGER_FLAVOR, 80, 0)):
        _admin('compute', 'POST', '/flavors', {'flavor': {
            'name': flavor, 'ram': ram, 'vcpus': 1, 'disk': disk,
            'id': flavor}})
    for name, extra in (
            ('e2e', {}),
            (MULTIATTACH_TYPE, {'multiattach': '<is> True'})):
        _admin('volumev3', 'POST', '/types', {'volume_type': {
            'name': name,
            'extra_specs': {'volume_backend_name': 'e2e', **extra}}})
