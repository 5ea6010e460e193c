# SPDX-License-Identifier: Apache-2.0
"""Cinder over real HTTP: requests, and the parsing of answers."""

from __future__ import annotations

import dataclasses
import datetime
import pathlib
import random
import re
import threading
import types
from unittest import mock
import urllib.parse

import hypothesis
from hypothesis import strategies as st
import testscenarios

from nova_bdm_cleanup.client.cloud.cinder import CloudCinder
from nova_bdm_cleanup.node import cleanup
from nova_bdm_cleanup.node.cleanup import log_lines
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.openstack.api import Api, Hints
from nova_bdm_cleanup.openstack.cinder import (
    Cinder,
    NOVA_CONF,
    VOLUME_MICROVERSION,
)
from nova_bdm_cleanup.openstack.deadline import Deadline, TimedOut
from nova_bdm_cleanup.rules import decision, facts
from nova_bdm_cleanup.tests.unit import base, loopback, make, wire, worlds
from nova_bdm_cleanup.tests.unit.loopback import LoopbackCloud, Request

#: Hints for a client that sends no service token.
ADVICE = Hints(credentials='', catalogue='', role='')

load_tests = testscenarios.load_tests_apply_scenarios

GLANCE = '/attachments'
LIST = '/attachments/detail'
MANY = '/volumes/detail'


class CinderTestCase(base.TestCase):

    user = 'admin'
    kind = Cinder

    def setUp(self):
        super().setUp()
        self.cloud = LoopbackCloud()
        self.server = self.useFixture(wire.LoopbackServer(self.cloud))

    def cinder(self, advice=NOVA_CONF, seconds=120, kind=None, **values):
        """Return a Cinder with a deadline, unless without seconds."""
        return (kind or self.kind)(Api(
            'Cinder', VOLUME_MICROVERSION,
            lambda: self.server.cinderclient(self.user).client.request,
            advice, Deadline(seconds) if seconds else None), **values)

    def healthy(self, count, start=1):
        """Create attached volumes; return their mappings."""
        bdms = []
        for number in range(start, start + count):
            ids = 'volume-%d' % number, 'attachment-%d' % number
            self.cloud.put_volume(ids[0], attachments=[
                {'server_id': make.SERVER, 'attachment_id': ids[1],
                 'host_name': make.HOST, 'device': '/dev/vdb'}])
            self.cloud.put_attachment(ids[1], make.SERVER, ids[0])
            bdms.append(make.bdm(uuid='bdm-%d' % number, volume_id=ids[0],
                                 attachment_id=ids[1]))
        return bdms

    def own_stale(self):
        self.cloud.put_volume('volume-9')
        self.cloud.put_attachment('attachment-9', make.SERVER, 'volume-9')

    def look(self, bdms, project=None, **values):
        return self.cinder(**values).look(make.SERVER, bdms, project)

    def look_closely(self, bdms, **values):
        return self.cinder(**values).look(make.SERVER, bdms, closely=True)

    def seen(self, bdms, project=None, **values):
        """Return the numbers of the volumes and attachments found."""
        volumes, attachments, _ = self.look(bdms, project, **values)
        return tuple(sorted(i.partition('-')[2] for i in ids) for ids in (
            volumes, [a.id for a in attachments]))


class RequestsTest(CinderTestCase):
    """The number of requests."""

    def test_whether_cinder_answers_no_volume_is_asked_for(self):
        self.healthy(1)
        self.cinder().prove_it_answers()
        self.assertEqual(['GET /volumes'], self.cloud.paths)
        self.cloud.trouble('GET', '/volumes', wire.page(503))
        self.assertRaises(errors.BadAnswer, self.cinder().prove_it_answers)

    def test_server_without_volumes_takes_one_request(self):
        for bdms in ([], [make.root()]):
            self.cloud.requests.clear()
            self.assertEqual(({}, (), False), self.look(bdms))
            self.assertEqual(['GET ' + LIST], self.cloud.paths)

    def test_any_number_of_volumes_takes_two_requests(self):
        """Ask in all projects, and first for one attachment too many, since
        Cinder is slow for each record of a list.
        """
        for count in (1, 60):
            self.cloud.requests.clear()
            bdms = self.healthy(count)
            volumes, attachments, _ = self.look(bdms)
            self.assertEqual(['GET ' + LIST, 'GET ' + MANY],
                             self.cloud.paths)
            self.assertEqual({b.volume_id for b in bdms}, set(volumes))
            self.assertEqual({b.attachment_id for b in bdms},
                             {a.id for a in attachments})
            glance, many = (r.query for r in self.cloud.requests)
            self.assertEqual({
                'all_tenants': '1', 'instance_id': make.SERVER,
                'limit': str(count + 1)}, glance)
            self.assertEqual('1', many['all_tenants'])

    def test_a_close_look_lists_the_attachments_at_once(self):
        bdms = self.healthy(2)
        cinder = self.cinder()
        first = cinder.look(make.SERVER, bdms)
        self.cloud.requests.clear()
        second = cinder.look(make.SERVER, bdms, closely=True)
        self.assertEqual(['GET ' + LIST, 'GET ' + MANY], self.cloud.paths)
        self.assertEqual(first[0], second[0])
        self.assertEqual({a.id for a in first[1]}, {a.id for a in second[1]})

    def test_a_close_look_reads_what_dangles_by_its_id(self):
        """Do not believe a list: one database may be behind another."""
        bdms = self.healthy(4)
        self.cloud.volumes['volume-2']['status'] = 'available'
        self.cloud.attachments['attachment-3']['status'] = 'attaching'
        self.cloud.volumes['volume-4']['status'] = 'detaching'
        self.own_stale()
        self.look(bdms)
        self.assertEqual(['GET ' + LIST, 'GET ' + LIST, 'GET ' + MANY],
                         self.cloud.paths)
        self.cloud.requests.clear()
        self.look_closely(bdms)
        self.assertEqual(
            ['GET ' + LIST, 'GET ' + MANY,
             'GET /attachments/attachment-2', 'GET /attachments/attachment-3',
             'GET /volumes/volume-2', 'GET /volumes/volume-3'],
            self.cloud.paths)

    def test_the_answer_by_id_counts(self):
        bdms = self.healthy(2)
        self.cloud.trouble('GET', MANY, wire.json_answer(200, {
            'volumes': [dict(self.cloud.volumes['volume-%d' % n],
                             status='available') for n in (1, 2)]}))
        self.cloud.trouble('GET', '/attachments/attachment-2', wire.fault(
            404, 'itemNotFound'))
        volumes, attachments, _ = self.look_closely(bdms)
        self.assertEqual(['in-use', 'in-use'],
                         [v.status for v in volumes.values()])
        self.assertEqual(['attachment-1'], [a.id for a in attachments])

    def test_volume_of_an_answer_by_id_is_read(self):
        bdms = self.healthy(1)
        self.cloud.volumes['volume-1']['status'] = 'available'
        self.cloud.put_volume('volume-9')
        self.cloud.trouble('GET', '/attachments/attachment-1', wire.edit(
            lambda body: body['attachment'].update(volume_id='volume-9')))
        volumes, attachments, _ = self.look_closely(bdms)
        self.assertEqual(['volume-1', 'volume-9'], sorted(volumes))
        self.assertEqual('volume-9', attachments[0].volume_id)

    def test_nothing_is_read_by_its_id_twice(self):
        bdms = self.healthy(1)
        del self.cloud.attachments['attachment-1']
        del self.cloud.volumes['volume-1']
        self.look_closely(bdms)
        self.assertEqual(
            ['GET ' + LIST, 'GET /attachments/attachment-1',
             'GET ' + MANY, 'GET /volumes/volume-1'],
            self.cloud.paths[:4])
        self.user = 'member'
        bdms = self.healthy(1)
        self.cloud.attachments['attachment-1']['status'] = 'reserved'
        self.cloud.requests.clear()
        self.look_closely(bdms, kind=CloudCinder)
        self.assertEqual(
            ['GET ' + LIST, 'GET /volumes/volume-1',
             'GET /attachments/attachment-1'], self.cloud.paths)

    def test_the_volume_of_a_stale_attachment_is_asked_for_with_the_rest(
            self):
        bdms = self.healthy(1)
        self.own_stale()
        volumes, attachments, _ = self.look(bdms)
        self.assertEqual({'volume-1', 'volume-9'}, set(volumes))
        self.assertEqual(['GET ' + LIST, 'GET ' + LIST, 'GET ' + MANY],
                         self.cloud.paths)
        self.assertEqual([True, True], [a.connected for a in attachments])

    def test_the_token_of_a_project_asks_one_by_one(self):
        """Check also that it does not ask for all projects."""
        self.user = 'member'
        volumes = self.look(self.healthy(3), kind=CloudCinder)[0]
        self.assertEqual(
            ['GET ' + LIST, 'GET /volumes/volume-1',
             'GET /volumes/volume-2', 'GET /volumes/volume-3'],
            self.cloud.paths)
        self.assertEqual(3, sum(map(bool, volumes.values())))
        self.assertNotIn('all_tenants', self.cloud.requests[0].query)


