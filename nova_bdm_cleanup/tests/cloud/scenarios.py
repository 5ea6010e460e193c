# SPDX-License-Identifier: Apache-2.0
"""The ways in which Nova and Cinder come to disagree, ready to be played.

A scenario is one short function that breaks a server of a cloud; its
docstring says what happens there, and the decorator what the plugin is to do
about it.  The demonstration plays them, and checks what came of it::

    @_scenario(reason='volume-available')
    def attachment_deleted(cloud, server, volume):
        \"\"\"Somebody deletes the attachment in Cinder.\"\"\"
        cloud.lose_attachment(server, volume)
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import enum
from typing import TYPE_CHECKING

from nova_bdm_cleanup.tests.cloud import recorder, snapshot
from nova_bdm_cleanup.tests.cloud.server import Disk, Server

if TYPE_CHECKING:
    # Not otherwise: the scenarios can be listed where there is no Nova.
    from nova_bdm_cleanup.tests.cloud import fixture

#: Breaks a server; returns the volume concerned if it is not the given one.
Break = Callable[['fixture.Cloud', Server, str], 'str | None']


class Outcome(enum.Enum):
    """What a hard reboot with the plugin is to make of it."""

    #: Nova's row, the attachment, the disk and the connection are gone.
    REMOVED = 'removed'
    #: Nothing is removed and the disk stays.
    KEPT = 'kept'


@dataclasses.dataclass(frozen=True)
class Scenario:
    """One way to disagree.

    :ivar name: for the command line
    :ivar title: what happens, a sentence
    :ivar break_it: makes it happen
    :ivar reason: the reason code in the plugin's audit lines; None when
        it has nothing to say
    :ivar outcome: what becomes of the volume
    :ivar is_root: it happens to the root disk instead
    """

    name: str
    title: str
    break_it: Break
    reason: str | None
    outcome: Outcome
    is_root: bool

    def make_server(self, cloud: fixture.Cloud) -> Server:
        """Make a server for this scenario alone, with a healthy disk too."""
        return cloud.server(
            Disk(name='data-1'), Disk(name='data-2'), root='volume',
            name='web', host=cloud.hosts[0])

    def play(self, cloud: fixture.Cloud, server: Server,
             volume: str | None = None) -> str:
        """Break a server.

        :param volume: the volume to break; by default the server's root or
            the first of the others
        :returns: the volume that is concerned now
        """
        if volume is None:
            volume = server.root if self.is_root else server.volumes[0]
        assert volume is not None
        return self.break_it(cloud, server, volume) or volume


SCENARIOS: dict[str, Scenario] = {}


def _scenario(reason: str | None, outcome: Outcome = Outcome.REMOVED,
              is_root: bool = False) -> Callable[[Break], Break]:
    def register(function: Break) -> Break:
        name = function.__name__.replace('_', '-')
        title = ' '.join((function.__doc__ or '').split())
        SCENARIOS[name] = Scenario(name, title, function, reason, outcome,
                                   is_root)
        return function
    return register


@_scenario(reason='volume-available')
def attachment_deleted(cloud, server, volume):
    """Somebody deletes the attachment in Cinder, behind Nova's back."""
    cloud.lose_attachment(server, volume)


@_scenario(reason='volume-missing')
def volume_deleted(cloud, server, volume):
    """The volume is detached and deleted behind Nova's back."""
    cloud.lose_volume(server, volume)


@_scenario(reason='volume-available')
def status_reset(cloud, server, volume):
    """An administrator resets the volume's status to available; its
    attachment stays.
    """
    cloud.reset_status(volume)


@_scenario(reason='attached-elsewhere')
def given_away(cloud, server, volume):
    """The volume is handed to another server, behind Nova's back."""
    cloud.give_away(server, volume, host=cloud.hosts[-1])


@_scenario(reason='stale-attachment')
def stale_attachment(cloud, server, volume):
    """Cinder keeps an attachment that Nova knows nothing about."""
    left = cloud.volume('left-over')
    cloud.leave_attachment(server, left)
    return left


@_scenario(reason='root-volume-dangling', outcome=Outcome.KEPT, is_root=True)
def root_detached(cloud, server, volume):
    """The attachment of the root disk is deleted; a root disk is never
    removed, only reported.
    """
    cloud.lose_attachment(server, volume)


