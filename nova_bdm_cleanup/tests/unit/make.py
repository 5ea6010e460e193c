# SPDX-License-Identifier: Apache-2.0
"""Shorthand for the facts that tests use.

Every value defaults to that of a healthy disk, so a test names only the values
that matter to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import datetime
from typing import Any

from nova_bdm_cleanup import rules
from nova_bdm_cleanup.rules import decision, facts

NOW = datetime.datetime(2026, 3, 14, 3, 0, tzinfo=datetime.timezone.utc)

SERVER = 'server-1'
OTHER_SERVER = 'server-2'
HOST = 'compute-1'
OTHER_HOST = 'compute-2'
PROJECT = 'project-1'
OTHER_PROJECT = 'project-2'


def ago(seconds: float) -> datetime.datetime:
    """Return the time this many seconds before :data:`NOW`."""
    return NOW - datetime.timedelta(seconds=seconds)


def server(**values: Any) -> facts.Server:
    return facts.Server(**{
        'uuid': SERVER, 'host': HOST, 'project': PROJECT, **values})


def addresses(volume_id: str | None) -> frozenset[facts.Address]:
    """Return the addresses of a volume, which no other volume has."""
    return frozenset([('target', volume_id)] if volume_id else [])


def bdm(**values: Any) -> facts.Bdm:
    """Return a BDM of a data volume that has been connected for a day.

    Its addresses are those of its volume.
    """
    values = {
        'uuid': 'bdm-1', 'source_type': 'volume',
        'destination_type': 'volume', 'volume_id': 'volume-1',
        'attachment_id': 'attachment-1', 'device_name': '/dev/vdb',
        'has_connection_info': True, 'created_at': ago(86400), **values}
    return facts.Bdm(**{
        'addresses': addresses(
            values['volume_id'] if values['has_connection_info'] else None),
        **values})


def root(**values: Any) -> facts.Bdm:
    """Return the root BDM of a server that was booted from an image."""
    return bdm(**{
        'uuid': 'bdm-root', 'source_type': 'image',
        'destination_type': 'local', 'volume_id': None,
        'attachment_id': None, 'boot_index': 0, 'device_name': '/dev/vda',
        'has_connection_info': False, **values})


def attachment(**values: Any) -> facts.Attachment:
    """Return the attachment that :func:`bdm` carries."""
    values = {
        'id': 'attachment-1', 'volume_id': 'volume-1', 'server_id': SERVER,
        'status': 'attached', 'connected': True, **values}
    return facts.Attachment(**{
        'addresses': addresses(
            values['volume_id'] if values['connected'] else None), **values})


def volume(**values: Any) -> facts.Volume:
    """Return an in-use volume whose own attachment list is empty."""
    return facts.Volume(**{
        'id': 'volume-1', 'status': 'in-use', 'project': PROJECT,
        'updated_at': ago(60), **values})


def attached_to(server_id: str | None = SERVER,
                attachment_id: str | None = 'attachment-1',
                host: str | None = HOST) -> facts.AttachedServer:
    """Return one entry of a volume's own attachment list."""
    return facts.AttachedServer(server_id, attachment_id, host)


def snapshot(bdms: Iterable[facts.Bdm] = (),
             volumes: Iterable[facts.Volume] = (),
             attachments: Iterable[facts.Attachment] = (),
             missing: Iterable[str] = (),
             witness: facts.WitnessAnswer = facts.WitnessAnswer.KNOWN,
             sees_all: bool = True,
             swaps: facts.Ending = facts.Ending.SUCCESS,
             roots: Iterable[facts.Bdm] = (root(),),
             **about_server: Any) -> facts.Snapshot:
    """Return one look at a server.

    :param bdms: the mappings besides the root's
    :param missing: the ids of volumes that Cinder was proved not to have
    """
    known: Mapping[str, facts.Volume | None] = {
        **{v.id: v for v in volumes}, **dict.fromkeys(missing)}
    return facts.Snapshot(server(**about_server), (*roots, *bdms), known,
                          tuple(attachments), witness, sees_all, swaps)


def claim(claimant: facts.Claimant = facts.Claimant.GUEST,
          **values: Any) -> facts.Claim:
    """Return a claim of another server's disk."""
    return facts.Claim(claimant, **{
        'server': OTHER_SERVER, 'volume_id': 'volume-2',
        'attachment_id': 'attachment-2', **values})


@dataclasses.dataclass
class Sources:
    """Sources of the rules that answer from a snapshot."""

    seen: facts.Snapshot
    found: facts.Claims = facts.Claims()

    def __post_init__(self) -> None:
        #: The questions, in their order.
        self.asked: list[str] = []

    def current(self) -> facts.Server:
        self.asked.append('current')
        return self.seen.server

    def attaches(self, bdms: Sequence[facts.Bdm]
                 ) -> Mapping[str, facts.Attach]:
        self.asked.append('attaches')
        return {bdm.uuid: self.seen.attaches.get(
            bdm.uuid, facts.Attach.UNKNOWN) for bdm in bdms}

    def absent(self, attachments: Sequence[facts.Attachment]
               ) -> frozenset[str]:
        self.asked.append('absent')
        return self.seen.absent

    def guest_is_here(self) -> bool:
        self.asked.append('guest_is_here')
        return self.seen.guest_is_here

    def sources(self, bdms: Sequence[facts.Bdm]
                ) -> Mapping[str, facts.Source] | None:
        self.asked.append('sources')
        return self.seen.sources

    def left_out(self) -> frozenset[str]:
        self.asked.append('left_out')
        return self.seen.left_out

    def on_host(self, disks: Sequence[tuple[facts.Bdm,
                                            facts.Attachment | None]]
                ) -> Mapping[str, facts.OnHost]:
        self.asked.append('on_host')
        return {bdm.uuid: self.seen.on_host.get(bdm.uuid, facts.OnHost())
                for bdm, _ in disks}

    def swaps(self) -> facts.Ending:
        self.asked.append('swaps')
        return self.seen.swaps

    def last_swap(self) -> float:
        return self.seen.last_swap

    def witness(self) -> facts.WitnessAnswer:
        self.asked.append('witness')
        return self.seen.witness

    def claims(self, disks: Sequence[facts.Bdm]) -> facts.Claims:
        self.asked.append('claims')
        return self.found


#: No other server claims an address, and nothing is set.
_NO_CLAIMS, _DEFAULTS = facts.Claims(), facts.Policy()


def judge(seen: facts.Snapshot, claims: facts.Claims = _NO_CLAIMS,
          policy: facts.Policy = _DEFAULTS,
          now: datetime.datetime = NOW) -> facts.Plan:
    """Return the verdict of all rules."""
    return rules.judge(seen, Sources(seen, claims), policy, now)


def decide(seen: facts.Snapshot, **policy: Any) -> Any:
    """Return what the rules decide at :data:`NOW`."""
    return decision.decide(seen, facts.Policy(**policy), NOW)


def reasons_in(plan: facts.Plan) -> str:
    """Return the reasons of all findings, with "!" after each due removal, and
    "+" after each due reconnect.
    """
    return ' '.join('%s%s' % (f.reason, '' if not f.is_due else '+'
                              if f.is_reconnect else '!')
                    for f in plan.findings)
