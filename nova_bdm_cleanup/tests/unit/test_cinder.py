# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""Cinder over real HTTP: what is asked, and what is made of the answers."""

from __future__ import annotations

import datetime
import functools
import json
import socket
import time

from keystoneauth1 import exceptions as ksa_exceptions
from keystoneauth1 import plugin as ksa_plugin
from keystoneauth1 import session as ksa_session
import testscenarios

from cinderclient import client as cinderclient
from nova_bdm_cleanup import audit
from nova_bdm_cleanup import cinder as cinders
from nova_bdm_cleanup import deadline as deadlines
from nova_bdm_cleanup import model
from nova_bdm_cleanup.tests.unit import base
from nova_bdm_cleanup.tests.unit import make
from nova_bdm_cleanup.tests.unit import web

load_tests = testscenarios.load_tests_apply_scenarios

GLANCE = '/attachments'
LIST = '/attachments/detail'
MANY = '/volumes/detail'


class CinderTestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.server = self.useFixture(web.CinderServer())

    def cinder(self, seconds=20.0, sees_all=True, connect=None, **client):
        return cinders.Cinder(
            connect or (lambda: self.server.client(**client)), sees_all,
            deadlines.Deadline(seconds))

    def healthy(self, count, start=1):
        """So many attached volumes; the mappings are returned."""
        bdms = []
        for number in range(start, start + count):
            ids = 'volume-%d' % number, 'attachment-%d' % number
            self.server.volume(ids[0], attachments=[
                {'server_id': make.SERVER, 'attachment_id': ids[1],
                 'host_name': make.HOST, 'device': '/dev/vdb'}])
            self.server.attachment(ids[1], ids[0], make.SERVER)
            bdms.append(make.bdm(uuid='bdm-%d' % number, volume_id=ids[0],
                                 attachment_id=ids[1]))
        return bdms

    def look(self, bdms, **values):
        return self.cinder(**values).look(make.SERVER, bdms)


