# SPDX-License-Identifier: Apache-2.0
"""The APIs of the cloud as plain HTTP, through keystoneauth."""

from __future__ import annotations

import functools
from typing import Any, TYPE_CHECKING

from e2e import lab as lab_mod

if TYPE_CHECKING:
    from keystoneauth1 import session

VERSIONS = {'compute': '2.91', 'volumev3': '3.70'}

#: User and project of the administrator and of the servers' owner.
ADMIN = ('admin', 'admin')
MEMBER = ('demo', 'demo')
#: The user whose token permits what Cinder refuses to others (CVE-2023-2088).
SERVICE = ('cinder', 'service')


class ApiError(Exception):
    """An answer with a status of 400 or more."""

    def __init__(self, method: str, path: str, code: int, text: str) -> None:
        super().__init__(f'{method} {path}: {code} {text[:500]}')
        self.code = code


@functools.lru_cache(maxsize=None)
def login(who: tuple[str, str]) -> session.Session:
    # The package may have to be installed first.
    from keystoneauth1 import session
    from keystoneauth1.identity import v3
    user, project = who
    return session.Session(auth=v3.Password(
        'http://127.0.0.1:5000/v3', username=user,
        password=lab_mod.PASSWORD, project_name=project,
        user_domain_id='default', project_domain_id='default'))


def call(service: str, method: str, path: str, body: Any = None,
         who: tuple[str, str] = MEMBER,
         headers: dict[str, str] | None = None,
         data: bytes | None = None) -> Any:
    """Send a request; return the parsed answer, or None without a body."""
    answer = login(who).request(
        path, method, json=body, data=data, headers=dict(headers or {}),
        microversion=VERSIONS.get(service), raise_exc=False,
        endpoint_filter={'service_type': service, 'interface': 'public',
                         'region_name': lab_mod.REGION})
    if answer.status_code >= 400:
        raise ApiError(method, path, answer.status_code, answer.text)
    try:
        return answer.json() if answer.content else None
    except ValueError:
        return answer.text


def service_token() -> dict[str, str]:
    token = login(SERVICE).get_token()
    return {'X-Service-Token': token or ''}


def drop_sessions() -> None:
    """Drop all sessions: a recreated cloud does not accept old tokens."""
    login.cache_clear()
