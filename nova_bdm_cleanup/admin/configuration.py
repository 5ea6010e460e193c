# SPDX-License-Identifier: Apache-2.0
"""nova.conf as nova-compute reads it, with or without Nova at hand."""

from __future__ import annotations

import argparse
import importlib.util
import os
import socket

from oslo_config import cfg

from nova_bdm_cleanup.node import options
from nova_bdm_cleanup.terminal import CommandError, ExitCode

#: Where packages of Nova keep its state.
_STATE_PATH = '/var/lib/nova'


def load(args: argparse.Namespace) -> cfg.ConfigOpts:
    """Read the configuration.

    Importing Nova takes seconds and is not needed to locate the store.

    :raises cfg.Error: when it is missing, unreadable or wrong
    """
    nova = importlib.util.find_spec('nova')
    base = (os.path.dirname(os.path.dirname(nova.origin))
            if nova and nova.origin else None)
    conf = cfg.ConfigOpts()
    conf.register_opts([
        cfg.StrOpt('pybasedir', default=base),
        cfg.StrOpt('state_path', default='$pybasedir' if base
                   else _STATE_PATH),
        cfg.StrOpt('host', default=socket.gethostname())])
    options.register_opts(conf)
    # The name of the service selects the configuration files.
    conf(_words(args), project='nova', prog='nova-compute')
    return conf


def load_nova(args: argparse.Namespace) -> cfg.ConfigOpts:
    """Return Nova's own configuration object, parsed as in nova-compute.

    :raises cfg.Error: when it is missing, unreadable or wrong
    :raises CommandError: when there is no Nova
    """
    try:
        from nova import config as nova_config
    except ImportError as exc:
        raise CommandError(
            ExitCode.BAD_INPUT, 'Nova cannot be imported (%s): run this with '
            'the Python of nova-compute' % exc) from exc
    conf: cfg.ConfigOpts = nova_config.CONF
    nova_config.parse_args(
        ['nova-compute', *_words(args)],
        default_config_files=cfg.find_config_files('nova', 'nova-compute'),
        configure_db=False, init_rpc=False)
    options.register_opts(conf)
    return conf


def _words(args: argparse.Namespace) -> list[str]:
    """Return the options that were given, as Nova takes them."""
    return [word for name in ('config_file', 'config_dir')
            for value in getattr(args, name, ())
            for word in ('--' + name.replace('_', '-'), value)]
