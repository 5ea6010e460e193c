# SPDX-License-Identifier: Apache-2.0
"""An HTTP 404 page of a proxy does not mean that a record is gone."""

from __future__ import annotations

from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.unit import loopback, wire
from nova_bdm_cleanup.tests.unit.client import commandcase


class NoAnswerTest(commandcase.CommandCase):
    """The commands, when Nova or Cinder gives no usable answer."""

    def paths(self) -> list[str]:
        return ['/servers/' + self.alpha, '/volumes/' + self.disk,
                '/attachments/' + loopback.uid('attachment of disk')]

    def test_release_changes_nothing(self) -> None:
        attachment = loopback.uid('attachment of disk')
        for path in self.paths():
            self.cloud.calm()
            self.cloud.on('GET .*%s$' % path, lambda: wire.page(404))
            for target in (self.disk, attachment):
                self.bdm('release', target, '--yes')
                self.assertEqual(0, self.cloud.asked('^(DELETE|POST)'), path)
                self.assertEqual([], self.cloud.driver)

    def test_release_is_refused_for_an_unanswered_server(self) -> None:
        # Only the answer about the existing server is missing.
        orphan = self.orphan()
        self.cloud.mapping(self.alpha, orphan, self.cloud.attachment(
            'existing', self.alpha, orphan))
        self.cloud.on('GET .*/servers/%s$' % self.alpha,
                      lambda: wire.page(404))
        code, rows = self.bdm('release', loopback.uid('existing'), '--yes')
        self.assertEqual((ExitCode.REFUSED, None), (code, rows))
        self.assertIn('404', self.stderr.getvalue())
        self.assertEqual([], self.cloud.driver)

    def test_show_prints_no_table(self) -> None:
        # The lists are empty, so that each record is requested by its ID.
        self.cloud.on('GET .*/volumes/detail.*%s' % self.disk,
                      lambda: (200, {'volumes': []}))
        self.cloud.on('GET .*instance_id', lambda: (
            200, {'attachments': []}))
        for path in self.paths():
            self.cloud.on('GET .*%s$' % path, lambda: wire.page(404))
            code, rows = self.bdm('show', self.alpha)
            self.assertEqual((ExitCode.PARTLY, None), (code, rows), path)
            self.cloud._rules.pop()

    def test_audit_cannot_find_out_whether_user_is_admin(self) -> None:
        self.cloud.on('GET .*/volumes.*id=', lambda: (
            500, {'computeFault': {'message': 'oops'}}))
        code, rows = self.bdm('audit')
        self.assertEqual((ExitCode.PARTLY, None), (code, rows))
        self.assertEqual(1, len(self.cloud.requests))
