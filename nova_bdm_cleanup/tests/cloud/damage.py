# SPDX-License-Identifier: Apache-2.0
"""The ways in which Nova and Cinder come to disagree: one list for all.

Each is a short function over the operations below; its docstring is its title,
and the decorator names the expected result of a hard reboot with the plugin.
The demonstration runs them on the small cloud of the tests, and the end-to-end
tests on a real one, where volumes have short names::

    @_damage(reason='volume-available', status='available')
    def attachment_deleted(cloud, server, volume):
        \"\"\"The attachment is deleted in Cinder.\"\"\"
        cloud.lose_attachment(server, volume)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import dataclasses
from typing import Any, Protocol


class Operations(Protocol):
    """Actions of users and programs on a cloud, behind Nova's back.

    :class:`nova_bdm_cleanup.tests.cloud.fixture.Cloud` documents each.
    """

    @property
    def hosts(self) -> Sequence[str]: ...
    @property
    def other_user(self) -> Any: ...
    def volume(self, name: str) -> str: ...
    def lose_attachment(self, server: Any, volume: str) -> None: ...
    def lose_volume(self, server: Any, volume: str) -> None: ...
    def reset_status(self, volume: str) -> None: ...
    def attach_elsewhere(self, server: Any, volume: str, host: str) -> Any: ...
    def transfer_volume(self, volume: str, to: Any) -> None: ...
    def create_attachment(self, server: Any, volume: str) -> str: ...


#: Damages a server; returns the affected volume if it is not the given one.
DamageFunction = Callable[[Operations, Any, str], 'str | None']


@dataclasses.dataclass(frozen=True)
class Damage:
    """One way to disagree.

    :ivar name: for the command line
    :ivar title: its description, a sentence
    :ivar inflict: the function that causes it
    :ivar reason: the reason code in the plugin's log lines; None when
        the plugin logs none
    :ivar status: Cinder's status of the volume when Nova's row, the
        attachment, the disk and the connection have been removed, ``gone``
        without a volume; None when nothing is removed and the disk stays
    :ivar is_root: it affects the root disk instead
    """

    name: str
    title: str
    inflict: DamageFunction
    reason: str | None
    status: str | None
    is_root: bool


DAMAGE: dict[str, Damage] = {}


def _damage(reason: str | None, status: str | None,
            is_root: bool = False
            ) -> Callable[[DamageFunction], DamageFunction]:
    def register(function: DamageFunction) -> DamageFunction:
        name = function.__name__.replace('_', '-')
        title = ' '.join((function.__doc__ or '').split())
        DAMAGE[name] = Damage(name, title, function, reason, status, is_root)
        return function
    return register


@_damage(reason='volume-available', status='available')
def attachment_deleted(cloud, server, volume):
    """The attachment is deleted in Cinder, behind Nova's back."""
    cloud.lose_attachment(server, volume)


@_damage(reason='volume-missing', status='gone')
def volume_deleted(cloud, server, volume):
    """The volume is detached and deleted behind Nova's back."""
    cloud.lose_volume(server, volume)


@_damage(reason='volume-available', status='available')
def status_reset(cloud, server, volume):
    """An administrator resets the volume's status to available; its
    attachment stays.
    """
    cloud.reset_status(volume)


@_damage(reason='attached-elsewhere', status='in-use')
def attached_elsewhere(cloud, server, volume):
    """The volume is detached behind Nova's back and attached to another
    server.
    """
    cloud.attach_elsewhere(server, volume, host=cloud.hosts[-1])


@_damage(reason='volume-available', status='available')
def transferred(cloud, server, volume):
    """The volume is detached behind Nova's back and transferred to another
    project.
    """
    cloud.lose_attachment(server, volume)
    cloud.transfer_volume(volume, cloud.other_user)


@_damage(reason='stale-attachment', status='available')
def stale_attachment(cloud, server, volume):
    """Cinder keeps an attachment that Nova does not know."""
    left = cloud.volume('left-over')
    cloud.create_attachment(server, left)
    return left


@_damage(reason='root-volume-dangling', status=None, is_root=True)
def root_detached(cloud, server, volume):
    """The attachment of the root disk is deleted; the plugin reports this,
    and never removes a root disk.
    """
    cloud.lose_attachment(server, volume)


@_damage(reason=None, status=None)
def healthy(cloud, server, volume):
    """Nothing is wrong, and a hard reboot changes nothing."""
