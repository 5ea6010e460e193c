# SPDX-License-Identifier: Apache-2.0
"""The proof, not assumption, that Nova's credentials see every project.

To a user without the admin role, a volume of another project looks like one
that does not exist.
"""

from __future__ import annotations

import dataclasses
from urllib import parse

from nova_bdm_cleanup.tests.cloud import fixture, identity, proxy
from nova_bdm_cleanup.tests.functional import scenario

MEMBER = dataclasses.replace(
    identity.NOVA, roles=('service', *identity.MEMBER))


def list_only_by_id(request: proxy.Request, forward: proxy.Forward
               ) -> proxy.Answer:
    """Have Cinder let all users list volumes by id, as its operator may."""
    named = parse.parse_qs(parse.urlsplit(request.path).query).get('id', [''])
    return proxy.rewrite(lambda body: {'volumes': [
        each for each in body['volumes'] if each['id'] in named[0]]})(
            request, forward)


class NotAnAdministratorTest(scenario.TwoDisks):
    """A user without the admin role in ``[cinder]``."""

    ARGUMENTS = {'nova_options': {'cinder': {'token': MEMBER.token}}}

    def setUp(self):
        super().setUp()
        # A server on this host has a volume of Nova's own project, which the
        # credentials do see: it is no valid witness.
        service = dataclasses.replace(
            identity.NOVA, user='service-owner', roles=identity.MEMBER)
        volume = self.cloud.volume(owner=service)
        self.create_server(fixture.Disk(volume=volume, at_boot=True),
                    name='of-the-service', owner=service)
        self.cloud.proxy.on('GET', '/volumes/detail[?].*id=', list_only_by_id)

    def check_untouched(self, view):
        self.assert_healthy(view, self.kept)
        self.assertEqual([], self.journal())
        self.assertEqual([], self.requests('DELETE'))

    def test_healthy_disk_is_kept_with_a_warning(self):
        view = self.reboot(self.server)
        self.assert_healthy(view, self.lost)
        self.check_untouched(view)
        self.assertEqual({'WARNING'},
                         {line.level for line in self.log_lines(self.server)})
        self.assertIn('admin', self.log_lines(self.server)[0].text)

    def test_dangling_disk_is_kept(self):
        """Keep it: it is not known to dangle."""
        self.cloud.lose_volume(self.server, self.lost)
        view = self.reboot(self.server)
        self.assertIsNotNone(view.block_device(self.lost))
        self.check_untouched(view)
