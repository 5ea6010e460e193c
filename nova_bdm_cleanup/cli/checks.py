# SPDX-License-Identifier: Apache-2.0
"""The checks of ``nova-bdm-cleanup check``.

Each succeeds, or its details say what to set.  What a check needs of Nova it
imports itself, so that what is wrong with one says nothing about the others.
"""

from __future__ import annotations

import functools
from importlib import metadata
import os
import pathlib
import time
from typing import Any, Callable

from keystoneauth1 import exceptions as ksa_exceptions, loading as ks_loading
from oslo_config import cfg
from oslo_upgradecheck import upgradecheck
from oslo_upgradecheck.upgradecheck import Code, Result

from nova_bdm_cleanup import prometheus, terminal
from nova_bdm_cleanup.files import FileError
from nova_bdm_cleanup.openstack import answers, errors
from nova_bdm_cleanup.openstack.api import Api
from nova_bdm_cleanup.openstack.cinder import Cinder, MICROVERSION, NOVA_CONF
from nova_bdm_cleanup.plugin import options
from nova_bdm_cleanup.plugin.switch import GROUP
from nova_bdm_cleanup.store.database import StoreError
from nova_bdm_cleanup.store.journal import Journal
from nova_bdm_cleanup.watch import status
from nova_bdm_cleanup.watch.status import State

_GROUP, _NAME = 'os_vif', 'bdm_cleanup'

#: What ``service_token_roles`` of Cinder's ``[keystone_authtoken]`` is, unless
#: somebody has changed it.
_SERVICE_ROLE = 'service'

_NO_CREDENTIALS = 'not checked without credentials in [cinder]'


def _guarded(check: Callable[[Any], Result]) -> Callable[[Any], Result]:
    """A check that fails in an unforeseen way is a failure of that check."""

    @functools.wraps(check)
    def guarded(self: Any) -> Result:
        try:
            result = check(self)
        except (errors.ApiError, FileError) as exc:
            result = _failure(str(exc))
        except Exception as exc:
            result = _failure('%s: %s' % (type(exc).__name__, exc))
        if result.details is not None:
            # Words of another service must not control the terminal.
            result.details = terminal.clean(result.details)
        return result

    return guarded


def _success(details: str | None = None) -> Result:
    return Result(Code.SUCCESS, details)


def _warning(details: str) -> Result:
    return Result(Code.WARNING, details)


def _failure(details: str) -> Result:
    return Result(Code.FAILURE, details)


