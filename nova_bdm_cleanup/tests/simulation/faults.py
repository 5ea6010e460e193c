# SPDX-License-Identifier: Apache-2.0
"""Faults of order: the search must find each of them, by a named property.

A unit test shows what one call does.  What others do meanwhile, and what a
kill leaves, only the search shows; and that it does is shown by faults.  Each
replaces a function of the plugin in this process while one scenario is played.
It counts as found only if the property that is named with it is the first to
break: not by an exception, and not if what it replaces is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
import contextlib
import dataclasses
import functools
from typing import Any
from unittest import mock

from nova import exception

from nova_bdm_cleanup.node import instance_cleanup
from nova_bdm_cleanup.node.cleanup.actions import Actions
from nova_bdm_cleanup.node.cleanup.cleaner import Cleaner
from nova_bdm_cleanup.node.hooks import moves
from nova_bdm_cleanup.node.instance import NovaInstance
from nova_bdm_cleanup.node.neighbours import Neighbours
from nova_bdm_cleanup.rules.facts import Ending
from nova_bdm_cleanup.tests.simulation import known, ports, search, story
from nova_bdm_cleanup.tests.simulation.scenarios import Scenario, SCENARIOS

#: Is given the original function, and what that was called with.
Replacement = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Fault:
    """Something that a programmer could get wrong."""

    name: str
    #: What an operator or user would lose.
    harm: str
    #: The property that must find it, and the scenario that is played.
    property: str
    scenario: str
    #: What is replaced: a class or module, and the function in it.
    replaced: Sequence[tuple[Any, str, Replacement]]

    @contextlib.contextmanager
    def planted(self) -> Iterator[None]:
        """Have the plugin make it.

        :raises KeyError: when what it replaces is not there
        """
        with contextlib.ExitStack() as stack:
            for owner, name, replacement in self.replaced:
                stack.enter_context(mock.patch.object(owner, name, _instead(
                    vars(owner)[name], replacement)))
            yield


def _instead(original: Any, replacement: Replacement) -> Any:
    """Return a function or method that has a replacement do its work."""
    @functools.wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        return replacement(original, *args, **kwargs)

    return replaced


@dataclasses.dataclass(frozen=True)
class Hunt:
    """How the search for a fault ended."""

    #: Why it does not count as found; empty: it does.
    problem: str = ''
    #: Of the schedule that broke a property.
    story: str = ''


def hunt(fault: Fault,
         bounds: Callable[[Scenario], search.Bounds]) -> Hunt:
    """Search the scenario of a fault until a property is broken.

    :param bounds: gives those of a scenario
    """
    scenario = SCENARIOS[fault.scenario]
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(fault.planted())
        except KeyError as exc:
            return Hunt(f'{fault.name}: there is no {exc.args[0]} any more')
        stage = stack.enter_context(ports.plugged_in())
        for run in search.schedules(
                stage, scenario, bounds(scenario), search.Seen()):
            if run.broken is None or known.finding_of(run.broken):
                continue
            return Hunt(
                '' if run.broken.name == fault.property else
                f'{fault.name}: expected {fault.property}, found {run.broken}',
                story.tell(stage, scenario, run.choices,
                           f'--fault {fault.name}'))
    return Hunt(f'{fault.name}: {fault.property} holds all the same')


# The looks


def _no_second_look(original: Any, self: Any, first: Any) -> Any:
    return first if self.trigger.guest_is_on else original(self, first)


def _forget_first_look(original: Any, self: Any, first: Any) -> Any:
    found = original(self, first)
    if self.unanswered:
        return dataclasses.replace(found, not_connected={})
    return found


def _only_removed(original: Any, self: Any, bdms: Any) -> Any:
    original(self, bdms)
    return self.removed


def _remove(original: Any, self: Any, bdms: Any) -> Any:
    """Remove where it is only to be reported."""
    return self.clean(bdms)


def _off(original: Any, self: Any) -> bool:
    return True


def _swapped(original: Any, self: Any) -> Ending:
    return Ending.SUCCESS


# The order of the steps


def _record_later(original: Any, self: Any, found: Any) -> Any:
    """Act first, and record the plan when that is done."""
    begin, later = self.journal.begin, mock.Mock(id='entry')
    with mock.patch.object(self.journal, 'begin', lambda *_, **__: later):
        result = original(self, found)
    begin(self._record(found.plan), [], server=self.server.uuid)
    return result


def _without(step: str, original: Any, self: Any) -> None:
    """Leave one call of the host out."""
    with mock.patch.object(self.instance, step, lambda: None):
        original(self)


def _claim_later(original: Any, self: Any) -> None:
    _without('claim', original, self)
    self.instance.claim()


def _power_off_first(original: Any, self: Any, *args: Any) -> None:
    """Before the row, and so after the disk."""
    if self.trigger.guest_is_on:
        self.instance.power_off()
    original(self, *args)


def _row_first(original: Any, self: Any, finding: Any, disk: Any,
               **subject: Any) -> None:
    if finding.bdm is not None:
        self._destroy(finding, disk)
    original(self, finding, disk, **subject)


def _cinder_first(original: Any, self: Any, finding: Any, bdm: Any) -> None:
    for attachment in finding.left_over:
        self._delete(finding, attachment)
    original(self, finding, bdm)


def _disconnected(original: Any, self: Any, bdm: Any) -> bool:
    """Take a failure for success."""
    try:
        return bool(original(self, bdm))
    except Exception:
        return True


def _disconnect_unseen(original: Any, self: Any, bdm: Any) -> bool:
    """Do not look whether it is there."""
    self._disconnect_all(bdm, self._connection_info(bdm), {})
    return True


def _no_guard(original: Any, self: Any, volume: str) -> Any:
    return contextlib.nullcontext()


def _keep_guard(original: Any, self: Any, volume: str) -> Any:
    self._manager.guard = original(self, volume)
    self._manager.guard.__enter__()
    return contextlib.nullcontext()


# The other servers of the host


def _no(original: Any, *args: Any) -> bool:
    return False


def _nothing(original: Any, *args: Any) -> None:
    return None




# Moves


def _no_obstacle(original: Any, *args: Any) -> str:
    return ''


def _somebodys(original: Any, *args: Any) -> str:
    return 'it is in use'


def _go_on_with_rest(original: Any, *args: Any) -> None:
    with contextlib.suppress(exception.InstanceUnacceptable):
        original(*args)


def _forget_seen(original: Any, *args: Any) -> None:
    moves._seen_before.last = None
    original(*args)


def _take_out_all(original: Any, bdms: Any, uuids: Any) -> None:
    original(bdms, {bdm.uuid for bdm in bdms})


def _lock_again(original: Any, self: Any, bdms: Any) -> Any:
    """As if Nova did not hold its lock of the server."""
    trigger = dataclasses.replace(
        self.trigger, nova_holds_lock=False)
    with mock.patch.object(self, 'trigger', trigger):
        return original(self, bdms)


FAULTS: dict[str, Fault] = {fault.name: fault for fault in (

    # The looks
    Fault('no-second-look',
          'A disk goes that somebody mended while the guest shut down.',
          'healthy-disks-stay', 'reboot-reset-mends',
          ((Cleaner, '_look_again', _no_second_look),)),
    Fault('first-look-forgotten',
          'Cinder does not answer the second look, and the guest gets the '
          'disk of another server.',
          'own-volumes-only', 'reboot-missing-foreign-writes',
          ((Cleaner, '_look_again', _forget_first_look),)),
    Fault('kept-disk-connected',
          'A disk that could not be removed, and is another server\'s by '
          'now, is connected again.',
          'own-volumes-only', 'reboot-available-neighbour-takes',
          ((Cleaner, 'clean', _only_removed),)),
    Fault('soft-reboot-removes',
          'A mapping goes, and the guest keeps its disk.',
          'nothing-goes-unasked', 'hanging-available',
          ((Cleaner, 'withhold_all', _remove),)),
    Fault('evacuation-removes',
          'The dead host comes back, and nothing tells it to disconnect the '
          'disk.',
          'no-row-before-its-device', 'evacuate-available',
          ((Cleaner, 'withhold_all', _remove),)),
    Fault('running-guest-not-asked',
          'A mapping goes while a guest that should be off has its disk.',
          'no-row-before-its-device', 'migrate-beside',
          ((NovaInstance, 'is_off', _off),)),
    Fault('open-swap-not-asked',
          'The attachment goes by which the guest has its disk.',
          'cinder-is-told-last', 'reboot-missing-swap',
          ((NovaInstance, 'swaps', _swapped),)),

    # The order of the steps
    Fault('journal-after-the-act',
          'After a crash nobody can tell what was removed, or undo it.',
          'recorded-is-done', 'reboot-available',
          ((Cleaner, '_act', _record_later),)),
    Fault('claim-after-power-off',
          'After a crash between the two Nova leaves the server off.',
          'comes-back-by-itself', 'reboot-available-nova26',
          ((Actions, 'power_off', _claim_later),)),
    Fault('power-off-after-disconnect',
          'The guest writes to a disk that is being taken away.',
          'no-row-before-its-device', 'reboot-available',
          ((Actions, 'power_off', functools.partial(_without, 'power_off')),
           (Actions, '_destroy', _power_off_first))),
    Fault('row-before-disconnect',
          'After a crash nothing tells what is still connected.',
          'no-row-before-its-device', 'reboot-available',
          ((Actions, '_disconnect', _row_first),)),
    Fault('cinder-before-row',
          'Cinder gives a volume away that Nova would connect again '
          '(CVE-2023-2088).',
          'cinder-is-told-last', 'reboot-reset',
          ((Actions, '_destroy', _cinder_first),)),
    Fault('failed-disconnect-ignored',
          'Cinder gives a volume away that this host still has.',
          'cinder-is-told-last', 'error-stale',
          ((NovaInstance, 'disconnect', _disconnected),)),
    Fault('disconnect-of-what-is-not-here',
          'os-brick looks for a disk that is gone, and takes that of another '
          'server.',
          'only-what-is-here-goes', 'boot-available',
          ((NovaInstance, 'disconnect', _disconnect_unseen),)),
    Fault('no-guard',
          'A volume is connected while another one of its target is '
          'disconnected, and goes with it.',
          'healthy-disks-stay', 'shelve-available-neighbour-takes',
          ((NovaInstance, 'guard', _no_guard),)),
    Fault('guard-kept',
          'No disk of the host can be attached any more.',
          'nothing-waits-for-ever', 'reboot-stale-neighbour-attaches',
          ((NovaInstance, 'guard', _keep_guard),)),

    # The other servers of the host
    Fault('neighbours-not-asked',
          'A disk goes that another server of the host uses.',
          'healthy-disks-stay', 'reboot-available-neighbour-takes',
          ((NovaInstance, 'used_by_others', _no),)),
    Fault('address-not-asked',
          'The disk goes that has the address of the old one by now.',
          'healthy-disks-stay', 'reboot-missing-somebody-comes',
          ((NovaInstance, 'is_reused', _no),)),
    Fault('attach-not-seen',
          'The disk goes that is just being connected for another server.',
          'healthy-disks-stay', 'hanging-missing-neighbour-attaches',
          ((Neighbours, '_check_attaches', _nothing),)),

    # Moves
    Fault('move-disconnects-all',
          'A migration takes a disk from another guest of the host.',
          'healthy-disks-stay', 'migrate-beside',
          ((moves, '_obstacle_to_disconnect', _no_obstacle),)),
    Fault('move-with-the-rest',
          'What could not be removed is attached to the server again.',
          'no-strangers-disk', 'revert-available-neighbour-takes',
          ((moves, '_remove', _go_on_with_rest),)),
    Fault('foreseen-forgotten',
          'libvirt does not answer once, and the migration ends half done.',
          'moves-end-well', 'migrate-missing',
          ((moves, '_remove', _forget_seen),)),
    Fault('healthy-disks-left-out',
          'A deleted server leaves its disks on the host.',
          'one-host-only', 'remove-beside',
          ((instance_cleanup, 'take_out', _take_out_all),)),
    Fault('live-migration-refused',
          'A host cannot be drained, for disks that harm nobody.',
          'refused-for-a-reason', 'live-available',
          ((moves, '_obstacle_to_attach', _somebodys),)),
    Fault('shelve-waits-for-itself',
          'A server with a dangling mapping is stuck when it is shelved.',
          'can-be-rebooted-again', 'shelve-available-attach',
          ((Cleaner, 'clean', _lock_again),)),
)}
