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
"""Whether the plugin can work on this host.

In the manner of ``nova-status upgrade check``: every check has a result and,
unless it succeeds, says what to set.  It must run with the Python, with the
configuration and as the user of nova-compute.
"""

from __future__ import annotations

import argparse
from importlib import metadata
import json
import os
import pathlib
from typing import Any, Callable, List, NamedTuple, Tuple

from oslo_config import cfg

from nova_bdm_cleanup.cli import config
from nova_bdm_cleanup.cli.exitcodes import CommandError
from nova_bdm_cleanup.cli.exitcodes import ExitCode
from nova_bdm_cleanup.cli import text
from nova_bdm_cleanup import conf as our_conf
from nova_bdm_cleanup.fleet import cinder as cinders
from nova_bdm_cleanup.fleet import http
from nova_bdm_cleanup import journal as journals

_GROUP, _NAME = 'os_vif', 'bdm_cleanup'


class _Check(NamedTuple):
    """One line of the result."""

    name: str
    result: str
    details: str = ''


#: The words of oslo.upgradecheck.
_SUCCESS, _WARNING, _FAILURE = 'Success', 'Warning', 'Failure'


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        'check', allow_abbrev=False,
        help='whether the plugin can work on this host',
        description='Check whether the plugin can work on this host. Run it '
                    'with the Python of nova-compute and as its user. '
                    'Nothing is changed, but an empty journal is made if '
                    'there is none.')
    parser.add_argument('--json', action='store_true',
                        help='the results as JSON')
    config.add_arguments(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    conf = _load(args)
    checks = [_guarded(name, check, conf) for name, check in _CHECKS]
    if args.json:
        print(json.dumps({'name': 'bdm-cleanup', 'checks': [
            {'check': c.name, 'result': c.result,
             'details': c.details or None} for c in checks]}))
    else:
        print(text.table(('Check', 'Result', 'Details'), checks))
    if all(c.result == _SUCCESS for c in checks):
        return ExitCode.OK
    return ExitCode.FINDINGS


def _load(args: argparse.Namespace) -> cfg.ConfigOpts:
    """Nova's own configuration object, parsed as nova-compute does it.

    :raises CommandError: when there is no Nova, or nova.conf is wrong
    """
    try:
        from nova import config as nova_config
    except ImportError as exc:
        raise CommandError(
            ExitCode.REFUSED, 'Nova cannot be imported (%s): run this with '
            'the Python of nova-compute' % exc) from exc
    words = ['nova-compute']
    files: List[str] = getattr(args, 'config_file', [])
    for name in getattr(args, 'config_dir', ()):
        words += ['--config-dir', name]
    conf: cfg.ConfigOpts = nova_config.CONF
    try:
        nova_config.parse_args(
            words, default_config_files=files or cfg.find_config_files(
                'nova', 'nova-compute'),
            configure_db=False, init_rpc=False)
    except cfg.Error as exc:
        raise CommandError(ExitCode.BAD_INPUT, str(exc)) from exc
    our_conf.register_opts(conf)
    return conf


def _guarded(name: str, check: Callable[[cfg.ConfigOpts], Tuple[str, str]],
             conf: cfg.ConfigOpts) -> _Check:
    """A check that fails in an unforeseen way is a failure of that check."""
    try:
        return _Check(name, *check(conf))
    except Exception as exc:
        return _Check(name, _FAILURE, '%s: %s' % (type(exc).__name__, exc))


def _check_plugin(conf: cfg.ConfigOpts) -> Tuple[str, str]:
    points = [p for d in metadata.distributions() for p in d.entry_points
              if p.group == _GROUP and p.name == _NAME]
    if not points:
        return _FAILURE, ('this Python has no entry point %s in the group '
                          '%s: pip install nova-bdm-cleanup into it'
                          % (_NAME, _GROUP))
    points[0].load()
    if not conf[our_conf.GROUP].enabled:
        return _WARNING, ('it is not enabled: set enabled = true in '
                          '[bdm_cleanup] and restart nova-compute')
    return _SUCCESS, ''


def _check_nova(conf: cfg.ConfigOpts) -> Tuple[str, str]:
    from nova_bdm_cleanup.plugin import hook

    differences = hook.differences()
    if differences:
        return _FAILURE, ('this Nova is not understood, and would be left as '
                          'it is: %s' % '; '.join(differences))
    return _SUCCESS, ''


def _check_options(conf: cfg.ConfigOpts) -> Tuple[str, str]:
    problems = our_conf.problems(conf)
    if problems:
        return _FAILURE, '; '.join(problems)
    return _SUCCESS, ''


def _check_journal(conf: cfg.ConfigOpts) -> Tuple[str, str]:
    path, max_bytes, backups = our_conf.journal(conf)
    owner = _owner(pathlib.Path(path))
    if os.geteuid() == 0 and owner:
        # A journal that belongs to root is of no use to nova-compute.
        return _WARNING, ('not checked, since %s belongs to user %d: run '
                          'this as that user' % (path, owner))
    try:
        journals.Journal(path, max_bytes, backups).check()
    except journals.JournalError as exc:
        return _FAILURE, str(exc)
    return _SUCCESS, ''


def _owner(path: pathlib.Path) -> int:
    """Who owns a file, or the directory that it would be made in."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path.stat().st_uid


def _check_credentials(conf: cfg.ConfigOpts) -> Tuple[str, str]:
    if conf.cinder.auth_type is None:
        return _FAILURE, (
            'set auth_type in [cinder], and the options that belong to it, '
            'for a user with the admin role; without them, a reboot that the '
            'project of the server does not request itself changes nothing')
    return _SUCCESS, ''


def _check_service_user(conf: cfg.ConfigOpts) -> Tuple[str, str]:
    if not conf.service_user.send_service_user_token:
        return _FAILURE, (
            'set send_service_user_token in [service_user] to true, and its '
            'auth_type, for a user with the service role; without them '
            'Cinder refuses to delete what Nova still knows')
    if conf.service_user.auth_type is None:
        return _FAILURE, 'set auth_type in [service_user]'
    return _SUCCESS, ''


def _check_cinder(conf: cfg.ConfigOpts) -> Tuple[str, str]:
    """The requests of a reboot, with its credentials and tokens."""
    if conf.cinder.auth_type is None:
        return _WARNING, 'not checked without credentials in [cinder]'
    from nova import context as nova_context

    from nova_bdm_cleanup.plugin import access

    client = access._client(access._service_context(
        nova_context.get_admin_context())).client

    def transport(method: str, path: str, body: Any, **kwargs: Any) -> Any:
        return client.request(path, method, authenticated=True, **kwargs)

    service = http.Service('Cinder', transport, http.Gate())
    try:
        if not cinders.Cinder(service).prove_admin():
            # Say whose fault it is, if it is not the role.
            service.get('/volumes?limit=1')
            return _FAILURE, (
                'Cinder does not show all projects to the user in [cinder]: '
                'give it the admin role (or what Cinder\'s policy '
                'context_is_admin asks for)')
        service.get('/attachments?all_tenants=1&limit=1')
    except http.FleetError as exc:
        return _FAILURE, str(exc)
    return _SUCCESS, 'API version %s' % cinders.MICROVERSION


_CHECKS: Tuple[Tuple[str, Callable[[cfg.ConfigOpts],
                                   Tuple[str, str]]], ...] = (
    ('Plugin', _check_plugin),
    ('Nova', _check_nova),
    ('Options', _check_options),
    ('Journal', _check_journal),
    ('Credentials for Cinder', _check_credentials),
    ('Service token', _check_service_user),
    ('Cinder', _check_cinder),
)
