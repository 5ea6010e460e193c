# SPDX-License-Identifier: Apache-2.0
"""API calls: no answer is not "gone", and no change is sent twice."""

from __future__ import annotations

import functools
import socket
from unittest import mock

from cinderclient import client as cinderclient
import fixtures
from keystoneauth1 import (
    exceptions as ksa_exceptions,
    plugin as ksa_plugin,
    session as ksa_session,
)

from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.openstack.api import Api, Budget, Hints
from nova_bdm_cleanup.openstack.deadline import Deadline, TimedOut
from nova_bdm_cleanup.tests.unit import base, wire
from nova_bdm_cleanup.tests.unit.loopback import LoopbackCloud

ADVICE = Hints(credentials='check the credentials', role='be an admin',
                catalogue='check the catalogue')

PATH = '/volumes/volume-1'


class ApiCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.cloud = LoopbackCloud()
        self.cloud.put_volume('volume-1')
        self.cloud.put_attachment('attachment-1', 'server-1', 'volume-1')
        self.server = self.useFixture(wire.LoopbackServer(self.cloud))
        #: The clock of the deadlines.
        self.now = 0.0

    def api(self, seconds=None, budget=None, connect=None, **client):
        """Return an API that waits; with seconds, one with a deadline."""
        return Api(
            'Cinder', '3.44',
            connect or (lambda: self.server.cinderclient(
                **client).client.request), ADVICE,
            None if seconds is None else Deadline(seconds, lambda: self.now),
            budget)

    def both(self, **values):
        """Return an API that waits, and one that cannot."""
        return self.api(**values), self.api(20, **values)

    def ask(self, api, method):
        return (api.get(PATH) if method == 'GET'
                else self.change(api, method))

    def change(self, api, method):
        if method == 'POST':
            return api.post(PATH + '/action', {'os-unreserve': None})
        return api.delete('/attachments/attachment-1')


class AnswersTest(ApiCase):
    """The result or error of each answer."""

    def assert_raises(self, error, words, func, *args):
        raised = self.assertRaises(error, func, *args)
        self.assertIs(error, type(raised))
        for word in words:
            self.assertIn(word, str(raised))
        self.assertNotIn('<', str(raised))
        return raised

    def test_body_of_the_answer_is_returned(self):
        for api in self.both():
            self.assertEqual('volume-1', api.get(PATH)['volume']['id'])
            self.assertEqual([], api.get('/volumes', {
                'status': 'odd & more'})['volumes'])
            self.assertEqual('odd & more',
                             self.cloud.requests[-1].query['status'])

    def test_change_returns_the_body_of_its_answer(self):
        for api in self.both():
            self.assertIsNone(self.change(api, 'POST'))
            self.assertEqual({'os-unreserve': None},
                             self.cloud.requests[-1].body)
            self.cloud.put_attachment('attachment-1', 's', 'volume-1')
            self.assertEqual({'attachments': []},
                             self.change(api, 'DELETE'))

    def test_not_found_answer_has_status_404(self):
        for api in self.both():
            error = self.assert_raises(
                errors.NotFound, ['GET /volumes/gone: Cinder answered 404'],
                api.get, '/volumes/gone')
            self.assertEqual(404, error.status)

    def test_any_other_404_is_no_answer(self):
        for trouble in (wire.page(404), wire.raw(404, b''),
                        wire.json_answer(404, []),
                        wire.json_answer(404, {'error': {'code': 404}}),
                        wire.json_answer(404, {'itemNotFound': 'gone'})):
            self.cloud.trouble('GET', '/*', trouble)
            for api in self.both():
                self.assert_raises(errors.BadAnswer, ['404', 'proxy'],
                                   api.get, PATH)

    def test_each_status_of_a_get_has_its_error(self):
        for trouble, error, words in (
                (wire.fault(400, 'badRequest', 'odd'), errors.BadRequest,
                 ['400 (odd)']),
                (wire.fault(400, 'badRequest', 'marker [x] not found'),
                 errors.BadMarker, []),
                (wire.fault(401, 'unauthorized'), errors.Refused,
                 ['401', 'check the credentials']),
                (wire.page(401), errors.Refused, ['401']),
                (wire.fault(403, 'forbidden'), errors.Forbidden,
                 ['403', 'be an admin']),
                (wire.page(406), errors.Refused, ['3.44']),
                (wire.fault(409, 'conflict'), errors.BadAnswer, ['409']),
                (wire.fault(413, 'overLimit'), errors.BadAnswer, ['413']),
                (wire.fault(500, 'computeFault', 'oops'), errors.BadAnswer,
                 ['500 (oops)']),
                (wire.json_answer(300, {'versions': []}), errors.BadAnswer,
                 ['300']),
                (wire.json_answer(202, {}), errors.BadAnswer, ['202']),
                (wire.raw(204, b''), errors.BadAnswer, ['204'])):
            self.cloud.trouble('GET', '/*', trouble)
            for api in self.both():
                self.assert_raises(error, words, api.get, PATH)

    def test_each_status_of_a_change_has_its_error(self):
        for status, error in ((400, errors.Conflict), (409, errors.Conflict),
                              (403, errors.Forbidden), (401, errors.Refused),
                              (406, errors.Refused),
                              (413, errors.BadAnswer),
                              (429, errors.BadAnswer),
                              (500, errors.BadAnswer),
                              (503, errors.BadAnswer)):
            for method in ('DELETE', 'POST'):
                self.cloud.trouble(method, '/*', wire.fault(status, 'fault'))
                for api in self.both():
                    raised = self.assert_raises(error, [
                        '%s /' % method, str(status)], self.change, api,
                        method)
                    self.assertEqual(status, raised.status)

    def test_neither_query_nor_a_page_of_a_proxy_is_quoted(self):
        self.cloud.trouble('GET', '/*', wire.page(500))
        error = self.assertRaises(errors.BadAnswer, self.api().get, PATH,
                                  {'secret': 'x'})
        self.assertEqual('GET %s: Cinder answered 500' % PATH, str(error))

    def test_only_one_says_that_something_does_not_exist(self):
        for error in (errors.Unanswered, errors.Refused, errors.Conflict):
            self.assertFalse(issubclass(errors.NotFound, error))
        self.assertEqual([], errors.NotFound.__subclasses__())


