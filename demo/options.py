# SPDX-License-Identifier: Apache-2.0
"""The command line, which both processes of the demonstration read."""

from __future__ import annotations

import argparse

from nova_bdm_cleanup.tests.cloud import damage

#: The scenarios of the story, in this order.
STORY = ('attachment-deleted', 'volume-deleted', 'status-reset',
         'attached-elsewhere', 'stale-attachment')
#: When the cloud is kept: after the hard reboot, or before it.
HEALED, BROKEN = 'healed', 'broken'


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog='python3 demo', allow_abbrev=False,
        description='Make a real Nova and a real Cinder disagree about the '
                    'volumes of a server, and let a hard reboot of the server '
                    'clean up.')
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument(
        '--stock', action='store_true',
        help='without the plugin: show the damage')
    mode.add_argument(
        '--both', action='store_true',
        help='without and with the plugin, side by side')
    parser.add_argument(
        '--scenario', metavar='NAME', choices=list(damage.DAMAGE),
        help='play one scenario instead of the whole story; --list shows '
             'the scenarios')
    parser.add_argument(
        '--list', action='store_true', help='list the scenarios and exit')
    parser.add_argument(
        '--keep', nargs='?', const=HEALED, choices=(HEALED, BROKEN),
        help='keep the cloud running at the end, for the openstack command; '
             '--keep=broken stops before the hard reboot and prints commands '
             'to practise with')
    parser.add_argument(
        '--nova', metavar='RELEASE', type=int, default=34,
        choices=range(25, 35),
        help='the release of Nova, from 25 to 34 (default: %(default)s)')
    arguments = parser.parse_args()
    if arguments.both and arguments.keep:
        parser.error('--both makes two clouds one after the other; use --keep '
                     'without --both')
    if arguments.keep == BROKEN and arguments.stock:
        parser.error('--keep=broken is practice with the plugin; use it '
                     'without --stock')
    if (arguments.keep == BROKEN and arguments.scenario
            and damage.DAMAGE[arguments.scenario].status is None):
        parser.error(f'the plugin removes nothing in {arguments.scenario}; '
                     'use another scenario with --keep=broken')
    return arguments
