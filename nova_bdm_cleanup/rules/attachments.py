# SPDX-License-Identifier: Apache-2.0
"""The decision table for attachments that no mapping names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nova_bdm_cleanup.rules import facts, spelling
from nova_bdm_cleanup.rules.facts import Action
from nova_bdm_cleanup.rules.mappings import MappingFacts
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.rules.table import first, Outcome, Row, Table
from nova_bdm_cleanup.rules.world import KNOWN_STATES, World

#: An outcome without a reason makes no finding.
ATTACHMENTS: Table[Row[AttachmentFacts, Outcome]] = Table(
    ('The attachment', 'Outcome'), (

    Row('is of another server',
        lambda a: a.attachment.server_id != a.world.server.uuid,
        Outcome(Reason.CROSS_WIRED),
        'the attachment belongs to server {it.attachment.server_id}'),

    # The owner of a volume can have its attachments name any server.
    Row('is of a volume of another project than that of the server',
        lambda a: a.attachment.id in a.world.foreign,
        Outcome(None, Action.IGNORE),
        ''),

    Row('is of a volume whose mapping is not ``healthy``',
        lambda a: any(m.reason is not Reason.HEALTHY for m in a.mappings),
        Outcome(None, Action.LEAVE_TO_MAPPING),
        ''),

    Row('was left by a swap that is ended with its mapping',
        lambda a: a.is_of_swap,
        Outcome(None, Action.LEAVE_TO_MAPPING),
        ''),

    Row('is of a volume whose mapping names no attachment (before Queens)',
        lambda a: any(not m.bdm.attachment_id for m in a.mappings),
        Outcome(None, Action.LEAVE_TO_MAPPING),
        ''),

    Row('was read with credentials that see only one project, and no '
        'migrations',
        lambda a: not a.world.snapshot.sees_all,
        Outcome(Reason.CANNOT_SEE_PROJECT),
        'the server has no mapping for the attachment, and your credentials '
        'do not show whether the volume is being migrated'),

    Row('is of a volume, or a server, whose project is not known',
        lambda a: a.volume is not facts.ABSENT and None in (
            a.volume.project, a.world.server.project),
        Outcome(Reason.CANNOT_SEE_PROJECT),
        'the server has no mapping for the attachment, and it is not known '
        'whether the volume belongs to the project of the server'),

    Row('is of a server without a root disk: Nova\'s list of its mappings '
        'must be incomplete',
        lambda a: not a.world.has_root,
        Outcome(Reason.STATUS_CONTRADICTION),
        'Nova lists no root disk of the server, so its list of mappings must '
        'be incomplete'),

    Row('is of a server with a volume that is being detached, migrated or '
        'swapped',
        lambda a: a.is_during_move,
        Outcome(Reason.OPERATION_IN_FLIGHT),
        'a volume of the server is being detached, migrated or swapped'),

    Row('is of a volume that does not exist',
        lambda a: a.volume is facts.ABSENT,
        Outcome(Reason.STATUS_CONTRADICTION),
        'Cinder does not know the volume of the attachment'),

    Row('is of a volume in another state than ``available``, ``in-use``, '
         '``reserved``, ``attaching``',
        lambda a: a.volume.status not in KNOWN_STATES,
        Outcome(Reason.VOLUME_BUSY),
        'no mapping accounts for it, and its volume is {it.volume.state}'),

    Row('only reserves the volume',
        lambda a: a.attachment.only_reserves,
        Outcome(Reason.STALE_ATTACHMENT, Action.DELETE),
        'the attachment only reserves the volume, and the server has no '
        'mapping for it'),

    Row('is ``attached``, and Cinder has no connection information of it '
        '(before Queens)',
        lambda a: a.attachment.is_legacy,
        Outcome(Reason.LEGACY_ATTACHMENT),
        'the attachment is from before Queens: deleting it would not tell '
        'the back end'),

    # An attach or a move is half done.
    Row('is neither connected nor ``attached``',
        lambda a: not a.attachment.connected,
        Outcome(Reason.OPERATION_IN_FLIGHT),
        'the attachment is not complete: it is {it.attachment.status}'),

    Row('connects a volume that no mapping of the server names',
        lambda a: not a.mappings,
        Outcome(Reason.STALE_ATTACHMENT, Action.DELETE),
        'no block device mapping of the server refers to the volume'),

    Row('connects a host with another name (without its domain) and, if the '
        'back end names them, other initiators, while the attachment of the '
        'mapping connects this host',
        lambda a: all(a.is_of_another_host_than(m) for m in a.mappings),
        Outcome(Reason.STALE_ATTACHMENT, Action.DELETE),
        'the attachment connects another host, and the mapping on this host '
        'is healthy'),

    # Nova gives the disk another attachment, and deletes only that of the
    # mapping.
    Row('connects the former host, in an evacuation',
        lambda a: a.host and spelling.host(a.host) == spelling.host(
            a.world.server.former_host),
        Outcome(Reason.STALE_ATTACHMENT, Action.DELETE),
        'the attachment connects host {it.host}, which is down, and from '
        'which the server is evacuated'),

    # Deleting it could remove the device of the healthy attachment.
    Row('is a second one beside a healthy one',
        lambda a: True,
        Outcome(Reason.DUPLICATE_ATTACHMENT),
        'it is a second attachment of a healthy disk; deleting it could '
        'disconnect the disk'),
))


class AttachmentFacts:
    """The facts about one attachment that the table asks for."""

    def __init__(self, attachment: facts.Attachment,
                 mappings: Mapping[str, MappingFacts], world: World) -> None:
        self.attachment: facts.Attachment = attachment
        self.world: World = world
        #: The mappings of its volume.
        self.mappings: Sequence[MappingFacts] = [
            mappings[b.uuid]
            for b in world.bdms_of.get(attachment.volume_id, ())]
        self.volume: facts.Volume = world.volume(attachment.volume_id)
        #: All mappings of the server.
        self.all_mappings: Sequence[MappingFacts] = tuple(mappings.values())
        #: The host that it connects, if Cinder tells it.
        self.host: str | None = self.volume.host_of(attachment.id)

    @property
    def is_of_swap(self) -> bool:
        """Tell whether it is taken or deleted at the end of a swap."""
        return any(m.ends_swap and (
            self.attachment in (m.new_disk, *m.left_by_swap))
            for m in self.all_mappings)

    @property
    def is_during_move(self) -> bool:
        """Tell whether an operation may need it, which is not ended here."""
        return bool(self.world.moving - {
            m.bdm.volume_id for m in self.all_mappings if m.ends_swap})

    @property
    def may_be_connected_here(self) -> bool:
        """Tell whether it may have left a device of its own on this host."""
        return (self.attachment.connected and not self.mappings
                and spelling.host(self.host)
                == spelling.host(self.world.server.host))

    @property
    def parties(self) -> tuple[facts.PartyAnswer, ...]:
        """Return who agrees that the mapping's own attachment serves the
        guest.
        """
        own = [m for m in self.mappings if m.is_healthy]
        return own[0].parties if len(own) == 1 == len(self.mappings) else ()

    def is_of_another_host_than(self, mapping: MappingFacts) -> bool:
        """Tell whether it certainly connects another host than a mapping's.

        Cinder must name both hosts, and the mapping's must be this one.  This
        host may have had another name; the back end identifies it by its
        initiators.
        """
        here, own = self.world.server.host, mapping.own
        return (own is not None
                and spelling.host(self.volume.host_of(own.id))
                == spelling.host(here)
                and self.host is not None
                and not spelling.is_same_host(self.host, here)
                and not self.attachment.initiators & own.initiators)


def finding_of(attachment: facts.Attachment,
               mappings: Mapping[str, MappingFacts],
               world: World) -> facts.Finding | None:
    """Return the finding about one attachment, with its decision.

    :param mappings: the mappings of the server, by uuid
    :returns: the finding; None: it belongs to a mapping or another project
    """
    asked = AttachmentFacts(attachment, mappings, world)
    row = first(ATTACHMENTS.rows, asked)
    action = row.outcome.action
    if row.outcome.reason is None:
        return None
    if action is Action.DELETE and asked.may_be_connected_here:
        action = Action.DISCONNECT_AND_DELETE
    return facts.Finding(
        row.outcome.reason_for(asked), row.explain(asked),
        attachment=attachment, action=action, parties=asked.parties)
