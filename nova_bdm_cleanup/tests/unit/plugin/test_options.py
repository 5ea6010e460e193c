# SPDX-License-Identifier: Apache-2.0
"""The options: their help, their limits, and the policy they make."""

from __future__ import annotations

import configparser
import datetime
import os
import subprocess
import sys

from oslo_config import cfg
import testscenarios

from nova_bdm_cleanup.plugin import options
from nova_bdm_cleanup.rules.facts import Policy, Reason
from nova_bdm_cleanup.tests.unit import base

load_tests = testscenarios.load_tests_apply_scenarios

ROOT = os.path.abspath(os.path.join(
    os.path.dirname(__file__), *[os.pardir] * 4))


class ConfTestCase(base.TestCase):

    def conf(self, *lines):
        """A nova.conf with these lines in the group."""
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
    """Each option earns its place."""

    scenarios = [(opt.name, {'opt': opt}) for opt in options.OPTS]

    def test_help_is_sentences(self):
        text = self.opt.help.strip()
        self.assertGreater(len(text), 60)
        self.assertRegex(text, r'^[A-Z]')
        self.assertNotIn('%', text)

    def test_related_options_exist(self):
        _, _, related = self.opt.help.partition('Related options:')
        names = {o.name for o in options.OPTS}
        for line in related.split('\n* ')[1:]:
            self.assertIn(line.strip().strip('`').split()[-1], names)


class DefaultsTest(ConfTestCase):

    def test_disabled_and_nothing_is_wrong(self):
        conf = self.conf()
        self.assertEqual([], options.problems(conf))
        self.assertIs(False, conf.bdm_cleanup.enabled)
        self.assertIs(False, conf.bdm_cleanup.required)

    def test_the_policy_is_that_of_the_rules(self):
        self.assertEqual(Policy(), options.settings(self.conf()).policy)

    def test_the_store_is_under_the_state_path_of_nova(self):
        self.assertEqual(
            '/var/lib/nova/bdm-cleanup/store.sqlite',
            options.store(self.conf())[0])

    def test_registered_twice(self):
        conf = self.conf('mode = observe')
        before = options.effective(conf)
        options.register_opts(conf)
        self.assertEqual(before, options.effective(conf))

    def test_every_option_is_effective(self):
        self.assertEqual(
            [opt.name for opt in options.OPTS],
            list(options.effective(self.conf())))


class TriggersTest(ConfTestCase):

    def test_hard_reboots_only(self):
        conf = self.conf()
        self.assertEqual(('hard_reboot',), options.settings(conf).triggers)
        self.assertEqual([], options.without_effect(conf))
        self.assertEqual(60, options.settings(conf).host_boot_timeout)

    def test_each_word_counts_once(self):
        self.assertEqual(('hard_reboot', 'start'), options.settings(
            self.conf('triggers = start, hard_reboot,start')).triggers)

    def test_all(self):
        self.assertEqual(
            ('hard_reboot', 'start', 'host_boot', 'move', 'shelve',
             'unshelve', 'evacuate', 'live_migration', 'delete'),
            options.settings(self.conf('triggers = all,start')).triggers)

    def test_unknown_word(self):
        problem, = options.problems(self.conf('triggers = start,live'))
        for word in ('[bdm_cleanup] triggers', 'live', 'hard_reboot',
                     'start', 'host_boot', self.path):
            self.assertIn(word, problem)

    def test_none(self):
        problem, = options.problems(self.conf('triggers ='))
        self.assertIn('[bdm_cleanup] triggers is empty', problem)
        # What is wrong already is not said twice.
        self.assertEqual(1, len(options.problems(
            self.conf('triggers =', 'mode = x'))))

    def test_host_boot_where_nova_resumes_nothing(self):
        conf = self.conf('triggers = host_boot')
        self.assertEqual([], options.problems(conf))
        found, = options.without_effect(conf)
        self.assertIn('resume_guests_state_on_host_boot', found)
        conf.set_override('resume_guests_state_on_host_boot', True)
        self.assertEqual([], options.without_effect(conf))


class WatchTest(ConfTestCase):
    """What nova-compute does by the clock."""

    def test_nothing_by_default(self):
        settings = options.settings(self.conf())
        self.assertEqual((0, False, '', False), (
            settings.audit_interval, settings.sweep_stopped,
            settings.metrics_file, settings.watches))

    def test_a_minute_is_the_shortest_interval(self):
        for interval in (1, 59):
            problem, = options.problems(
                self.conf('audit_interval = %d' % interval))
            for word in ('[bdm_cleanup] audit_interval', str(interval), '60'):
                self.assertIn(word, problem)
        for interval in (0, 60, 86400):
            conf = self.conf('audit_interval = %d' % interval)
            self.assertEqual([], options.problems(conf))
            self.assertEqual(interval, options.settings(conf).audit_interval)

    def test_negative_and_odd_intervals(self):
        for value in ('-1', '-3600', '1.5', 'hourly'):
            problem, = options.problems(
                self.conf('audit_interval = ' + value))
            self.assertIn('[bdm_cleanup] audit_interval', problem)

    def test_a_number_that_is_empty(self):
        numbers = [opt.name for opt in options.OPTS
                   if isinstance(opt, cfg.IntOpt)]
        self.assertIn('audit_interval', numbers)
        for name in numbers:
            problem, = options.problems(self.conf(name + ' ='))
            self.assertIn('[bdm_cleanup] %s has no value' % name, problem)

    def test_a_sweep_needs_an_audit(self):
        conf = self.conf('sweep_stopped = true')
        self.assertEqual([], options.problems(conf))
        found, = options.without_effect(conf)
        self.assertIn('sweep_stopped has no effect', found)
        self.assertIn('audit_interval', found)
        self.assertEqual([], options.without_effect(
            self.conf('sweep_stopped = true', 'audit_interval = 3600')))

    def test_an_audit_needs_periodic_tasks(self):
        conf = self.conf('audit_interval = 3600', 'metrics_file = x.prom')
        self.assertEqual([], options.without_effect(conf))
        conf.set_override('periodic_enable', False)
        audit, metrics = options.without_effect(conf)
        self.assertIn('audit_interval has no effect: [DEFAULT] '
                      'periodic_enable is false', audit)
        self.assertIn('metrics_file is written at the start only', metrics)

    def test_all_that_has_no_effect_is_told(self):
        conf = self.conf('triggers = host_boot', 'sweep_stopped = true')
        self.assertEqual(2, len(options.without_effect(conf)))


