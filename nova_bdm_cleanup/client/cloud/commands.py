# SPDX-License-Identifier: Apache-2.0
"""The command lines that are shown to an operator.

A command for another machine begins with the name of that machine.
"""

from __future__ import annotations

import shlex

from nova_bdm_cleanup.client.cloud.nova import ComputeServer
from nova_bdm_cleanup.rules.facts import Policy

_GET_CONNECTOR = 'nova-manage volume_attachment get_connector --json > %s'


def clean(server: str | None, resets_state: bool = False) -> str:
    return 'openstack bdm clean %s%s' % (
        '--reset-state ' if resets_state else '', server)


def delete(server: str) -> str:
    return 'openstack server delete %s' % server


def list_events(server: str) -> str:
    return 'openstack server event list %s' % server


def set_error(server: str) -> str:
    return 'openstack server set --state error %s' % server


def set_in_use(volume: str) -> str:
    return 'openstack volume set --state in-use %s' % volume


def explain(reason: str) -> str:
    return 'openstack bdm explain %s' % reason


def show(server: str | None) -> str:
    return 'openstack bdm show %s' % server


def stop(server: str) -> str:
    return 'openstack server stop %s' % server


def start(server: str) -> str:
    return 'openstack server start %s' % server


def unshelve(server: str) -> str:
    return 'openstack server unshelve %s' % server


def evacuate(server: str) -> str:
    return 'openstack server evacuate %s' % server


def unlock(server: str) -> str:
    return 'openstack server unlock %s' % server


def rebuild_from_shelved(server: ComputeServer) -> str:
    """Return the command that takes the image of a shelve as root disk."""
    return 'openstack server rebuild --image %s %s' % (
        shlex.quote(server.name + '-shelved'), server.id)


def rebuild(server: str) -> str:
    return 'openstack server rebuild %s' % server


def reboot(server: str) -> str:
    return 'openstack server reboot --hard %s' % server


def repair(server: str, host: str | None) -> str:
    return 'on %s: nova-bdm-cleanup repair %s' % (
        'host ' + host if host else 'its host', server)


def undo(host: str) -> str:
    return 'on host %s: nova-bdm-cleanup journal list' % host


def check_plugin(host: str | None) -> str:
    return 'on host %s: nova-bdm-cleanup check' % host


def new_attachment(server: ComputeServer, volume: str) -> tuple[str, ...]:
    """Return the commands that give a mapping a new attachment.

    The server is off after them.
    """
    return (
        stop(server.id),
        'on %s: %s' % ('host ' + server.host if server.host else 'its host',
                       _GET_CONNECTOR % 'connector.json'),
        'on a controller: nova-manage volume_attachment refresh %s %s '
        'connector.json' % (server.id, volume))


def bounds(policy: Policy) -> str:
    """Return the options for the ages of young and stuck, where not usual."""
    usual = Policy()
    return ''.join(
        ' %s %d' % (name, period.total_seconds())
        for name, period, default in (
            ('--grace-period', policy.grace_period, usual.grace_period),
            ('--stuck-after', policy.stuck_after, usual.stuck_after))
        if period != default)


def release_with_connector(target: str, host: str | None,
                           policy: Policy) -> tuple[str, ...]:
    """Return the commands that release a volume or an attachment of a host.

    :param host: the host that had it, if known
    """
    return (
        'on %s: %s' % ('host ' + host if host else 'the host that had it',
                       _GET_CONNECTOR % 'FILE'),
        'openstack bdm release --connector FILE %s%s' % (
            target, bounds(policy)))


def release_of_gone_host(target: str, host: str, policy: Policy) -> str:
    return ('if the host is gone for good, and no other Nova has the server: '
            'openstack bdm release --gone-host %s %s%s' % (
                shlex.quote(host), target, bounds(policy)))


def release_without_host(target: str, policy: Policy) -> str:
    return ('if no host ever had it: openstack bdm release --connector none '
            '%s%s' % (target, bounds(policy)))