@_scenario(reason='opted-out', outcome=Outcome.KEPT)
def opted_out(cloud, server, volume):
    """The attachment is deleted, but the volume is marked
    bdm_cleanup=keep.
    """
    cloud.set_metadata(volume, bdm_cleanup='keep')
    cloud.lose_attachment(server, volume)


@_scenario(reason=None, outcome=Outcome.KEPT)
def healthy(cloud, server, volume):
    """Nothing is wrong; a hard reboot is nothing but a hard reboot."""


#: The story of the demonstration, in this order.
STORY = ('attachment-deleted', 'volume-deleted', 'status-reset',
         'given-away', 'stale-attachment')


def check(scenario: Scenario, volume: str, before: snapshot.Snapshot,
          after: snapshot.Snapshot, timeline: list[recorder.Event],
          audit: list[str]) -> list[str]:
    """Compare the end of a scenario with what the plugin promises.

    :param volume: the volume concerned
    :param before: everybody's view before the hard reboot
    :param after: and after it
    :param timeline: everybody's steps in between
    :param audit: the plugin's lines in Nova's log
    :returns: a sentence for everything that is not as it should be
    """
    problems = []

    def expect(condition: object, problem: str) -> None:
        if not condition:
            problems.append(f'{scenario.name}: {problem}')

    expect(after.status == 'ACTIVE' and after.is_running,
           f'the server is {after.status} ({after.fault})')
    if scenario.reason:
        # What is withheld carries the reason for that in its words.
        said = (f'reason={scenario.reason} ', f'({scenario.reason})')
        expect([line for line in audit if f'volume={volume}' in line
                and any(words in line for words in said)],
               f'no audit line says {scenario.reason}')
    if scenario.outcome is Outcome.KEPT:
        expect(after.block_device(volume), 'Nova has lost its row')
        expect(after.has_disk(volume), 'the guest has lost its disk')
        return problems
    expect(not after.block_device(volume), 'Nova still has its row')
    expect(not after.attachments_of(volume),
           'Cinder still attaches the volume to the server')
    expect(not after.has_disk(volume), 'the guest still has the disk')
    # A connection that another guest of the host needs has to stay.
    is_shared = volume in after.used_by_others
    expect((volume in after.connected) == is_shared,
           'the host is still connected to the volume' if not is_shared else
           'the host is no longer connected for another guest')
    if before.block_device(volume):
        expect(after.removed_block_device(volume), 'the row was not kept as '
               'a deleted one')
    expect(_in_order(volume, before, timeline),
           'the order was not: guest off, host disconnected, row removed, '
           'Cinder told')
    return problems


def check_untouched(volume: str, before: snapshot.Snapshot,
                    after: snapshot.Snapshot) -> list[str]:
    """Check that a healthy volume came through a reboot unharmed."""
    problems = []
    rows = [view.block_device(volume) for view in (before, after)]
    if len({row and (row.uuid, row.attachment_id, row.device_name)
            for row in rows}) != 1:
        problems.append(f'the row of healthy volume {volume} has changed')
    if before.attachments_of(volume) != after.attachments_of(volume):
        problems.append(f'an attachment of healthy volume {volume} has '
                        'changed')
    if not after.has_disk(volume) or volume not in after.connected:
        problems.append(f'healthy volume {volume} has lost its disk')
    return problems


def _in_order(volume: str, before: snapshot.Snapshot,
              timeline: list[recorder.Event]) -> bool:
    """Whether each step came after the one that makes it safe.

    Any other order gives a guest, or this host, access to a volume that
    Cinder already gives to somebody else.
    """
    expected = [(recorder.GUEST, 'power off')]
    if volume in before.connected and volume not in before.used_by_others:
        expected.append((recorder.HOST, 'disconnect'))
    if before.block_device(volume):
        expected.append((recorder.NOVA, 'remove bdm'))
    if any(attachment.status != 'reserved'
           for attachment in before.attachments_of(volume)):
        expected.append((recorder.BACK_END, 'terminate_connection'))
    steps = iter([(event.party, event.what) for event in timeline
                  if event.subject in (volume, before.server_id)])
    return all(step in steps for step in expected)