class Checks(upgradecheck.UpgradeCommands):
    """All of them.

    :param conf: Nova's configuration, with the options of the plugin
    """

    display_title = 'bdm-cleanup Check Results'

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__()
        self._conf = conf

    @_guarded
    def plugin(self) -> Result:
        """Whether nova-compute finds the plugin, and may use it."""
        points = [p for d in metadata.distributions() for p in d.entry_points
                  if p.group == _GROUP and p.name == _NAME]
        if not points:
            return _failure(
                'this Python has no entry point %s in the group %s: pip '
                'install nova-bdm-cleanup into it' % (_NAME, _GROUP))
        points[0].load()
        if not self._conf[GROUP].enabled:
            return _warning('it is not enabled: set [bdm_cleanup] enabled = '
                            'true, then restart nova-compute')
        return _success()

    @_guarded
    def nova(self) -> Result:
        """Whether Nova has what the plugin builds on."""
        from nova_bdm_cleanup.plugin import fit

        differences = fit.differences() + [
            '%s: %s' % (name, difference)
            for name in options.triggers_of(self._conf)
            for difference in fit.differences_for(name)]
        if differences:
            return _failure(
                'this Nova is not understood, and would be left as it is: %s'
                % '; '.join(differences))
        return _success()

    @_guarded
    def options(self) -> Result:
        """Whether every option of the plugin is valid."""
        problems = options.problems(self._conf)
        if problems:
            return _failure('; '.join(problems))
        no_effect = options.without_effect(self._conf)
        return _warning('; '.join(no_effect)) if no_effect else _success()

    @_guarded
    def journal(self) -> Result:
        """Whether the journal can be written."""
        path, max_bytes = options.store(self._conf)
        owner = _owner(pathlib.Path(path))
        if os.geteuid() == 0 and owner:
            # A store that belongs to root is of no use to nova-compute.
            return _warning('not checked, since %s belongs to user %d: run '
                            'this as that user' % (path, owner))
        try:
            Journal(path, max_bytes).check()
        except StoreError as exc:
            return _failure(str(exc))
        return _success()

    @_guarded
    def running(self) -> Result:
        """Whether it works in the nova-compute that runs by now."""
        path, _ = options.store(self._conf)
        found = status.status_of(self._conf.host, path, time.time())
        if found.state is State.REFUSED:
            return _failure(found.why)
        if found.state is State.STALE or found.others:
            return _warning(found.why)
        return _success(found.why or None)

    @_guarded
    def metrics_file(self) -> Result:
        """Whether the metrics can be written."""
        path = self._conf[GROUP].metrics_file
        if path:
            prometheus.check(path)
        return _success()

    @_guarded
    def credentials(self) -> Result:
        """Whether nova-compute has credentials of its own for Cinder."""
        if not self._has_credentials:
            return _failure(
                'set [cinder] auth_type, and the options that belong to '
                'it, for a user with the admin role; without them, a reboot '
                'that the project of the server does not request itself '
                'changes nothing')
        return _success()

    @_guarded
    def service_token(self) -> Result:
        """Whether a service token is sent that Cinder will accept."""
        group = self._conf.service_user
        if not group.send_service_user_token:
            return _failure(
                'set [service_user] send_service_user_token = true, and '
                'its auth_type, for a user with the service role; without '
                'them Cinder has to ask Nova before it deletes an attachment, '
                'and refuses where it cannot')
        if group.auth_type is None:
            return _failure('set [service_user] auth_type')
        auth = ks_loading.load_auth_from_conf_options(
            self._conf, 'service_user')
        if not hasattr(auth, 'get_access'):
            return _success('its roles are not known: the credentials are '
                            'a ready-made token')
        session = ks_loading.load_session_from_conf_options(
            self._conf, 'service_user', auth=auth)
        try:
            roles = auth.get_access(session).role_names
        except ksa_exceptions.ClientException as exc:
            return _failure('Keystone gives no token for the user in '
                            '[service_user]: %s' % exc)
        if _SERVICE_ROLE not in roles:
            return _warning(
                'the user in [service_user] has no role "%s" but %s: give it '
                'that role, or name one of these in service_token_roles in '
                '[keystone_authtoken] of cinder.conf' % (
                    _SERVICE_ROLE, ', '.join(roles) or 'none at all'))
        return _success()

    @_guarded
    def cinder_version(self) -> Result:
        """Whether Cinder's API is recent enough."""
        if not self._has_credentials:
            return _warning(_NO_CREDENTIALS)
        client = self._client()

        def send(path: str, method: str, **values: Any) -> Any:
            return client.get_with_base_url(path, **values)

        # In the version that every Cinder has, or an old one would only say
        # that it does not know ours.
        body = Api('Cinder', '3.0', lambda: send, NOVA_CONF).get('v3/')
        newest = max(_version(answers.text(r, 'version'))
                     for r in answers.records(body, 'versions'))
        details = 'its API has version %d.%d, and %s is needed' % (
            *newest, MICROVERSION)
        if newest < _version(MICROVERSION):
            return _failure(details + ' (Queens): upgrade Cinder')
        return _success(details)

    @_guarded
    def cinder(self) -> Result:
        """The requests of a reboot, with its credentials and tokens."""
        if not self._has_credentials:
            return _warning(_NO_CREDENTIALS)
        api = Api('Cinder', MICROVERSION, lambda: self._client().request,
                  NOVA_CONF)
        if not Cinder(api).prove_admin():
            return _failure(
                'Cinder does not show all projects to the user in [cinder]: '
                'give it the admin role (or what Cinder\'s policy '
                'context_is_admin asks for)')
        api.get('/attachments', {'all_tenants': '1', 'limit': '1'})
        return _success()

    @property
    def _has_credentials(self) -> bool:
        return self._conf.cinder.auth_type is not None

    @staticmethod
    def _client() -> Any:
        """What a reboot asks Cinder through."""
        from nova import context as nova_context

        from nova_bdm_cleanup.plugin import access

        return access.client(access.service_context(
            nova_context.get_admin_context()))

    _upgrade_checks = (
        ('Plugin', plugin),
        ('Nova', nova),
        ('Options', options),
        ('Journal', journal),
        ('Running nova-compute', running),
        ('Metrics file', metrics_file),
        ('Credentials for Cinder', credentials),
        ('Service token', service_token),
        ('Cinder version', cinder_version),
        ('Cinder', cinder),
    )


def _owner(path: pathlib.Path) -> int:
    """Who owns a file, or the directory that it would be made in."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path.stat().st_uid


def _version(text: str) -> tuple[int, int]:
    """A version as a pair, so that 3.9 is less than 3.44."""
    major, _, minor = text.partition('.')
    return int(major), int(minor)
