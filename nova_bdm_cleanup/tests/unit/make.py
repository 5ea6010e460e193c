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
"""Shorthand for the facts that tests are about.

Every value has a default that belongs to a healthy disk, so a test names only
what matters to it.
"""

from __future__ import annotations

import datetime
from typing import Any, Iterable, Mapping, Optional

from nova_bdm_cleanup import model

NOW = datetime.datetime(2026, 3, 14, 3, 0, tzinfo=datetime.timezone.utc)

SERVER = 'server-1'
OTHER_SERVER = 'server-2'
HOST = 'compute-1'
OTHER_HOST = 'compute-2'
PROJECT = 'project-1'
OTHER_PROJECT = 'project-2'


def ago(seconds: float) -> datetime.datetime:
    """A moment before :data:`NOW`."""
    return NOW - datetime.timedelta(seconds=seconds)


def server(**values: Any) -> model.Server:
    return model.Server(**{
        'uuid': SERVER, 'host': HOST, 'project': PROJECT, **values})


def bdm(**values: Any) -> model.Bdm:
    """A data volume that has been connected for a day."""
    return model.Bdm(**{
        'uuid': 'bdm-1', 'source_type': 'volume',
        'destination_type': 'volume', 'volume_id': 'volume-1',
        'attachment_id': 'attachment-1', 'device_name': '/dev/vdb',
        'has_connection_info': True, 'created_at': ago(86400), **values})


def root(**values: Any) -> model.Bdm:
    """The root disk of a server that was booted from an image."""
    return bdm(**{
        'uuid': 'bdm-root', 'source_type': 'image',
        'destination_type': 'local', 'volume_id': None,
        'attachment_id': None, 'boot_index': 0, 'device_name': '/dev/vda',
        'has_connection_info': False, **values})


def attachment(**values: Any) -> model.Attachment:
    """The attachment that :func:`bdm` carries."""
    return model.Attachment(**{
        'id': 'attachment-1', 'volume_id': 'volume-1', 'server_id': SERVER,
        'status': 'attached', 'connected': True, **values})


def volume(**values: Any) -> model.Volume:
    """A volume that Cinder attaches to nobody whom its own list names."""
    return model.Volume(**{
        'id': 'volume-1', 'status': 'in-use', 'project': PROJECT,
        'updated_at': ago(60), **values})


def attached_to(server_id: Optional[str] = SERVER,
                attachment_id: Optional[str] = 'attachment-1',
                host: Optional[str] = HOST) -> model.AttachedServer:
    """One entry of a volume's own list."""
    return model.AttachedServer(server_id, attachment_id, host)


def snapshot(bdms: Iterable[model.Bdm] = (),
             volumes: Iterable[model.Volume] = (),
             attachments: Iterable[model.Attachment] = (),
             missing: Iterable[str] = (),
             witness: model.WitnessAnswer = model.WitnessAnswer.KNOWN,
             sees_all: bool = True,
             swaps: Iterable[model.Swap] = (),
             roots: Iterable[model.Bdm] = (root(),),
             **about_server: Any) -> model.Snapshot:
    """One look.

    :param bdms: the mappings besides the root's
    :param missing: the ids of volumes that Cinder proved not to have
    """
    known: Mapping[str, Optional[model.Volume]] = {
        **{v.id: v for v in volumes}, **dict.fromkeys(missing)}
    return model.Snapshot(server(**about_server), (*roots, *bdms), known,
                          tuple(attachments), witness, sees_all,
                          tuple(swaps))


def deletions(plan: model.Plan) -> int:
    """How many attachments go, besides those that the mappings name."""
    own = {f.bdm.attachment_id for f in plan.due if f.bdm}
    return sum(
        sum(a.id not in own for a in f.action.attachments)
        if isinstance(f.action, model.RemoveBdm) else 1
        for f in plan.due)