class HeadersTest(ApiCase):

    def test_request_names_microversion_3_44(self):
        self.api().get(PATH)
        self.assertEqual(
            'volume 3.44',
            self.cloud.requests[0].headers['OpenStack-API-Version'])

    def test_each_request_carries_both_tokens(self):
        api = self.api(service=True)
        api.get(PATH)
        self.change(api, 'DELETE')
        for request in self.cloud.requests:
            self.assertEqual('service', request.headers['X-Service-Token'])
            self.assertEqual('admin', request.headers['X-Auth-Token'])


class RepeatingTest(ApiCase):
    """Retries: a second GET is harmless, a second change may not be."""

    def setUp(self):
        super().setUp()
        # keystoneauth waits between its requests.
        self.useFixture(fixtures.MockPatchObject(ksa_session, 'time'))

    def once(self, trouble):
        """Return trouble for the first request, then the answer."""
        answers = [trouble]
        def answer(handler):
            (answers.pop() if answers else wire.edit(lambda b: None))(handler)

        return answer

    def test_get_is_repeated_on_a_new_connection(self):
        for api in self.both():
            self.cloud.requests.clear()
            self.cloud.trouble('GET', '/*', self.once(wire.reset))
            api.get(PATH)
            self.assertEqual(2, len(self.cloud.requests))

    def test_get_of_a_busy_api_is_repeated(self):
        for status in (429, 502, 503, 504):
            self.cloud.requests.clear()
            self.cloud.trouble('GET', '/*', self.once(wire.page(status)))
            self.api().get(PATH)
            self.assertEqual(2, len(self.cloud.requests))

    def test_get_is_repeated_twice_at_most(self):
        for trouble, seconds, asked in (
                (wire.page(503), None, 3), (wire.reset, None, 3),
                (wire.page(503), 20, 1), (wire.reset, 20, 2)):
            self.cloud.requests.clear()
            self.cloud.trouble('GET', '/*', trouble)
            self.assertRaises(errors.Unanswered, self.api(seconds).get, PATH)
            self.assertEqual(asked, len(self.cloud.requests))

    def test_a_change_is_sent_once(self):
        # Nova's client is created with the retries of [cinder] http_retries.
        def connect():
            client = self.server.cinderclient().client
            client.connect_retries = 3
            client.status_code_retries = 3
            return client.request

        for trouble in (wire.reset, wire.page(503), wire.page(429),
                        wire.page(504)):
            for method in ('DELETE', 'POST'):
                self.cloud.trouble(method, '/*', trouble)
                for api in (*self.both(), *self.both(connect=connect)):
                    self.cloud.requests.clear()
                    self.assertRaises(errors.Unanswered, self.change, api,
                                      method)
                    self.assertEqual(1, len(self.cloud.requests))

    def test_one_client_sends_all_requests(self):
        made = []

        def connect():
            made.append(1)
            return self.server.cinderclient().client.request

        api = self.api(connect=connect)
        self.assertEqual([], made)
        api.get(PATH)
        api.get(PATH)
        self.assertEqual([1], made)


