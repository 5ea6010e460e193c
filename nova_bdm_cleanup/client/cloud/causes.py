# SPDX-License-Identifier: Apache-2.0
"""What perhaps caused a finding, as far as the APIs tell."""

from __future__ import annotations

from collections.abc import Collection

from nova_bdm_cleanup.client.cloud.findings import CloudFinding
from nova_bdm_cleanup.client.cloud.nova import PastAction
from nova_bdm_cleanup.rules.facts import Ending

#: How an operation ended, in words.
ENDINGS = {Ending.SUCCESS: 'succeeded', Ending.FAILURE: 'failed',
           Ending.NONE: 'has not ended', Ending.UNKNOWN: 'may have failed'}


def cause_of(found: CloudFinding, down: Collection[str],
             last: PastAction | None) -> str:
    """Return the likely cause in words; empty: nothing shows one.

    :param down: the services that are down, with their hosts
    :param last: the newest operation on its server that has not succeeded
    """
    words = ['%s is down' % service for service in (
        'cinder-volume on %s' % found.label.back_end,
        'nova-compute on %s' % found.host) if service in down]
    if last is not None:
        words.append('the %s of %s UTC %s (%s)' % (
            last.action.name, last.action.began, ENDINGS[last.ending],
            last.action.request_id))
    return ', and '.join(words)
