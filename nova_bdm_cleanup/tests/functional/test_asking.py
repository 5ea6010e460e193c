# SPDX-License-Identifier: Apache-2.0
"""Cinder's real answers, as the look of a reboot takes them."""

from __future__ import annotations

from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.openstack.api import Api
from nova_bdm_cleanup.openstack.cinder import Cinder, MICROVERSION, NOVA_CONF
from nova_bdm_cleanup.openstack.deadline import Deadline
from nova_bdm_cleanup.rules.facts import Bdm
from nova_bdm_cleanup.tests.cloud import fixture, identity
from nova_bdm_cleanup.tests.functional import base


class AskingTest(base.FunctionalTestCase):

    def setUp(self):
        super().setUp()
        self.made = self.cloud.server(fixture.Disk())
        self.volume, = self.made.volumes
        self.own = self.cloud.volume()
        self.foreign = self.cloud.volume(owner=self.cloud.stranger)
        for volume, caller in ((self.own, self.cloud.owner),
                               (self.foreign, self.cloud.stranger)):
            self.cloud.cinder.client(caller).attachments.create(
                volume, None, self.made.id)

    def asked_by(self, caller):
        client = self.cloud.cinder.client(
            caller, microversion=MICROVERSION).client
        return Cinder(Api('Cinder', MICROVERSION, lambda: client.request,
                          NOVA_CONF, Deadline(60)), sees_all=True)

    def look(self, project, caller=identity.NOVA, bdms=()):
        found = self.asked_by(caller).look(self.made.id, bdms, project)
        return found, {a.volume_id for a in found.attachments}

    def test_records_of_other_projects_are_not_fetched(self):
        found, volumes = self.look(self.cloud.owner.project)
        self.assertEqual({self.volume, self.own}, volumes)
        self.assertEqual({self.volume, self.own}, set(found.volumes))
        self.assertEqual(self.cloud.owner.project,
                         found.volumes[self.own].project)
        self.assertEqual({self.foreign},
                         self.look(self.cloud.stranger.project)[1])
        self.assertEqual({self.volume, self.own, self.foreign},
                         self.look(None)[1])

    def test_a_healthy_server_is_seen_at_a_glance(self):
        # One more than its own is left over, and that is another project's.
        self.cloud.cinder.client(self.cloud.owner).attachments.delete(
            next(a.id for a in self.cloud.attachments(self.own)))
        attachment, = self.cloud.attachments(self.volume)
        found, volumes = self.look(self.cloud.owner.project, bdms=[Bdm(
            'row', volume_id=self.volume, attachment_id=attachment.id)])
        self.assertEqual({self.volume}, volumes)
        # As the list of volumes shows it, which says nothing of connections.
        self.assertIs(False, found.attachments[0].connected)

    def test_who_is_no_administrator_is_told_so(self):
        for caller in (self.cloud.owner, self.cloud.stranger):
            self.assertRaises(errors.Refused, self.look, None, caller)
            self.assertIs(False, self.asked_by(caller).prove_admin())
            error = self.assertRaises(
                errors.ProjectHidden, self.asked_by(self.cloud.owner).volume,
                self.volume)
            self.assertIn('admin role', str(error))
        self.assertIs(True, self.asked_by(identity.NOVA).prove_admin())
