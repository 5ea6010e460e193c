# SPDX-License-Identifier: Apache-2.0
"""Hosts that do not show the plugin in mode ``enforce``."""

from __future__ import annotations

from typing import Any

from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.unit.client import commandcase

LACKS = 'host compute1 does not show the plugin in mode enforce'
CHECK = 'look: on host compute1: nova-bdm-cleanup check'
UNKNOWN = 'which hosts have the plugin in mode enforce is not known'


class PluginHostsCase(commandcase.CommandCase):

    def setUp(self) -> None:
        super().setUp()
        self.break_volume()

    def mend(self) -> None:
        self.cloud.volumes[self.disk]['status'] = 'in-use'
        self.cloud.attachment('attachment of disk', self.alpha, self.disk)

    def switch_off(self) -> None:
        """Have Placement not show compute1."""
        self.cloud.plugin_hosts = ['compute2']

    def asked(self) -> int:
        """Return how often Placement was asked."""
        return self.cloud.asked('/placement/')

    def row(self, name: str, *arguments: str, **options: Any
            ) -> dict[str, Any]:
        """Return the only row of a command."""
        _, (row,) = self.bdm(name, *arguments, **options)
        return dict(row)

    def audited(self, **options: Any) -> tuple[str, str]:
        """Return the action and the remedy that the audit shows."""
        row = self.row('audit', **options)
        return row['Action'], row['Remedy']

    def refuse_placement(self) -> None:
        self.cloud.on('/placement/', lambda: (403, {'errors': [
            {'status': 403, 'title': 'Forbidden'}]}))


class AuditTest(PluginHostsCase):

    def test_clean_is_shown_where_the_host_shows_the_plugin(self) -> None:
        self.assertEqual(('openstack bdm clean ' + self.alpha, 'clean'),
                         self.audited())
        request, = [r for r in self.cloud.requests if '/placement/' in r.url]
        self.assertEqual(('/resource_providers',
                          {'required': 'CUSTOM_BDM_CLEANUP_ENFORCE'},
                          'placement 1.18'), (
            request.path, dict(request.query),
            request.headers['OpenStack-API-Version']))

    def test_other_host_is_to_be_checked(self) -> None:
        self.switch_off()
        row = self.row('audit', '--long')
        self.assertEqual((CHECK, 'look'), (row['Action'], row['Remedy']))
        self.assertIn(LACKS, row['Explanation'])
        self.assertIn('1 finding: 1 to look at', self.log.output)

    def test_trait_that_no_host_has_ever_had(self) -> None:
        self.cloud.plugin_hosts = []
        self.assertEqual((CHECK, 'look'), self.audited())

    def test_locked_server(self) -> None:
        self.switch_off()
        self.cloud.servers[self.alpha]['locked'] = True
        self.assertEqual((CHECK, 'look'), self.audited())

    def test_interrupted_server(self) -> None:
        self.switch_off()
        self.cloud.interrupt(self.alpha)
        _, rows = self.bdm('audit')
        self.assertEqual({CHECK}, {row['Action'] for row in rows})

    def test_server_in_error_is_started_by_nova_alone(self) -> None:
        self.mend()
        self.cloud.servers[self.alpha]['status'] = 'ERROR'
        self.switch_off()
        self.assertEqual(
            ('look: openstack server reboot --hard ' + self.alpha, 'look'),
            self.audited())

    def test_release_needs_no_plugin(self) -> None:
        self.mend()
        stale = self.cloud.attachment(
            'stale', self.alpha, self.cloud.volume('stale', 'reserved'),
            'reserved', False)
        self.switch_off()
        self.assertEqual(('openstack bdm release ' + stale, 'release'),
                         self.audited())
        self.assertEqual(0, self.asked())

    def test_placement_is_asked_once(self) -> None:
        self.cloud.lose_attachment(self.other)
        self.assertEqual(2, len(self.bdm('audit')[1]))
        self.assertEqual(1, self.asked())

    def test_placement_is_not_asked_in_vain(self) -> None:
        self.mend()
        self.switch_off()
        self.assertEqual((ExitCode.OK, []), self.bdm('audit'))
        self.assertEqual(0, self.asked())

    def test_silence_of_placement_is_said_once(self) -> None:
        self.cloud.lose_attachment(self.other)
        self.refuse_placement()
        code, rows = self.bdm('audit')
        self.assertEqual(ExitCode.FINDINGS, code)
        self.assertEqual({'clean'}, {row['Remedy'] for row in rows})
        self.assertEqual(1, self.log.output.count(UNKNOWN))
        self.assertEqual(1, self.asked())

    def test_answer_that_is_none(self) -> None:
        self.cloud.on('/placement/', lambda: (200, {'surprise': []}))
        self.assertEqual('clean', self.audited()[1])
        self.assertIn(UNKNOWN, self.log.output)

    def test_cloud_without_placement(self) -> None:
        self.server.services.pop('placement')
        self.assertEqual('clean', self.audited()[1])
        self.assertIn(UNKNOWN, self.log.output)
        self.assertIn('Placement is not in the service catalogue',
                      self.log.output)

    def test_member_is_not_shown_the_host(self) -> None:
        self.switch_off()
        self.assertEqual('clean', self.audited(user='member')[1])
        self.assertEqual(0, self.asked())


class ShowTest(PluginHostsCase):

    def test_host_without_the_plugin(self) -> None:
        self.switch_off()
        row = self.row('show', 'alpha')
        self.assertEqual(
            (CHECK, 'removes the mapping, once its host has the plugin in '
                    'mode enforce'), (row['Action'], row['Hard Reboot']))
        self.assertIn(LACKS, self.log.output)

    def test_host_with_the_plugin(self) -> None:
        row = self.row('show', 'alpha')
        self.assertEqual(
            ('openstack bdm clean ' + self.alpha, 'removes the mapping'),
            (row['Action'], row['Hard Reboot']))


class CleanTest(PluginHostsCase):

    def reboots(self) -> int:
        return self.cloud.asked('POST .*/action')

    def test_refuses_without_the_option(self) -> None:
        plan = self.plan()
        self.switch_off()
        for arguments in (['alpha'], ['--plan', plan]):
            code, (row,) = self.bdm('clean', '--yes', *arguments)
            self.assertEqual(ExitCode.REFUSED, code)
            self.assertIn('refused: ' + LACKS, row['Result'])
            self.assertIn('or give --without-plugin', row['Result'])
        self.assertEqual(0, self.reboots())

    def test_option_reboots_it_nevertheless(self) -> None:
        self.switch_off()
        self.cloud.on('POST .*/action',
                      lambda: self.cloud.clean_up(self.alpha))
        code, (row,) = self.bdm('clean', 'alpha', '--yes', '--without-plugin')
        self.assertEqual((ExitCode.OK, 'removed', 1),
                         (code, row['Result'], self.reboots()))
        self.assertRegex(self.stderr.getvalue(), 'compute1 +NOT SEEN')

    def test_nothing_to_clean_is_no_refusal(self) -> None:
        self.switch_off()
        code, _ = self.bdm('clean', 'beta', '--yes')
        self.assertEqual(ExitCode.OK, code)

    def test_silence_of_placement_refuses_nothing(self) -> None:
        self.refuse_placement()
        self.cloud.on('POST .*/action',
                      lambda: self.cloud.clean_up(self.alpha))
        self.assert_results(ExitCode.OK, ['removed'], 'clean', 'alpha',
                            '--yes')
        self.assertEqual(1, self.log.output.count(UNKNOWN))
