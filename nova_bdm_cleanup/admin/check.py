# SPDX-License-Identifier: Apache-2.0
"""``nova-bdm-cleanup check``: whether the plugin can work on this host.

It works like ``nova-status upgrade check``, and uses the same library.  It
must run with the Python, with the configuration and as the user of
nova-compute.  Each check imports the parts of Nova that it needs itself, so
that a failure of one does not affect the others.
"""

from __future__ import annotations

import argparse
from importlib import metadata
import os
import pathlib
import re
import time
from typing import Any, Callable, Optional

from keystoneauth1 import exceptions as ksa_exceptions, loading as ks_loading
from oslo_config import cfg
from oslo_upgradecheck import upgradecheck
from oslo_upgradecheck.upgradecheck import Code, Result

from nova_bdm_cleanup import files, terminal, VERSION
from nova_bdm_cleanup.admin import configuration
from nova_bdm_cleanup.admin.status import State, status_of
from nova_bdm_cleanup.node import options, validation
from nova_bdm_cleanup.node.auth_section import (
    auth_section,
    has_credentials,
    missing_credentials,
)
from nova_bdm_cleanup.node.option_group import GROUP
from nova_bdm_cleanup.node.store.database import Database, StoreError
from nova_bdm_cleanup.openstack import answers, errors
from nova_bdm_cleanup.openstack.api import Api
from nova_bdm_cleanup.openstack.cinder import (
    Cinder,
    NOVA_CONF,
    POLICY_SAMPLE,
    VOLUME_MICROVERSION,
)

#: The default of ``service_token_roles`` in Cinder's ``[keystone_authtoken]``.
_SERVICE_ROLE = 'service'

#: The default of ``context_is_admin`` in Cinder's policy.
_ADMIN_ROLE = 'admin'

_NO_CREDENTIALS = 'not checked without credentials in [cinder]'


#: By this device os-brick learns the SDC GUID of a host with PowerFlex.
_POWERFLEX_DEVICE = '/dev/scini'

#: The code, and what to set; None: the check passes.
_Found = Optional[tuple[Code, str]]


def run(args: argparse.Namespace) -> int:
    """Run all checks and print the results."""
    conf = configuration.load_nova(args)
    # The library looks for --json here, after its own parsing.
    upgradecheck.CONF = argparse.Namespace(command=args)
    return int(Checks(conf).check())


def _guarded(check: Callable[[Checks], _Found]
             ) -> Callable[[Checks], Result]:
    """Turn an exception of a check into its failure."""

    def guarded(checks: Checks) -> Result:
        try:
            code, details = check(checks) or (Code.SUCCESS, None)
        except (errors.ApiError, files.FileError, StoreError) as exc:
            code, details = Code.FAILURE, str(exc)
        except Exception as exc:
            code, details = Code.FAILURE, '%s: %s' % (type(exc).__name__, exc)
        # Text of another service must not control the terminal.
        return Result(code, terminal.clean(details) if details else None)

    return guarded