class ParsingTest(CinderTestCase):
    """The parsing of Cinder's records."""

    def volume(self, **fields):
        self.cloud.put_volume('volume-1', **fields)
        [volume] = self.look([make.bdm(attachment_id=None)])[0].values()
        return volume

    def attachment(self, **fields):
        self.cloud.put_volume('volume-1')
        self.cloud.put_attachment(
            'attachment-1', make.SERVER, 'volume-1', **fields)
        [attachment] = self.look([])[1]
        return attachment

    def test_volume_is_read_with_all_fields(self):
        self.assertEqual(
            facts.Volume(
                id='volume-1', status='detaching', project='own',
                multiattach=True, migration_status='success',
                updated_at=datetime.datetime(
                    2026, 1, 2, tzinfo=datetime.timezone.utc),
                attached_to=(
                    facts.AttachedServer(
                        make.SERVER, 'attachment-1', 'h', datetime.datetime(
                            2026, 1, 2, 3, 4, tzinfo=datetime.timezone.utc)),
                    facts.AttachedServer(None, 'other'))),
            self.volume(
                status='detaching', multiattach=True,
                migration_status='success',
                attachments=[{'server_id': make.SERVER, 'host_name': 'h',
                              'attachment_id': 'attachment-1',
                              'attached_at': '2026-01-02T03:04:00.000000'},
                             {'server_id': None, 'attachment_id': 'other',
                              'attached_at': None}]))

    def test_volume_never_updated_has_its_creation_time(self):
        for updated in (None, 'yesterday'):
            self.assertEqual(
                datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc),
                self.volume(updated_at=updated).updated_at)

    def test_attachment_has_the_time_of_its_connection(self):
        then = datetime.datetime(2026, 1, 2, 3, 4, 5, 600000,
                                 tzinfo=datetime.timezone.utc)
        # Cinder shows an empty text for what was never connected.
        for text, moment in (('2026-01-02T03:04:05.600000', then),
                             ('', None), (None, None)):
            self.assertEqual(
                moment, self.attachment(attached_at=text).attached_at)

    def test_volume_gives_the_time_of_its_attachment(self):
        bdms = self.healthy(1)
        self.cloud.volumes['volume-1']['attachments'][0]['attached_at'] = (
            '2026-01-02T03:04:05.000000')
        volume = self.look(bdms)[0]['volume-1']
        self.assertEqual(5, volume.attached_to[0].attached_at.second)

    def test_attachment_is_read_without_secrets(self):
        kept = {'driver_volume_type': 'rbd', 'auth_password': 'hush'}
        for status, info, connected, legacy in (
                ('attached', kept, True, False),
                ('attached', None, False, True),
                ('attached', {}, False, True),
                ('reserved', {}, False, False),
                ('attaching', kept, True, False)):
            found = self.attachment(status=status, connection_info=info)
            self.assertEqual(
                (connected, legacy), (found.connected, found.is_legacy))
            self.assertNotIn('hush', repr(found))

    def test_only_fibre_channel_names_initiators(self):
        for info, found in (
                # Fibre Channel names the initiators, iSCSI and Ceph do not.
                ({'initiator_target_map': {
                    '50014380186AF83C': ['500'], '50:01:43:80': ['501']}},
                 {'50014380186af83c', '50014380'}),
                ({'initiator_target_map': {}}, set()),
                # A back end may return anything there.
                ({'initiator_target_map': None}, set()),
                ({'initiator_target_map': 'odd'}, set()),
                ({'target_iqn': 'iqn.2010-10.org'}, set())):
            self.assertEqual(
                found, self.attachment(connection_info=info).initiators, info)


