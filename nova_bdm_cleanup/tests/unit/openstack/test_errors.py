# SPDX-License-Identifier: Apache-2.0
"""What an error says of what was asked."""

from __future__ import annotations

from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.tests.unit import base


class TreeTest(base.TestCase):

    def test_only_one_says_that_something_does_not_exist(self):
        for error in (errors.Unanswered, errors.Refused, errors.Conflict):
            self.assertFalse(issubclass(errors.NotFound, error))
        self.assertEqual([], errors.NotFound.__subclasses__())

    def test_what_was_answered(self):
        error = errors.Conflict('no', 409)
        self.assertEqual(('no', 409), (str(error), error.status))
        self.assertIsNone(errors.Unreachable('no').status)
