# SPDX-License-Identifier: Apache-2.0
"""The hooks on the calls of Nova's volume API that give or take a connection.

Every attach, boot, swap and move gets the address of a disk from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nova_bdm_cleanup.node import connections
from nova_bdm_cleanup.node.hooks.wrapping import NovaCall
from nova_bdm_cleanup.openstack.connection_info import addresses_in
from nova_bdm_cleanup.rules import spelling


def remember(call: NovaCall, answer: Mapping[str, Any]) -> None:
    """Remember the connection of an attachment.

    :param answer: the attachment, as Nova translates it.  One that is only
        reserved has no connection, and names its server elsewhere
    """
    connection_info = answer['connection_info']
    connections.remember(call.context, connections.Given(
        spelling.identifier(connection_info.get('instance') or ''),
        spelling.identifier(answer['volume_id']),
        spelling.identifier(answer['id']),
        addresses_in(connection_info)))


def remember_without_attachment(call: NovaCall, answer: Mapping[str, Any]
                                ) -> None:
    """Remember a connection in the way of before Queens.

    :param answer: the connection information
    """
    connections.remember(call.context, connections.Given(
        '', spelling.identifier(call.arguments['volume_id']), None,
        addresses_in(answer)))


def forget(call: NovaCall, answer: None) -> None:
    """Forget the connection of an attachment, which is deleted now."""
    connections.forget(spelling.identifier(call.arguments['attachment_id']))
