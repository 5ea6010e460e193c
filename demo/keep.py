# SPDX-License-Identifier: Apache-2.0
"""The cloud kept running, with credentials and the commands to try."""

from __future__ import annotations

import os
import pathlib
import shlex
import signal
import threading
from typing import NoReturn

import screen as screens
import story as stories

from nova_bdm_cleanup.tests.cloud import cinder, fixture, standin

_CHECKOUT = pathlib.Path(__file__).resolve().parents[1]
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
#: The names of the projects of the users.
_PROJECTS = {'owner': 'demo', 'admin': 'admin'}


def keep_healed(screen: screens.Screen, cloud: fixture.Cloud,
                code: int) -> NoReturn:
    """Print how to use the cloud, wait for Ctrl-C and exit.

    :param code: the exit code; the story is over
    """
    signal.signal(signal.SIGINT, lambda *arguments: os._exit(code))
    path = _describe(screen, cloud, 'The cloud keeps running')
    screen.paragraph('In another terminal, where python-openstackclient is '
                     'installed:')
    screen.line()
    screen.command(f'export OS_CLIENT_CONFIG_FILE={path}')
    screen.command('openstack --os-cloud owner server list')
    screen.command('openstack --os-cloud owner volume list')
    screen.command('openstack --os-cloud admin server list --all-projects')
    _wait(screen)


def keep_broken(screen: screens.Screen, cloud: fixture.Cloud,
                middle: stories.Middle) -> NoReturn:
    """Print how to clean the cloud up and to undo it; wait and exit."""
    signal.signal(signal.SIGINT, lambda *arguments: os._exit(0))
    path = _describe(screen, cloud, 'The damaged cloud keeps running')
    screen.paragraph('Now clean it up. First prepare another terminal:')
    screen.line()
    screen.command(f'cd {shlex.quote(str(cloud.state))}')
    package = shlex.quote(f'{_CHECKOUT}[cli]')
    screen.command('python3 -m venv venv && . venv/bin/activate && '
                   f'pip install --quiet {package}')
    screen.command(f'export OS_CLIENT_CONFIG_FILE=$PWD/{path.name} '
                   'OS_CLOUD=admin')
    for number, (text, command) in enumerate(_practice(middle), 1):
        screen.line()
        screen.paragraph(f'{number}. {text}')
        screen.line()
        screen.command(command)
    _wait(screen)


def _practice(middle: stories.Middle) -> list[tuple[str, str]]:
    """Return what to do, and the command for it, in order."""
    reason = next(damage.reason for damage in middle.damaged.values())
    server = middle.server.id
    configuration = '--config-file etc/nova/nova.conf'
    newest = (f'$(nova-bdm-cleanup journal list {configuration} | '
              "awk 'END {print $1}')")
    audit = 'openstack bdm audit --all-projects'
    return [
        ('Audit: list what is inconsistent.', audit),
        ('Explain: read what a reason means, and what to do.',
         f'openstack bdm explain {reason}'),
        ('Clean: reboot the server hard, for the plugin on its host to clean '
         'up. The command asks first: answer y.',
         f'openstack bdm clean {server}'),
        ('Look: list the volumes that the server still has.',
         f'openstack bdm show {server}'),
        ('Undo: print the commands that attach the removed volumes again, '
         'from the newest entry of the journal. Then paste those commands.',
         f'nova-bdm-cleanup journal undo {configuration} {newest}'),
        ('Audit again: nothing is inconsistent.', audit)]


def _describe(screen: screens.Screen, cloud: fixture.Cloud,
              heading: str) -> pathlib.Path:
    """Print the endpoints and the users.

    :returns: the path of the ``clouds.yaml`` with the users
    """
    stand_in = cinder.shared().stand_in
    text = 'clouds:\n'
    for caller in (cloud.owner, cloud.admin):
        stand_in.users[caller.user] = caller
        stand_in.projects[caller.project] = _PROJECTS[caller.user]
        text += _CLOUD.format(
            name=caller.user, url=stand_in.identity_url,
            password=standin.PASSWORD, project=caller.project)
    path = cloud.state / 'clouds.yaml'
    path.write_text(text)
    screen.heading(heading)
    for name, value in (
            ('identity', stand_in.identity_url), ('Nova', cloud.nova.url),
            ('Cinder', cloud.cinder.url + '/v3'),
            ('log', cloud.state / 'nova.log'), ('clouds', path)):
        screen.item(name, str(value))
    screen.item('users', 'owner in project demo, who owns the server, and '
                'admin, an administrator in project admin; the password of '
                f'both is {standin.PASSWORD}')
    screen.line()
    return path


def _wait(screen: screens.Screen) -> NoReturn:
    """Wait for Ctrl-C; its handler exits."""
    screen.line()
    screen.paragraph('Ctrl-C stops and removes everything.')
    # Nova decides first whether this process may import eventlet.
    from futurist import _thread
    # Each of Nova's idle threads looks every second whether it should end.
    _thread.ThreadWorker.MAX_IDLE_FOR = 5
    while True:
        threading.Event().wait()
