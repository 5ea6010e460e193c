# SPDX-License-Identifier: Apache-2.0
"""The cloud kept running after the story, with credentials for it."""

from __future__ import annotations

import os
import signal
import threading

import screen as screens

from nova_bdm_cleanup.tests.cloud import cinder, fixture, standin

_CLOUD = """\
  {name}:
    auth:
      auth_url: {url}
      username: {name}
      password: {password}
      project_id: {project}
      user_domain_id: default
    identity_api_version: 3
    region_name: RegionOne
"""


def keep(screen: screens.Screen, cloud: fixture.Cloud, code: int) -> None:
    """Print how to use the cloud, wait for Ctrl-C and exit.

    :param code: the exit code; the story is over
    """
    signal.signal(signal.SIGINT, lambda *arguments: os._exit(code))
    stand_in = cinder.shared().stand_in
    text = 'clouds:\n'
    for caller in (cloud.owner, cloud.admin):
        stand_in.users[caller.user] = caller
        text += _CLOUD.format(
            name=caller.user, url=stand_in.identity_url,
            password=standin.PASSWORD, project=caller.project)
    path = cloud.state / 'clouds.yaml'
    path.write_text(text)
    screen.heading('The cloud keeps running')
    for name, value in (
            ('identity', stand_in.identity_url), ('Nova', cloud.nova.url),
            ('Cinder', cloud.cinder.url + '/v3'),
            ('log', cloud.state / 'nova.log'), ('clouds', path)):
        screen.item(name, str(value))
    screen.item('users', 'owner, who owns the server, and admin, an '
                'administrator in another project; the password of both is '
                f'{standin.PASSWORD}')
    screen.line()
    screen.paragraph('In another terminal, where python-openstackclient is '
                     'installed:')
    screen.line()
    screen.command(f'export OS_CLIENT_CONFIG_FILE={path}')
    screen.command('openstack --os-cloud owner server list')
    screen.command('openstack --os-cloud owner volume list')
    screen.command('openstack --os-cloud admin server list --all-projects')
    screen.line()
    screen.paragraph('Ctrl-C stops and removes everything.')
    threading.Event().wait()
