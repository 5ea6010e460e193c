# SPDX-License-Identifier: Apache-2.0
"""Connections that Cinder gave, and the disconnects that they wait for."""

from __future__ import annotations

import threading
from unittest import mock

import fixtures
from hypothesis import given, strategies as st

from nova_bdm_cleanup.node import connections
from nova_bdm_cleanup.node.connections import Given
from nova_bdm_cleanup.tests.unit import base

SERVER, OTHER = 'server', 'other'
FIRST, SECOND = ('iqn.array', '1'), ('iqn.array', '2')
TIMEOUT = 60


class Operation:
    """Stands for the context of a request."""


def under_way(shown, guests=()):
    """Forget what is shown; return the rest."""
    connections.forget_shown(shown, guests)
    return connections.given()


def connection(*addresses, server=SERVER, attachment='attachment',
               volume='volume'):
    return Given(server, volume, attachment, frozenset(addresses))


class ConnectionsTestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.operation = Operation()
        for name, empty in (('_answers', {}), ('_disconnects', []),
                            ('_requests', []), ('_starts', [])):
            self.useFixture(fixtures.MockPatchObject(
                connections, name, empty))

    def remember(self, *addresses, **values):
        """Have Cinder answer in the operation of this test."""
        answer = connection(*addresses, **values)
        connections.remember(self.operation, answer)
        return answer


class RememberTest(ConnectionsTestCase):

    def test_answer_is_under_way_until_a_guest_or_a_row_shows_it(self):
        answer = self.remember(FIRST)
        # What others have is not what Cinder gave to this server.
        for shown in ((), [(OTHER, FIRST)], [(SERVER, SECOND)]):
            self.assertEqual((answer,), under_way(shown))
        self.assertEqual((), under_way([(SERVER, FIRST)]))
        # It is forgotten, and not only hidden.
        self.assertEqual((), under_way(()))

    def test_answer_with_several_paths_is_shown_by_all_of_them(self):
        answer = self.remember(FIRST, SECOND)
        self.assertEqual((answer,),
                         under_way([(SERVER, FIRST)]))
        self.assertEqual((), under_way(
            [(SERVER, FIRST), (SERVER, SECOND)]))

    def test_deleted_attachment_is_forgotten(self):
        self.remember(FIRST)
        connections.forget('another')
        self.assertEqual(1, len(under_way(())))
        connections.forget('attachment')
        self.assertEqual((), under_way(()))

    def test_last_answer_for_an_attachment_counts(self):
        self.remember(FIRST)
        answer = self.remember(SECOND)
        self.assertEqual((answer,), under_way(()))
        self.remember()
        self.assertEqual((), under_way(()))

    def test_last_volume_with_an_address_has_it(self):
        """Another host has deleted the attachment of the first one."""
        self.remember(FIRST, SECOND)
        answer = self.remember(FIRST, server=OTHER, attachment='another',
                               volume='another')
        self.assertEqual({answer, connection(SECOND)},
                         set(under_way(())))
        self.remember(FIRST, SECOND, attachment='third', volume='third')
        self.assertEqual(['third'], [
            each.volume_id for each in under_way(())])

    def test_servers_that_share_a_volume_have_its_address(self):
        answers = {self.remember(FIRST),
                   self.remember(FIRST, server=OTHER, attachment='another')}
        self.assertEqual(answers, set(under_way(())))

    def test_volume_without_address_claims_nothing(self):
        self.remember()
        self.assertEqual((), under_way(()))

    def test_the_last_answers_are_remembered_if_nobody_asks(self):
        self.useFixture(fixtures.MockPatchObject(connections, '_MOST', 2))
        for number in '1213':
            self.remember(('iqn.array', number), attachment=number,
                          volume=number)
        self.assertEqual(['1', '3'], [
            each.volume_id for each in connections.given()])

    def test_answer_without_attachment_is_shown_by_any_server(self):
        """Cinder's API of before Queens does not tell the server."""
        answer = self.remember(FIRST, server='', attachment=None)
        self.assertEqual((answer,), under_way(
            [(OTHER, SECOND)]))
        self.assertEqual((), under_way([(OTHER, FIRST)]))


