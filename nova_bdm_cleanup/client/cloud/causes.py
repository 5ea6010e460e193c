# SPDX-License-Identifier: Apache-2.0
"""The likely cause of a finding, as far as the APIs tell."""

from __future__ import annotations

from collections.abc import Mapping

from nova_bdm_cleanup.client.cloud.findings import CloudFinding
from nova_bdm_cleanup.client.cloud.nova import PastAction
from nova_bdm_cleanup.rules.facts import Ending

_VOLUME = 'cinder-volume on '

#: How an operation ended, in words.
ENDINGS = {Ending.SUCCESS: 'succeeded', Ending.FAILURE: 'failed',
           Ending.NONE: 'has not ended', Ending.UNKNOWN: 'may have failed'}


def cause_of(found: CloudFinding, services: Mapping[str, bool],
             last: PastAction | None) -> str:
    """Return the likely cause in words; empty: nothing shows one.

    :param services: whether each service is down, as far as known
    :param last: the newest operation on its server that has not succeeded
    """
    volume = _VOLUME + found.label.back_end
    words = ['%s is down' % service for service in (
        volume, 'nova-compute on %s' % found.host) if services.get(service)]
    # A back end was renamed, or taken away.
    if found.label.back_end and volume not in services and any(
            name.startswith(_VOLUME) for name in services):
        words.append('there is no %s' % volume)
    if last is not None:
        words.append('the %s of %s UTC %s (%s)' % (
            last.action.name, last.action.began, ENDINGS[last.ending],
            last.action.request_id))
    return ', and '.join(words)
