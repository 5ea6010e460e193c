# SPDX-License-Identifier: Apache-2.0
"""Whether the plugin can work on this host.

In the manner of ``nova-status upgrade check``, and on the same library.  It
must run with the Python, with the configuration and as the user of
nova-compute.
"""

from __future__ import annotations

import argparse
from typing import Any

from oslo_config import cfg

from nova_bdm_cleanup.cli import novaconf
from nova_bdm_cleanup.plugin import options
from nova_bdm_cleanup.terminal import CommandError, ExitCode


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        'check', allow_abbrev=False,
        help='whether the plugin can work on this host',
        description='Check whether the plugin can work on this host. Run it '
                    'with the Python of nova-compute and as its user. '
                    'Nothing is changed, but an empty store is made if '
                    'there is none.')
    parser.add_argument('--json', action='store_true',
                        help='the results as JSON')
    novaconf.add_arguments(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    # What no other command needs takes as long as all of that.
    from oslo_upgradecheck import upgradecheck

    from nova_bdm_cleanup.cli import checks

    conf = _load(args)
    # Where the library looks for --json, after its own way to parse it.
    upgradecheck.CONF = argparse.Namespace(command=args)
    return int(checks.Checks(conf).check())


def _load(args: argparse.Namespace) -> cfg.ConfigOpts:
    """Nova's own configuration object, parsed as nova-compute does it.

    :raises CommandError: when there is no Nova, or nova.conf is wrong
    """
    try:
        from nova import config as nova_config
    except ImportError as exc:
        raise CommandError(
            ExitCode.BAD_INPUT, 'Nova cannot be imported (%s): run this with '
            'the Python of nova-compute' % exc) from exc
    conf: cfg.ConfigOpts = nova_config.CONF
    try:
        nova_config.parse_args(
            ['nova-compute', *novaconf.words(args)],
            default_config_files=cfg.find_config_files(
                'nova', 'nova-compute'),
            configure_db=False, init_rpc=False)
    except cfg.Error as exc:
        raise CommandError(ExitCode.BAD_INPUT, str(exc)) from exc
    options.register_opts(conf)
    return conf
