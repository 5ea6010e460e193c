# SPDX-License-Identifier: Apache-2.0
"""The credentials with which a cleanup asks Cinder, and what they can see.

Cinder's lists are scoped to the project of the token.  An administrator who
reboots another project's server sees none of its attachments, even if they are
healthy.  So the service's own credentials are used if there are any, and the
user's token only for a server of the same project.
"""

from __future__ import annotations

import functools
from typing import Any

from keystoneauth1 import loading as ks_loading
from nova import context as nova_context
import nova.conf
from nova.volume import cinder as nova_cinder

from nova_bdm_cleanup.node.auth_section import has_credentials
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.openstack.api import Api
from nova_bdm_cleanup.openstack.cinder import (
    Cinder,
    NOVA_CONF,
    VOLUME_MICROVERSION,
)
from nova_bdm_cleanup.openstack.deadline import Deadline
from nova_bdm_cleanup.rules import spelling

CONF = nova.conf.CONF


def cinder_for(context: Any, instance: Any, deadline: Deadline,
               finds_stale: bool = True) -> Cinder:
    """Return Cinder with the credentials of this cleanup.

    :param context: the context of the reboot or start
    :param finds_stale: whether to find attachments that no mapping names
    """
    api = Api('Cinder', VOLUME_MICROVERSION,
              lambda: client(context_for(context, instance)).request,
              NOVA_CONF, deadline)
    return Cinder(api, sees_all=is_service(), finds_stale=finds_stale)


def context_for(context: Any, instance: Any) -> Any:
    """Return the context with which Nova's own code asks Cinder.

    :raises ProjectHidden: when no credentials see the server's volumes
    """
    if is_service():
        return service_context(context)
    if context.auth_token and context.project_id and spelling.is_same(
            context.project_id, instance.project_id):
        return context
    raise errors.ProjectHidden(
        'the project of the server did not make this request, and nova.conf '
        'has no credentials for Cinder: set [cinder] auth_type and its '
        'options')


def is_service() -> bool:
    """Return whether Cinder is asked with the credentials of the service."""
    return has_credentials(CONF, 'cinder')


def service_context(context: Any) -> Any:
    """Return an administrator's context without a token.

    Nova then uses the credentials of ``[cinder]``, as in its periodic tasks.
    """
    project_id = None
    if CONF.cinder.endpoint_template:
        project_id = _service_project_id()
    return nova_context.RequestContext(
        user_id=None, project_id=project_id, is_admin=True, overwrite=False,
        global_request_id=context.global_id)


@functools.lru_cache(maxsize=1)
def _service_project_id() -> Any:
    """Return the project to fill in ``[cinder] endpoint_template``."""
    auth = ks_loading.load_auth_from_conf_options(CONF, 'cinder')
    session = ks_loading.load_session_from_conf_options(
        CONF, 'cinder', auth=auth)
    return session.get_project_id()


def client(context: Any) -> Any:
    """Return the keystoneauth adapter in Nova's own python-cinderclient, with
    its endpoint, TLS and service token.
    """
    return nova_cinder.cinderclient(
        context, microversion=VOLUME_MICROVERSION,
        skip_version_check=True).client
