# SPDX-License-Identifier: Apache-2.0
"""Base class of the operator command tests: a cloud over HTTP."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any
from unittest import mock

import fixtures
from keystoneauth1 import session as ksa_session
from openstack import connection

from nova_bdm_cleanup.client.cloud import inspection
from nova_bdm_cleanup.client.extension import Client
from nova_bdm_cleanup.openstack.api import Budget
from nova_bdm_cleanup.rules.facts import Policy
from nova_bdm_cleanup.tests.unit import base
from nova_bdm_cleanup.tests.unit.loopback import LoopbackCloud
from nova_bdm_cleanup.tests.unit.wire import LoopbackServer


class CloudCase(base.TestCase):
    """A cloud with two healthy servers, and clients that log in."""

    page = 1000

    def setUp(self) -> None:
        super().setUp()
        # It waits before it repeats a request.
        self.useFixture(fixtures.MockPatchObject(
            ksa_session, 'time', mock.Mock(
                wraps=time, sleep=lambda seconds: None)))
        self.cloud = LoopbackCloud(self.page)
        self.alpha = self.cloud.server('alpha')
        self.beta = self.cloud.server('beta')
        self.disk = self.cloud.attach(self.alpha, 'disk')
        self.other = self.cloud.attach(self.beta, 'other')
        self.server = self.useFixture(LoopbackServer(self.cloud))
        self.budget = Budget()

    def use_clock(self, *modules: Any) -> None:
        """Have the modules wait without any time passing.

        Their time is ``self.time``; :meth:`sleep` changes it.
        """
        self.time = 0.0
        clock = SimpleNamespace(monotonic=lambda: self.time,
                                sleep=self.sleep)
        for module in modules:
            self.useFixture(fixtures.MockPatchObject(module, 'time', clock))

    def sleep(self, seconds: float) -> None:
        self.time += seconds

    def client(self, user: str = 'admin') -> Client:
        """Return the client as OpenStackClient passes it."""
        session = self.session(user)
        return Client(session, connection.Connection(session=session))

    def orphan(self, name: str = 'orphan', **fields: Any) -> str:
        """Create a volume in use by a server that Nova has deleted."""
        server = self.cloud.server('server of ' + name)
        volume = self.cloud.attach(server, name, **fields)
        self.cloud.lose_server(server)
        return volume

    def session(self, user: str) -> Any:
        return ksa_session.Session(auth=self.server.password(user))

    def nova(self, user: str = 'admin') -> Any:
        return self.client(user).nova(self.budget)

    def cinder(self, user: str = 'admin') -> Any:
        return self.client(user).cinder(self.budget)

    def seen_by(self, user: str = 'admin',
                project: str | None = 'own',
                **policy: Any) -> inspection.Cloud:
        """Return the cloud as a command sees it, with this policy."""
        self.told: list[tuple[str, int]] = []
        return inspection.Cloud(
            self.nova(user), self.cinder(user), Policy(**policy),
            project, lambda *told: self.told.append(told))
