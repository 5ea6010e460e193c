# SPDX-License-Identifier: Apache-2.0
"""nova.conf as nova-compute reads it, with or without Nova at hand."""

from __future__ import annotations

import argparse
import importlib.util
import os
import socket

from oslo_config import cfg

from nova_bdm_cleanup.plugin import options
from nova_bdm_cleanup.plugin.switch import GROUP
from nova_bdm_cleanup.terminal import CommandError, ExitCode

#: Where packages of Nova keep its state.
_STATE_PATH = '/var/lib/nova'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The two options of every Nova service.

    They may stand before the subcommand or after it.
    """
    group = parser.add_argument_group('configuration')
    group.add_argument(
        '--config-file', metavar='PATH', action='append',
        default=argparse.SUPPRESS,
        help='configuration file of nova-compute; may be given several times. '
             'Default: where nova-compute itself looks')
    group.add_argument(
        '--config-dir', metavar='DIR', action='append',
        default=argparse.SUPPRESS,
        help='directory of configuration files; may be given several times')


def words(args: argparse.Namespace) -> list[str]:
    """What was given of these options, as Nova takes it."""
    return [word for name in ('config_file', 'config_dir')
            for value in getattr(args, name, ())
            for word in ('--' + name.replace('_', '-'), value)]


def load(args: argparse.Namespace) -> cfg.ConfigOpts:
    """Read the configuration.

    :raises CommandError: when it is missing, unreadable or wrong
    """
    conf = cfg.ConfigOpts()
    _register_state_path(conf)
    conf.register_opt(cfg.StrOpt('host', default=socket.gethostname()))
    options.register_opts(conf)
    try:
        # The name of the service decides which files are looked for.
        conf(words(args), project='nova', prog='nova-compute')
    except cfg.Error as exc:
        raise CommandError(ExitCode.BAD_INPUT, str(exc)) from exc
    return conf


def store_path(conf: cfg.ConfigOpts) -> str:
    """Where nova-compute keeps its store.

    :raises CommandError: when the option cannot be read
    """
    try:
        path: str = conf[GROUP].store
    except cfg.Error as exc:
        raise CommandError(ExitCode.BAD_INPUT, str(exc)) from exc
    return path


def _register_state_path(conf: cfg.ConfigOpts) -> None:
    """The options of Nova that the path of the store refers to.

    Importing Nova takes seconds and is not needed to know where it is.
    """
    nova = importlib.util.find_spec('nova')
    if nova is None or not nova.origin:
        conf.register_opt(cfg.StrOpt('pybasedir'))
        conf.register_opt(cfg.StrOpt('state_path', default=_STATE_PATH))
        return
    conf.register_opt(cfg.StrOpt(
        'pybasedir', default=os.path.dirname(os.path.dirname(nova.origin))))
    conf.register_opt(cfg.StrOpt('state_path', default='$pybasedir'))
