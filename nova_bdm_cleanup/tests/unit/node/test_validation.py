# SPDX-License-Identifier: Apache-2.0
"""Problems of the configured values, and the places of these values."""

from __future__ import annotations

import os

import fixtures
from oslo_config import cfg
import testscenarios

from nova_bdm_cleanup.node import options, validation
from nova_bdm_cleanup.node.cleanup import triggers
from nova_bdm_cleanup.tests.unit.node.test_options import ConfTestCase

load_tests = testscenarios.load_tests_apply_scenarios

#: The words of ``triggers``.
WORDS = ', '.join(choice.word for choice in triggers.CHOICES)


class ProblemTest(ConfTestCase):
    """The sentence that names option, value, file and allowed values."""

    #: The line in the file, and the sentence after the name of the file.
    scenarios = [(line, {'line': line, 'words': words}) for line, words in (
        # Values that oslo.config accepts.
        *(('%s = ""' % opt.name, 'it must be a whole number of %d or more'
           % opt.type.min) for opt in options.OPTS
          if isinstance(opt, cfg.IntOpt) and opt.type.max is None
          and opt.name != 'audit_interval'),
        *(('audit_interval = ' + text, 'it must be 0 for no audit, or a whole '
           'number of 60 or more') for text in (
               '""', '1', '59', '-1', '1.5', 'hourly')),
        *(('store = ' + text, 'it must be the absolute path of a file, in '
           'which $NAME stands for an option of [DEFAULT]') for text in (
               '""', 'store.sqlite', '$nowhere/store')),
        ('remove = ""',
         'it is empty; set mode = observe to have nothing removed'),
        # Values that oslo.config rejects.
        *(('%s = %s' % (name, text), words) for name, texts, words in (
            ('mode', ('""', 'yes'),
             'it must be one of off, observe, enforce'),
            ('required', ('2', '""'), 'it must be true or false'),
            ('grace_period', ('""', '-1', '5 min', '86401'),
             'it must be a whole number from 0 to 86400'),
            ('settle_time', ('""', '-1', '61', '60', 'short'),
             'it must be a whole number from 0 to 60, and less than timeout; '
             'the default is 10'),
            ('max_removals', ('0', '-1', 'all'),
             'it must be a whole number of 1 or more'),
            ('timeout', ('0', '-60', '1.5'),
             'it must be a whole number of 1 or more'))
          for text in texts),
        # Lists.
        ('triggers = delete, strat',
         'strat is none of %s, all; did you mean start?' % WORDS),
        ('triggers = move,,start,', '"" is none of %s, all' % WORDS),
        ('remove = missing,gone', 'gone is none of missing, available, '
         'attached-elsewhere, never-attached, duplicate, stale, created'))]

    def test_problem_names_option_value_and_file(self) -> None:
        # In a file, "" stands for no text.
        conf = self.conf(self.line.replace('""', ''))
        self.assertEqual(['[bdm_cleanup] %s in %s: %s' % (
            self.line, self.path, self.words)], validation.problems(conf))
        # Every service logs all option values at its start.
        validation.forget_wrong_values(conf)
        self.assertIsNotNone(options.settings(conf))


class SeveralTest(ConfTestCase):

    def test_valid_values_have_no_problem(self) -> None:
        for lines in ([], ['triggers =', 'metrics_file ='],
                      *(['audit_interval = ' + n] for n in ('0', '60'))):
            self.assertEqual([], validation.problems(self.conf(*lines)))

    def test_each_is_told_once(self) -> None:
        found = validation.problems(self.conf(
            'timeout = x', 'timeout = y', 'modes = 1', 'modes = 2',
            'triggers = stop, shelve', 'max_removals = 3'))
        self.assertEqual(
            ['modes', 'triggers', 'triggers', 'timeout'],
            [text.split()[1] for text in found])
        self.assertIn('timeout = y', found[-1])


    def test_settle_time_is_less_than_timeout(self) -> None:
        self.assertEqual(
            ['[bdm_cleanup] settle_time: it must be a whole number from 0 to '
             '60, and less than timeout; the default is 10'],
            validation.problems(self.conf('timeout = 10')))
        for lines in (['timeout = 11'], ['timeout = 1', 'settle_time = 0'],
                      ['timeout = 61', 'settle_time = 60']):
            self.assertEqual([], validation.problems(self.conf(*lines)))
        # A wrong limit is one problem, not two.
        self.assertEqual(['timeout'], [
            text.split()[1] for text in validation.problems(
                self.conf('timeout = x', 'settle_time = 60'))])


