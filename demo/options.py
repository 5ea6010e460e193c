# SPDX-License-Identifier: Apache-2.0
"""The command line, read by both parts of the demonstration."""

from __future__ import annotations

import argparse

from nova_bdm_cleanup.tests.cloud import damage

#: What goes wrong in the story, in this order.
STORY = ('attachment-deleted', 'volume-deleted', 'status-reset',
         'given-away', 'stale-attachment')


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog='python3 demo', allow_abbrev=False,
        description='A real Nova and a real Cinder come to disagree about a '
                    "server's disks, and a hard reboot heals the server.")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument(
        '--stock', action='store_true',
        help='without the plugin: see the damage')
    mode.add_argument(
        '--both', action='store_true',
        help='without and with the plugin, side by side')
    parser.add_argument(
        '--scenario', metavar='NAME', choices=list(damage.DAMAGE),
        help='one thing that goes wrong instead of the whole story; '
             '--list shows them')
    parser.add_argument(
        '--list', action='store_true', help='list the scenarios and exit')
    parser.add_argument(
        '--keep', action='store_true',
        help='leave the cloud up at the end, for the openstack command')
    parser.add_argument(
        '--nova', metavar='RELEASE', type=int, default=34,
        choices=range(25, 35),
        help='the release of Nova, from 25 to 34 (default: %(default)s)')
    arguments = parser.parse_args()
    if arguments.both and arguments.keep:
        parser.error('--both makes two clouds one after the other; choose '
                     'one of them to --keep')
    return arguments
