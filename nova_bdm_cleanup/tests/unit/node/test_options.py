# SPDX-License-Identifier: Apache-2.0
"""The options: their help, their limits, and the resulting policy."""

from __future__ import annotations

import configparser
import datetime
import os
import pathlib
import pkgutil

from oslo_config import cfg
import testscenarios

from nova_bdm_cleanup.node import options
from nova_bdm_cleanup.node.cleanup import triggers
from nova_bdm_cleanup.rules.facts import Policy
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.tests.unit import base

load_tests = testscenarios.load_tests_apply_scenarios


class ConfTestCase(base.TestCase):

    def conf(self, *lines):
        """Return the configuration of a nova.conf with these lines."""
        self.path = os.path.join(self.tempdir(), 'nova.conf')
        with open(self.path, 'w', encoding='utf-8') as file:
            file.write('\n'.join(['[bdm_cleanup]', *lines, '']))
        conf = cfg.ConfigOpts()
        conf.register_opt(cfg.StrOpt('state_path', default='/var/lib/nova'))
        conf.register_opt(cfg.BoolOpt('resume_guests_state_on_host_boot',
                                      default=False))
        conf.register_opt(cfg.BoolOpt('periodic_enable', default=True))
        options.register_opts(conf)
        conf(['--config-file', self.path], project='nova', prog='nova-compute')
        return conf


class OptionTest(base.TestCase):
    """Each option and its help text."""

    scenarios = [(opt.name, {'opt': opt}) for opt in options.OPTS]

    def test_help_is_sentences(self):
        text = self.opt.help.strip()
        self.assertGreater(len(text), 60)
        self.assertRegex(text, r'^[A-Z]')
        self.assertNotIn('%', text)


class SampleTest(base.TestCase):

    def test_sample_has_all_options(self):
        """Check the entry point that oslo-config-generator loads."""
        setup = configparser.ConfigParser()
        setup.read(pathlib.Path(__file__).parents[4] / 'setup.cfg')
        name, _, value = setup['options.entry_points'][
            'oslo.config.opts'].partition('=')
        list_opts = pkgutil.resolve_name(value.strip())
        self.assertEqual('nova_bdm_cleanup', name.strip())
        self.assertEqual([('bdm_cleanup', options.OPTS)], list_opts())


class SettingsTest(ConfTestCase):

    def settings(self, *lines):
        return options.settings(self.conf(*lines))

    def test_defaults_are_unchanged(self):
        conf = self.conf()
        self.assertEqual([], options.without_effect(conf))
        self.assertEqual('off', conf.bdm_cleanup.mode)
        self.assertIs(False, conf.bdm_cleanup.required)
        self.assertEqual(options.Settings(
            policy=Policy(observe=True), triggers=triggers.ALWAYS_ON,
            audit_interval=0, watches=False,
            # Under the state path of Nova.
            store='/var/lib/nova/bdm-cleanup/store.sqlite'),
            options.settings(conf))
        effective = options.effective(conf)
        self.assertEqual([opt.name for opt in options.OPTS], list(effective))
        options.register_opts(conf)
        self.assertEqual(effective, options.effective(conf))

    def test_every_value_arrives(self):
        self.assertEqual(options.Settings(
            policy=Policy(
                observe=True,
                remove=frozenset([Reason.VOLUME_MISSING,
                                  Reason.ATTACHED_ELSEWHERE]),
                grace_period=datetime.timedelta(0),
                settle_time=datetime.timedelta(seconds=2),
                max_removals=1, max_removals_per_hour=2,
                timeout=3),
            triggers=(*triggers.ALWAYS_ON, triggers.START),
            audit_interval=3600,
            watches=True, store='/x/s'),
            self.settings(
                'mode = observe', 'remove = missing,attached-elsewhere',
                'grace_period = 0', 'settle_time = 2',
                'max_removals = 1', 'max_removals_per_hour = 2',
                'timeout = 3', 'triggers = start',
                'audit_interval = 3600', 'store = /x/s'))
        self.assertTrue(self.settings('metrics_file = x.prom').watches)

    def test_only_one_mode_acts(self):
        for mode in ('off', 'observe', 'enforce'):
            self.assertEqual(
                mode != 'enforce',
                self.settings('mode = ' + mode).policy.observe)

    def test_words_select_the_triggers(self):
        for given, words, names in (
                ('', [], []),
                # Each word counts once.
                ('delete, start,start', ['start', 'delete'],
                 ['start', 'delete']),
                ('move', ['move'], [
                    'move', 'interrupted_move', 'shelve', 'unshelve',
                    'evacuate', 'return', 'live_migration']),
                ('all,start', [c.word for c in triggers.CHOICES],
                 [t.name for t in triggers.TRIGGERS if t.choice])):
            conf = self.conf('triggers = ' + given)
            self.assertEqual(words, options.words_of(conf))
            found = options.settings(conf).triggers
            self.assertEqual(['hard_reboot', 'soft_reboot', 'rollback',
                              *names],
                             [trigger.name for trigger in found])
            self.assertEqual(words, options.words_for(found))
        # Only some of the triggers of a word.
        self.assertEqual([], options.words_for(
            [triggers.MOVE, triggers.SHELVE]))

    def test_words_of_remove(self):
        for word, expected in (
                ('missing', Reason.VOLUME_MISSING),
                ('available', Reason.VOLUME_AVAILABLE),
                ('attached-elsewhere', Reason.ATTACHED_ELSEWHERE),
                ('duplicate', Reason.DUPLICATE_MAPPING),
                ('stale', Reason.STALE_ATTACHMENT)):
            conf = self.conf('remove = ' + word)
            policy = options.settings(conf).policy
            self.assertEqual(({expected}, False),
                             (policy.remove, policy.remove_created))
        self.assertIs(True, options.settings(self.conf(
            'remove = missing,created')).policy.remove_created)
        self.assertNotIn('created', self.conf().bdm_cleanup.remove)


class WithoutEffectTest(ConfTestCase):
    """Values that are valid and have no effect."""

    def told(self, *lines, **nova):
        conf = self.conf(*lines)
        for name, value in nova.items():
            conf.set_override(name, value)
        return options.without_effect(conf)

    def test_host_boot_needs_the_resume_option_of_nova(self):
        found, = self.told('triggers = host_boot')
        self.assertIn('resume_guests_state_on_host_boot', found)
        self.assertEqual([], self.told('triggers = host_boot',
                                       resume_guests_state_on_host_boot=True))

    def test_created_needs_missing(self):
        found, = self.told('remove = created,available')
        self.assertIn('"created" of [bdm_cleanup] remove', found)
        self.assertEqual([], self.told('remove = created,missing'))

    def test_an_audit_needs_periodic_tasks(self):
        lines = 'audit_interval = 3600', 'metrics_file = x.prom'
        self.assertEqual([], self.told(*lines))
        audit, metrics = self.told(*lines, periodic_enable=False)
        self.assertIn('audit_interval has no effect: [DEFAULT] '
                      'periodic_enable is false', audit)
        self.assertIn('metrics_file is written at the start only', metrics)