class ForgottenOperationTest(ConnectionsTestCase):
    """An operation that ends without a guest, a row and a delete."""

    def setUp(self):
        super().setUp()
        self.now = 0.0
        self.useFixture(fixtures.MockPatchObject(
            connections, 'time', mock.Mock(monotonic=lambda: self.now)))
        self.answer = self.remember(FIRST)

    def check(self, is_known, at, guests=()):
        self.now = at
        self.assertEqual((self.answer,) if is_known else (),
                         under_way((), guests))

    def test_answer_is_remembered_as_long_as_its_operation(self):
        self.check(True, at=0)
        self.check(True, at=10_000)

    def test_question_forgets_nothing(self):
        """Keep the answer: its guest may be here."""
        del self.operation
        self.now = 10_000
        self.assertEqual((self.answer,), connections.given())
        self.check(True, at=10_000, guests=[SERVER])

    def test_answer_is_remembered_for_an_hour_after_its_operation(self):
        self.now = 10_000
        del self.operation
        self.check(True, at=13_599)
        self.check(False, at=13_600)

    def test_the_hour_does_not_begin_with_a_question(self):
        del self.operation
        self.check(False, at=10_000)

    def test_answer_is_remembered_as_long_as_its_guest(self):
        del self.operation
        self.check(True, at=0)
        self.check(True, at=10_000, guests=[SERVER])
        # The hour begins again.
        self.check(True, at=10_001)
        self.check(True, at=13_600)
        self.check(False, at=13_601)

    def test_a_guest_with_other_disks_is_a_guest(self):
        del self.operation
        for self.now in (0, 10_000):
            self.assertEqual((self.answer,), under_way(
                [(SERVER, SECOND)]))


class _Condition(threading.Condition):
    """A condition that tells how often it was waited for."""

    def __init__(self):
        super().__init__()
        self.waits = threading.Semaphore(0)

    def wait(self, timeout=None):
        # With the lock held, which the wait gives up.
        self.waits.release()
        return super().wait(timeout)


class WaitTestCase(ConnectionsTestCase):
    """Base class: another thread that has to wait."""

    def setUp(self):
        super().setUp()
        self.is_over = threading.Event()
        self.state = _Condition()
        self.useFixture(fixtures.MockPatchObject(
            connections, '_state', self.state))

    def begin(self, act):
        """Act in another thread, which is returned."""
        def run():
            act()
            self.is_over.set()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self.addCleanup(thread.join, TIMEOUT)
        return thread

    def wait_until_waiting(self):
        """Wait until the other thread waits."""
        self.assertTrue(self.state.waits.acquire(timeout=TIMEOUT))

    def check_over(self, thread):
        thread.join(TIMEOUT)
        self.assertTrue(self.is_over.is_set())


class DisconnectTest(WaitTestCase):
    """A check and its disconnect, and Cinder's answer in between."""

    def answer(self, *addresses):
        """Have Cinder answer in another thread, which is returned."""
        return self.begin(lambda: self.remember(*addresses))

    def test_answer_waits_for_the_disconnect_of_its_address(self):
        with connections.disconnecting(frozenset([FIRST, ('iqn.b', '7')])):
            thread = self.answer(FIRST, SECOND)
            self.wait_until_waiting()
            # A check that begins now finds it.
            self.assertEqual(1, len(under_way(())))
            self.assertFalse(self.is_over.is_set())
        self.check_over(thread)

    def test_answer_waits_for_the_last_of_two_disconnects(self):
        with connections.disconnecting(frozenset([FIRST])):
            with connections.disconnecting(frozenset([FIRST])):
                thread = self.answer(FIRST)
                self.wait_until_waiting()
            self.wait_until_waiting()
            self.assertFalse(self.is_over.is_set())
        self.check_over(thread)

    def test_answer_does_not_wait_for_other_addresses(self):
        with connections.disconnecting(frozenset([SECOND])):
            self.check_over(self.answer(FIRST))

    def test_a_thread_does_not_wait_for_itself(self):
        with connections.disconnecting(frozenset([FIRST])):
            answer = self.remember(FIRST)
        self.assertEqual((answer,), under_way(()))

    def test_a_disconnect_that_fails_is_over(self):
        self.assertRaises(ZeroDivisionError, self.fail_to_disconnect)
        self.check_over(self.answer(FIRST))

    def fail_to_disconnect(self):
        with connections.disconnecting(frozenset([FIRST])):
            raise ZeroDivisionError

    def test_answer_does_not_wait_for_ever(self):
        self.useFixture(fixtures.MockPatchObject(
            connections, '_PATIENCE', 0))
        with connections.disconnecting(frozenset([FIRST])):
            self.check_over(self.answer(FIRST))
        self.assertIn('is still being disconnected; Nova goes on',
                      self.log.output)
        self.assertNotIn('iqn', self.log.output)


