# SPDX-License-Identifier: Apache-2.0
"""The connections that Cinder gave this host in operations under way.

In an attach, a swap, a boot or a move to this host, Nova gets the address of a
disk from Cinder, connects it, and records it last: meanwhile the guest is not
there, or no row shows the address.  So the answers are remembered, until a
guest of this host or a row shows them, also after an operation that has died.
The last answer with an address has it.  If one is remembered for too long, a
disk is not connected until later; if one is missing, a guest may get the disk
of another one.

Cinder may give an address to a server after this host has asked who claims it,
and before the disconnect.  So a disconnect is announced first, and then the
claims are read.  An answer of Cinder that names the address returns to Nova
when the disconnect is over.

A disk that Cinder connects has its address.  If Cinder does not connect it, or
does not answer, the next disk of another server may get that address, and then
the driver must not connect it any more.  So a start with such a disk holds up
the requests of other threads, waits for the answers of those under way, and
then reads the claims once more; the others go on when the guest has its disks.
Until then nothing new is at the address.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
import contextlib
import dataclasses
import threading
import time
from typing import Any, NamedTuple
import weakref

from oslo_log import log as logging

from nova_bdm_cleanup.rules.facts import Address

LOG = logging.getLogger(__name__)

#: How long an answer is remembered, in seconds, once its operation and its
#: guest are gone: a live migration begins its guest after it has connected the
#: disks.
_REMEMBERED = 3600

#: How many answers are remembered if the claims are never read.  A host has
#: fewer disks, and guests and rows show the oldest.
_MOST = 4096

#: How long an answer waits for a disconnect, and a request for a start, in
#: seconds: os-brick flushes a disk before it removes it, but Nova must go on
#: in the end.
_PATIENCE = 300

#: How long a start waits for the answers to requests under way, in seconds:
#: while Cinder is silent, they may never come.
_FOR_ANSWERS = 30


class Given(NamedTuple):
    """A connection that Cinder gave this host in an operation."""

    #: Empty if it is not known: Cinder's API before Queens does not tell.
    server: str
    volume_id: str
    attachment_id: str | None
    addresses: frozenset[Address]


@dataclasses.dataclass
class _Answer:
    given: Given
    #: The request context: it exists as long as its operation.  The threads of
    #: Nova do not end with an operation.
    operation: weakref.ref[Any]
    #: When the operation ended, or its guest was not found any more.
    alone_since: float | None = None

    @classmethod
    def in_operation(cls, given: Given, operation: Any) -> _Answer:
        """Return an answer that notes the end of its operation."""
        def end(_: object) -> None:
            answer.alone_since = time.monotonic()

        answer = cls(given, weakref.ref(operation, end))
        return answer


#: Guards what follows, and is notified at the end of a disconnect, of a
#: request and of a start.
_state = threading.Condition()
#: By attachment, or by volume if there is none.
_answers: dict[str, _Answer] = {}
#: The threads that disconnect, and what.
_disconnects: list[tuple[int, frozenset[Address]]] = []
#: The threads that ask Cinder for a connection.
_requests: list[int] = []
#: The threads that hold such requests up.
_starts: list[int] = []


@contextlib.contextmanager
def asking() -> Iterator[None]:
    """Have this thread ask Cinder for a connection, and remember the answer.

    It begins when no other thread holds requests up.
    """
    own = threading.get_ident()
    with _state:
        may_ask = _state.wait_for(
            lambda: not _of_others(_starts), _PATIENCE)
        _requests.append(own)
    if not may_ask:
        LOG.warning(
            'bdm-cleanup: a guest is still being started with a disk that '
            'Cinder does not connect; Nova goes on after %d seconds',
            _PATIENCE)
    try:
        yield
    finally:
        with _state:
            _requests.remove(own)
            _state.notify_all()


def hold_up() -> None:
    """Hold up the requests of other threads until :func:`let_go`.

    Return when what Cinder was asked for before is remembered.
    """
    with _state:
        _starts.append(threading.get_ident())
        is_over = _state.wait_for(
            lambda: not _of_others(_requests), _FOR_ANSWERS)
    if not is_over:
        LOG.warning(
            'bdm-cleanup: Nova still waits for the address of a disk of '
            'another server; it goes on to start this guest after %d seconds',
            _FOR_ANSWERS)


def let_go() -> None:
    """Have other threads go on, if this one holds them up."""
    own = threading.get_ident()
    with _state:
        while own in _starts:
            _starts.remove(own)
        _state.notify_all()


def remember(operation: Any, given: Given) -> None:
    """Remember an answer of Cinder, which replaces those of the same
    attachment, and those of the same address for another volume.

    Return when no other thread disconnects one of its addresses.

    :param operation: the context of the request in which Cinder answered
    """
    key = given.attachment_id or given.volume_id
    with _state:
        _answers.pop(key, None)
        _drop_earlier(given)
        if not given.addresses:
            return
        # First of all, so that a check that has not begun finds it.
        _answers[key] = _Answer.in_operation(given, operation)
        for oldest, _ in list(_answers.items())[:-_MOST]:
            del _answers[oldest]
        is_over = _state.wait_for(
            lambda: not _is_being_disconnected(given.addresses), _PATIENCE)
    if not is_over:
        LOG.warning(
            'bdm-cleanup: the address of volume %s of server %s is still '
            'being disconnected; Nova goes on after %d seconds',
            given.volume_id, given.server or 'unknown', _PATIENCE)


def forget(attachment_id: str) -> None:
    """Forget the answer for an attachment, which Cinder has deleted."""
    with _state:
        _answers.pop(attachment_id, None)


def given() -> tuple[Given, ...]:
    """Return what Cinder gave this host, and nothing has shown yet."""
    with _state:
        return tuple(answer.given for answer in _answers.values())


def forget_shown(shown: Collection[tuple[str, Address]],
                 guests: Collection[str]) -> None:
    """Forget the answers that a guest or a row shows, and those of long ago.

    :param shown: the servers and addresses that a guest of this host, or a row
        of a server of this host, shows now
    :param guests: the servers that have a guest on this host
    """
    here = {server for server, _ in shown}.union(guests)
    pairs = frozenset(shown)
    anybody = {address for _, address in pairs}
    with _state:
        for key, answer in list(_answers.items()):
            server, addresses = answer.given.server, answer.given.addresses
            seen = (all((server, address) in pairs for address in addresses)
                    if server else addresses <= anybody)
            if seen or _is_forgotten(answer, server in here):
                del _answers[key]


@contextlib.contextmanager
def disconnecting(addresses: frozenset[Address]) -> Iterator[None]:
    """Announce the disconnect of addresses, before it is checked.

    Meanwhile no call of another thread that gets one of them returns.
    """
    announced = threading.get_ident(), addresses
    with _state:
        _disconnects.append(announced)
    try:
        yield
    finally:
        with _state:
            _disconnects.remove(announced)
            _state.notify_all()


def _drop_earlier(given: Given) -> None:
    """Drop the addresses that Cinder has given to another volume since.

    Their attachments were deleted by another host: that of a live migration
    to this host that has failed by its source.
    """
    for key, answer in list(_answers.items()):
        if answer.given.volume_id == given.volume_id:
            continue
        left = answer.given.addresses - given.addresses
        if left:
            answer.given = answer.given._replace(addresses=left)
        else:
            del _answers[key]


def _is_forgotten(answer: _Answer, has_guest: bool) -> bool:
    """Return whether an operation and its guest were gone for long."""
    if has_guest or answer.operation() is not None:
        answer.alone_since = None
        return False
    now = time.monotonic()
    if answer.alone_since is None:
        answer.alone_since = now
    return now - answer.alone_since >= _REMEMBERED


def _of_others(threads: Collection[int]) -> list[int]:
    own = threading.get_ident()
    return [thread for thread in threads if thread != own]


def _is_being_disconnected(addresses: frozenset[Address]) -> bool:
    """Return whether another thread disconnects one of some addresses."""
    own = threading.get_ident()
    return any(thread != own and announced & addresses
               for thread, announced in _disconnects)