class ProofTest(CinderTestCase):
    """An answer as proof that the credentials see every project."""

    def setUp(self):
        super().setUp()
        self.bdms = self.healthy(2)
        # Without the filter by ID this Cinder would refuse, not mislead.
        self.cloud.volume_filters.add('id')

    def hide(self):
        """Move the volumes to a project the credentials do not see."""
        self.user = 'member'
        for volume in self.cloud.volumes.values():
            volume['os-vol-tenant-attr:tenant_id'] = 'tenant'

    def assert_hidden(self, func, *args):
        error = self.assertRaises(errors.ProjectHidden, func, *args)
        self.assertIn('admin role', str(error))
        self.assertIn('[cinder]', str(error))

    def test_hidden_projects_are_detected(self):
        # They look as if they did not exist.
        self.hide()
        self.assert_hidden(self.look, self.bdms)

    def test_public_volumes_are_no_proof(self):
        self.user = 'member'
        for func, *args in ((self.look, self.bdms),
                            (self.look, self.bdms, 'tenant'),
                            (self.cinder().volume, 'volume-1')):
            self.assert_hidden(func, *args)

    def test_one_public_volume_is_no_proof(self):
        self.hide()
        self.cloud.volumes['volume-1']['os-vol-tenant-attr:tenant_id'] = 'own'
        self.assert_hidden(self.look, self.bdms)
        self.cloud.trouble('GET', MANY, wire.json_answer(
            200, {'volumes': []}))
        self.assert_hidden(self.look, self.bdms)

    def test_bad_request_keeps_its_message(self):
        self.cloud.trouble('GET', LIST, wire.json_answer(
            400, {'badRequest': {'message': 'no such filter'}}))
        error = self.assertRaises(errors.BadRequest, self.look, self.bdms)
        self.assertIn('no such filter', str(error))

    def test_one_more_request_proves_that_all_are_gone(self):
        self.cloud.volumes.clear()
        self.cloud.attachments.clear()
        volumes, attachments, _ = self.look(self.bdms)
        self.assertEqual({'volume-1': None, 'volume-2': None}, volumes)
        self.assertEqual((), attachments)
        # No answer could prove it, so one more request is sent.
        self.assertIn('provider_id', self.cloud.requests[-1].query)

    def test_the_filter_needs_an_administrator(self):
        self.user = 'member'
        self.cloud.volume_filters.remove('id')
        error = self.assertRaises(errors.ProjectHidden, self.look, self.bdms)
        for words in ('admin role', '[cinder]', 'Invalid filters id'):
            self.assertIn(words, str(error))

    def test_volume_without_a_project_is_not_counted_as_seen(self):
        """Refuse it: other projects can have attachments name the server."""
        del self.cloud.volumes['volume-2']['os-vol-tenant-attr:tenant_id']
        self.assert_hidden(self.look, self.bdms)


class HiddenByIdTest(CinderTestCase):
    """A policy of Cinder that lists a volume and hides it by its id."""

    def setUp(self):
        super().setUp()
        self.bdms = self.healthy(2)
        for number in (1, 2):
            self.cloud.trouble('GET', '/volumes/volume-%d' % number,
                               wire.fault(404, 'itemNotFound'))

    def assert_hidden(self, func, *args):
        # Not that the credentials see too little: a list may lag.
        error = self.assertRaises(errors.BadAnswer, func, *args)
        for word in ('volume:get', 'admin role', 'bdm-cleanup-policy.yaml'):
            self.assertIn(word, str(error))

    def test_hidden_volume_is_not_gone(self):
        self.assert_hidden(self.cinder().volume, 'volume-1')
        self.assertEqual(['GET /volumes/volume-1', 'GET ' + MANY],
                         self.cloud.paths)

    def test_close_look_detects_a_hidden_volume(self):
        self.cloud.volumes['volume-1']['status'] = 'available'
        self.assert_hidden(self.look_closely, self.bdms)

    def test_hidden_volume_of_a_neighbour_is_detected(self):
        self.assert_hidden(
            self.cinder().denies,
            make.claim(facts.Claimant.ROW, volume_id='volume-1',
                       attachment_id=None), make.HOST, frozenset())

    def test_volume_missing_in_every_list_is_gone(self):
        """Take it for gone: it may have been deleted just before."""
        del self.cloud.volumes['volume-1']
        self.assertIsNone(self.cinder().volume('volume-1'))

    def test_credentials_of_one_project_send_one_request(self):
        self.assertIsNone(self.cinder(kind=CloudCinder).volume('volume-1'))
        self.assertEqual(['GET /volumes/volume-1'], self.cloud.paths)


class MissingRuleTest(CinderTestCase):
    """The rules of Cinder's policy that answers show to be missing."""

    def setUp(self):
        super().setUp()
        for number, project in enumerate(('own', 'own', 'tenant')):
            self.cloud.put_volume('volume-%d' % number, **{
                'os-vol-tenant-attr:tenant_id': project})

    def assert_missing(self, rule):
        self.assertEqual(rule, self.cinder().missing_rule())

    def test_complete_policy_misses_no_rule(self):
        self.assert_missing(None)
        self.assertEqual(
            ['GET /volumes', 'GET ' + MANY, 'GET /volumes/volume-0',
             'GET /volumes/volume-2'], self.cloud.paths)
        self.cloud.volumes.clear()
        self.assert_missing(None)

    def test_refused_list_misses_get_all(self):
        self.cloud.trouble('GET', '/volumes', wire.fault(403, 'forbidden'))
        self.assert_missing('volume:get_all')

    def test_list_of_one_project_misses_context_is_admin(self):
        self.user = 'member'
        self.cloud.volume_filters.add('id')
        self.assert_missing('context_is_admin')

    def test_hidden_foreign_volume_misses_volume_get(self):
        self.cloud.trouble('GET', '/volumes/volume-2',
                           wire.fault(404, 'itemNotFound'))
        self.assert_missing('volume:get')
        # It was deleted after it was listed.
        def delete(body):
            self.cloud.volumes.pop('volume-2', None)

        self.cloud.trouble('GET', MANY, wire.edit(delete))
        self.assert_missing(None)

    def test_volume_without_project_misses_its_rule(self):
        for volume in self.cloud.volumes.values():
            del volume['os-vol-tenant-attr:tenant_id']
        self.assert_missing('volume_extension:volume_tenant_attribute')

    def test_missing_answer_names_no_rule(self):
        self.cloud.trouble('GET', MANY, wire.fault(503, 'serviceFault'))
        self.assertRaises(errors.BadAnswer, self.cinder().missing_rule)


class ForeignTest(CinderTestCase):
    """Attachments of another project, which are not even fetched."""

    def setUp(self):
        super().setUp()
        self.bdms = self.healthy(2)

    def foreign(self, status='in-use'):
        self.cloud.put_volume('volume-foreign', status, **{
            'os-vol-tenant-attr:tenant_id': 'stranger'})
        for number in range(3):
            self.cloud.put_attachment(
                'attachment-f%d' % number, make.SERVER, 'volume-foreign')

    def test_only_attachments_of_the_project_are_fetched(self):
        self.foreign()
        self.assertEqual((['1', '2'], ['1', '2']),
                         self.seen(self.bdms, 'own'))
        # As if they did not exist.
        self.assertEqual(['GET ' + LIST, 'GET ' + MANY], self.cloud.paths)
        self.assertEqual('own', self.cloud.requests[0].query['project_id'])

    def test_unknown_project_fetches_all_attachments(self):
        self.foreign()
        self.assertEqual(5, len(self.seen(self.bdms)[1]))
        for request in self.cloud.requests:
            self.assertNotIn('project_id', request.query)