class PolicyTest(ConfTestCase):

    def test_every_value_arrives(self):
        policy = options.settings(self.conf(
            'mode = observe', 'remove_when = missing,attached-elsewhere',
            'stale_attachments = false', 'grace_period = 0',
            'stuck_after = 60', 'max_removals = 1',
            'max_attachments = 4', 'max_removals_per_hour = 2',
            'timeout = 3')).policy
        self.assertEqual(Policy(
            observe=True,
            remove_when=frozenset([Reason.VOLUME_MISSING,
                                   Reason.ATTACHED_ELSEWHERE]),
            stale_attachments=False,
            grace_period=datetime.timedelta(0),
            stuck_after=datetime.timedelta(seconds=60),
            max_removals=1, max_attachments=4, max_removals_per_hour=2,
            timeout=3), policy)

    def test_each_word_of_remove_when(self):
        for word, reason in (('missing', Reason.VOLUME_MISSING),
                             ('available', Reason.VOLUME_AVAILABLE),
                             ('attached-elsewhere',
                              Reason.ATTACHED_ELSEWHERE),
                             ('duplicate', Reason.DUPLICATE_MAPPING)):
            self.assertEqual(
                frozenset([reason]),
                options.settings(self.conf('remove_when = ' + word))
                .policy.remove_when)

    def test_no_word_at_all(self):
        conf = self.conf('remove_when =')
        self.assertEqual([], options.problems(conf))
        self.assertEqual(
            frozenset(), options.settings(conf).policy.remove_when)

    def test_the_store(self):
        self.assertEqual(('/x/s', 5 * 1024 ** 2), options.store(self.conf(
            'store = /x/s', 'store_max_size = 5')))


#: Values that are not understood.
BAD = (
    ('enabled', 'perhaps'), ('required', '2'),
    ('mode', 'Enforce!'), ('mode', ''),
    ('remove_when', 'gone'), ('remove_when', 'missing,gone'),
    ('stale_attachments', 'x'),
    ('grace_period', '-1'), ('grace_period', '5 min'),
    ('stuck_after', '59'), ('stuck_after', '-3600'),
    ('max_removals', '0'), ('max_removals', '-1'), ('max_removals', 'all'),
    ('max_attachments', '0'), ('max_attachments', 'all'),
    ('max_removals_per_hour', '0'), ('max_removals_per_hour', '-1'),
    ('timeout', '0'), ('timeout', '-60'), ('timeout', '1.5'),
    ('store', '$nowhere/store'),
    ('store_max_size', '3'), ('store_max_size', '1025'),
    ('store_max_size', '10 MiB'),
)


class BadValueTest(ConfTestCase):
    """A wrong value is a clear error."""

    scenarios = [('%s = %s' % bad, {'option': bad[0], 'value': bad[1]})
                 for bad in BAD]

    def test_group_option_and_file_are_named(self):
        conf = self.conf('%s = %s' % (self.option, self.value))
        [problem] = options.problems(conf)
        self.assertTrue(problem.startswith(
            '[bdm_cleanup] %s: ' % self.option), problem)
        if not self.value.startswith('$'):
            self.assertIn(self.path, problem)


class SeveralBadValuesTest(ConfTestCase):

    def test_all_are_named_at_once(self):
        problems = options.problems(self.conf(
            'mode = x', 'timeout = y', 'max_removals = 3'))
        self.assertEqual(2, len(problems))


#: What oslo-config-generator does.
GENERATE = """
import sys
from oslo_config import cfg, generator
conf = cfg.ConfigOpts()
generator.register_cli_opts(conf)
conf(sys.argv[1:])
generator.generate(conf)
"""


class SampleTest(base.TestCase):
    """The sample file comes from the entry point that setup.cfg names."""

    def test_sample(self):
        setup = configparser.ConfigParser()
        setup.read(os.path.join(ROOT, 'setup.cfg'))
        site = self.tempdir()
        info = os.path.join(site, 'nova_bdm_cleanup-0.dist-info')
        os.mkdir(info)
        with open(os.path.join(info, 'METADATA'), 'w') as file:
            file.write('Metadata-Version: 2.1\nName: nova-bdm-cleanup\n'
                       'Version: 0\n')
        with open(os.path.join(info, 'entry_points.txt'), 'w') as file:
            file.write('[oslo.config.opts]%s\n'
                       % setup['options.entry_points']['oslo.config.opts'])
        result = subprocess.run(
            [sys.executable, '-c', GENERATE,
             '--namespace', 'nova_bdm_cleanup'],
            env={**os.environ, 'PYTHONPATH': os.pathsep.join([site, ROOT]),
                 'XDG_CACHE_HOME': site, 'PYTHONDONTWRITEBYTECODE': '1'},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(0, result.returncode, result.stderr)
        self.assertIn('[bdm_cleanup]', result.stdout)
        for opt in options.OPTS:
            self.assertRegex(result.stdout, r'(?m)^#%s =( |$)' % opt.name)
        # What a choice means is told.
        self.assertIn('enforce - Remove what is dangling', result.stdout)
