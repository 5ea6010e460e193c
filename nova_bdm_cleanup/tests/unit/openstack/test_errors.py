# SPDX-License-Identifier: Apache-2.0
"""The tree of errors is the one that the documentation shows."""

from __future__ import annotations

import inspect

from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.tests.unit import base


class TreeTest(base.TestCase):

    def test_the_docstring_shows_every_error_below_its_base(self):
        shown = []
        for line in errors.__doc__.splitlines():
            name = line.split()[0] if line.startswith('    ') else ''
            if name:
                shown.append((len(line) - len(line.lstrip()), name))
        parents = []
        found = {}
        for depth, name in shown:
            del parents[depth // 2 - 2:]
            found[name] = parents[-1] if parents else 'Exception'
            parents.append(name)
        self.assertEqual({
            name: error.__base__.__name__
            for name, error in inspect.getmembers(errors, inspect.isclass)
        }, found)

    def test_only_one_says_that_something_does_not_exist(self):
        for error in (errors.Unanswered, errors.Refused, errors.Conflict):
            self.assertFalse(issubclass(errors.NotFound, error))
        self.assertEqual([], errors.NotFound.__subclasses__())

    def test_what_was_answered(self):
        error = errors.Conflict('no', 409)
        self.assertEqual(('no', 409), (str(error), error.status))
        self.assertIsNone(errors.Unreachable('no').status)
