# SPDX-License-Identifier: Apache-2.0
"""The wrappers of methods, which run a handler in a call inside Nova.

Every wrapper binds the arguments of a call to the signature of the method, so
that neither a handler nor the order of the wrappers depends on how Nova passes
them.  An error of a handler is logged, and the method runs: no handler can
end an operation of Nova.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import functools
import inspect
import pkgutil
from typing import Any, Callable

from oslo_log import log as logging

from nova_bdm_cleanup.node.cleanup.log_lines import with_traceback
from nova_bdm_cleanup.node.cleanup.triggers import Trigger, TRIGGERS
from nova_bdm_cleanup.node.hooks.table import Hook, Method, Wraps

LOG = logging.getLogger(__name__)

_Function = Callable[..., Any]

#: Nova's names for the parameter of the request context.
_CONTEXTS = ('context', 'ctxt', 'ctx')


@dataclasses.dataclass
class NovaCall:
    """A call of a wrapped method of Nova."""

    #: The arguments by name, including ``self``, without those that are left
    #: to their defaults.  A handler may change them.
    arguments: dict[str, Any]
    #: The triggers of the rows that this wrapper is installed for.
    triggers: Sequence[Trigger]
    #: What the method has returned.
    answer: Any = None

    @property
    def manager(self) -> Any:
        """Return the ComputeManager."""
        return self.arguments['self']

    @property
    def context(self) -> Any:
        """Return the request context."""
        return next(self.arguments[name] for name in _CONTEXTS
                    if name in self.arguments)

    @property
    def instance(self) -> Any:
        """Return the Nova instance."""
        return self.arguments['instance']

    @property
    def bdms(self) -> Any:
        """Return its BlockDeviceMappingList; None: Nova will read it."""
        return self.arguments.get('bdms')

    def trigger_of(self, task_state: str | None) -> Trigger | None:
        """Return the trigger of an instance in this task state."""
        return next((trigger for trigger in self.triggers
                     if task_state in trigger.states), None)


@dataclasses.dataclass(frozen=True)
class Wrapper:
    """The rows of the table that one wrapper is installed for."""

    method: Method
    wraps: Wraps
    handler: str
    triggers: Sequence[Trigger]


def wrappers_for(hooks: Iterable[Hook], installed: Collection[Trigger]
                 ) -> list[Wrapper]:
    """Return a wrapper for each method and handler among some rows.

    :param installed: all triggers that are installed
    """
    found: dict[tuple[Method, Wraps, str], set[Trigger]] = {}
    for hook in hooks:
        found.setdefault(
            (hook.method, hook.wraps, hook.handler), set()).update(
                installed if hook.trigger is None else [hook.trigger])
    return [Wrapper(*key, triggers=[t for t in TRIGGERS if t in own])
            for key, own in found.items()]


def handler_of(wrapper: Wrapper) -> _Function:
    """Import the handler of a wrapper."""
    handler: _Function = pkgutil.resolve_name(
        '%s.%s' % (__package__, wrapper.handler))
    return handler


def wrap(owners: Mapping[str, type], wrappers: Iterable[Wrapper]
         ) -> Mapping[tuple[type, str], _Function]:
    """Put wrappers around methods of Nova, the last one outermost.

    :param owners: the classes that have the methods, by name
    :returns: the methods as they were, by class and name
    """
    # Import all of them before anything is changed.
    handlers = [
        (owners[wrapper.method.owner], wrapper, handler_of(wrapper))
        for wrapper in wrappers]
    originals = {(owner, wrapper.method.name): vars(owner)[wrapper.method.name]
                 for owner, wrapper, _ in handlers}
    for owner, wrapper, handler in handlers:
        name = wrapper.method.name
        setattr(owner, name, _wrapped(vars(owner)[name], wrapper, handler))
    return originals


def _wrapped(original: _Function, wrapper: Wrapper,
             handler: _Function) -> _Function:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def call_handler(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        call = NovaCall(bound.arguments, wrapper.triggers)
        with contextlib.ExitStack() as stack:
            # Nova goes on after an error of a handler.
            with log_failure(bound.arguments.get('instance')):
                if wrapper.wraps is Wraps.BEFORE:
                    handler(call)
                elif (wrapper.wraps is Wraps.AROUND
                        and stack.enter_context(handler(call))):
                    return None
            call.answer = original(*bound.args, **bound.kwargs)
            if wrapper.wraps is Wraps.AFTER:
                with log_failure(bound.arguments.get('instance')):
                    handler(call)
        return call.answer

    return call_handler


@contextlib.contextmanager
def log_failure(instance: Any, text: str = 'bdm-cleanup failed; Nova goes on '
                'as without it') -> Iterator[None]:
    """Log an error of the plugin, and have Nova go on.

    :param instance: the Nova instance, if it is about one
    """
    failure: Exception | None = None
    try:
        yield
    except Exception as exc:
        failure = exc
    if failure:
        LOG.error(text, instance=instance, exc_info=with_traceback(failure))
