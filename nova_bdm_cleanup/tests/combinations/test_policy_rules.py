# SPDX-License-Identifier: Apache-2.0
"""The policy that is shipped for Cinder, rule by rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
import dataclasses
import functools
import itertools
from typing import Any, Callable

from oslo_upgradecheck.upgradecheck import Code
import testscenarios
import testtools

from nova_bdm_cleanup.node.instance import mapping_of
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.openstack.api import Api
from nova_bdm_cleanup.openstack.cinder import (
    Cinder,
    NOVA_CONF,
    VOLUME_MICROVERSION,
)
from nova_bdm_cleanup.rules.facts import Answers, Claim, Claimant, Volume
from nova_bdm_cleanup.tests.cloud import cinder, fixture, identity
from nova_bdm_cleanup.tests.functional import scenario
from nova_bdm_cleanup.tests.functional.test_policy import (
    EVERYTHING,
    MEMBER,
    PolicyTestCase,
    RECONNECTED,
    SAMPLE,
    USER,
)

Question = Callable[[Cinder], Any]

load_tests = testscenarios.load_tests_apply_scenarios

ALL = EVERYTHING | RECONNECTED
MOVED = RECONNECTED - {'swapped'}
#: The rules without which a reboot does less, what it then neither cleans nor
#: reconnects, and a word of what ``check`` says.
LESS: dict[str, tuple[Iterable[str], str]] = {
    'bdm_cleanup': (ALL, 'context_is_admin'),
    'bdm_cleanup_or_reader': (ALL, 'volume:get_all'),
    'bdm_cleanup_or_member': (
        ('stale', 'reserved', *RECONNECTED), 'attachments'),
    'context_is_admin': (ALL, 'context_is_admin'),
    'volume:get_all': (ALL, 'volume:get_all'),
    'volume:get': (('available', 'elsewhere', *RECONNECTED), 'volume:get'),
    'volume_extension:volume_tenant_attribute': (
        ALL, 'volume_extension:volume_tenant_attribute'),
    'volume:attachment_delete': (
        ('stale', 'reserved', *RECONNECTED), 'attachments'),
    'volume:attachment_complete': (
        ('reserved', *MOVED), 'attachments'),
    'volume_extension:volume_actions:roll_detaching': (
        ('swapped',), 'attachments'),
    'volume:attachment_create': (MOVED, 'attachments'),
    'volume:attachment_update': (MOVED, 'attachments'),
    'volume:multiattach_bootable_volume': (('bootable',), 'attachments')}
#: The rules without which the user may do more.
MORE = {'admin_api', 'admin_or_owner'}
#: Those of Cinder's own that the user satisfies with them.
RIGHTS = {name for name in LESS if ':' in name} | {'context_is_admin'}
#: What all users may do by Cinder's old defaults.
OLD_RIGHTS = {'volume:attachment_create'}


def sample_without(*rules: str) -> dict[str, str]:
    """Return the sample without some rules.

    Those that others refer to stay, for all users but this one.
    """
    return {name: rule.replace(' or rule:bdm_cleanup', '')
            if name in rules else rule for name, rule in SAMPLE.items()
            if name not in rules or name.startswith('bdm_cleanup_or_')}


class WithoutARuleTest(PolicyTestCase):
    """All rules of the sample but one."""

    scenarios = [(rule, {'rule': rule}) for rule in SAMPLE]
    rule: str

    def test_missing_rule_is_named_and_does_no_damage(self):
        """Remove nothing wrong, fail no reboot, and say what is missing."""
        damage = self.create_damage()
        self.set_policy(sample_without(self.rule))
        less, word = LESS.get(self.rule, ((), 'attachments'))
        code, details = self.check_cinder()
        self.assertEqual(Code.SUCCESS if word == 'attachments'
                         else Code.FAILURE, code, details)
        self.assertIn(word, details)
        self.assertEqual(ALL.difference(less),
                         self.reboot_all(damage) | self.reconnect())


class SubsetTest(PolicyTestCase):
    """The sample without any two rules, and every look at Cinder.

    Each answer is that which an administrator gets, or there is none.  A claim
    that is not denied is none: it stands, as it does without an answer.
    """

    scenarios = [(user.roles[-1], {'user': user})
                 for user in (USER, MEMBER)]
    user: identity.Caller

    def setUp(self):
        super().setUp()
        damage = self.create_damage()
        server = self.create_server(*[scenario.BOOT_DISK] * 2, name='odd')
        self.cloud.create_legacy_attachment(server, self.cloud.volume())
        self.cloud.change_row(server, server.volumes[0], attachment_id=None)
        service = dataclasses.replace(
            identity.NOVA, user='owner', roles=identity.MEMBER)
        servers = [*(each for each, _ in damage.values()),
                   dataclasses.replace(server, volumes=(
                       *server.volumes, self.cloud.volume(owner=service)))]
        self.questions = [question for each in servers
                          for question in self.questions_about(each)]

    def ask(self, caller: identity.Caller) -> list[Any]:
        """Return the answers to all questions; None: there is none."""
        connection = self.cloud.cinder.client(caller, service=True).client
        asked = Cinder(Api('Cinder', VOLUME_MICROVERSION,
                           lambda: connection.request, NOVA_CONF))
        return [self.answer(question, asked) for question in self.questions]

    @staticmethod
    def answer(question: Question, asked: Cinder) -> Any:
        try:
            return [_comparable(question(asked))]
        except errors.ApiError:
            return None

    def questions_about(self, server: fixture.Server) -> Iterator[Question]:
        project = self.cloud.owner.project
        bdms = [mapping_of(row)
                for row in self.cloud.nova.block_devices(server.id)
                if row.volume_id and not row.deleted]
        yield lambda asked: asked.look(server.id, bdms, project)
        yield lambda asked: asked.look(server.id, bdms, project, closely=True)
        for volume in server.volumes:
            yield functools.partial(
                Cinder.denies, claim=Claim(
                    Claimant.ROW, server.id, volume), host=server.host,
                addresses=frozenset())
            yield functools.partial(Cinder.volume, volume_id=volume)
            for each in self.cloud.attachments(volume):
                yield functools.partial(
                    Cinder.attachment, attachment_id=each.id)

    def test_fewer_rules_never_change_an_answer(self):
        expected = self.ask(identity.NOVA)
        self.assertNotIn(None, expected)
        # Those of the questions.
        rules = sorted(rule for rule in RIGHTS if 'attach' not in rule)
        answered = set()
        for number in range(3):
            for without in itertools.combinations(rules, number):
                self.set_policy(sample_without(*without))
                found = self.ask(self.user)
                for one, other in zip(found, expected):
                    if one not in (None, [False]):
                        self.assertEqual(other, one, without)
                        answered.add(without)
                if not without:
                    self.assertEqual(expected, found)
        # Otherwise the test shows nothing.
        self.assertIn(('volume:get',), answered)


def _comparable(answer: Any) -> Any:
    """Return an answer without the project of volumes.

    Nothing is concluded from a project that Cinder does not show.
    """
    if isinstance(answer, Answers):
        return ({name: _comparable(volume)
                 for name, volume in answer.volumes.items()},
                sorted(answer.attachments, key=lambda a: a.id))
    return (dataclasses.replace(answer, project=None)
            if isinstance(answer, Volume) else answer)


class ReachTest(testtools.TestCase):
    """Rights of users with the sample, by each rule of Cinder."""

    def allowed(self, roles: Iterable[str], *policies: Mapping[str, str],
                new_defaults: bool = True) -> list[list[set[str]]]:
        """Return the rules that hold for other projects, and for the own."""
        found = iter(cinder.allowed([
            {'rules': rules, 'roles': list(roles), 'project': project,
             'new_defaults': new_defaults}
            for rules in policies for project in ('another', 'own')]))
        return [[next(found), next(found)] for _ in policies]

    @staticmethod
    def with_old_defaults(rules: Mapping[str, str]) -> dict[str, str]:
        """Return the sample as its comment says for old defaults."""
        return {name: rule + ' or rule:admin_or_owner' * name.startswith(
            'bdm_cleanup_or_') for name, rule in rules.items()
            if name not in OLD_RIGHTS}

    def test_every_rule_is_needed(self):
        self.assertEqual(set(SAMPLE), MORE.union(LESS))

    def test_user_has_only_the_rights_of_the_sample(self):
        (nothing, _), (some, _) = self.allowed(USER.roles, {}, SAMPLE)
        self.assertEqual(set(), nothing)
        self.assertEqual(RIGHTS, some)

    def test_user_with_old_defaults_has_only_those_rights(self):
        (before, _), (some, _) = self.allowed(
            USER.roles, {}, self.with_old_defaults(SAMPLE),
            new_defaults=False)
        self.assertEqual(RIGHTS, some - (before - OLD_RIGHTS))

    def test_rules_that_narrow_the_rights_are_needed(self):
        (some, _), (more, _) = self.allowed(
            USER.roles, SAMPLE, sample_without('admin_api'))
        self.assertIn('volume:force_delete', more - some)
        (some, _), (more, _) = self.allowed(USER.roles, *map(
            self.with_old_defaults,
            (SAMPLE, sample_without('admin_or_owner'))), new_defaults=False)
        self.assertIn('volume:delete', more - some)

    def test_rights_of_other_users_are_unchanged(self):
        """Take nothing from other users, and give them nothing."""
        cases = [
            {'rules': rules, 'roles': list(roles), 'project': project,
             'new_defaults': new_defaults}
            for roles in (identity.ADMIN, identity.MEMBER, ('reader',),
                          ('service',), ('custom',))
            for sample, new_defaults in (
                (SAMPLE, True), (self.with_old_defaults(SAMPLE), False))
            for project in ('another', 'own')
            for rules in ({}, sample)]
        # All in one process: to import Cinder takes longer than to ask it.
        found = iter(cinder.allowed(cases))
        for case in cases[::2]:
            self.assertEqual(next(found), next(found), case)