class FailurePlugin(ksa_plugin.BaseAuthPlugin):
    """An auth plugin that raises Keystone errors."""

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


class ConnectingTest(ApiCase):
    """Errors before the API is reached."""

    def assert_raises(self, error, words, **values):
        for api in self.both(**values):
            raised = self.assertRaises(errors.ApiError, api.get, PATH)
            self.assertIs(error, type(raised), raised)
            self.assertIn(words, str(raised))

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MockPatchObject(ksa_session, 'time'))

    def test_failed_connection_is_unreachable(self):
        with socket.socket() as unused:
            unused.bind(('127.0.0.1', 0))
            port = unused.getsockname()[1]
        for words, url in (
                ('Cinder does not answer', 'http://127.0.0.1:%d' % port),
                ('cinder.invalid', 'http://cinder.invalid'),
                ('SSL', 'https://127.0.0.1:%d' % self.server.port)):
            self.assert_raises(errors.Unreachable, words, url=url)

    def test_truncated_answer_is_unreachable(self):
        self.cloud.trouble('GET', '/*', wire.raw(200, b'{"volume": {}', 5000))
        self.assert_raises(errors.Unreachable, 'Cinder does not answer')

    def test_each_failure_of_keystone_has_its_error(self):
        def connect(**values):
            return cinderclient.Client('3.44', session=ksa_session.Session(
                auth=FailurePlugin(**values))).client.request

        for error, words, failures in (
                (errors.Refused, 'check the credentials', (
                    ksa_exceptions.Unauthorized('no'),
                    ksa_exceptions.Forbidden('no'),
                    ksa_exceptions.NoMatchingPlugin('odd'),
                    ksa_exceptions.MissingAuthPlugin('none'),
                    ksa_exceptions.AuthorizationFailure('no'))),
                (errors.Unreachable, '', (
                    ksa_exceptions.ServiceUnavailable('busy'),
                    ksa_exceptions.InternalServerError('oops'),
                    ksa_exceptions.ConnectFailure('away'),
                    ksa_exceptions.ConnectTimeout('slow'))),
                (errors.Unanswered, '', (
                    ksa_exceptions.DiscoveryFailure('none'),
                    RuntimeError('a bug'), KeyError('auth_type')))):
            for exc in failures:
                self.assert_raises(
                    error, words or str(exc),
                    connect=functools.partial(connect, token=exc))
        for endpoint in (None, ksa_exceptions.EmptyCatalog('empty')):
            self.assert_raises(
                errors.Refused, 'check the catalogue',
                connect=functools.partial(connect, endpoint=endpoint))

    def test_failed_client_raises_its_error(self):
        for exc, error in (
                (ValueError('no auth_url'), errors.Unanswered),
                (errors.ProjectHidden('not ours'), errors.ProjectHidden)):
            self.assert_raises(error, str(exc),
                               connect=mock.Mock(side_effect=exc))