class RequestsTest(CinderTestCase):
    """How little is asked."""

    def test_one_request_without_a_volume(self):
        self.assertEqual(({}, ()), self.look([make.root()]))
        self.assertEqual(['GET /attachments'], self.server.asked)

    def test_two_requests_for_one_volume(self):
        volumes, attachments = self.look(self.healthy(1))
        self.assertEqual(['GET /attachments', 'GET /volumes/detail'],
                         self.server.asked)
        self.assertEqual({'volume-1'}, set(volumes))
        self.assertEqual(['attachment-1'], [a.id for a in attachments])

    def test_two_requests_for_sixty_volumes(self):
        volumes, attachments = self.look(self.healthy(60))
        self.assertEqual(['GET /attachments', 'GET /volumes/detail'],
                         self.server.asked)
        self.assertEqual((60, 60), (len(volumes), len(attachments)))

    def test_the_first_request_asks_for_one_attachment_too_many(self):
        # Cinder takes its time for each record of a list.
        self.look(self.healthy(3))
        _, path, query, _ = self.server.requests[0]
        self.assertEqual(GLANCE, path)
        self.assertEqual(('1', '3'), (query['limit'], query['offset']))

    def test_whatever_is_not_in_order_is_looked_at_closely(self):
        def stale(bdms):
            self.server.attachment('attachment-9', 'volume-1', make.SERVER)

        def deleted(bdms):
            del self.server.attachments['attachment-2']
            self.server.volumes['volume-2']['attachments'] = []

        def exchanged(bdms):
            # As many as expected, but not those.
            deleted(bdms)
            stale(bdms)

        def reset(bdms):
            self.server.volumes['volume-2']['status'] = 'available'

        def gone(bdms):
            deleted(bdms)
            del self.server.volumes['volume-2']

        def unlisted(bdms):
            self.server.volumes['volume-2']['attachments'] = []

        def of_another(bdms):
            deleted(bdms)
            self.server.volumes['volume-2']['attachments'] = [
                {'server_id': make.OTHER_SERVER,
                 'attachment_id': 'attachment-2'}]

        def crossed(bdms):
            bdms[1] = make.bdm(uuid='b', volume_id='volume-2',
                               attachment_id='attachment-1')

        def twice(bdms):
            unlisted(bdms)
            self.server.volumes['volume-1']['attachments'] *= 2

        def old(bdms):
            bdms.append(make.bdm(uuid='b', volume_id='volume-1',
                                 attachment_id=None))

        for change in (stale, deleted, exchanged, reset, gone, unlisted,
                       of_another, crossed, twice, old):
            self.server.attachments.clear()
            bdms = self.healthy(2)
            change(bdms)
            self.server.requests.clear()
            volumes, attachments = self.look(bdms)
            self.assertIn('GET ' + LIST, self.server.asked, change.__name__)
            self.assertEqual(
                {b.volume_id for b in bdms}, set(volumes), change.__name__)
            self.assertEqual(
                set(self.server.attachments), {a.id for a in attachments},
                change.__name__)

    def test_a_second_look_is_always_a_close_one(self):
        bdms = self.healthy(2)
        cinder = self.cinder()
        first = cinder.look(make.SERVER, bdms)
        self.server.requests.clear()
        second = cinder.look(make.SERVER, bdms)
        self.assertEqual(['GET ' + LIST, 'GET ' + MANY], self.server.asked)
        self.assertEqual(first[0], second[0])
        self.assertEqual({a.id for a in first[1]}, {a.id for a in second[1]})

    def test_no_url_is_too_long(self):
        # Some servers take no more than 8 kB of it, with the headers.
        self.healthy(200)
        long = {i: 'x' * (36 - len(i)) + i for i in self.server.volumes}
        for short in list(self.server.volumes):
            self.server.volumes[long[short]] = dict(
                self.server.volumes.pop(short), id=long[short])
        for attachment in self.server.attachments.values():
            attachment['volume_id'] = long[attachment['volume_id']]
        bdms = [make.bdm(volume_id=a['volume_id'], attachment_id=a['id'])
                for a in self.server.attachments.values()]
        volumes, _ = self.look(bdms)
        self.assertEqual(200, len(volumes))
        self.assertEqual(5, len(self.server.requests))

    def test_the_volume_of_a_stale_attachment_is_asked_for_with_the_rest(
            self):
        bdms = self.healthy(1)
        self.healthy(1, start=2)
        volumes, attachments = self.look(bdms)
        self.assertEqual({'volume-1', 'volume-2'}, set(volumes))
        self.assertEqual(['GET ' + GLANCE, 'GET ' + LIST, 'GET ' + MANY],
                         self.server.asked)
        self.assertEqual([True, True], [a.connected for a in attachments])

    def test_every_project_is_asked_for(self):
        self.look(self.healthy(1))
        for _, _, query, _ in self.server.requests:
            self.assertEqual('1', query['all_tenants'])
        self.assertEqual(make.SERVER,
                         self.server.requests[0][2]['instance_id'])

    def test_the_version_of_the_api(self):
        self.look(self.healthy(1))
        for _, _, _, headers in self.server.requests:
            self.assertEqual('volume 3.44',
                             headers['OpenStack-API-Version'])

    def test_the_service_token_goes_along(self):
        self.look(self.healthy(1), service=True)
        for _, _, _, headers in self.server.requests:
            self.assertEqual('a-service', headers['X-Service-Token'])
            self.assertEqual('a-token', headers['X-Auth-Token'])

    def test_a_question_is_asked_again_once(self):
        # A connection kept from before may be dead.
        bdms = self.healthy(1)
        troubles = [web.reset, web.edit(lambda body: None)]

        def first_cut(handler):
            troubles.pop(0)(handler)

        self.server.trouble('GET', GLANCE, first_cut)
        self.assertEqual(1, len(self.look(bdms)[0]))
        self.assertEqual(['GET /attachments'] * 2 + ['GET /volumes/detail'],
                         self.server.asked)

    def test_one_client_for_all_requests(self):
        made = []

        def connect():
            made.append(1)
            return self.server.client()

        cinder = self.cinder(connect=connect)
        cinder.look(make.SERVER, self.healthy(1))
        cinder.look(make.SERVER, self.healthy(1))
        self.assertEqual([1], made)

    def test_nothing_is_asked_before_it_is_needed(self):
        self.cinder(connect=lambda: self.fail('connected'))

    def test_the_token_of_a_project_asks_one_by_one(self):
        self.server.admin = False
        volumes, _ = self.look(self.healthy(3), sees_all=False)
        self.assertEqual(
            ['GET ' + LIST, 'GET /volumes/volume-1',
             'GET /volumes/volume-2', 'GET /volumes/volume-3'],
            self.server.asked)
        self.assertEqual(3, sum(map(bool, volumes.values())))
        self.assertNotIn('all_tenants', self.server.requests[0][2])