class FloodTest(CinderTestCase):
    """More attachments than fit; the reboot does not wait for them."""

    def flood(self):
        self.cloud.put_volume('volume-0', 'reserved')
        for number in range(2500):
            self.cloud.put_attachment(
                'reserved-%d' % number, make.SERVER, 'volume-0',
                status='reserved', connection_info={})

    def lists(self):
        """Count the lists after the first, which is short."""
        return self.cloud.paths.count('GET ' + LIST) - 1

    def test_server_without_volumes_reads_one_list(self):
        self.flood()
        volumes, attachments, is_cut = self.look([], project='own')
        self.assertIs(True, is_cut)
        self.assertEqual((1, 1000), (self.lists(), len(attachments)))
        self.assertEqual({'volume-0'}, set(volumes))

    def test_mappings_are_judged_by_a_cut_list(self):
        for page in (1000, 60):
            self.cloud.attachments.clear()
            self.flood()
            bdms = self.healthy(2)
            self.cloud.page = page
            self.cloud.requests.clear()
            volumes, attachments, is_cut = self.look(bdms, project='own')
            self.assertIs(True, is_cut)
            self.assertLess(self.lists(), 5)
            self.assertEqual({'volume-0', 'volume-1', 'volume-2'},
                             set(volumes))
            self.assertLessEqual({'attachment-1', 'attachment-2'},
                                 {a.id for a in attachments})

    def test_attachment_of_a_doubtful_mapping_is_asked_for(self):
        # The attachment after the flood serves its disk, or keeps it.
        self.flood()
        self.cloud.put_volume('volume-1')
        self.cloud.put_attachment('other', make.SERVER, 'volume-1')
        bdms = [make.bdm(attachment_id='gone'), *self.healthy(1, start=2)]
        _, attachments, is_cut = self.look(bdms, project='own')
        self.assertIs(True, is_cut)
        self.assertIn('other', {a.id for a in attachments})
        # The other mapping is healthy.
        self.assertEqual(2, self.lists())

    def test_all_attachments_are_read_without_a_deadline(self):
        self.flood()
        _, attachments, is_cut = self.look([], seconds=None)
        self.assertEqual((False, 2500), (is_cut, len(attachments)))


class DeniesTest(CinderTestCase):
    """The check whether Cinder denies what the row of a neighbour claims."""

    ADDRESSES = frozenset([('iqn.1', '1'), ('iqn.2', '1')])

    def setUp(self):
        super().setUp()
        self.bdms = self.healthy(1)
        self.volume = self.cloud.volumes['volume-1']
        self.connect(target_iqns=['iqn.1', 'iqn.2'], target_luns=[1, 1])

    def connect(self, **connection_info):
        self.cloud.attachments['attachment-1']['connection_info'] = (
            connection_info)

    def denies(self, attachment_id='attachment-1', server=make.SERVER,
               asked=None):
        """Return whether a Cinder denies it.

        :param asked: the Cinder, if it was asked before
        """
        self.cloud.requests.clear()
        return (asked or self.cinder()).denies(
            make.claim(facts.Claimant.ROW, server=server,
                       volume_id='volume-1', attachment_id=attachment_id),
            make.HOST, self.ADDRESSES)

    def test_two_requests_confirm_a_row(self):
        self.assertIs(False, self.denies())
        self.assertEqual(
            ['GET /attachments/attachment-1', 'GET /volumes/volume-1'],
            self.cloud.paths)

    def test_an_attachment_that_is_gone_denies_it(self):
        del self.cloud.attachments['attachment-1']
        self.assertIs(True, self.denies())
        self.assertEqual(
            ['GET /attachments/attachment-1', 'GET /volumes/volume-1'],
            self.cloud.paths)

    def test_a_cinder_that_knows_neither_denies_nothing(self):
        """It may be that of another region."""
        self.cloud.attachments.clear()
        self.cloud.volumes.clear()
        asked = self.cinder()
        for attachment_id in ('attachment-1', None):
            for _ in range(2):
                self.assertIs(False, self.denies(attachment_id, asked=asked))
                asked.look(make.SERVER, self.bdms)
                asked.witness(['volume-7'])

    def test_only_other_addresses_deny_it(self):
        for values, expected in (
                ({'target_iqn': 'iqn.1', 'target_lun': 2}, True),
                ({'target_iqn': 'iqn.3', 'target_lun': 1}, True),
                # One of the paths is enough.
                ({'target_iqn': 'IQN.2', 'target_lun': 1}, False),
                ({'target_iqns': ['iqn.1', 'iqn.3'], 'target_luns': [1, 2]},
                 False),
                # It has none, or Cinder does not tell.
                ({'name': 'volumes/volume-1'}, False), ({}, False)):
            self.connect(**values)
            self.assertIs(expected, self.denies(), values)

    def test_only_another_host_denies_it(self):
        for host, expected in (
                (make.HOST, False), (make.HOST.upper() + '.example', False),
                (None, False), (make.OTHER_HOST, True)):
            self.volume['attachments'][0]['host_name'] = host
            self.assertIs(expected, self.denies(), host)

    def test_a_volume_that_is_here_by_another_address_denies_it(self):
        """The server is migrated live: its row has the other host's."""
        former = dict(self.cloud.attachments['attachment-1'], id='former')
        self.cloud.attachments['former'] = former
        self.cloud.attachments['attachment-1']['status'] = 'attaching'
        entry = dict(self.volume['attachments'][0], attachment_id='former')
        self.volume['attachments'] = [entry]
        for host, unit, expected in (
                (make.HOST, 2, True), (make.HOST, 1, False),
                (make.OTHER_HOST, 2, False), (None, 2, False)):
            entry['host_name'] = host
            former['connection_info'] = {
                'target_iqn': 'iqn.1', 'target_lun': unit}
            self.assertIs(expected, self.denies(), (host, unit))
        # Cinder says where it connects the one in the row.
        entry['host_name'] = make.HOST
        self.volume['attachments'] = [
            entry, dict(entry, attachment_id='attachment-1',
                        host_name=make.HOST)]
        self.assertIs(False, self.denies())

    def test_the_word_attached_neither_confirms_nor_denies_it(self):
        for status in ('attached', 'attaching', 'reserved', 'detached'):
            self.cloud.attachments['attachment-1']['status'] = status
            self.assertIs(False, self.denies(), status)

    def test_a_volume_that_is_gone_denies_it(self):
        """Another one, of the server itself, shows that it is this Cinder."""
        bdms = self.healthy(1, start=2)
        del self.cloud.volumes['volume-1']
        for prove in (lambda asked: asked.look(make.SERVER, bdms),
                      lambda asked: asked.witness(['volume-2'])):
            asked = self.cinder()
            prove(asked)
            for attachment_id in ('attachment-1', None):
                self.assertIs(True, self.denies(attachment_id, asked=asked))
        # The next look does not show one.
        asked = self.cinder()
        asked.look(make.SERVER, bdms)
        del self.cloud.volumes['volume-2']
        asked.look(make.SERVER, bdms)
        self.assertIs(False, self.denies(asked=asked))

    def test_before_queens_the_list_of_the_volume_tells(self):
        for server, status, entries, expected in (
                (make.SERVER, 'in-use', True, False),
                (make.OTHER_SERVER, 'in-use', True, True),
                # Nothing tells which server has it.
                (make.SERVER, 'in-use', False, False),
                (make.SERVER, 'error', False, False),
                (make.SERVER, 'available', False, True)):
            self.cloud.put_volume(
                'volume-1', status, attachments=[{
                    'server_id': make.SERVER, 'attachment_id': 'attachment-1',
                    'host_name': make.HOST, 'device': '/dev/vdb'}] * entries)
            self.assertIs(expected, self.denies(None, server), (
                server, status, entries))

    def test_no_answer_does_not_deny_it(self):
        for path in ('/attachments/attachment-1', '/volumes/volume-1'):
            self.cloud.trouble('GET', path, wire.page(404))
            self.assertRaises(errors.BadAnswer, self.denies)


