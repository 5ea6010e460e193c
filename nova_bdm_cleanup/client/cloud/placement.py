# SPDX-License-Identifier: Apache-2.0
"""The hosts with the plugin, as Placement shows them."""

from __future__ import annotations

import functools
from typing import Callable

from nova_bdm_cleanup.openstack import answers, errors
from nova_bdm_cleanup.openstack.api import Api
from nova_bdm_cleanup.openstack.traits import ENFORCE

#: The first version that selects by traits; Placement of Rocky has it.
PLACEMENT_MICROVERSION = '1.18'


class PluginHosts:
    """The compute nodes that show the plugin in mode ``enforce``.

    Placement is asked once, and only if it matters.

    :param api: the placement API
    :param tell: called with a sentence if it gives no answer
    """

    def __init__(self, api: Api, tell: Callable[[str], None]) -> None:
        self._api = api
        self._tell = tell

    def have(self, node: str | None) -> bool | None:
        """Return whether a compute node is one of them; None: it is not known.

        :param node: None: no host has the server, or Nova does not tell
        """
        if node is None or self._nodes is None:
            return None
        return node in self._nodes

    @functools.cached_property
    def _nodes(self) -> frozenset[str] | None:
        """Return their names; None: they are not known."""
        try:
            body = self._api.get('/resource_providers', {'required': ENFORCE})
            return frozenset(answers.text(record, 'name') for record
                             in answers.records(body, 'resource_providers'))
        except errors.BadRequest:
            # The trait does not exist: no host has ever shown it.
            return frozenset()
        except (errors.Unanswered, errors.Refused) as exc:
            self._tell('which hosts have the plugin in mode enforce is not '
                       'known, so "openstack bdm clean" is also shown and '
                       'done for hosts without it: %s' % exc)
            return None