class ParsingTest(CinderTestCase):
    """What is made of Cinder's records."""

    def test_a_volume(self):
        self.server.volume(
            'volume-1', status='detaching', multiattach=True,
            migration_status='success', metadata={'bdm_cleanup': 'keep'},
            attachments=[{'server_id': make.SERVER, 'host_name': 'h',
                          'attachment_id': 'attachment-1'},
                         {'server_id': None, 'attachment_id': 'other'}])
        [volume] = self.look([make.bdm(attachment_id=None)])[0].values()
        self.assertEqual(model.Volume(
            id='volume-1', status='detaching', multiattach=True,
            migration_status='success', keep=True,
            updated_at=datetime.datetime(
                2026, 3, 2, tzinfo=datetime.timezone.utc),
            attached_to=(
                model.AttachedServer(make.SERVER, 'attachment-1', 'h'),
                model.AttachedServer(None, 'other'))), volume)

    def test_a_volume_never_updated_is_as_old_as_it_is(self):
        for updated in (None, 'yesterday'):
            self.server.volume('volume-1', updated_at=updated)
            [volume] = self.look([make.bdm(attachment_id=None)])[0].values()
            self.assertEqual(
                datetime.datetime(2026, 3, 1, tzinfo=datetime.timezone.utc),
                volume.updated_at)

    def test_other_metadata_does_not_keep(self):
        for metadata in ({}, {'bdm_cleanup': 'Keep'}, {'keep': 'keep'}):
            self.server.volume('volume-1', metadata=metadata)
            [volume] = self.look([make.bdm(attachment_id=None)])[0].values()
            self.assertFalse(volume.keep)

    def test_attachments(self):
        for values, connected, legacy in (
                ({}, True, False),
                ({'connection_info': None}, False, True),
                ({'connection_info': {}}, False, True),
                ({'connection_info': {}, 'status': 'reserved'}, False, False),
                ({'status': 'attaching'}, True, False)):
            self.server.volume('volume-1')
            self.server.attachment('attachment-1', 'volume-1', make.SERVER,
                                   **values)
            [attachment] = self.look([])[1]
            self.assertEqual(
                (connected, legacy),
                (attachment.connected, attachment.is_legacy), values)
            self.assertEqual(
                values.get('connection_info', {
                    'driver_volume_type': 'rbd', 'auth_password': 'hush',
                }) or {}, attachment.connection_info)
            self.assertNotIn('hush', repr(attachment))


class AbsenceTest(CinderTestCase):
    """The silence of a list proves nothing."""

    def test_a_volume_that_is_gone_is_asked_for_by_its_id(self):
        bdms = self.healthy(3)
        del self.server.volumes['volume-2']
        del self.server.attachments['attachment-2']
        volumes, attachments = self.look(bdms)
        self.assertIsNone(volumes['volume-2'])
        self.assertEqual(2, len(attachments))
        self.assertIn('GET /volumes/volume-2', self.server.asked)
        self.assertIn('GET /attachments/attachment-2', self.server.asked)

    def test_a_volume_that_the_list_leaves_out_is_found(self):
        bdms = self.healthy(3)
        self.server.page = 2
        volumes, attachments = self.look(bdms)
        self.assertEqual(3, sum(map(bool, volumes.values())))
        self.assertEqual(3, len(attachments))

    def test_an_attachment_that_the_list_leaves_out_is_found(self):
        bdms = self.healthy(2)
        self.server.attachments['attachment-2']['foreign'] = True
        self.server.admin = False
        _, attachments = self.look(bdms, sees_all=False)
        self.assertEqual(['attachment-1', 'attachment-2'],
                         [a.id for a in attachments])

    def test_pages_without_a_link(self):
        bdms = self.healthy(7)
        for page in (1, 2, 3, 7):
            self.server.page = page
            _, attachments = self.look(bdms + [make.bdm(
                uuid='b', volume_id=None, attachment_id='attachment-gone')])
            self.assertEqual({'attachment-%d' % n for n in range(1, 8)},
                             {a.id for a in attachments})

    def test_a_full_page_is_not_the_last(self):
        self.healthy(1001)
        _, attachments = self.look([], seconds=120)
        self.assertEqual(1001, len(attachments))
        lists = [r for r in self.server.requests if r[1] == LIST]
        self.assertEqual([None, 'attachment-1000'],
                         [query.get('marker') for _, _, query, _ in lists])

    def test_an_attachment_of_another_volume(self):
        bdms = self.healthy(1)
        self.server.volumes['volume-1']['attachments'] = []
        self.server.volume('volume-9')
        self.server.attachments['attachment-1']['volume_id'] = 'volume-9'
        volumes, attachments = self.look(bdms)
        self.assertEqual({'volume-1', 'volume-9'}, set(volumes))
        self.assertEqual('volume-9', attachments[0].volume_id)

    def test_an_attachment_of_another_server(self):
        bdms = self.healthy(1)
        self.server.volumes['volume-1']['attachments'] = []
        self.server.attachments['attachment-1'].update(
            instance=make.OTHER_SERVER, volume_id='volume-9')
        self.server.volume('volume-9')
        volumes, attachments = self.look(bdms)
        self.assertEqual(make.OTHER_SERVER, attachments[0].server_id)
        self.assertIsNotNone(volumes['volume-9'])


