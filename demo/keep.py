# SPDX-License-Identifier: Apache-2.0
"""Leave the cloud up and tell how to get in."""

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
    """Wait for Ctrl-C, then exit.

    :param code: the exit code, since the story is over
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
    screen.heading('The cloud stays up')
    for name, value in (
            ('identity', stand_in.identity_url), ('Nova', cloud.nova.url),
            ('Cinder', cloud.cinder.url + '/v3'),
            ('log', cloud.state / 'nova.log'), ('clouds', path)):
        screen.point(name, str(value))
    screen.point('users', 'owner, whose server it is, and admin, an '
                 'administrator in another project; the password of both '
                 f'is {standin.PASSWORD}')
    screen.line()
    screen.say('In another terminal, where python-openstackclient is '
               'installed:')
    screen.line()
    screen.command(f'export OS_CLIENT_CONFIG_FILE={path}')
    screen.command('openstack --os-cloud owner server list')
    screen.command('openstack --os-cloud owner volume list')
    screen.command('openstack --os-cloud admin server list --all-projects')
    screen.line()
    screen.say('Ctrl-C stops and removes everything.')
    threading.Event().wait()