class Checks(upgradecheck.UpgradeCommands):
    """All checks of this host.

    :param conf: Nova's configuration, with the options of the plugin
    """

    display_title = 'bdm-cleanup Check Results'

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__()
        self._conf = conf
        self._problems = validation.problems(conf)
        # Wrong values fail the check of the options, and no other.
        validation.forget_wrong_values(conf)

    def files_read(self) -> _Found:
        """Name the configuration files that the checks are about."""
        read = [*self._conf.config_file, *(
            '%s/*.conf' % path for path in self._conf.config_dir)]
        if not read:
            return Code.WARNING, ('no configuration file was found: give '
                                  '--config-file')
        return Code.SUCCESS, 'read: ' + ', '.join(read)

    def plugin(self) -> _Found:
        """Check that nova-compute finds the plugin, and may use it."""
        points = [p for d in metadata.distributions() for p in d.entry_points
                  if (p.group, p.name) == ('os_vif', 'bdm_cleanup')]
        if not points:
            return Code.FAILURE, (
                'this Python has no entry point bdm_cleanup in the group '
                'os_vif: pip install nova_bdm_cleanup-%s-py3-none-any.whl '
                'into it' % VERSION)
        points[0].load()
        if self._conf[GROUP].mode == 'off' and not self._problems:
            return Code.WARNING, ('it is off: set [bdm_cleanup] mode = '
                                  'observe, then restart nova-compute')
        return None

    def nova(self) -> _Found:
        """Check that Nova has what the hooks need."""
        from nova_bdm_cleanup.node.hooks import requirements

        differences = requirements.differences()
        differences += [
            '%s: %s' % (word, difference)
            for word, found in requirements.differences_by_word(
                options.words_of(self._conf)).items()
            for difference in found]
        return (Code.FAILURE, 'this Nova is not supported, and would be left '
                'unchanged: %s' % '; '.join(differences)
                ) if differences else None

    def os_brick(self) -> _Found:
        """Tell what this release of os-brick does otherwise."""
        text = metadata.version('os-brick')
        version = tuple(map(int, re.findall(r'\d+', text)[:3]))
        if version < (6, 11, 1) or (6, 12) <= version < (7,):
            return Code.SUCCESS, (
                'os-brick %s can leave devices if a host has several iSCSI '
                'sessions to one portal of a target; the removal of such a '
                'disk stops (step-failed). 6.11.1 and 7.0 do not' % text)
        if version >= (7,) and os.path.exists(_POWERFLEX_DEVICE):
            return Code.SUCCESS, (
                'os-brick %s does not disconnect PowerFlex volumes from the '
                'host; Cinder does when the attachment is deleted' % text)
        return None

    def options(self) -> _Found:
        """Check that all keys and values of ``[bdm_cleanup]`` are valid."""
        if self._problems:
            return Code.FAILURE, '; '.join(self._problems)
        no_effect = options.without_effect(self._conf)
        return (Code.WARNING, '; '.join(no_effect)) if no_effect else None

    def journal(self) -> _Found:
        """Check that the journal can be written."""
        path = self._conf[GROUP].store
        owner = _owner(pathlib.Path(path))
        if os.geteuid() == 0 and owner:
            # nova-compute cannot use a store that belongs to root.
            return Code.WARNING, ('not checked, because %s belongs to user '
                                  '%d: run this as that user' % (path, owner))
        Database(path).check()
        return None

    def running(self) -> _Found:
        """Check that the plugin works in the nova-compute that runs."""
        found = status_of(self._conf.host, self._conf[GROUP].store,
                          time.time(), self._problems,
                          self._conf[GROUP].mode)
        if found.state is State.REFUSED:
            return Code.FAILURE, found.why
        if found.state is State.ACTIVE and found.other_version:
            # As expected before the restart that ends an upgrade.
            return Code.SUCCESS, 'it runs ' + found.other_version
        return (Code.WARNING if found.state is State.STALE or found.others
                else Code.SUCCESS), found.why

    def metrics_file(self) -> _Found:
        """Check that the metrics can be written."""
        path = self._conf[GROUP].metrics_file
        if path:
            files.METRICS_FILE.check(path)
        return None

    def credentials(self) -> _Found:
        """Check that nova-compute has credentials of its own for Cinder."""
        missing = missing_credentials(self._conf)
        return (Code.FAILURE, 'the plugin stays off: %s'
                % '; '.join(missing)) if missing else None

    def service_token(self) -> _Found:
        """Check that a service token is sent which Cinder accepts."""
        group = self._conf.service_user
        if not group.send_service_user_token:
            return Code.FAILURE, (
                'set [service_user] send_service_user_token = true, and its '
                'auth_type, for a user with the service role; without them, '
                'Cinder must ask Nova before it deletes an attachment, and '
                'refuses if it cannot')
        if not has_credentials(self._conf, 'service_user'):
            return Code.FAILURE, 'set [%s] auth_type' % auth_section(
                self._conf, 'service_user')
        try:
            roles = self._roles('service_user')
        except ksa_exceptions.ClientException as exc:
            return Code.FAILURE, ('Keystone gives no token for the user in '
                                  '[service_user]: %s' % exc)
        if roles is None:
            return Code.SUCCESS, ('the roles of the user are not known: the '
                                  'credentials are a token')
        if _SERVICE_ROLE not in roles:
            return Code.WARNING, (
                'the user in [service_user] does not have the role "%s" (its '
                'roles: %s): give it that role, or name one of its roles in '
                'service_token_roles in [keystone_authtoken] of cinder.conf'
                % (_SERVICE_ROLE, ', '.join(roles) or 'none'))
        return None

    def cinder_version(self) -> _Found:
        """Check that Cinder's API is recent enough."""
        if not self._has_credentials:
            return Code.WARNING, _NO_CREDENTIALS
        client = self._client()

        def send(path: str, method: str, **values: Any) -> Any:
            return client.get_with_base_url(path, **values)

        # In the version that every Cinder has: an old Cinder would refuse
        # ours and not tell its own.
        body = Api('Cinder', '3.0', lambda: send, NOVA_CONF).get('v3/')
        newest = max(_version(answers.text(r, 'version'))
                     for r in answers.records(body, 'versions'))
        details = 'its API has version %d.%d; %s is required' % (
            *newest, VOLUME_MICROVERSION)
        if newest < _version(VOLUME_MICROVERSION):
            return Code.FAILURE, details + ' (Queens): upgrade Cinder'
        return Code.SUCCESS, details

    def cinder(self) -> _Found:
        """Send the requests of a reboot, with its credentials and tokens."""
        if not self._has_credentials:
            return Code.WARNING, _NO_CREDENTIALS
        api = Api('Cinder', VOLUME_MICROVERSION,
                  lambda: self._client().request, NOVA_CONF)
        rule = Cinder(api).missing_rule()
        if rule:
            return Code.FAILURE, (
                'Cinder does not show the volumes of all projects to the user '
                'in [%s], who does not satisfy the rule %s of its policy: '
                'give it the admin role, or the rules in %s' % (
                    auth_section(self._conf, 'cinder'), rule, POLICY_SAMPLE))
        api.get('/attachments', {'all_tenants': '1', 'limit': '1'})
        roles = self._roles('cinder')
        if roles is not None and _ADMIN_ROLE not in roles:
            return Code.SUCCESS, (
                'the user is no administrator (its roles: %s): no question '
                'shows whether it may also change attachments, for which the '
                'rules are in %s' % (', '.join(roles) or 'none',
                                     POLICY_SAMPLE))
        return None

    def _roles(self, group: str) -> list[str] | None:
        """Return the roles of a group's user; None: they are not known."""
        auth = ks_loading.load_auth_from_conf_options(self._conf, group)
        if not hasattr(auth, 'get_access'):
            return None
        session = ks_loading.load_session_from_conf_options(
            self._conf, group, auth=auth)
        return list(auth.get_access(session).role_names)

    @property
    def _has_credentials(self) -> bool:
        return has_credentials(self._conf, 'cinder')

    @staticmethod
    def _client() -> Any:
        """Return the client with which a reboot asks Cinder."""
        from nova import context as nova_context

        from nova_bdm_cleanup.node import credentials

        return credentials.client(credentials.service_context(
            nova_context.get_admin_context()))

    _upgrade_checks = tuple((title, _guarded(check)) for title, check in (
        ('Configuration files', files_read),
        ('Plugin', plugin),
        ('Nova', nova),
        ('os-brick', os_brick),
        ('Options', options),
        ('Journal', journal),
        ('Running nova-compute', running),
        ('Metrics file', metrics_file),
        ('Credentials for Cinder', credentials),
        ('Service token', service_token),
        ('Cinder version', cinder_version),
        ('Cinder', cinder),
    ))


def _owner(path: pathlib.Path) -> int:
    """Return the owner of a file, or of the directory it would be in."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path.stat().st_uid


def _version(text: str) -> tuple[int, int]:
    """Parse a version to a pair, so that 3.9 is less than 3.44."""
    major, _, minor = text.partition('.')
    return int(major), int(minor)