class WitnessTest(CinderTestCase):
    """Whether this is the right Cinder at all."""

    def test_one_known_is_enough(self):
        self.healthy(1)
        self.assertTrue(self.cinder().knows_any(
            ['volume-%d' % n for n in range(1, 61)]))
        self.assertEqual(1, len(self.server.requests))

    def test_none_known(self):
        self.assertFalse(self.cinder().knows_any(
            ['volume-%d' % n for n in range(1, 500)]))
        self.assertLess(len(self.server.requests), 10)

    def test_unanswered(self):
        self.server.trouble('GET', MANY, web.page(503))
        self.assertRaises(cinders.Faulty,
                          self.cinder().knows_any, ['volume-1'])


def _shape(name, body, error=cinders.Faulty):
    return name, web.json_answer(200, body), error


#: id, what comes instead of Cinder's answer, the error it is taken for.
ANSWERS = (
    ('404 page of a proxy', web.page(404), cinders.Faulty),
    ('404 in JSON of another kind',
     web.json_answer(404, {'error': {'code': 404}}), cinders.Faulty),
    ('404 with a text as itemNotFound',
     web.json_answer(404, {'itemNotFound': 'gone'}), cinders.Faulty),
    ('404 with a list', web.json_answer(404, []), cinders.Faulty),
    ('404 without a body', web.raw(404, b''), cinders.Faulty),
    ('401', web.fault(401, 'unauthorized'), cinders.Refused),
    ('401 page', web.page(401), cinders.Refused),
    ('403', web.fault(403, 'forbidden'), cinders.Refused),
    ('400', web.fault(400, 'badRequest'), cinders.CinderError),
    ('406', web.json_answer(406, {'computeFault': {'code': 406}}),
     cinders.Unusable),
    ('413', web.fault(413, 'overLimit'), cinders.Faulty),
    ('414', web.page(414), cinders.Faulty),
    ('429', web.page(429), cinders.Faulty),
    ('500', web.fault(500, 'computeFault'), cinders.Faulty),
    ('502 page', web.page(502), cinders.Faulty),
    ('503', web.page(503), cinders.Faulty),
    ('504 page', web.page(504), cinders.Faulty),
    ('300', web.json_answer(300, {'versions': []}), cinders.Faulty),
    ('200 page of a captive proxy', web.page(200), cinders.Faulty),
    ('200 without a body', web.raw(200, b''), cinders.Faulty),
    ('204', web.raw(204, b''), cinders.Faulty),
    ('half an answer', web.raw(200, b'{"attachments": [{"id": "a'),
     cinders.Faulty),
    ('an answer cut off', web.raw(200, b'{"attachments": []', 5000),
     cinders.CinderError),
    ('no UTF-8', web.raw(200, b'{"volume": "\xff\xfe"}'), cinders.Faulty),
    _shape('a list', []),
    _shape('a text', 'attachments'),
    _shape('null', None),
    _shape('an empty object', {}),
    _shape('null in place of a list or record',
           {'attachments': None, 'volumes': None, 'volume': None,
            'attachment': None}),
    _shape('an object in place of a list, a list in place of an object',
           {'attachments': {}, 'volumes': {}, 'volume': [],
            'attachment': []}),
    _shape('texts in place of records',
           {'attachments': ['attachment-1'], 'volumes': ['volume-1'],
            'volume': 'volume-1', 'attachment': 'attachment-1'}),
    _shape('records without an id', {
        'attachments': [{'status': 'attached', 'volume_id': 'volume-1',
                         'instance': make.SERVER}],
        'volumes': [{'status': 'in-use', 'attachments': []}],
        'volume': {'status': 'in-use', 'attachments': []},
        'attachment': {'status': 'attached', 'volume_id': 'volume-1'}}),
    _shape('records of numbers', {
        'attachments': [{'id': 1, 'status': 2, 'volume_id': 3,
                         'instance': 4}],
        'volumes': [{'id': 1, 'status': 2, 'attachments': []}],
        'volume': {'id': 1, 'status': 2, 'attachments': []},
        'attachment': {'id': 1, 'status': 2, 'volume_id': 3}}),
    ('a reset', web.reset, cinders.Unreachable),
)

