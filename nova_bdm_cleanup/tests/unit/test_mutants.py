# SPDX-License-Identifier: Apache-2.0
"""The planted faults can be planted, and what looks for them is understood.

Whoever changes the code that a mutant changes takes the mutant along, or puts
another one in its place.
"""

from __future__ import annotations

import ast
import collections
import pathlib
import sys
import unittest

import testscenarios
from testtools import matchers

from nova_bdm_cleanup.tests import mutants
from nova_bdm_cleanup.tests.mutants import __main__ as command, finders
from nova_bdm_cleanup.tests.mutants.mutant import Misplaced, Mutant
from nova_bdm_cleanup.tests.unit import base

load_tests = testscenarios.load_tests_apply_scenarios

PACKAGE = pathlib.Path(__file__).resolve().parents[2]


class EachMutantTest(base.TestCase):

    scenarios = [(mutant.name, {'mutant': mutant})
                 for mutant in mutants.MUTANTS]

    def test_it_can_be_planted(self):
        source = (PACKAGE / self.mutant.path).read_text(encoding='utf-8')
        changed = self.mutant.apply(source)
        self.assertNotEqual(ast.dump(ast.parse(source)),
                            ast.dump(ast.parse(changed)))

    def test_unit_tests_look_for_it(self):
        self.assertNotEqual([], finders._units(self.mutant.path))


class MutantsTest(base.TestCase):

    def test_each_has_a_name_of_its_own(self):
        names = collections.Counter(m.name for m in mutants.MUTANTS)
        self.assertEqual([], [n for n, number in names.items() if number > 1])

    def test_a_text_that_is_not_there_once(self):
        for source in ('other', 'old old'):
            error = self.assertRaises(
                Misplaced, Mutant('some-name', 'Harm.', 'rules/x.py',
                                  (('old', 'new'),)).apply, source)
            self.assertThat(str(error), matchers.MatchesAll(
                matchers.Contains('some-name'),
                matchers.Contains('rules/x.py')))

    def test_one_edit_after_the_other(self):
        self.assertEqual('3', Mutant('name', 'Harm.', 'x.py', (
            ('1', '2'), ('2', '3'))).apply('1'))


class FindersTest(base.TestCase):

    def read(self, name, output):
        return finders.FINDERS[name].read(output)

    def test_what_the_search_has_found(self):
        self.assertEqual(
            'cinder-told-last (one disk)',
            self.read('search', 'scenario: one disk\n'
                      'broken: cinder-told-last\n1. ...\n'))
        self.assertIsNone(self.read('search', 'Traceback ...\n'))

    def test_what_a_unit_test_has_found(self):
        self.assertEqual(
            'rules.test_x.XTest.test_y', self.read(
                'unit', '..F\n=====\nFAIL: test_y (nova_bdm_cleanup.tests.'
                'unit.rules.test_x.XTest.test_y)\n-----\n'))

    def test_tests_that_cannot_be_loaded_find_nothing(self):
        self.assertIsNone(self.read(
            'unit', 'ERROR: nova_bdm_cleanup.tests.unit.test_x '
            '(unittest.loader._FailedTest.nova_bdm_cleanup.tests.unit)\n'))

    def test_the_unit_tests_are_there(self):
        loader = unittest.TestLoader()
        arguments = finders.FINDERS['unit'].arguments('')
        loader.loadTestsFromNames(arguments[3:])
        self.assertEqual([], loader.errors)

    def test_the_unit_tests_of_a_part(self):
        of = finders.FINDERS['unit'].arguments
        self.assertThat(of('plugin/host.py')[-1],
                        matchers.EndsWith('plugin.test_sessions'))
        self.assertEqual([], of('store/journal.py'))
        self.assertEqual(set(), {
            module for part in ('rules/x.py', 'cleanup/x.py', 'plugin/x.py',
                                'openstack/x.py')
            for module in of(part)} - set(of('')))


LESS_SAFE = Mutant('less-safe', 'Harm.', '__init__.py',
                   (('VERSION = ', 'MUTATED = '),))


def finder(program: str, limit: float = 60.0) -> finders.Finder:
    return finders.Finder('somebody', limit, lambda path: ['-c', program],
                          finders.FINDERS['search'].read)


_FOUND = 'print("broken: the version"); raise SystemExit(1)'


class HuntTest(base.TestCase):

    scenarios = base.scenarios((
        ('found', [finder(
            'import nova_bdm_cleanup\n'
            'print("broken: the version")\n'
            'raise SystemExit(nova_bdm_cleanup.MUTATED)')],
         LESS_SAFE, True, 'somebody: the version'),
        ('not by the first', [finder('pass'), finder(_FOUND)],
         LESS_SAFE, True, 'somebody: the version'),
        ('by nobody', [finder('pass')],
         LESS_SAFE, False, 'nobody finds it'),
        ('what goes wrong is no find', [finder('raise KeyError("bug")')],
         LESS_SAFE, False,
         "nobody finds it; somebody ended with exit code 1: KeyError: "
         "'bug'"),
        ('what hangs is no find',
         [finder('import time; time.sleep(600)', limit=0.1)],
         LESS_SAFE, False,
         'nobody finds it; somebody took longer than 0.1 s'),
        ('nothing is planted', [finder('pass')],
         command.ORIGINAL, True, 'nobody finds it'),
        ('nothing is planted, and found', [finder(_FOUND)],
         command.ORIGINAL, False, 'somebody: the version')),
        'by', 'mutant', 'is_good', 'said')

    def test_it(self):
        result = command.hunt(self.mutant, sys.executable, self.by)
        self.assertEqual((self.is_good, self.said),
                         (result.is_good, str(result)))


class PageTest(base.TestCase):

    def test_for_the_documentation(self):
        lines = '\n'.join(command.rst([
            command.Result(LESS_SAFE, 1.2, 'search', 'some property'),
            command.Result(Mutant('m', 'Harm.', 'x.py', ()), 12.3,
                           troubles=['unit took longer than 9 s'])],
            '0123abc'))
        self.assertIn('   * - **less-safe** Harm. ``__init__.py``\n'
                      '     - search: some property\n'
                      '     - 1\n', lines)
        self.assertIn('     - nobody finds it; unit took longer than 9 s\n'
                      '     - 12', lines)
        self.assertLessEqual(max(map(len, lines.split('\n'))), 79)
