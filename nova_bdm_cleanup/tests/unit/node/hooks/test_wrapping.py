# SPDX-License-Identifier: Apache-2.0
"""The wrappers, in every order, on methods with Nova's signatures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import contextlib
import itertools
from typing import Any
from unittest import mock

from nova_bdm_cleanup.node.cleanup import triggers
from nova_bdm_cleanup.node.cleanup.triggers import TRIGGERS
from nova_bdm_cleanup.node.hooks import table, wrapping
from nova_bdm_cleanup.node.hooks.table import HOOKS, Wraps
from nova_bdm_cleanup.node.hooks.wrapping import NovaCall, Wrapper
from nova_bdm_cleanup.tests.unit import base

#: The parameters that have defaults in Nova.
_DEFAULTS = {'refresh_conn_info': False, 'bdms': None}


def _parameters(method: table.Method) -> list[str]:
    return (method.parameters or 'self').split(', ')


def _method(method: table.Method) -> Any:
    """Return a method with Nova's parameters, which returns them."""
    names = _parameters(method)
    namespace: dict[str, Any] = {}
    parameters = ', '.join(
        '%s=%r' % (name, _DEFAULTS[name])
        if method is table.BLOCK_DEVICE_INFO and name in _DEFAULTS else name
        for name in names)
    exec('def %s(%s):\n    return dict(locals())' % (  # noqa: S102
        method.name, parameters), namespace)
    return namespace[method.name]


def _stand_ins() -> dict[str, type]:
    """Return classes of Nova that have all methods with hooks."""
    return {owner: type(owner, (), {
        hook.method.name: _method(hook.method) for hook in HOOKS
        if hook.method.owner == owner})
        for owner in (table.MANAGER, table.LIBVIRT, table.VOLUME_API)}