#: id, the beginning of the path.
REQUESTS = (
    ('glance at the attachments', GLANCE),
    ('list of attachments', LIST),
    ('list of volumes', MANY),
    ('one attachment', '/attachments/attachment-gone'),
    ('one volume', '/volumes/volume-gone'),
)


class NoAnswerTest(CinderTestCase):
    """No answer is not "gone", at any request of a look."""

    scenarios = testscenarios.multiply_scenarios(
        [(name, {'path': path}) for name, path in REQUESTS],
        [(name, {'trouble': trouble, 'error': error})
         for name, trouble, error in ANSWERS])

    def test_answer(self):
        bdms = self.healthy(2) + [make.bdm(
            uuid='bdm-9', volume_id='volume-gone',
            attachment_id='attachment-gone')]
        self.server.trouble('GET', self.path, self.trouble)
        error = self.assertRaises(
            cinders.CinderError, self.look, bdms, seconds=20)
        if self.path == MANY and self.id().endswith('400)'):
            self.assertIsInstance(error, cinders.Refused)
        else:
            self.assertIsInstance(error, self.error)
        self.assertTrue(str(error))
        self.assertNotIn('<', str(error))


class FalseAnswerTest(CinderTestCase):
    """An answer to another question, or with a wrong word in it."""

    def test_a_volume_with_another_id(self):
        self.server.volume('volume-2')
        self.server.admin = False
        self.server.trouble('GET', '/volumes/volume-1', web.json_answer(
            200, {'volume': self.server.volumes['volume-2']}))
        error = self.assertRaises(
            cinders.Faulty, self.look,
            [make.bdm(attachment_id=None)], sees_all=False)
        self.assertIn('volume-1', str(error))
        self.assertIn('volume-2', str(error))

    def test_an_attachment_with_another_id(self):
        self.server.volume('volume-1')
        self.server.attachment('attachment-2', 'volume-1', make.SERVER)
        self.server.trouble(
            'GET', '/attachments/attachment-1', web.json_answer(200, {
                'attachment': self.server.attachments['attachment-2']}))
        self.assertRaises(cinders.Faulty, self.look, [make.bdm()])

    def test_a_list_with_volumes_that_nobody_asked_for(self):
        # An old Cinder drops the filter and shows all there is.
        bdms = self.healthy(2)
        self.server.volume('volume-8')
        self.server.trouble('GET', MANY, web.edit(
            lambda body: {'volumes': list(self.server.volumes.values())}))
        self.assertEqual({'volume-1', 'volume-2'}, set(self.look(bdms)[0]))

    def test_a_list_with_attachments_that_nobody_asked_for(self):
        bdms = self.healthy(1)
        self.server.attachment('attachment-8', 'volume-8',
                               make.OTHER_SERVER)
        for path in (GLANCE, LIST):
            self.server.trouble('GET', path, web.json_answer(200, {
                'attachments': list(self.server.attachments.values())}))
            error = self.assertRaises(cinders.Faulty, self.look, bdms)
            self.assertIn('resource_filters.json', str(error))

    def test_the_same_page_for_ever(self):
        bdms = self.healthy(2)
        del self.server.attachments['attachment-2']
        self.server.volumes['volume-2']['attachments'] = []
        first = {'attachments': [self.server.attachments['attachment-1']]}
        self.server.trouble('GET', LIST, web.json_answer(200, first))
        self.assertRaises(cinders.Faulty, self.look, bdms)
        self.assertEqual(2, self.server.asked.count('GET ' + LIST))

    def test_a_marker_that_is_gone(self):
        bdms = self.healthy(3)
        self.server.volumes['volume-1']['status'] = 'available'
        self.server.page = 1

        def vanish(handler):
            if 'marker' in handler.path:
                handler.send_json(404, {'itemNotFound': {'code': 404}})
            else:
                web.edit(lambda body: None)(handler)

        self.server.trouble('GET', LIST, vanish)
        self.assertRaises(cinders.Faulty, self.look, bdms)

    def test_a_list_of_volumes_that_is_not_found(self):
        bdms = self.healthy(1)
        self.server.trouble('GET', MANY, web.fault(404, 'itemNotFound'))
        self.assertRaises(cinders.Faulty, self.look, bdms)

    def test_the_filter_needs_an_administrator(self):
        self.server.admin = False
        error = self.assertRaises(
            cinders.Refused, self.look, self.healthy(1))
        self.assertIn('admin role', str(error))
        self.assertIn('[cinder]', str(error))
        self.assertIn('Invalid filters id', str(error))

    def test_words_of_the_wrong_type(self):
        # To take them for absent would be to conclude something from them.
        for key, value in (('metadata', ['bdm_cleanup', 'keep']),
                           ('metadata', 'keep'),
                           ('migration_status', {'is': 'migrating'}),
                           ('migration_status', 5),
                           ('attachments', None),
                           ('attachments', {}),
                           ('attachments', ['server-1']),
                           ('attachments', [{'server_id': 7}]),
                           ('attachments', [{'attachment_id': 7}]),
                           ('status', None), ('status', ''),
                           ('status', ['in-use'])):
            self.server.volume('volume-1', **{key: value})
            self.assertRaises(cinders.Faulty, self.look,
                              [make.bdm(attachment_id=None)])

    def test_words_of_the_wrong_type_in_an_attachment(self):
        self.server.volume('volume-1')
        for key, value in (('connection_info', 'rbd'),
                           ('connection_info', ['rbd']),
                           ('instance', 5), ('volume_id', None),
                           ('status', None)):
            self.server.attachment(
                'attachment-1', 'volume-1', make.SERVER)
            self.server.trouble('GET', LIST, web.edit(functools.partial(
                self.set_in_first, key, value)))
            self.assertRaises(cinders.Faulty, self.look, [])

    def set_in_first(self, key, value, body):
        body['attachments'][0][key] = value

    def test_ids_are_not_taken_for_more(self):
        for odd in ("x'] or ['y", '../volumes/volume-1', 'a?b=c', 'ä/b'):
            self.server.requests.clear()
            volumes, _ = self.look([make.bdm(
                volume_id=odd, attachment_id=odd)])
            self.assertEqual({odd: None}, volumes)
            for _, path, _, _ in self.server.requests:
                self.assertLessEqual(path.count('/'), 2)


