# SPDX-License-Identifier: Apache-2.0
"""The projects and users of Keystone, and the claims of Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping
import functools
from typing import Any, NamedTuple

from keystoneauth1 import exceptions
from openstack import exceptions as sdk_exceptions

from nova_bdm_cleanup.openstack import errors

#: The keys by which Cinder's CSI driver labels a volume.
_CLUSTER = 'cinder.csi.openstack.org/cluster'
_NAMESPACE = 'csi.storage.k8s.io/pvc/namespace'
_CLAIM = 'csi.storage.k8s.io/pvc/name'

_ERRORS = (exceptions.ClientException, sdk_exceptions.SDKException)


class Claim(NamedTuple):
    """The claim of Kubernetes that a volume was made for."""

    cluster: str | None
    namespace: str | None
    name: str | None

    @classmethod
    def of(cls, metadata: Mapping[str, str]) -> Claim:
        """Return the claim; all None: there is none."""
        return cls(*map(metadata.get, (_CLUSTER, _NAMESPACE, _CLAIM)))


class Owners:
    """The names of projects and users.

    Each is asked for once.  The names only help people: without an answer
    there is none.

    :param connection: that of the SDK
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.project = functools.lru_cache(maxsize=None)(functools.partial(
            self._name, 'get_project'))
        self.user = functools.lru_cache(maxsize=None)(functools.partial(
            self._name, 'get_user'))
        self._is_silent = False

    def _name(self, method: str, owner: str | None) -> str | None:
        if owner is None or self._is_silent:
            return None
        try:
            return str(getattr(
                self._connection.identity, method)(owner).name)
        except sdk_exceptions.HttpException:
            # It is not visible to this user, or does not exist any more.
            return None
        except _ERRORS:
            self._is_silent = True
            return None

    def id_of_project(self, name: str) -> str:
        """Return the ID of the project that an operator names.

        :raises BadInput: when there is none, or more than one
        :raises Refused: when Keystone does not show it
        """
        try:
            found = self._connection.identity.find_project(name)
        except sdk_exceptions.DuplicateResource as exc:
            raise errors.BadInput('more than one project is named %s; give '
                                  'an ID' % name) from exc
        except _ERRORS as exc:
            raise errors.Refused('Keystone does not show project %s: %s' % (
                name, exc)) from exc
        if found is None:
            raise errors.BadInput('no project has the name or ID %s' % name)
        return str(found.id)