class WitnessTest(CinderTestCase):
    """The check for the right Cinder."""

    def knows(self, *numbers):
        return self.cinder().witness(
            'volume-%d' % n for n in numbers) is facts.WitnessAnswer.KNOWN

    def test_one_known_is_enough(self):
        self.healthy(1)
        self.assertTrue(self.knows(*range(1, 21)))
        self.assertEqual(1, len(self.cloud.requests))
        self.assertFalse(self.knows(*range(2, 21)))

    def test_at_most_180_volumes_are_asked_for(self):
        self.healthy(1)
        answer = facts.WitnessAnswer
        for others, last, expected, requests in (
                (0, [], answer.NONE_EXISTS, 0),
                (179, ['volume-1'], answer.KNOWN, 8 + 3),
                (180, ['volume-1'], answer.UNKNOWN, 8 + 3)):
            self.cloud.requests.clear()
            self.assertIs(expected, self.cinder().witness(
                iter(['gone-%d' % n for n in range(others)] + last)))
            self.assertEqual(requests, len(self.cloud.requests))

    def test_nova_is_read_no_further_than_the_first_known_volume(self):
        self.healthy(1)

        def volumes(before):
            yield from ('gone-%d' % n for n in range(before))
            yield 'volume-1'
            raise AssertionError('Nova is asked for more')

        for before in (0, 7):
            self.assertIs(facts.WitnessAnswer.KNOWN,
                          self.cinder().witness(volumes(before)))

    def test_nova_is_read_before_the_time_is_over(self):
        nova = threading.Event()
        self.addCleanup(nova.set)

        def volumes():
            nova.wait()
            yield 'volume-1'

        cinder = self.cinder(seconds=0.1)
        self.assertRaises(TimedOut, cinder.witness, volumes())

    def test_a_known_witness_is_asked_for_once(self):
        cinder = self.cinder()
        self.assertIs(facts.WitnessAnswer.UNKNOWN, cinder.witness(['gone']))
        self.healthy(1)
        self.assertIs(facts.WitnessAnswer.KNOWN, cinder.witness(['volume-1']))
        self.cloud.requests.clear()
        self.assertIs(facts.WitnessAnswer.KNOWN, cinder.witness(['gone']))
        self.assertEqual([], self.cloud.requests)

    def test_unanswered_request_raises(self):
        self.cloud.trouble('GET', GLANCE, wire.page(503))
        self.assertRaises(errors.BadAnswer, self.cinder().witness, ['volume'])

    def test_witness_request_reads_no_volume(self):
        """Avoid volumes: Cinder reads all attachments of each."""
        self.healthy(3, start=2)
        self.assertTrue(self.knows(1, 2, 3, 4))
        self.assertEqual([(GLANCE, '1')] * 2, [
            (r.path, r.query['limit']) for r in self.cloud.requests])

    def test_available_volume_is_a_witness(self):
        self.cloud.put_volume('volume-1', 'available')
        self.assertTrue(self.knows(1, 2))

    def test_a_filter_that_is_dropped_proves_nothing(self):
        self.cloud.trouble('GET', GLANCE, wire.json_answer(
            200, {'attachments': [{
                'id': 'attachment-1', 'volume_id': 'volume-1',
                'instance': make.SERVER, 'status': 'attached'}]}))
        self.assertFalse(self.knows(2))


def _shape(name, body, error=errors.BadAnswer):
    return name, wire.json_answer(200, body), error


#: ID, what arrives instead of Cinder's answer, expected error.  test_api has
#: the result of each status, test_answers that of each shape.
ANSWERS = (
    ('404 page of a proxy', wire.page(404), errors.BadAnswer),
    ('503', wire.page(503), errors.BadAnswer),
    ('200 page of a captive proxy', wire.page(200), errors.BadAnswer),
    ('half an answer', wire.raw(200, b'{"attachments": [{"id": "a'),
     errors.BadAnswer),
    ('no UTF-8', wire.raw(200, b'{"volume": "\xff\xfe"}'), errors.BadAnswer),
    _shape('a list', []),
    _shape('an empty object', {}),
    _shape('an object in place of a list, a list in place of an object',
           {'attachments': {}, 'volumes': {}, 'volume': [],
            'attachment': []}),
    _shape('records without an id', {
        'attachments': [{'status': 'attached', 'volume_id': 'volume-1',
                         'instance': make.SERVER}],
        'volumes': [{'status': 'in-use', 'attachments': []}],
        'volume': {'status': 'in-use', 'attachments': []},
        'attachment': {'status': 'attached', 'volume_id': 'volume-1'}}),
    ('a reset', wire.reset, errors.Unreachable),
)

#: ID, beginning of the path.
REQUESTS = (
    ('list of attachments', LIST),
    ('list of volumes', MANY),
    ('one attachment', '/attachments/attachment-gone'),
    ('one volume', '/volumes/volume-gone'),
)


class NoAnswerTest(CinderTestCase):
    """Missing answers to each request of a look, which are not "gone"."""

    scenarios = testscenarios.multiply_scenarios(
        base.scenarios(REQUESTS, 'path'),
        base.scenarios(ANSWERS, 'trouble', 'error'))

    def test_missing_answer_raises_its_error(self):
        bdms = self.healthy(2) + [make.bdm(
            uuid='bdm-9', volume_id='volume-gone',
            attachment_id='attachment-gone')]
        self.cloud.trouble('GET', self.path, self.trouble)
        error = self.assertRaises(self.error, self.look, bdms)
        self.assertTrue(str(error))
        self.assertNotIn('<', str(error))