class FailurePlugin(ksa_plugin.BaseAuthPlugin):
    """Keystone, failing."""

    def __init__(self, token=None, endpoint=None):
        super().__init__()
        self._errors = token, endpoint

    def get_token(self, session, **values):
        if self._errors[0]:
            raise self._errors[0]
        return 'a-token'

    def get_endpoint(self, session, **values):
        if self._errors[1]:
            raise self._errors[1]


class ConnectingTest(CinderTestCase):
    """What is wrong before Cinder is reached at all."""

    def failing(self, **values):
        return self.cinder(connect=lambda: cinderclient.Client(
            '3.44', session=ksa_session.Session(
                auth=FailurePlugin(**values))))

    def assertLookRaises(self, error, cinder):
        return self.assertRaises(error, cinder.look, make.SERVER, [])

    def test_nobody_listens(self):
        with socket.socket() as unused:
            unused.bind(('127.0.0.1', 0))
            port = unused.getsockname()[1]
        self.assertLookRaises(cinders.Unreachable, self.cinder(
            url='http://127.0.0.1:%d' % port))

    def test_no_such_host(self):
        self.assertLookRaises(cinders.Unreachable, self.cinder(
            url='http://cinder.invalid'))

    def test_no_tls(self):
        self.assertLookRaises(cinders.Unreachable, self.cinder(
            url='https://127.0.0.1:%d' % self.server.port))

    def test_not_in_the_catalogue(self):
        error = self.assertLookRaises(cinders.Unusable, self.failing())
        self.assertIn('catalog_info', str(error))
        self.assertLookRaises(cinders.Unusable, self.failing(
            endpoint=ksa_exceptions.EmptyCatalog('empty')))

    def test_keystone_refuses(self):
        for exc in (ksa_exceptions.Unauthorized('no'),
                    ksa_exceptions.Forbidden('no'),
                    ksa_exceptions.NoMatchingPlugin('odd'),
                    ksa_exceptions.MissingAuthPlugin('none'),
                    ksa_exceptions.AuthorizationFailure('no')):
            error = self.assertLookRaises(
                cinders.Refused, self.failing(token=exc))
            self.assertIn('[service_user]', str(error))

    def test_keystone_is_in_trouble(self):
        for exc in (ksa_exceptions.ServiceUnavailable('busy'),
                    ksa_exceptions.InternalServerError('oops'),
                    ksa_exceptions.ConnectFailure('away'),
                    ksa_exceptions.ConnectTimeout('slow')):
            error = self.assertLookRaises(
                cinders.Unreachable, self.failing(token=exc))
            self.assertNotIn('credentials', str(error))

    def test_anything_else(self):
        for exc in (ksa_exceptions.DiscoveryFailure('none'),
                    RuntimeError('a bug'), KeyError('auth_type')):
            error = self.assertLookRaises(
                cinders.Unusable, self.failing(token=exc))
            self.assertIn(type(exc).__name__, str(error))

    def test_a_client_that_cannot_be_made(self):
        def connect():
            raise ValueError('no auth_url')

        self.assertLookRaises(cinders.Unusable, self.cinder(connect=connect))

    def test_a_project_that_cannot_be_seen(self):
        def connect():
            raise cinders.ProjectHidden('not ours')

        self.assertLookRaises(
            cinders.ProjectHidden, self.cinder(connect=connect))


