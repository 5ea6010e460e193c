# SPDX-License-Identifier: Apache-2.0
"""``nova-bdm-cleanup check`` with the nova.conf of deployment tools.

Each has the options for Cinder that a tool writes, in the form of the release
that fits this Nova.
"""

from __future__ import annotations

from importlib import metadata
import json
import pathlib
import subprocess
import sys

import fixtures
from oslo_upgradecheck.upgradecheck import Code
from testtools import content

from nova_bdm_cleanup.tests.cloud import cinder, identity, standin
from nova_bdm_cleanup.tests.functional import base

#: The user in ``[cinder]`` of kolla-ansible.
_CINDER = identity.Caller('cinder', identity.NOVA_PROJECT,
                          ('service', *identity.ADMIN))

_COMMON = """\
[DEFAULT]
state_path = {state}
transport_url = fake:/
compute_driver = libvirt.LibvirtDriver
[bdm_cleanup]
mode = observe
audit_interval = 3600
"""

_KOLLA_ANSIBLE = """\
[cinder]
catalog_info = {catalog_info}
os_region_name = RegionOne
auth_url = {keystone}
auth_type = password
project_domain_name = Default
user_domain_id = default
project_name = service
username = cinder
password = {password}
cafile =
[service_user]
send_service_user_token = true
auth_url = {keystone}
auth_type = password
project_domain_id = default
user_domain_id = default
project_name = service
username = nova
password = {password}
cafile =
region_name = RegionOne
valid_interfaces = internal
"""

_OPENSTACK_ANSIBLE = """\
[cinder]
catalog_info = {catalog_info}
os_region_name = RegionOne
auth_section = keystone_authtoken
[service_user]
send_service_user_token = True
region_name = RegionOne
auth_type = password
username = nova
password = {password}
project_name = service
user_domain_id = default
project_domain_id = default
auth_url = {keystone}/v3
insecure = False
[keystone_authtoken]
insecure = False
auth_type = password
auth_url = {keystone}
www_authenticate_uri = {keystone}
project_domain_id = default
user_domain_id = default
project_name = service
username = nova
password = {password}
region_name = RegionOne
service_token_roles_required = True
service_token_roles = service
service_type = compute
"""


class DeploymentToolsTest(base.FunctionalTestCase):

    def check(self, text: str, catalog_info: str) -> set[identity.Caller]:
        """Check that all results are Success.

        :param text: the options for Cinder
        :param catalog_info: of the newest release of the tool
        :returns: whom Cinder takes the requests to be from
        """
        if int(metadata.version('nova').partition('.')[0]) < 31:
            # Nova allows no hyphen there, and the tools wrote this.
            catalog_info = 'volumev3:cinderv3:internalURL'
        keystone = cinder.shared().stand_in
        for caller in (identity.NOVA, _CINDER):
            keystone.users[caller.user] = caller
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (directory / 'state').mkdir()
        conf = directory / 'nova.conf'
        conf.write_text((_COMMON + text).format(
            state=directory / 'state', catalog_info=catalog_info,
            keystone=keystone.identity_url[:-len('/v3')],
            password=standin.PASSWORD))
        done = subprocess.run(
            [sys.executable, '-W', 'ignore', '-m',
             'nova_bdm_cleanup.admin.main', '--config-file', str(conf),
             'check', '--json'],
            capture_output=True, text=True, timeout=120,
            env=base.install_into(directory / 'site'))
        for name in ('stdout', 'stderr'):
            self.addDetail(name, content.text_content(getattr(done, name)))
        # os-brick of some releases has a warning of its own.
        self.assertEqual([], [
            each for each in json.loads(done.stdout)['checks']
            if each['result'] != Code.SUCCESS and each['check'] != 'os-brick'])
        self.assertTrue(all(request.has_service_token
                            for request in self.cloud.proxy.requests
                            if request.caller))
        return {request.caller for request in self.cloud.proxy.requests
                if request.caller}

    def test_options_of_kolla_ansible_pass_the_check(self) -> None:
        self.assertEqual({_CINDER}, self.check(
            _KOLLA_ANSIBLE, 'block-storage::internalURL'))

    def test_options_of_openstack_ansible_pass_the_check(self) -> None:
        self.assertEqual({identity.NOVA}, self.check(
            _OPENSTACK_ANSIBLE, 'block-storage:cinder:internalURL'))