class FalseAnswerTest(CinderTestCase):
    """Answers to another request, or with values of a wrong type."""

    def test_answer_with_another_id_is_refused(self):
        self.cloud.put_volume('volume-2', attachments=[])
        self.cloud.put_attachment('attachment-2', make.SERVER, 'volume-2')
        self.cloud.trouble('GET', '/volumes/volume-1', wire.json_answer(
            200, {'volume': self.cloud.volumes['volume-2']}))
        self.cloud.trouble(
            'GET', '/attachments/attachment-1', wire.json_answer(200, {
                'attachment': self.cloud.attachments['attachment-2']}))
        for bdm in (make.bdm(attachment_id=None), make.bdm()):
            error = self.assertRaises(errors.BadAnswer, self.look, [bdm])
            self.assertRegex(str(error), 'asked for .*-1, .* with .*-2')

    def test_volumes_that_were_not_requested_are_ignored(self):
        # An old Cinder drops the filter and lists all volumes.
        bdms = self.healthy(2)
        self.cloud.put_volume('volume-8', attachments=[])
        self.cloud.trouble('GET', MANY, wire.edit(
            lambda body: {'volumes': list(self.cloud.volumes.values())}))
        self.assertEqual(['1', '2'], self.seen(bdms)[0])

    def test_attachments_not_requested_are_refused(self):
        bdms = self.healthy(1)
        self.cloud.put_attachment(
            'attachment-8', make.OTHER_SERVER, 'volume-8')
        for look in (self.look, self.look_closely):
            self.cloud.trouble('GET', LIST, wire.json_answer(200, {
                'attachments': list(self.cloud.attachments.values())}))
            error = self.assertRaises(errors.BadAnswer, look, bdms)
            self.assertIn('resource_filters.json', str(error))

    def test_list_that_is_not_found_is_refused(self):
        bdms = self.healthy(1)
        self.cloud.trouble('GET', MANY, wire.fault(404, 'itemNotFound'))
        self.assertRaises(errors.BadAnswer, self.look, bdms)

    def test_volume_fields_of_wrong_type_are_refused(self):
        # To treat them as absent would be a conclusion from them.
        for key, value in (('migration_status', 5),
                           ('attachments', None),
                           ('attachments', ['server-1']),
                           ('attachments', [{'server_id': 7}]),
                           ('attachments', [{'attachment_id': 7}]),
                           ('status', None)):
            self.cloud.put_volume('volume-1')
            self.cloud.volumes['volume-1'][key] = value
            self.assertRaises(errors.BadAnswer, self.look,
                              [make.bdm(attachment_id=None)])

    def test_attachment_fields_of_wrong_type_are_refused(self):
        self.cloud.put_volume('volume-1')
        for key, value in (('connection_info', 'rbd'), ('instance', 5),
                           ('volume_id', None), ('status', None)):
            def spoil(body, key=key, value=value):
                body['attachments'][0][key] = value

            self.cloud.put_attachment('attachment-1', make.SERVER, 'volume-1')
            self.cloud.trouble('GET', LIST, wire.edit(spoil))
            self.assertRaises(errors.BadAnswer, self.look, [])

    def test_ids_are_not_taken_for_more(self):
        for odd in ("x'] or ['y", '../volumes/volume-1', 'a?b=c', 'ä/b'):
            self.cloud.requests.clear()
            volumes = self.look([make.bdm(
                volume_id=odd, attachment_id=odd)])[0]
            self.assertEqual({odd: None}, volumes)
            for path in (r.path for r in self.cloud.requests):
                self.assertLessEqual(path.count('/'), 2)


class ChangeTest(CinderTestCase):
    """Deletes of attachments, and volume actions."""

    def setUp(self):
        super().setUp()
        self.healthy(1)

    def delete(self, complete=False, **values):
        return self.cinder(**values).delete_attachment(
            'attachment-1', complete)

    def test_delete_sends_one_request(self):
        self.assertIs(True, self.delete())
        self.assertEqual(['DELETE /attachments/attachment-1'],
                         self.cloud.paths)
        self.assertEqual({}, self.cloud.attachments)

    def test_failed_complete_sends_no_delete(self):
        """Complete it first: Cinder does not unmap a reserved one."""
        path = '/attachments/attachment-1/action'
        self.cloud.trouble('POST', path, (500, {}))
        self.assertRaises(errors.BadAnswer, self.delete, complete=True)
        self.assertEqual(['POST ' + path], self.cloud.paths)

    def test_attachment_already_deleted_returns_false(self):
        self.cloud.attachments.clear()
        self.cloud.volumes.clear()
        self.assertIs(False, self.delete())

    def test_a_cleanup_changes_only_attachments(self):
        """Delete no volume, and only undo the detach of a swap."""
        room = pathlib.Path(cleanup.__file__).parent
        asking = {'look', 'witness', 'denies', 'attachment', 'volume',
                  'own_attachments'}
        self.assertEqual(
            {'create_attachment', 'delete_attachment',
             'complete_attachment', 'roll_detaching_back'},
            set(re.findall(r'cinder\.([a-z]\w+)', ''.join(
                path.read_text() for path in room.glob('*.py')))) - asking)
        self.assertIs(True, self.delete(complete=True))
        self.assertEqual(
            [('POST', '/attachments/attachment-1/action',
              {'os-complete': {}}),
             ('DELETE', '/attachments/attachment-1', None)],
            [(r.method, r.path, r.body) for r in self.cloud.requests])

    def test_detach_is_rolled_back(self):
        self.cinder().roll_detaching_back('volume-1')
        self.assertEqual(
            [('POST', '/volumes/volume-1/action',
              {'os-roll_detaching': None})],
            [(r.method, r.path, r.body) for r in self.cloud.requests])

    def test_new_attachment_only_reserves_the_volume(self):
        new = self.cinder().create_attachment(make.SERVER, 'volume-1')
        request, = self.cloud.requests
        self.assertEqual(
            ('POST', '/attachments', {'attachment': {
                'volume_uuid': 'volume-1', 'instance_uuid': make.SERVER}}),
            (request.method, request.path, request.body))
        found = self.cinder().attachment(new)
        self.assertEqual((True, make.SERVER, 'volume-1'), (
            found.only_reserves, found.server_id, found.volume_id))

    def test_attachment_that_cinder_does_not_make_raises(self):
        self.cloud.volumes['volume-1']['status'] = 'attaching'
        self.assertRaises(errors.ApiError, self.cinder().create_attachment,
                          make.SERVER, 'volume-1')
        self.assertRaises(errors.NotFound, self.cinder().create_attachment,
                          make.SERVER, 'gone')
        for answer in (wire.json_answer(200, {}), wire.json_answer(
                200, {'attachment': {}}), wire.json_answer(
                    200, {'attachment': {'id': 7}}), wire.page(200)):
            self.cloud.trouble('POST', '/attachments', answer)
            self.assertRaises(
                errors.BadAnswer, self.cinder().create_attachment,
                make.SERVER, 'volume-1')

    def test_own_attachments_are_those_of_server_and_volume(self):
        self.healthy(1, start=2)
        self.cloud.put_attachment('attachment-3', make.OTHER_SERVER,
                                  'volume-1')
        self.cloud.put_attachment('attachment-4', make.SERVER, 'volume-1',
                                  status='reserved', connection_info={})
        self.cloud.requests.clear()
        found = self.cinder().own_attachments(make.SERVER, 'volume-1')
        self.assertEqual({'attachment-1', 'attachment-4'},
                         {a.id for a in found})
        query = self.cloud.requests[0].query
        self.assertEqual((make.SERVER, 'volume-1', '1'), tuple(
            query[key] for key in ('instance_id', 'volume_id',
                                   'all_tenants')))

    def test_completed_attachment_is_attached(self):
        self.cloud.attachments['attachment-1']['status'] = 'attaching'
        self.cinder().complete_attachment('attachment-1')
        self.assertEqual('attached', self.cinder().attachment(
            'attachment-1').status)
        self.assertRaises(errors.NotFound,
                          self.cinder().complete_attachment, 'gone')

    def test_changes_end_with_the_deadline(self):
        for change in (
                lambda c: c.create_attachment(make.SERVER, 'volume-1'),
                lambda c: c.own_attachments(make.SERVER, 'volume-1'),
                lambda c: c.complete_attachment('attachment-1')):
            self.cloud.requests.clear()
            cinder = self.cinder()
            cinder._api = mock.Mock(in_time=mock.Mock(
                side_effect=TimedOut('too late')))
            self.assertRaises(TimedOut, change, cinder)
            self.assertEqual([], self.cloud.requests)

    def test_a_service_token_is_wanted(self):
        for status, kind in ((409, 'conflictingRequest'),
                             (403, 'forbidden')):
            self.cloud.trouble('DELETE', '/*', wire.fault(
                status, kind, 'ConflictNovaUsingAttachment: Detach it '
                'through Nova'))
            error = self.assertRaises(
                errors.ServiceTokenRequired, self.delete)
            for word in ('[service_user]', 'send_service_user_token',
                         'service_token_roles', str(status),
                         'ConflictNovaUsingAttachment'):
                self.assertIn(word, str(error))
            # The log masks what looks like a token; it must keep the advice.
            self.assertEqual(str(error), log_lines.masked(error))

    def test_other_refusals_give_no_advice_on_the_token(self):
        # Cinder then asks Nova, and returns the answer of Nova.
        for status, error in ((409, errors.Conflict),
                              (403, errors.Forbidden)):
            self.cloud.trouble('DELETE', '/*', wire.fault(status, 'fault'))
            raised = self.assertRaises(error, self.delete, advice=ADVICE)
            self.assertIs(error, type(raised))

    def test_delete_with_another_answer_raises(self):
        # test_api has the result of each other status.
        for trouble in (wire.page(404), wire.page(200), wire.raw(200, b'')):
            self.cloud.trouble('DELETE', '/*', trouble)
            self.assertRaises(errors.BadAnswer, self.delete)
        self.cloud.trouble('DELETE', '/*', wire.json_answer(200, {}))
        self.assertRaises(errors.BadAnswer, self.delete)

    def test_action_sends_its_body(self):
        self.cinder().act('volume-1', 'os-unreserve')
        self.assertEqual({'os-unreserve': None}, self.cloud.requests[0].body)
        self.assertRaises(errors.NotFound, self.cinder().act, 'gone',
                          'os-unreserve')