class WrapperTest(base.TestCase):
    """Wrappers with fake handlers instead of those in the table."""

    def setUp(self) -> None:
        super().setUp()
        #: The handlers that ran, with the names of their arguments.
        self.ran: list[tuple[str, frozenset[str]]] = []
        self.patch(wrapping, 'handler_of', self._handler_of)

    def patch(self, owner: Any, name: str, value: Any) -> None:
        patcher = mock.patch.object(owner, name, value)
        patcher.start()
        self.addCleanup(patcher.stop)

    def _handler_of(self, wrapper: Wrapper) -> Any:
        def note(call: NovaCall) -> None:
            self.ran.append((wrapper.handler, frozenset(call.arguments)))
            if wrapper.method == table.BLOCK_DEVICE_INFO:
                # The first handler reads them; the others reuse them.
                call.arguments['bdms'] = [*(call.bdms or ['read']),
                                          wrapper.handler]

        @contextlib.contextmanager
        def around(call: NovaCall) -> Iterator[None]:
            note(call)
            yield

        return around if wrapper.wraps is Wraps.AROUND else note

    def wrapped(self, wrappers: Sequence[Wrapper]) -> dict[str, Any]:
        """Return an object of each class, with the wrappers."""
        owners = _stand_ins()
        wrapping.wrap(owners, wrappers)
        return {name: owner() for name, owner in owners.items()}

    def test_every_order_of_the_rows_gives_the_same_wrappers(self) -> None:
        for method in {hook.method for hook in HOOKS}:
            rows = [hook for hook in HOOKS if hook.method == method]
            seen = {frozenset(
                (wrapper.handler, tuple(t.name for t in wrapper.triggers))
                for wrapper in wrapping.wrappers_for(order, TRIGGERS))
                for order in itertools.islice(
                    itertools.permutations(rows), 5040)}
            self.assertEqual(1, len(seen), method.name)

    def test_handlers_run_once_in_every_order(self) -> None:
        """Check that each handler runs once, however Nova passes arguments."""
        for method in {hook.method for hook in HOOKS}:
            wrappers = wrapping.wrappers_for(
                [hook for hook in HOOKS if hook.method == method], TRIGGERS)
            names = _parameters(method)[1:]
            for order in itertools.permutations(wrappers):
                owner = self.wrapped(order)[method.owner]
                for count in range(len(names) + 1):
                    self.check(owner, method, wrappers, names, count)

    def check(self, owner: Any, method: table.Method,
              wrappers: Sequence[Wrapper], names: Sequence[str],
              count: int) -> None:
        """NovaCall the method with this number of positional arguments."""
        self.ran = []
        values = {name: [name] if name == 'bdms' else name for name in names}
        got = getattr(owner, method.name)(
            *[values[name] for name in names[:count]],
            **{name: values[name] for name in names[count:]})
        self.assertEqual(sorted(wrapper.handler for wrapper in wrappers),
                         sorted(handler for handler, _ in self.ran))
        for _, given in self.ran:
            self.assertEqual({'self', *names}, given)
        bdms = got.pop('bdms', None)
        self.assertEqual({'self': owner, **{
            name: name for name in names if name != 'bdms'}}, got)
        if method is table.BLOCK_DEVICE_INFO:
            self.assertEqual(
                {'bdms', *(wrapper.handler for wrapper in wrappers)},
                set(bdms))

    def test_omitted_argument_keeps_its_default(self) -> None:
        method = table.BLOCK_DEVICE_INFO
        wrappers = wrapping.wrappers_for(
            [hook for hook in HOOKS if hook.method is method], TRIGGERS)
        for order in itertools.permutations(wrappers):
            got = getattr(self.wrapped(order)[method.owner], method.name)(
                'c', 'i')
            self.assertEqual({'read', *(w.handler for w in wrappers)},
                             set(got['bdms']))
            self.assertIs(False, got['refresh_conn_info'])

    def test_order_of_the_table_does_not_matter(self) -> None:
        """Check that both orders of the table wrap the same methods."""
        wrappers = wrapping.wrappers_for(HOOKS, TRIGGERS)
        for order in (wrappers, wrappers[::-1]):
            owners = self.wrapped(order)
            for method in {hook.method for hook in HOOKS}:
                self.assertTrue(hasattr(
                    getattr(type(owners[method.owner]), method.name),
                    '__wrapped__'))

    def test_the_methods_come_back(self) -> None:
        owners = _stand_ins()
        before = self.methods(owners)
        for (owner, name), original in wrapping.wrap(
                owners, wrapping.wrappers_for(HOOKS, TRIGGERS)).items():
            setattr(owner, name, original)
        self.assertEqual(before, self.methods(owners))

    def test_a_handler_that_is_missing_changes_nothing(self) -> None:
        owners = _stand_ins()
        before = self.methods(owners)
        self.patch(wrapping, 'handler_of', mock.Mock(
            side_effect=[lambda call: None, AttributeError]))
        self.assertRaises(
            AttributeError, wrapping.wrap, owners,
            wrapping.wrappers_for(HOOKS, TRIGGERS))
        self.assertEqual(before, self.methods(owners))

    @staticmethod
    def methods(owners: dict[str, type]) -> list[dict[str, Any]]:
        return [dict(vars(owner)) for owner in owners.values()]

    def test_nova_goes_on_after_an_error_of_any_handler(self) -> None:
        def fail(call: NovaCall, *result: Any) -> None:
            raise ZeroDivisionError

        self.patch(wrapping, 'handler_of', lambda wrapper: fail)
        owners = self.wrapped(wrapping.wrappers_for(HOOKS, TRIGGERS))
        for method in {hook.method for hook in HOOKS}:
            names = _parameters(method)[1:]
            got = getattr(owners[method.owner], method.name)(*names)
            self.assertLessEqual(set(names), set(got))
        self.assertIn('Nova goes on as without it', self.log.output)

    def test_method_does_not_run_if_its_handler_says_so(self) -> None:
        self.patch(wrapping, 'handler_of', lambda wrapper: (
            lambda call: contextlib.nullcontext(True)))
        for wraps, runs in ((Wraps.AROUND, False), (Wraps.BEFORE, True)):
            owners = self.wrapped([Wrapper(
                table.BUILTIN_CLEANUP, wraps, 'handler', [])])
            self.assertEqual(runs, owners[
                table.MANAGER]._delete_dangling_bdms(1, 2, 3) is not None)

    def test_handler_after_a_method_is_given_its_result(self) -> None:
        seen: list[Any] = []
        self.patch(wrapping, 'handler_of', lambda wrapper: seen.append)
        owners = self.wrapped([Wrapper(
            table.ATTACHMENT_UPDATE, Wraps.AFTER, 'handler', [])])
        got = owners[table.VOLUME_API].attachment_update('c', 'a', (), {})
        call, = seen
        self.assertIs(got, call.answer)
        self.assertEqual(('c', 'a'),
                         (call.context, call.arguments['attachment_id']))

    def test_handler_around_a_method_is_given_its_result_at_the_end(
            self) -> None:
        seen: list[Any] = []

        @contextlib.contextmanager
        def around(call: NovaCall) -> Iterator[None]:
            seen.append(call.answer)
            yield
            seen.append(call.answer)

        self.patch(wrapping, 'handler_of', lambda wrapper: around)
        owners = self.wrapped([Wrapper(
            table.ATTACHMENT_UPDATE, Wraps.AROUND, 'handler', [])])
        got = owners[table.VOLUME_API].attachment_update('c', 'a', (), {})
        self.assertEqual([None, got], seen)

    def test_handler_after_a_method_does_not_run_if_that_fails(self) -> None:
        ran: list[Any] = []
        self.patch(wrapping, 'handler_of', lambda wrapper: ran.append)

        def fail(self: Any, ctx: Any) -> None:
            raise ZeroDivisionError

        api: Any = type('API', (), {'attachment_update': fail})
        wrapping.wrap({table.VOLUME_API: api}, [Wrapper(
            table.ATTACHMENT_UPDATE, Wraps.AFTER, 'handler', [])])
        self.assertRaises(ZeroDivisionError, api().attachment_update, 'c')
        self.assertEqual([], ran)

    def test_a_row_without_a_trigger_has_all_that_are_installed(self) -> None:
        wrapper, = [each for each in wrapping.wrappers_for(
            HOOKS, (triggers.DELETE, triggers.HARD_REBOOT))
            if each.method == table.INIT_HOST]
        self.assertEqual([triggers.HARD_REBOOT, triggers.DELETE],
                         wrapper.triggers)
