# SPDX-License-Identifier: Apache-2.0
"""The operators' commands, in a test."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import time
from types import SimpleNamespace
from typing import Any
import uuid

import fixtures
from keystoneauth1 import session as ksa_session
from keystoneauth1.identity import v3
from nova.cmd import manage
from nova.image import glance
from openstack import connection
from testtools import content

from nova_bdm_cleanup.client import audit, clean, release, show
from nova_bdm_cleanup.client.extension import Client
from nova_bdm_cleanup.node import adoption
from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.cloud import cinder, fixture, identity, standin
from nova_bdm_cleanup.tests.functional import scenario

COMMANDS = {'audit': audit.AuditBdm, 'clean': clean.CleanBdm,
            'release': release.ReleaseBdm, 'show': show.ShowBdm}

#: Options that treat all of it as if it had happened long ago.
NO_WAITING = ('--grace-period', '0', '--stuck-after', '0')


class CommandTestCase(scenario.ScenarioTestCase):
    """Base class of tests that run the commands as an operator."""

    def bdm(self, name: str, *arguments: str,
            by: identity.Caller | None = None,
            form: str = 'json') -> tuple[int, Any]:
        """Run a command.

        :returns: the exit code and the rows, or the text if it is no JSON
        """
        stand_in = cinder.shared().stand_in
        caller = by or self.cloud.admin
        stand_in.users[caller.user] = caller
        project = self.cloud.owner.project
        stand_in.projects.setdefault(project, project)
        session = ksa_session.Session(auth=v3.Password(
            auth_url=stand_in.identity_url, username=caller.user,
            password=standin.PASSWORD, user_domain_id='default',
            project_id=caller.project))
        clients = Client(session, connection.Connection(session=session))
        self.stdout, self.stderr = self.streams()
        app = SimpleNamespace(
            client_manager=SimpleNamespace(
                session=session, bdm_cleanup=clients),
            stdout=self.stdout, stderr=self.stderr, options=None,
            NAME='openstack')
        command = COMMANDS[name](app, None)
        code = command.run(command.get_parser('bdm').parse_args(
            [*arguments, '-f', form, '--rate', '0']))
        output = self.stdout.getvalue()
        self.addDetail('stderr', content.text_content(
            self.stderr.getvalue()))
        if form != 'json':
            return code, output
        return code, json.loads(output) if output else None

    def run_audit(self, *arguments: str, server: fixture.Server | None = None
                ) -> dict[str, tuple[str, str]]:
        """Return reason and action of the audit's findings, by volume.

        :param server: audit it alone, else the owner's project
        """
        where = (('--server', server.id, '--all-projects') if server
                 else ('--project', self.cloud.owner.project))
        code, rows = self.bdm('audit', *where, *arguments)
        self.assertEqual(ExitCode.FINDINGS if rows else ExitCode.OK, code,
                         self.stderr.getvalue())
        return {row['Volume']: (row['Reason'], row['Action'])
                for row in rows}

    def streams(self) -> tuple[io.StringIO, io.StringIO]:
        """Return the output streams of a command."""
        return io.StringIO(), io.StringIO()

    def unknown_server(self) -> fixture.Server:
        """Return a server that no Nova knows."""
        return fixture.Server(str(uuid.uuid4()), 'unknown', 'compute1', None,
                              ())

    def deleted_server(self) -> fixture.Server:
        """Return a server that Nova has deleted, and remembers."""
        server = self.cloud.server(name='deleted')
        self.cloud.delete(server)
        with contextlib.suppress(fixture.APIError):
            while self.cloud.request('GET', f'/servers/{server.id}'):
                time.sleep(0.05)
        return server

    def terminate_calls(self, volume: str) -> list[str]:
        """Return the back end's calls that undo a connection."""
        return [call['call'] for call in self.cloud.cinder.driver_calls(
            volume) if call['call'] in ('terminate_connection',
                                        'remove_export')]

    def set_in_use(self, volume: str) -> None:
        """Have Cinder report a volume without attachments as in-use."""
        self.cloud.reset_status(volume, 'detaching')
        self.cinder.volumes.roll_detaching(volume)
        self.assertEqual('in-use', self.volume_status(volume))

    def connector_file(self, host: str = 'compute1') -> str:
        path = os.path.join(self.useFixture(fixtures.TempDir()).path,
                            'connector.json')
        with open(path, 'w') as file:
            json.dump(self.connector(host), file)
        return path

    def run_action(self, action: str, host: str = 'compute1') -> None:
        """Run each step of a printed action, where it says."""
        directory = self.useFixture(fixtures.TempDir()).path
        steps = action.replace('look: ', '').split('; ')
        for command in (step.split(': ')[-1].split() for step in steps):
            tool, subject, verb, *arguments = command
            if tool == 'nova-bdm-cleanup':
                self.assertEqual('repair', subject)
                adoption.carry_out(self.cloud.nova.computes[host].manager,
                                   verb)
                continue
            if [tool, subject] == ['openstack', 'bdm']:
                code, rows = self.bdm(verb, *arguments, '--yes')
                self.assertEqual(ExitCode.OK, code, rows)
                continue
            if [tool, subject] == ['openstack', 'volume']:
                self.assertEqual(['--state', 'in-use'], arguments[:-1])
                self.cloud.reset_status(arguments[-1], 'in-use')
                continue
            if tool == 'openstack':
                self.assertEqual('server', subject)
                self.run_server_command(
                    verb, SimpleNamespace(id=arguments[-1]), arguments[:-1])
                continue
            self.assertEqual(['nova-manage', 'volume_attachment'],
                             [tool, subject])
            path = os.path.join(directory, arguments.pop())
            if verb == 'get_connector':
                self.assertEqual(['--json', '>'], arguments)
                # No compute host here: copy what os-brick would say.
                shutil.copy(self.connector_file(host), path)
            else:
                self.assertEqual(0, getattr(
                    manage.VolumeAttachmentCommands(), verb)(
                        *arguments, path))

    def run_server_command(self, verb: str, server: Any,
                           options: list[str]) -> None:
        """Run a command of ``openstack server``."""
        if verb == 'event':
            self.cloud.request('GET', f'/servers/{server.id}'
                                      '/os-instance-actions')
        elif verb == 'set':
            self.cloud.request(
                'POST', f'/servers/{server.id}/action',
                {'os-resetState': {'state': 'error'}}, by=self.cloud.admin)
        elif verb == 'rebuild':
            self.cloud.act(server, {'rebuild': {
                'imageRef': self.image_named(options[-1], server)
                if options else fixture.IMAGE}})
        elif verb == 'unshelve':
            self.cloud.act(server, {'unshelve': None})
        else:
            getattr(self.cloud, verb)(server)

    def image_named(self, name: str, server: Any) -> str:
        """Return the snapshot of a server."""
        context, images = self.cloud.nova.context(), glance.API()
        image = next(i for i in images.get_all(context) if i['name'] == name
                     and i['properties']['instance_uuid'] == server.id)
        # Nova's real client does not send what is empty.
        for key in ('kernel_id', 'ramdisk_id'):
            image['properties'].pop(key, None)
        images.update(context, image['id'], image, purge_props=True)
        return str(image['id'])

    def run_all_actions(self, server: fixture.Server,
                        host: str = 'compute1') -> None:
        """Run what the audit prints for a server, and audit it again."""
        found = self.run_audit(*NO_WAITING, server=server)
        self.assertNotEqual({}, found)
        for action in {action for _, action in found.values()}:
            self.run_action(action, host)
        self.assertEqual({}, self.run_audit(*NO_WAITING, server=server))

    @staticmethod
    def connector(host: str = 'compute1') -> dict[str, str]:
        return {'host': host, 'ip': '127.0.0.1',
                'initiator': 'iqn.2026-01.test:initiator'}

    def assert_released(self, volume: str, *calls: str) -> None:
        self.assertEqual('available', self.volume_status(volume))
        self.assertEqual((), self.cloud.attachments(volume))
        self.assertEqual(list(calls), self.terminate_calls(volume))


class CommandWithWitnessTestCase(CommandTestCase):

    def setUp(self) -> None:
        super().setUp()
        #: The proof that this Nova and this Cinder belong together.
        self.witness = self.create_server(scenario.BOOT_DISK, name='witness')