class WholeCloudTest(CinderTestCase):
    """Requests that only the operator commands send."""

    kind = CloudCinder

    def setUp(self):
        super().setUp()
        self.healthy(3)
        self.cloud.put_volume('volume-9', 'reserved', **{
            'os-vol-tenant-attr:tenant_id': 'other'})
        self.cloud.put_attachment('attachment-9', make.OTHER_SERVER,
                                  'volume-9', status='reserved')

    def proved(self):
        cinder = self.cinder()
        cinder.prove_admin()
        return cinder

    def attachments(self, *args):
        """Return the pages, as numbers."""
        return [[a.id.partition('-')[2] for a in page]
                for page in self.proved().attachments(*args)]

    def test_the_role_is_no_matter_of_one_filter(self):
        self.assertIs(True, self.proved().sees_all)
        self.user = 'member'
        self.cloud.volume_filters.add('id')
        for trouble in (None, wire.fault(403, 'forbidden')):
            if trouble:
                self.cloud.trouble('GET', '/volumes', trouble)
            cinder = self.cinder()
            self.assertIs(False, cinder.prove_admin())
            self.assertIs(False, cinder.sees_all)

    def test_nothing_is_known_of_the_role_without_an_answer(self):
        for trouble, error in (
                (wire.fault(500, 'computeFault'), errors.BadAnswer),
                (wire.page(404), errors.BadAnswer),
                (wire.fault(401, 'unauthorized'), errors.Refused)):
            self.cloud.trouble('GET', '/volumes', trouble)
            self.assertRaises(error, self.cinder().prove_admin)

    def test_attachments_are_read_in_pages(self):
        for size, pages in ((1, [['1'], ['2'], ['3'], ['9']]),
                            (1000, [['1', '2', '3', '9']])):
            self.cloud.page = size
            self.assertEqual(pages, self.attachments())
        [found] = self.proved().attachments()
        self.assertTrue(all(a.connected for a in found))

    def test_attachments_are_filtered_by_project(self):
        self.assertEqual([['9']], self.attachments('other'))
        self.user = 'member'
        self.assertEqual([['1', '2', '3']], self.attachments('other'))
        self.assertNotIn('project_id', self.cloud.requests[-1].query)

    def test_attachments_are_filtered_by_volume(self):
        """List them also if Cinder ignores the filter."""
        def unfiltered(handler):
            found = list(self.cloud.attachments.values())
            if 'marker' in handler.request_made.query:
                found = []
            handler.send_json(200, {'attachments': found})

        for _ in range(2):
            found = self.proved().attachments_of('volume-9')
            self.assertEqual(['attachment-9'], [a.id for a in found])
            self.assertEqual('volume-9',
                             self.cloud.requests[-1].query['volume_id'])
            self.cloud.trouble('GET', LIST, unfiltered)

    def test_volumes_are_filtered_by_status_and_project(self):
        cinder = self.proved()

        def ids(*args):
            return [[v.id for v in page] for page in cinder.volumes(*args)]

        self.assertEqual([['volume-9']], ids('reserved'))
        self.assertEqual([], ids('reserved', 'own'))
        self.assertEqual(0, self.cloud.asked('/volumes/detail'))
        self.cloud.page = 2
        self.assertEqual([['volume-1', 'volume-2'], ['volume-3']],
                         ids('in-use'))
        # Only in detail, and for administrators, hosts are shown.
        self.assertEqual(2, self.cloud.asked('/volumes/detail'))


class WorldCase(base.TestCase):
    """Cinder with a world of the rules, without HTTP in between."""

    @staticmethod
    def cinder(cloud, change=lambda body: body):
        def send(url, method, body=None, **_):
            path, _, query = url.partition('?')
            status, answer = cloud.respond(Request(
                method, path, dict(urllib.parse.parse_qsl(query)),
                {'X-Auth-Token': 'admin'}, body, '/volume/v3/own' + url))
            return types.SimpleNamespace(status_code=status), change(answer)

        return Cinder(Api('Cinder', VOLUME_MICROVERSION, lambda: send,
                          NOVA_CONF, Deadline(120)))

    @staticmethod
    def served(world):
        cloud = LoopbackCloud()
        for volume in world.volumes.values():
            cloud.put_volume(
                volume.id, volume.status, multiattach=volume.multiattach,
                migration_status=volume.migration_status,
                updated_at=volume.updated_at and volume.updated_at.strftime(
                    '%Y-%m-%dT%H:%M:%S.%f'),
                **{'os-vol-tenant-attr:tenant_id':
                   volume.project or make.PROJECT})
        for attachment in world.attachments.values():
            cloud.put_attachment(
                attachment.id, attachment.server_id, attachment.volume_id,
                status=attachment.status, host=world.host_of(attachment),
                connection_info={'x': 1} if attachment.connected else {})
        return cloud

    @staticmethod
    def plan(world, answers, swaps=facts.Ending.SUCCESS):
        return decision.decide(
            facts.Snapshot(
                world.server, tuple(world.rows.values()), answers.volumes,
                answers.attachments, facts.WitnessAnswer.KNOWN, swaps=swaps),
            facts.Policy(max_removals=99), make.NOW)