class PlaceTest(ConfTestCase):
    """All the sources of options that nova-compute reads."""

    def setUp(self) -> None:
        super().setUp()
        self.home = self.tempdir()

    def write(self, name: str, text: str) -> str:
        path = os.path.join(self.home, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'w', encoding='utf-8') as file:
            file.write(text)
        return path

    def problems(self, *words: str, **defaults: list[str]) -> list[str]:
        conf = cfg.ConfigOpts()
        conf.register_opt(cfg.StrOpt('state_path', default='/x'))
        options.register_opts(conf)
        conf(list(words), project='nova', prog='nova-compute',
             default_config_files=defaults.get('files', []),
             default_config_dirs=defaults.get('dirs', []))
        return validation.problems(conf)

    def test_problem_names_the_file_of_each_option(self) -> None:
        first = self.write('nova.conf', '[bdm_cleanup]\nmode = x\nmods = 1\n')
        # Group names are case-insensitive.
        second = self.write('a.d/1.conf', '[BDM_Cleanup]\nmode = y\n')
        third = self.write('b.d/2.conf', '[other]\nmods = 1\n'
                                         '[bdm_cleanup]\nmodi = 1\n')
        self.write('b.d/3.txt', '[bdm_cleanup]\nmodus = 1\n')
        directories = [os.path.dirname(path) for path in (second, third)]
        for found in (
                self.problems('--config-file', first,
                              '--config-dir', directories[0],
                              '--config-dir', directories[1]),
                self.problems(files=[first], dirs=directories)):
            self.assertEqual(
                [('mods', first), ('modi', third), ('mode = y', second)],
                [tuple(text.split(': ')[0][len('[bdm_cleanup] '):].split(
                    ' in ')) for text in found])

    def test_overridden_value_is_not_checked(self) -> None:
        first = self.write('1', '[bdm_cleanup]\nmode = x\n')
        second = self.write('2', '[bdm_cleanup]\nmode = observe\n')
        self.assertEqual([], self.problems(files=[first, second]))
        self.assertEqual(1, len(self.problems(files=[second, first])))

    def test_environment_variables_are_checked(self) -> None:
        path = self.write('nova.conf', '[bdm_cleanup]\nmode = off\n')
        for name, value, words in (
                ('MODE', 'observe', ''),
                ('MODE', 'no', 'mode = no in the environment variable '
                 'OS_BDM_CLEANUP__MODE: it must be one of'),
                ('MODES', 'observe', 'modes in the environment variable '
                 'OS_BDM_CLEANUP__MODES: there is no such option; did you '
                 'mean mode?'),
                # A variable that oslo.config ignores.
                ('mode', 'observe', 'MODE in the environment variable '
                 'OS_BDM_CLEANUP__mode: there is no such option')):
            with fixtures.EnvironmentVariable('OS_BDM_CLEANUP__' + name,
                                              value):
                found = self.problems(files=[path])
            self.assertEqual(bool(words), bool(found))
            self.assertIn(words, ''.join(found))

    def test_value_of_another_source_is_checked(self) -> None:
        """Check a value from another source of oslo.config."""
        conf = self.conf()
        conf.set_default('audit_interval', 7, group='bdm_cleanup')
        self.assertEqual(
            ['[bdm_cleanup] audit_interval: it must be 0 for no audit, or a '
             'whole number of 60 or more'], validation.problems(conf))
