# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""How a reboot asks Cinder: whose credentials, and what they can see.

Cinder's lists are scoped to the project of the token.  An administrator who
reboots another project's server sees none of its attachments, healthy as they
may be.  So the service's own credentials are used where there are any, and the
user's token only for a server of the same project.
"""

from __future__ import annotations

import functools
from typing import Any

from keystoneauth1 import loading as ks_loading
import nova.conf
from nova import context as nova_context
from nova.volume import cinder as nova_cinder

from nova_bdm_cleanup import cinder as cinders
from nova_bdm_cleanup import deadline as deadlines

CONF = nova.conf.CONF


def cinder_for(context: Any, instance: Any,
               deadline: deadlines.Deadline) -> cinders.Cinder:
    """Cinder as this reboot may see it.

    :param context: the context of the reboot
    :param instance: the Nova instance
    :param deadline: bounds every call
    """
    as_service = CONF.cinder.auth_type is not None

    def connect() -> Any:
        if as_service:
            asking = _service_context(context)
        elif context.auth_token and context.project_id == instance.project_id:
            asking = context
        else:
            raise cinders.ProjectHidden(
                'this reboot was not requested by the project of the server '
                'and nova.conf has no credentials for Cinder: set [cinder] '
                'auth_type and the options that belong to it')
        return _client(asking)

    return cinders.Cinder(connect, as_service, deadline)


def _service_context(context: Any) -> Any:
    """An administrator's context without a token: Nova then takes the
    credentials of ``[cinder]``, as for its periodic tasks.
    """
    project_id = None
    if CONF.cinder.endpoint_template:
        project_id = _service_project_id()
    return nova_context.RequestContext(
        user_id=None, project_id=project_id, is_admin=True, overwrite=False,
        global_request_id=context.global_id)


@functools.lru_cache(maxsize=1)
def _service_project_id() -> Any:
    """The project that ``[cinder] endpoint_template`` is filled in with."""
    auth = ks_loading.load_auth_from_conf_options(CONF, 'cinder')
    session = ks_loading.load_session_from_conf_options(
        CONF, 'cinder', auth=auth)
    return session.get_project_id()


def _client(context: Any) -> Any:
    """Nova's own python-cinderclient: its endpoint, TLS and service token."""
    return nova_cinder.cinderclient(
        context, microversion=cinders.MICROVERSION, skip_version_check=True)


