# SPDX-License-Identifier: Apache-2.0
"""The wrappers of methods, which run a handler in a call inside Nova.

Every wrapper binds the arguments of a call to the signature of the method, so
that neither a handler nor the order of the wrappers depends on how Nova passes
them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
import dataclasses
import functools
import inspect
import pkgutil
from typing import Any, Callable

from nova_bdm_cleanup.node.cleanup.triggers import Trigger, TRIGGERS
from nova_bdm_cleanup.node.hooks.table import Hook, Wraps

_Function = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of a wrapped method of ``ComputeManager``."""

    #: The arguments by name, including ``self``, without those that are left
    #: to their defaults.  A handler may change them.
    arguments: dict[str, Any]
    #: The triggers of the rows that this wrapper is installed for.
    triggers: Sequence[Trigger]
    #: Calls the method with the current arguments.
    carry_out: Callable[[], Any]

    @property
    def manager(self) -> Any:
        """Return the ComputeManager."""
        return self.arguments['self']

    @property
    def context(self) -> Any:
        """Return the request context."""
        return self.arguments.get('context') or self.arguments['ctxt']

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

    method: str
    wraps: Wraps
    handler: str
    triggers: Sequence[Trigger]


def wrappers_for(hooks: Iterable[Hook], installed: Collection[Trigger]
                 ) -> list[Wrapper]:
    """Return a wrapper for each method and handler among some rows.

    :param installed: all triggers that are installed
    """
    found: dict[tuple[str, Wraps, str], set[Trigger]] = {}
    for hook in hooks:
        found.setdefault(
            (hook.method.name, hook.wraps, hook.handler), set()).update(
                installed if hook.trigger is None else [hook.trigger])
    return [Wrapper(*key, triggers=[t for t in TRIGGERS if t in own])
            for key, own in found.items()]


def handler_of(wrapper: Wrapper) -> _Function:
    """Import the handler of a wrapper."""
    handler: _Function = pkgutil.resolve_name(
        '%s.%s' % (__package__, wrapper.handler))
    return handler


def wrap(owner: type, wrappers: Iterable[Wrapper]) -> Mapping[str, _Function]:
    """Put wrappers around the methods of a class, the last one outermost.

    :returns: the methods as they were, by name
    """
    # Import all of them before anything is changed.
    handlers = [(wrapper, handler_of(wrapper)) for wrapper in wrappers]
    originals = {wrapper.method: vars(owner)[wrapper.method]
                 for wrapper, _ in handlers}
    for wrapper, handler in handlers:
        setattr(owner, wrapper.method, _wrapped(
            vars(owner)[wrapper.method], wrapper, handler))
    return originals


def _wrapped(original: _Function, wrapper: Wrapper,
             handler: _Function) -> _Function:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def call_handler(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        call = Call(bound.arguments, wrapper.triggers,
                    lambda: original(*bound.args, **bound.kwargs))
        if wrapper.wraps is Wraps.IN_PLACE_OF:
            return handler(call)
        if wrapper.wraps is Wraps.AROUND:
            with handler(call):
                return call.carry_out()
        handler(call)
        return call.carry_out()

    return call_handler