class DeadlineTest(CinderTestCase):
    """Nobody waits longer than the time there is."""

    def assertInTime(self, limit, func, *args):
        begun = time.monotonic()
        error = self.assertRaises(
            (deadlines.TimedOut, cinders.Unreachable), func, *args)
        self.assertLess(time.monotonic() - begun, limit)
        return error

    def test_a_server_that_hangs(self):
        for path in (MANY, GLANCE):
            self.server.trouble('GET', path, web.hang)
            self.assertInTime(10.0, self.cinder(seconds=0.2).look,
                              make.SERVER, self.healthy(1))

    def test_an_answer_that_never_ends(self):
        # No time-out of an HTTP library ends this: each byte is in time.
        self.server.trouble('GET', GLANCE, web.trickle)
        self.assertInTime(10.0, self.cinder(seconds=0.2).look,
                          make.SERVER, [])

    def test_the_time_is_over_already(self):
        cinder = self.cinder(seconds=0)
        self.assertInTime(10.0, cinder.look, make.SERVER, [])
        self.assertInTime(10.0, cinder.delete_attachment, 'attachment-1')
        self.assertEqual([], self.server.requests)

    def test_a_change_is_not_sent_again_after_the_time(self):
        # Nova connects the disk again by then.
        for name, change in (
                ('DELETE', lambda c: c.delete_attachment('attachment-1')),
                ('POST', lambda c: c.force_detach(
                    make.attachment(), {'host': 'h'}))):
            self.server.requests.clear()
            self.server.trouble(name, '/*', web.hang)
            self.assertInTime(10.0, change, self.cinder(seconds=0.2))
            time.sleep(1.0)
            self.assertEqual(1, len(self.server.requests))

    def test_a_question_is_not_asked_again_after_the_time(self):
        self.server.trouble('GET', '/*', web.hang)
        self.assertInTime(10.0, self.cinder(seconds=0.2).look,
                          make.SERVER, self.healthy(1))
        time.sleep(1.0)
        self.assertEqual(1, len(self.server.requests))

    def test_a_thread_left_behind_asks_no_further_questions(self):
        # An answer that trickles in outlives the time.
        self.server.trouble('GET', GLANCE, web.slowly)
        self.assertInTime(10.0, self.cinder(seconds=0.2).look,
                          make.SERVER, self.healthy(1))
        time.sleep(1.0)
        self.assertEqual(1, len(self.server.requests))

    def test_slow_is_not_too_late(self):
        bdms = self.healthy(1)

        def slow(handler):
            time.sleep(0.1)
            web.edit(lambda body: None)(handler)

        self.server.trouble('GET', '/*', slow)
        self.assertEqual(1, len(self.look(bdms)[0]))


