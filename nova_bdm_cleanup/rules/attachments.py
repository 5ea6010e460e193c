# SPDX-License-Identifier: Apache-2.0
"""What becomes of an attachment of this server that no mapping names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nova_bdm_cleanup.rules import facts, spelling
from nova_bdm_cleanup.rules.facts import Reason
from nova_bdm_cleanup.rules.mappings import MappingFacts
from nova_bdm_cleanup.rules.table import first, Keep, Outcome, Row, Table
from nova_bdm_cleanup.rules.world import KNOWN, World


class Delete(Outcome):
    """Nothing in Nova accounts for it."""

    words = '**deleted**: ``%s``'


#: What is only told in words is no finding of its own.
ATTACHMENTS: Table[Row[AttachmentFacts, Keep | Delete | str]] = Table(
    ('The attachment', 'what follows'), (

    Row('is of another server',
        lambda a: a.attachment.server_id != a.world.server.uuid,
        Keep(Reason.CROSS_WIRED),
        'the attachment belongs to server {it.attachment.server_id}'),

    # Whoever owns a volume can have its attachments name any server.
    Row('is of a volume of another project than the server',
        lambda a: a.attachment.id in a.world.foreign,
        'left alone, and counts for nothing',
        ''),

    Row('is of a volume whose mapping is not ``healthy``',
        lambda a: any(m.reason is not Reason.HEALTHY for m in a.mappings),
        'goes or stays with that mapping',
        ''),

    Row('is of a volume whose mapping names no attachment (before Queens)',
        lambda a: any(not m.bdm.attachment_id for m in a.mappings),
        'goes or stays with that mapping',
        ''),

    Row('was seen with credentials that see one project only, and are not '
         'shown migrations',
        lambda a: not a.world.snapshot.sees_all,
        Keep(Reason.CANNOT_SEE_PROJECT),
        'no mapping accounts for it, but only the credentials in [cinder] '
        'can tell whether a volume is migrating'),

    Row('is of a volume, or a server, whose project is not known',
        lambda a: a.volume is not facts.ABSENT and None in (
            a.volume.project, a.world.server.project),
        Keep(Reason.CANNOT_SEE_PROJECT),
        'no mapping accounts for it, and whether its volume is of the '
        'server\'s project is not known'),

    Row('is of a server without a root disk: Nova\'s list of its mappings '
         'cannot be whole',
        lambda a: not a.world.has_root,
        Keep(Reason.STATUS_CONTRADICTION),
        'Nova lists no root disk of the server: its list of mappings cannot '
        'be whole'),

    Row('is of a server of which any volume is being detached, migrated or '
         'swapped',
        lambda a: a.world.is_moving,
        Keep(Reason.OPERATION_IN_FLIGHT),
        'a volume of the server is being moved'),

    Row('is of a volume that does not exist',
        lambda a: a.volume is facts.ABSENT,
        Keep(Reason.STATUS_CONTRADICTION),
        'Cinder does not know the volume of the attachment'),

    Row('is of a volume in another state than ``available``, ``in-use``, '
         '``reserved``, ``attaching``',
        lambda a: a.volume.status not in KNOWN,
        Keep(Reason.VOLUME_BUSY),
        'the volume is {it.volume.state}'),

    Row('only reserves the volume',
        lambda a: a.attachment.only_reserves,
        Delete(Reason.STALE_ATTACHMENT),
        'it only reserves the volume, and no mapping of the server accounts '
        'for it'),

    Row('is ``attached``, and Cinder has no connection of it (before Queens)',
        lambda a: a.attachment.is_legacy,
        Keep(Reason.LEGACY_ATTACHMENT),
        'the attachment is from before Queens: deleting it would not tell '
        'the back end'),

    # An attach or a move that has got that far.
    Row('is neither connected nor ``attached``',
        lambda a: not a.attachment.connected,
        Keep(Reason.OPERATION_IN_FLIGHT),
        'the attachment is {it.attachment.status}'),

    Row('connects a volume of which the server has no mapping',
        lambda a: not a.mappings,
        Delete(Reason.STALE_ATTACHMENT),
        'no mapping of the server has its volume'),

    Row('connects a host with another name (whatever the domain) and, where '
         'the back end tells them, other initiators, while that of the '
         'mapping connects this host',
        lambda a: all(a.is_of_another_host_than(m) for m in a.mappings),
        Delete(Reason.STALE_ATTACHMENT),
        'it connects another host, while the mapping on this host is in '
        'order'),

    # To delete it could take the device from the one in order.
    Row('is a second one beside one that is in order',
        lambda a: True,
        Keep(Reason.DUPLICATE_ATTACHMENT),
        'a second attachment of a volume that is in order; deleting it could '
        'disconnect the first'),
))


class AttachmentFacts:
    """What the table may ask about one attachment."""

    def __init__(self, attachment: facts.Attachment,
                 found: Mapping[str, MappingFacts], world: World) -> None:
        self.attachment: facts.Attachment = attachment
        self.world: World = world
        #: The mappings of its volume.
        self.mappings: Sequence[MappingFacts] = [
            found[b.uuid]
            for b in world.bdms_of.get(attachment.volume_id, ())]
        self.volume: facts.Volume = world.volume(attachment.volume_id)
        #: The host that it connects, where Cinder tells it.
        self.host: str | None = self.volume.host_of(attachment.id)

    @property
    def may_be_connected_here(self) -> bool:
        """It may have left something on this host that is its own."""
        return (self.attachment.connected and not self.mappings
                and spelling.host(self.host)
                == spelling.host(self.world.server.host))

    def is_of_another_host_than(self, mapping: MappingFacts) -> bool:
        """Certain only when Cinder names both hosts and ours is the good.

        A host may have got another name since; the back end knows it by its
        initiators.
        """
        here, own = self.world.server.host, mapping.own
        return (own is not None
                and spelling.host(self.volume.host_of(own.id))
                == spelling.host(here)
                and self.host is not None
                and _short(self.host) != _short(here)
                and not self.attachment.initiators & own.initiators)


def _short(host: str) -> str:
    """A host's name without its domain."""
    return host.partition('.')[0].lower()


def judge(attachment: facts.Attachment, found: Mapping[str, MappingFacts],
          world: World) -> facts.Finding | None:
    """Put the table to one attachment; None: it belongs to a mapping."""
    judged = AttachmentFacts(attachment, found, world)
    row = first(ATTACHMENTS.rows, judged)
    if isinstance(row.outcome, str):
        return None
    goes = isinstance(row.outcome, Delete)
    return facts.Finding(
        row.outcome.reason, row.explain(judged), attachment=attachment,
        goes=goes, disconnect=goes and judged.may_be_connected_here)
