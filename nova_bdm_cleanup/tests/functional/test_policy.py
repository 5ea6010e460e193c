# SPDX-License-Identifier: Apache-2.0
"""A user of nova.conf that is no administrator of Cinder.

The rules are those of the sample that is shipped, with Cinder's policy engine.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
from typing import Any

from cinderclient import exceptions as cinder_exceptions
from oslo_upgradecheck.upgradecheck import Code
import yaml

from nova_bdm_cleanup.admin import check
from nova_bdm_cleanup.openstack.cinder import POLICY_SAMPLE
from nova_bdm_cleanup.tests.cloud import cinder, fixture, identity, standin
from nova_bdm_cleanup.tests.functional import base, scenario
from nova_bdm_cleanup.tests.functional.test_audit_rounds import (
    AuditRoundTestCase,
)
from nova_bdm_cleanup.tests.functional.test_swaps import (
    BEFORE_PIVOT,
    SwapTestCase,
)

USER = identity.Caller(
    'nova', identity.NOVA_PROJECT, ('service', 'bdm_cleanup'))
#: The same in a project that it may use as any member may.
MEMBER = dataclasses.replace(USER, roles=(*USER.roles, *identity.MEMBER))

SAMPLE: dict[str, str] = yaml.safe_load(
    (base.CHECKOUT / POLICY_SAMPLE).read_text())
#: What is cleaned with all rules.
EVERYTHING = frozenset(('available', 'elsewhere', 'deleted', 'stale',
                        'reserved'))
#: What is reconnected with all rules: a disk, one of a multiattach volume that
#: is bootable, and one whose swap has only reserved the other volume.
RECONNECTED = frozenset(('moved', 'bootable', 'swapped'))


class PolicyTestCase(SwapTestCase):

    #: The user in ``[cinder]``, for whom Keystone's stand-in has a token.
    USER = USER

    @classmethod
    def cloud_arguments(cls) -> dict[str, Any]:
        stand_in = cinder.shared().stand_in
        stand_in.users[cls.USER.user] = cls.USER
        arguments = super().cloud_arguments()
        return {**arguments, 'nova_options': {
            **arguments.get('nova_options', {}), 'cinder': {
                'auth_type': 'password', 'username': cls.USER.user,
                'auth_url': stand_in.identity_url,
                'password': standin.PASSWORD,
                'project_name': cls.USER.project,
                'user_domain_id': 'default', 'project_domain_id': 'default',
                'catalog_info': 'volumev3::publicURL'}}}

    @classmethod
    def cloud_name(cls) -> str:
        return f'{cls.USER} {cls.TRIGGER} {cls.ARGUMENTS}'

    def setUp(self) -> None:
        super().setUp()
        self.addCleanup(self.cloud.cinder.set_policy, {})
        self.set_policy(SAMPLE)

    def set_policy(self, rules: Mapping[str, str]) -> None:
        self.cloud.cinder.set_policy(rules)

    def create_damage(self) -> dict[str, tuple[fixture.Server, str]]:
        """Return servers, each with a healthy disk and a damaged one."""
        servers = {what: self.create_server(
            *[scenario.BOOT_DISK] * 2, name=what) for what in (
                'available', 'elsewhere', 'deleted', 'stale', 'reserved')}
        damaged = {what: server.volumes[0]
                   for what, server in servers.items()}
        self.cloud.lose_attachment(
            servers['available'], damaged['available'])
        self.cloud.attach_elsewhere(
            servers['elsewhere'], damaged['elsewhere'])
        self.cloud.lose_volume(servers['deleted'], damaged['deleted'])
        for what in ('stale', 'reserved'):
            self.cloud.row(servers[what], damaged[what]).destroy()
        attachment, = self.cloud.attachments(damaged['reserved'])
        self.cloud.cinder.reset_attachment(
            damaged['reserved'], attachment.id)
        return {what: (server, damaged[what])
                for what, server in servers.items()}

    def reboot_all(self, damage: Mapping[str, tuple[fixture.Server, str]]
                   ) -> set[str]:
        """Reboot the servers, and check that each keeps its healthy disk.

        :returns: what was cleaned
        """
        cleaned = set()
        for what, (server, volume) in damage.items():
            view = self.reboot(server)
            self.assert_healthy(view, server.volumes[1])
            # Only one volume was deleted; the others are only hidden.
            self.assertEqual(
                what == 'deleted' and bool(self.log_lines(server, 'removed')),
                bool(self.log_lines(server, reason='volume-missing')))
            if not any(row.volume_id == volume
                       for row in view.block_devices) and \
                    not view.attachments_of(volume):
                cleaned.add(what)
        return cleaned

    def reconnect(self) -> set[str]:
        """Reboot a server whose disks Cinder connects to another host, and one
        whose swap was interrupted.

        :returns: what was reconnected
        """
        server, swapped, _ = self.interrupted(BEFORE_PIVOT[0])
        self.reboot(server)
        ended = {'swapped'} if self.log_lines(server, 'reconnected') and (
            self.volume_status(swapped) == 'in-use') else set()
        server = self.create_server(
            scenario.BOOT_DISK, fixture.Disk(multiattach=True, at_boot=True))
        moved, bootable = server.volumes
        with self.cloud.cinder.database() as database:
            database.execute('UPDATE volumes SET bootable = 1 WHERE id = ?',
                             (bootable,))
        self.attach_to_host(server, 'compute9')
        self.reboot(server)
        lines = {line.volume for line in self.log_lines(server, 'reconnected')}
        return ended.union(what for what, volume in (
            ('moved', moved), ('bootable', bootable)) if volume in lines)

    def check_cinder(self) -> tuple[Code, str]:
        """Return what ``nova-bdm-cleanup check`` says of Cinder."""
        result = check._guarded(check.Checks.cinder)(
            check.Checks(scenario.CONF))
        return result.code, result.details or ''


class SampleTest(PolicyTestCase):
    """All rules of the sample."""

    def test_reboots_remove_all_damage(self):
        self.assertEqual(EVERYTHING, self.reboot_all(self.create_damage()))

    def test_reboots_reconnect_disks(self):
        self.assertEqual(RECONNECTED, self.reconnect())

    def test_cinder_check_succeeds(self):
        for _ in range(2):
            code, details = self.check_cinder()
            self.assertEqual(Code.SUCCESS, code, details)
            self.assertIn('its roles: service, bdm_cleanup', details)
            self.assertIn(POLICY_SAMPLE, details)
            self.cloud.volume()

    def test_other_rights_of_administrators_are_refused(self):
        """Refuse what an administrator may do, and the plugin does not."""
        volume = self.cloud.volume()
        volumes = self.cloud.cinder.client(MEMBER).volumes
        self.assertEqual(volume, volumes.get(volume).id)
        for act in (lambda: volumes.reset_state(volume, 'error'),
                    lambda: volumes.force_delete(volume),
                    lambda: volumes.delete(volume),
                    lambda: volumes.update(volume, name='another'),
                    lambda: volumes.extend(volume, 2)):
            self.assertRaises(cinder_exceptions.Forbidden, act)


class HostBootTest(scenario.Resumed, PolicyTestCase):
    """Nova resumes guests with the same credentials."""

    def test_disk_of_resumed_guest_is_removed(self):
        server, volume = self.create_damage()['available']
        view = self.reboot(server)
        self.assert_gone(view, volume)
        self.assert_healthy(view, server.volumes[1])


class RoundTest(AuditRoundTestCase, PolicyTestCase):

    def test_round_finds_the_disk(self):
        server, volume = self.create_damage()['available']
        self.assertIn(('found', 'volume-available', server.id, volume),
                      self.run_two_rounds())
