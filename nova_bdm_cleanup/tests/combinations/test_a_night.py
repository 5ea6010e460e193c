# SPDX-License-Identifier: Apache-2.0
r"""An operator's night, as the guide shows it.

The page is what this test saw: only the sentences between the commands are
written by hand.  When the output of the commands changes, rewrite the page::

    NOVA_BDM_CLEANUP_WRITE_PAGES=1 python3 tools/run_tests.py \
        --combinations 34 -- test_a_night
"""

from __future__ import annotations

import io
import logging
import os
import pathlib
import re
import textwrap
import uuid

import fixtures
import yaml

from nova_bdm_cleanup.tests.cloud import fixture
from nova_bdm_cleanup.tests.functional import commands

_CHECKOUT = pathlib.Path(__file__).resolve().parents[3]
PAGE = _CHECKOUT / 'doc' / 'source' / 'guide' / 'a-night.rst'
RULES = _CHECKOUT / 'etc' / 'prometheus' / 'bdm-cleanup.rules.yaml'

_HEAD = """\
.. Written by nova_bdm_cleanup/tests/combinations/test_a_night.py.

=======
A night
=======

What an operator does when an alert fires. All of it was run on a real Nova and
a real Cinder, on a terminal of 100 columns; ids and times are replaced.
"""


class NightTest(commands.CommandTestCase):
    """A night in which an operator audits, cleans and releases."""

    THROUGH_API = True

    def setUp(self) -> None:
        super().setUp()
        self.useFixture(fixtures.EnvironmentVariable('COLUMNS', '100'))
        self._page = _HEAD
        self._screen = io.StringIO()
        handler = logging.StreamHandler(self._screen)
        handler.setLevel(logging.WARNING)
        logger = logging.getLogger('nova_bdm_cleanup.client')
        logger.addHandler(handler)
        self.addCleanup(logger.removeHandler, handler)
        self.metrics = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path, 'bdm-audit.prom')

    def streams(self):
        return self._screen, self._screen

    def say(self, text: str) -> None:
        self._page += '\n%s\n' % textwrap.fill(text, 79)

    def show(self, command: str, output: str) -> None:
        text = '$ %s\n%s' % (command, output)
        self._page += '\n.. code-block:: console\n\n%s\n' % re.sub(
            '(?m)^(?=.)', '   ', text.rstrip())

    def type(self, *words: str) -> int:
        """Run a command, and add its output to the page."""
        self._screen.seek(0)
        self._screen.truncate()
        code, _ = self.bdm(*words, by=self.cloud.admin, form='table')
        self.show('openstack bdm ' + ' '.join(words),
                  self._screen.getvalue())
        return code

    def alert(self, name: str, **labels: str) -> str:
        """Return an alert as it is sent: its summary and its link."""
        rule, = [r for group in yaml.safe_load(RULES.read_text())['groups']
                 for r in group['rules'] if r.get('alert') == name]
        text = '%s\n%s\n%s' % (
            name, *(rule['annotations'][key]
                    for key in ('summary', 'runbook_url')))
        for label, value in labels.items():
            text = text.replace('{{ $labels.%s }}' % label, value)
        return text.replace('{{ $value }}', '1')

    def test_page_shows_the_output_of_the_commands(self) -> None:
        server = self.cloud.server(
            fixture.Disk(name='data'), fixture.Disk(name='logs'),
            name='web-1')
        lost, fine = server.volumes
        self.cloud.lose_attachment(server, lost)
        held = self.cloud.volume('scratch')
        self.cloud.create_attachment(self.deleted_server(), held)
        project = self.cloud.owner.project

        self.say('An audit runs every night and writes metrics. Today an '
                 'alert comes by mail::')
        self.bdm('audit', '--project', project, '--prometheus',
                 str(self.metrics), form='table')
        found = self.metrics.read_text()
        self.assertIn('nova_bdm_audit_findings{host="compute1",'
                      'reason="volume-available"} 1.0', found)
        self._page += '\n%s\n' % re.sub('(?m)^(?=.)', '   ', self.alert(
            'BdmAuditDiskDangling', host='compute1',
            reason='volume-available'))

        self.say('List the findings:')
        self.type('audit', '--project', project)
        self.say('The link in the mail leads to the :doc:`runbook`; '
                 '``openstack bdm explain volume-available`` prints the same.')
        self.say('Show all facts about the server, and what a hard reboot '
                 'would do:')
        self.type('show', server.id)
        self.say('The owner agrees to a reboot. Without ``--yes`` the '
                 'command asks first:')
        self.assertEqual(0, self.type('clean', server.id, '--yes'))
        self.say('The other finding needs no reboot:')
        self.assertEqual(0, self.type('release', held, '--yes'))
        self.say('Check that nothing is left:')
        self.assertEqual(0, self.type('audit', '--project', project))
        view = self.cloud.look(server)
        self.assert_gone(view, lost)
        self.assert_healthy(view, fine)
        self.compare()

    def compare(self) -> None:
        page = self.anonymize(self._page)
        if os.environ.get('NOVA_BDM_CLEANUP_WRITE_PAGES'):
            PAGE.write_text(page)
        self.assertEqual(PAGE.read_text(), page)

    def anonymize(self, page: str) -> str:
        """Replace ids and times by those that are the same every night."""
        ids: dict[str, str] = {}

        def named(match: re.Match[str]) -> str:
            return ids.setdefault(match.group(), str(uuid.uuid5(
                uuid.NAMESPACE_DNS, str(len(ids)))))

        page = re.sub('[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}', named,
                      page)
        page = page.replace(self.cloud.owner.project, 'shop')
        page = re.sub(r'\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d',
                      '2026-11-20 03:12:45', page)
        return re.sub(r'\d+ requests to Nova and \d+ to Cinder',
                      '12 requests to Nova and 9 to Cinder', page)