class ChangeTest(CinderTestCase):
    """Deletes."""

    def setUp(self):
        super().setUp()
        self.healthy(1)

    def delete(self, **values):
        return self.cinder(**values).delete_attachment('attachment-1')

    def detach(self, connector=None, **values):
        return self.cinder(**values).force_detach(
            make.attachment(), connector or {'host': make.HOST})

    def test_delete(self):
        self.assertIs(True, self.delete(service=True))
        self.assertEqual(['DELETE /attachments/attachment-1'],
                         self.server.asked)
        self.assertEqual({}, self.server.attachments)
        self.assertEqual('a-service',
                         self.server.requests[0][3]['X-Service-Token'])

    def test_somebody_was_faster(self):
        self.server.attachments.clear()
        self.assertIs(False, self.delete())

    def test_force_detach_names_attachment_and_connector(self):
        connector = {'host': make.HOST, 'initiator': 'iqn.x',
                     'multipath': False}
        self.assertIs(True, self.detach(connector))
        self.assertEqual(['POST /volumes/volume-1/action'],
                         self.server.asked)
        self.assertEqual([{'os-force_detach': {
            'attachment_id': 'attachment-1', 'connector': connector}}],
            self.server.bodies)

    def test_force_detach_of_a_volume_that_is_gone(self):
        self.server.volumes.clear()
        self.assertIs(False, self.detach())

    def test_a_service_token_is_wanted(self):
        for status, kind in ((409, 'conflictingRequest'),
                             (403, 'forbidden')):
            self.server.trouble('DELETE', '/*', web.fault(
                status, kind, 'ConflictNovaUsingAttachment: Detach it '
                'through Nova'))
            self.server.trouble('POST', '/*', web.fault(status, kind))
            error = self.assertRaises(
                cinders.ServiceTokenRequired, self.delete)
            for word in ('[service_user]', 'send_service_user_token',
                         'service_token_roles', str(status),
                         'ConflictNovaUsingAttachment'):
                self.assertIn(word, str(error))
            # The log masks what looks like a token; the advice must survive.
            self.assertEqual(str(error), audit.masked(error))
            self.assertRaises(cinders.ServiceTokenRequired, self.detach)

    def test_not_known_to_be_done(self):
        for trouble, error in (
                (web.page(404), cinders.Faulty),
                (web.page(200), cinders.Faulty),
                (web.raw(200, b''), cinders.Faulty),
                (web.json_answer(200, {}), cinders.Faulty),
                (web.fault(400, 'badRequest'), cinders.Faulty),
                (web.fault(401, 'unauthorized'), cinders.Refused),
                (web.fault(500, 'computeFault'), cinders.Faulty),
                (web.page(503), cinders.Faulty),
                (web.page(504), cinders.Faulty),
                (web.reset, cinders.Unreachable)):
            self.server.trouble('DELETE', '/*', trouble)
            self.assertRaises(error, self.delete)

    def test_not_known_to_be_detached(self):
        for trouble in (web.page(404), web.page(200), web.page(503),
                        web.fault(400, 'badRequest'),
                        web.fault(500, 'computeFault'), web.reset):
            self.server.trouble('POST', '/*', trouble)
            self.assertRaises(cinders.CinderError, self.detach)

    def test_a_page_of_a_proxy_is_not_quoted(self):
        self.server.trouble('DELETE', '/*', web.page(503))
        error = self.assertRaises(cinders.Faulty, self.delete)
        self.assertEqual('DELETE /attachments/attachment-1: Cinder answered '
                         '503', str(error))

    def test_long_words_are_cut(self):
        self.server.trouble('DELETE', '/*', web.fault(
            500, 'computeFault', 'x' * 9999))
        error = self.assertRaises(cinders.Faulty, self.delete)
        self.assertLess(len(str(error)), 400)


class RecordsTest(base.TestCase):
    """The fixture answers as Cinder was measured to."""

    def test_one_list_is_light_and_one_is_not(self):
        server = self.useFixture(web.CinderServer())
        server.attachment('attachment-1', 'volume-1', make.SERVER)
        asked = {'instance_id': make.SERVER}
        for path, shown in ((GLANCE, False), (LIST, True)):
            _, body = server.answer('GET', path, asked, None)
            self.assertEqual(shown, 'connection_info' in json.dumps(body))