class AbsenceTest(WorldCase):
    """Records missing in a list, which prove nothing."""

    #: A mapping that names only an attachment, which is gone.
    GONE = make.bdm(uuid='gone', volume_id=None, attachment_id='gone')

    @worlds.profile()
    @hypothesis.given(worlds.worlds(), st.sampled_from([(), (GONE,)]),
                      st.sampled_from([1, 2, 1000]), st.booleans())
    def test_look_misses_only_foreign_attachments(
            self, world, more, page, filters):
        """Check that a glance and a close look see all but the records of
        other projects, and in cut lists all that the mappings name.

        :param filters: whether Cinder itself leaves out other projects
        """
        cloud = self.served(world)
        cloud.page, cloud.filters_projects = page, filters
        server, bdms = world.server, (*world.rows.values(), *more)
        carried = {b.attachment_id for b in bdms}.intersection(
            world.attachments)

        def is_own(attachment):
            volume = cloud.volumes.get(attachment.volume_id)
            # The owner of a deleted volume is not known.
            return (not filters if volume is None else
                    volume['os-vol-tenant-attr:tenant_id'] == server.project)

        truth = {a.id for a in world.attachments.values() if a.id in carried
                 or a.server_id == server.uuid and is_own(a)}
        cinder = self.cinder(cloud)
        for closely in (False, True):
            volumes, attachments, _ = cinder.look(
                server.uuid, bdms, server.project, closely=closely)
            found = {a.id for a in attachments}
            self.assertLessEqual(carried, found)
            self.assertLessEqual(found, truth)
            if page == 1000:
                self.assertEqual(truth, found)
            for seen in attachments:
                known = world.attachments[seen.id]
                self.assertEqual(
                    (known.volume_id, known.server_id, known.status),
                    (seen.volume_id, seen.server_id, seen.status))
            wanted = {b.volume_id for b in bdms if b.volume_id}
            wanted.update(a.volume_id for a in attachments)
            self.assertEqual({v: v in cloud.volumes for v in wanted},
                             {v: bool(volumes[v]) for v in volumes})


class SpellingTest(CinderTestCase):
    """Server IDs in any form, as the creator of an attachment chose it."""

    server_id = loopback.uid('server')

    def setUp(self):
        super().setUp()
        self.volume = self.cloud.volume('disk', 'in-use', make.PROJECT)
        self.bdm = make.bdm(
            volume_id=self.volume, attachment_id=self.cloud.attachment(
                'own', self.server_id, self.volume))

    def see(self):
        volumes, attachments, _ = self.cinder().look(
            self.server_id, [self.bdm], make.PROJECT)
        return set(volumes), [a.id for a in attachments]

    def write(self, text):
        """Reserve another volume for the server, as its project can."""
        self.cloud.attachment(
            'written', text, self.cloud.volume(
                'other', 'reserved', make.PROJECT), 'reserved', False)

    def as_a_collation_finds(self):
        shown = ('id', 'instance', 'volume_id', 'status', 'connection_info')
        return 200, {'attachments': [
            {key: record[key] for key in shown}
            for record in self.cloud.attachments.values()]}

    def test_ids_equal_only_in_a_collation_are_ignored(self):
        """Ignore IDs that only a collation matches: padding or accents.

        Cinder's API accepts none of them as an ID, but one written in
        another way must not prevent a look.
        """
        self.cloud.on('GET .*/attachments.*instance_id=',
                      self.as_a_collation_finds)
        for text in (self.server_id + '  ',
                     self.server_id.replace('a', '\xe1')):
            self.write(text)
            self.assertEqual(({self.volume}, [self.bdm.attachment_id]),
                             self.see())
            self.assertIn('GET ' + LIST, self.cloud.paths)

    def test_the_filter_is_ignored(self):
        self.write(loopback.uid('another server').upper())
        self.cloud.on('GET .*/attachments.*instance_id=',
                      self.as_a_collation_finds)
        self.assertIn('attachments of other servers', str(self.assertRaises(
            errors.BadAnswer, self.see)))


class AnySpellingTest(WorldCase):
    """IDs in any form in the answers, which do not change the plan."""

    FORMS = (str, str.upper, lambda text: text.replace('-', ''),
             lambda text: text.replace('-', '').upper(), '{%s}'.__mod__,
             'urn:uuid:%s'.__mod__)
    #: All but the IDs that Cinder generates, and expects back.
    IDS = ('volume_id', 'instance', 'server_id', 'attachment_id',
           'os-vol-tenant-attr:tenant_id')

    @staticmethod
    def with_real_ids(world):
        """Return the same world, with a UUID for every ID."""
        def renamed(thing, *fields):
            return dataclasses.replace(thing, **{
                field: loopback.uid(getattr(thing, field))
                for field in fields if getattr(thing, field)})

        other = worlds.fakes.World(
            [renamed(b, 'volume_id', 'attachment_id')
             for b in world.rows.values()],
            [dataclasses.replace(
                renamed(v, 'id', 'project'), attached_to=())
             for v in world.volumes.values()],
            [renamed(a, 'id', 'volume_id', 'server_id')
             for a in world.attachments.values()],
            hosts={loopback.uid(a.id): world.host_of(a)
                   for a in world.attachments.values()})
        other.server = renamed(world.server, 'uuid', 'project')
        other.swaps = world.swaps
        return other

    def respelt(self, body, chance):
        if isinstance(body, list):
            return [self.respelt(each, chance) for each in body]
        if not isinstance(body, dict):
            return body
        return {key: chance.choice(self.FORMS)(value)
                if key in self.IDS and value
                else value.upper() if key == 'host_name' and value
                else self.respelt(value, chance)
                for key, value in body.items()}

    @worlds.profile()
    @hypothesis.given(worlds.worlds(), st.integers(0, 99))
    def test_spelling_of_ids_does_not_change_the_plan(self, world, seed):
        world = self.with_real_ids(world)
        cloud = self.served(world)

        def findings(change):
            answers = self.cinder(cloud, change).look(
                world.server.uuid, tuple(world.rows.values()),
                world.server.project)
            return {
                (f.reason, f.withheld, f.in_cinder, f.volume_id,
                 f.attachment_id, f.bdm and f.bdm.uuid, f.is_due)
                for f in self.plan(world, answers, world.swaps).findings}

        chance = random.Random(seed)
        self.assertEqual(findings(lambda body: body), findings(
            lambda body: self.respelt(body, chance)))
