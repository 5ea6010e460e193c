# SPDX-License-Identifier: Apache-2.0
"""The credentials with which Cinder is asked: always those in ``[cinder]``.

Cinder's lists are scoped to the project of the token.  An administrator who
reboots another project's server sees none of its attachments, even if they are
healthy.  So the token of the user who requests an operation is never used.
"""

from __future__ import annotations

import functools
from typing import Any

from keystoneauth1 import loading as ks_loading
from nova import context as nova_context
import nova.conf
from nova.volume import cinder as nova_cinder

from nova_bdm_cleanup.openstack.api import Api
from nova_bdm_cleanup.openstack.cinder import (
    Cinder,
    NOVA_CONF,
    VOLUME_MICROVERSION,
)
from nova_bdm_cleanup.openstack.deadline import Deadline

CONF = nova.conf.CONF


def cinder_for(context: Any, deadline: Deadline) -> Cinder:
    """Return Cinder for one cleanup.

    :param context: the context of the reboot or start
    """
    return Cinder(Api('Cinder', VOLUME_MICROVERSION,
                      lambda: client(service_context(context)).request,
                      NOVA_CONF, deadline))


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