class StartTest(WaitTestCase):
    """A start with a disk that Cinder does not connect."""

    def setUp(self):
        super().setUp()
        self.addCleanup(connections.let_go)

    def ask(self):
        """Have Cinder give an address, and remember it."""
        with connections.asking():
            self.remember(FIRST)

    def test_request_waits_until_the_guest_has_its_disks(self):
        connections.hold_up()
        thread = self.begin(self.ask)
        self.wait_until_waiting()
        self.assertEqual((), connections.given())
        connections.let_go()
        self.check_over(thread)
        self.assertEqual(1, len(connections.given()))

    def test_request_waits_for_the_last_of_two_starts(self):
        """No start waits for another one."""
        held, end = threading.Event(), threading.Event()

        def start():
            connections.hold_up()
            held.set()
            end.wait(TIMEOUT)
            connections.let_go()

        connections.hold_up()
        other = threading.Thread(target=start, daemon=True)
        other.start()
        self.addCleanup(other.join, TIMEOUT)
        self.addCleanup(end.set)
        self.assertTrue(held.wait(TIMEOUT))
        thread = self.begin(self.ask)
        self.wait_until_waiting()
        connections.let_go()
        self.wait_until_waiting()
        self.assertFalse(self.is_over.is_set())
        end.set()
        self.check_over(thread)

    def test_start_waits_for_the_answer_to_a_request(self):
        with connections.asking():
            thread = self.begin(connections.hold_up)
            self.wait_until_waiting()
            self.remember(FIRST)
            self.assertFalse(self.is_over.is_set())
        self.check_over(thread)
        self.assertEqual(1, len(connections.given()))

    def test_request_that_fails_is_over(self):
        self.assertRaises(ZeroDivisionError, self.fail_to_ask)
        self.check_over(self.begin(connections.hold_up))

    def fail_to_ask(self):
        with connections.asking():
            raise ZeroDivisionError

    def test_a_thread_does_not_wait_for_itself(self):
        connections.hold_up()
        with connections.asking():
            connections.hold_up()

    def test_a_thread_holds_up_nobody_after_its_end(self):
        connections.hold_up()
        connections.hold_up()
        connections.let_go()
        connections.let_go()
        self.check_over(self.begin(self.ask))

    def test_nobody_waits_for_ever(self):
        for name in ('_PATIENCE', '_FOR_ANSWERS'):
            self.useFixture(fixtures.MockPatchObject(connections, name, 0))
        connections.hold_up()
        self.check_over(self.begin(self.ask))
        self.assertIn('a guest is still being started', self.log.output)
        with connections.asking():
            self.check_over(self.begin(connections.hold_up))
        self.assertIn('it goes on to start this guest', self.log.output)


class SequenceTest(base.TestCase):
    """Any sequence of answers, deletes and looks."""

    ADDRESSES = st.frozensets(st.sampled_from([FIRST, SECOND]))
    STEPS = st.lists(st.one_of(
        st.tuples(st.just('answer'), st.sampled_from('ab'), ADDRESSES),
        st.tuples(st.just('delete'), st.sampled_from('ab'), ADDRESSES),
        st.tuples(st.just('look'), st.sampled_from('ab'), ADDRESSES)))

    @given(STEPS)
    def test_an_answer_is_lost_only_if_shown_or_deleted(self, steps):
        operation, expected = Operation(), {}
        with mock.patch.object(connections, '_answers', {}):
            for what, name, addresses in steps:
                if what == 'answer':
                    answer = connection(*addresses, server=name,
                                        attachment=name)
                    connections.remember(operation, answer)
                    expected[name] = answer
                elif what == 'delete':
                    connections.forget(name)
                    expected.pop(name, None)
                else:
                    found = under_way(
                        [(name, address) for address in addresses])
                    expected = {
                        key: answer for key, answer in expected.items()
                        if answer.addresses and not (
                            key == name and answer.addresses <= addresses)}
                    self.assertEqual(set(expected.values()), set(found))
