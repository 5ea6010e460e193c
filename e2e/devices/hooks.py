# SPDX-License-Identifier: Apache-2.0
"""The hooks of the plugin, and a record of those that ran.

A case can replace too much of Nova, and then pass without the plugin.  So each
operation with the plugin must call all handlers that the table of hooks has
for its trigger.
"""

from __future__ import annotations

from collections.abc import Collection
import pathlib
from typing import Any, Callable
from unittest import mock

from nova_bdm_cleanup.node.cleanup.triggers import Trigger
from nova_bdm_cleanup.node.hooks import (
    installation,
    requirements,
    table,
    wrapping,
)


class Record:
    """The calls of the plugin's handlers.

    They are in a file: nova-compute is another process, and may be killed.

    :param path: the file
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        path.touch()

    def install(self, triggers: Collection[Trigger]) -> None:
        """Install the hooks of some triggers; the file gets their calls."""
        handler_of = wrapping.handler_of

        def recorded(wrapper: wrapping.Wrapper) -> Callable[..., Any]:
            handler = handler_of(wrapper)

            def called(call: wrapping.NovaCall, *result: Any) -> Any:
                instance = call.arguments.get('instance')
                with open(self._path, 'a') as file:
                    print(_line(wrapper.handler, wrapper.method.name,
                                instance.uuid if instance else '-'),
                          file=file)
                return handler(call, *result)

            return called

        with mock.patch.object(wrapping, 'handler_of', recorded):
            installation.install(triggers)

    def calls(self) -> list[str]:
        """Return the calls so far."""
        return self._path.read_text().splitlines()


def missing(trigger: Trigger, server: str, calls: Collection[str]
            ) -> list[str]:
    """Return the calls that an operation has to make, and has not made.

    :param trigger: that of the operation
    :param calls: those that it has made
    """
    wanted = [_line(hook.handler, hook.method.name, server)
              for hook in table.hooks_for(
                  [trigger], requirements.has_builtin())
              if hook.trigger is trigger
              # A guest that starts may have no disk to disconnect.
              and not (trigger.mode.starts_guest
                       and hook.method is table.DISCONNECT_VOLUME)]
    assert wanted, f'no hook has the trigger {trigger.name}'
    return [line for line in wanted if line not in calls]


def _line(handler: str, method: str, server: str) -> str:
    return f'{handler} on {method} for server {server}'