class DeadlineTest(ApiCase):
    """The deadline of a call, which limits every wait."""

    def test_missing_answer_ends_with_the_deadline(self):
        # No HTTP timeout ends the second: each byte arrives in time.
        for trouble in (wire.hang, wire.trickle):
            self.cloud.trouble('GET', '/*', trouble)
            api = Api('Cinder', '3.44', lambda: self.server.cinderclient(
                ).client.request, ADVICE, Deadline(0.2))
            self.assertRaises(
                (TimedOut, errors.Unreachable), api.in_time, 'asking',
                functools.partial(api.get, PATH))

    def test_nothing_is_sent_after_the_deadline(self):
        api = self.api(0)
        self.assertRaises(TimedOut, api.in_time, 'asking', self.fail)
        self.assertRaises(TimedOut, api.get, PATH)
        for method in ('DELETE', 'POST'):
            self.assertRaises(TimedOut, self.change, api, method)
        self.assertEqual([], self.cloud.requests)

    def test_nothing_is_asked_again_after_the_time(self):
        def too_late(handler):
            self.now = 30
            wire.reset(handler)

        self.cloud.trouble('GET', '/*', too_late)
        self.assertRaises(TimedOut, self.api(20).get, PATH)
        self.assertEqual(1, len(self.cloud.requests))

    def test_a_call_that_was_given_up_asks_no_further_questions(self):
        api = self.api(20)

        def two():
            api.get(PATH)
            self.now = 30
            api.get(PATH)

        self.assertRaises(TimedOut, api.in_time, 'asking', two)
        self.assertEqual(1, len(self.cloud.requests))

    def with_keystone(self, deadline):
        auth = self.server.password()
        client = cinderclient.Client(
            '3.44', session=ksa_session.Session(auth=auth),
            service_type='block-storage').client
        return auth, Api('Cinder', '3.44', lambda: client.request, ADVICE,
                         deadline)

    def test_nothing_is_sent_after_a_token_that_took_too_long(self):
        # keystoneauth gets the token after the request has begun.
        for method in ('GET', 'DELETE', 'POST'):
            self.now = 0.0
            auth, api = self.with_keystone(Deadline(20, lambda: self.now))
            ask = functools.partial(self.ask, api, method)
            self.server.before_token = lambda: setattr(self, 'now', 30.0)
            self.assertIn('was not begun',
                          str(self.assertRaises(TimedOut, ask)))
            self.assertEqual([], self.cloud.requests)
            # The token is not missing.
            self.now = 0.0
            self.assertIsNotNone(auth.auth_ref)
            ask()
            self.assertEqual([method], [
                r.method for r in self.cloud.requests])
            self.cloud.requests.clear()

    def test_nothing_is_sent_after_a_slow_second_token(self):
        auth, api = self.with_keystone(Deadline(20, lambda: self.now))
        self.cloud.trouble('DELETE', '/*', wire.fault(401, 'unauthorized'))
        tokens = []

        def second_is_late():
            tokens.append(1)
            self.now = 30.0 if len(tokens) == 2 else 0.0

        self.server.before_token = second_is_late
        error = self.assertRaises(TimedOut, self.change, api, 'DELETE')
        self.assertIn('was not begun', str(error))
        self.assertEqual(2, len(tokens))
        self.assertEqual(1, len(self.cloud.requests))

    def test_a_request_gets_the_time_that_is_left(self):
        timeouts = []

        def connect():
            send = self.server.cinderclient().client.request

            def request(*args, **values):
                timeouts.append(values['timeout'])
                return send(*args, **values)

            return request

        api = self.api(20, connect=connect)
        api.get(PATH)
        self.now = 15
        api.get(PATH)
        self.assertEqual([20, 5], timeouts)

    def test_call_without_a_deadline_returns(self):
        self.assertEqual(5, self.api().in_time('asking', lambda: 5))


class BudgetTest(ApiCase):

    def test_requests_are_counted(self):
        budget = Budget()
        api = self.api(budget=budget)
        for _ in range(3):
            api.get(PATH)
        self.change(api, 'DELETE')
        self.assertEqual({'Cinder': 4}, dict(budget.made))

    def test_request_over_the_budget_is_not_sent(self):
        budget = Budget(2)
        budget.spend('Nova')
        api = self.api(budget=budget)
        api.get(PATH)
        error = self.assertRaises(errors.OverBudget, api.get, PATH)
        self.assertIn('--max-requests', str(error))
        self.assertEqual(1, len(self.cloud.requests))
        self.assertEqual(2, sum(budget.made.values()))
