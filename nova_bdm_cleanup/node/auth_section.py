# SPDX-License-Identifier: Apache-2.0
"""The sections of nova.conf with the credentials of Nova for other services.

``[cinder] auth_section`` may name another section, as in keystoneauth.
openstack-ansible names ``keystone_authtoken``, whose options nova-compute does
not register: without them, Nova has no credentials for Cinder.

Nothing here sends a request: a Keystone that is down when nova-compute starts
is no lack of credentials.
"""

from __future__ import annotations

from keystoneauth1 import exceptions, loading as ks_loading
from oslo_config import cfg


def auth_section(conf: cfg.ConfigOpts, group: str) -> str:
    """Return the section with the credentials of a group.

    Registers the options of that section, which ``nova-manage`` does, too:
    Nova's own client for Cinder cannot log in without them.
    """
    section: str = conf[group].auth_section or group
    ks_loading.register_auth_conf_options(conf, section)
    return section


def has_credentials(conf: cfg.ConfigOpts, group: str) -> bool:
    """Return whether there are credentials for a group."""
    return conf[auth_section(conf, group)].auth_type is not None


def missing_credentials(conf: cfg.ConfigOpts) -> list[str]:
    """Return what to set if there are no credentials for Cinder."""
    section = auth_section(conf, 'cinder')
    auth_type = conf[section].auth_type
    if auth_type is None:
        return ['[%s] auth_type is not set, and Cinder shows every project '
                'only to credentials of Nova\'s own: set auth_type and its '
                'options, for a user with the admin role' % section]
    try:
        plugin = ks_loading.get_plugin_loader(auth_type)
    except exceptions.NoMatchingPlugin as exc:
        return ['[%s] auth_type = %s: %s' % (section, auth_type, exc)]
    # As keystoneauth does when Nova logs in for the first time.
    conf.register_opts(
        ks_loading.get_auth_plugin_conf_options(plugin), group=section)
    return ['[%s] %s is not set, and auth_type = %s requires it' % (
        section, opt.dest, auth_type) for opt in plugin.get_options()
        if opt.required and not conf[section][opt.dest]]
