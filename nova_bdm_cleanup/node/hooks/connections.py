# SPDX-License-Identifier: Apache-2.0
"""The hooks on the calls of Nova's volume API that give or take a connection.

Every attach, boot, swap and move gets the address of a disk from them.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib

from nova_bdm_cleanup.node import connections
from nova_bdm_cleanup.node.hooks.wrapping import log_failure, NovaCall
from nova_bdm_cleanup.openstack.connection_info import addresses_in
from nova_bdm_cleanup.rules import spelling


@contextlib.contextmanager
def remember(call: NovaCall) -> Iterator[None]:
    """Remember the connection of an attachment.

    Nova translates the answer.  An attachment that is only reserved has no
    connection, and names its server elsewhere.
    """
    with connections.asking():
        yield
        with log_failure(None):
            connection_info = call.answer['connection_info']
            connections.remember(call.context, connections.Given(
                spelling.identifier(connection_info.get('instance') or ''),
                spelling.identifier(call.answer['volume_id']),
                spelling.identifier(call.answer['id']),
                addresses_in(connection_info)))


@contextlib.contextmanager
def remember_without_attachment(call: NovaCall) -> Iterator[None]:
    """Remember a connection in the way of before Queens.

    The answer is the connection information.
    """
    with connections.asking():
        yield
        with log_failure(None):
            connections.remember(call.context, connections.Given(
                '', spelling.identifier(call.arguments['volume_id']), None,
                addresses_in(call.answer)))


def forget(call: NovaCall) -> None:
    """Forget the connection of an attachment, which is deleted now."""
    connections.forget(spelling.identifier(call.arguments['attachment_id']))
