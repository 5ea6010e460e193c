# SPDX-License-Identifier: Apache-2.0
"""Faults of order: the search must find each by its property.

A unit test checks one call.  Only the search checks concurrent operations and
kills, and these faults check the search.  Each replaces a function of the
plugin in this process while one scenario is run.  It counts as found only if
its property is the first to be violated: not by an exception, and not if the
replaced function no longer exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
import contextlib
import dataclasses
import datetime
import functools
from typing import Any
from unittest import mock

from nova_bdm_cleanup.node import instance_cleanup
from nova_bdm_cleanup.node.cleanup.actions import Actions
from nova_bdm_cleanup.node.cleanup.cleaner import Cleaner
from nova_bdm_cleanup.node.hooks import (
    disks,
    evacuation,
    live_migration,
    moves,
)
from nova_bdm_cleanup.node.hooks.departure import Departure
from nova_bdm_cleanup.node.instance import NovaInstance
from nova_bdm_cleanup.node.neighbours import Neighbours
from nova_bdm_cleanup.rules.facts import Ending, Policy
from nova_bdm_cleanup.tests.simulation import (
    known_violations,
    ports,
    search,
    trace,
)
from nova_bdm_cleanup.tests.simulation.scenarios import Scenario, SCENARIOS

#: Called with the original function and its arguments.
Replacement = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Fault:
    """A programming fault."""

    name: str
    #: The damage for an operator or user.
    harm: str
    #: The property that must find it, and the scenario that is run.
    property: str
    scenario: str
    #: The replaced functions: a class or module, the name, the replacement.
    replaced: Sequence[tuple[Any, str, Replacement]]

    @contextlib.contextmanager
    def planted(self) -> Iterator[None]:
        """Replace the functions of the plugin.

        :raises KeyError: when a function does not exist
        """
        with contextlib.ExitStack() as stack:
            for owner, name, replacement in self.replaced:
                stack.enter_context(mock.patch.object(owner, name, _instead(
                    vars(owner)[name], replacement)))
            yield


def _instead(original: Any, replacement: Replacement) -> Any:
    """Return a function or method that calls a replacement."""
    @functools.wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        return replacement(original, *args, **kwargs)

    return replaced


@dataclasses.dataclass(frozen=True)
class FaultSearch:
    """Result of the search for a fault."""

    #: Why it does not count as found; empty if it does.
    problem: str = ''
    #: Trace of the schedule that violated a property.
    trace: str = ''


def search_for(fault: Fault,
               bounds: Callable[[Scenario], search.Bounds]) -> FaultSearch:
    """Search the scenario of a fault until a property is violated.

    :param bounds: returns the bounds of a scenario
    """
    scenario = SCENARIOS[fault.scenario]
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(fault.planted())
        except KeyError as exc:
            return FaultSearch(f'{fault.name}: {exc.args[0]} no longer exists')
        harness = stack.enter_context(ports.installed_plugin())
        for run in search.schedules(
                harness, scenario, bounds(scenario), search.ReachedStates()):
            if run.violation is None or known_violations.name_of(
                    run.violation):
                continue
            return FaultSearch(
                '' if run.violation.name == fault.property else
                f'{fault.name}: expected {fault.property}, found '
                f'{run.violation}',
                trace.render(harness, scenario, run.choices,
                             f'--fault {fault.name}'))
    return FaultSearch(f'{fault.name}: {fault.property} is not violated')


# The looks


def _no_second_look(original: Any, self: Any, first: Any) -> Any:
    return first if self.trigger.guest_is_on else original(self, first)


def _forget_first_look(original: Any, self: Any, first: Any) -> Any:
    found = original(self, first)
    if self.unanswered:
        return dataclasses.replace(found, not_connected={})
    return found


def _is_settled(original: Any, self: Any, since: Any, now: Any) -> Any:
    return datetime.timedelta(0)


def _only_removed(original: Any, self: Any, bdms: Any) -> Any:
    original(self, bdms)
    return self.removed


def _remove(original: Any, self: Any, bdms: Any) -> Any:
    """Remove instead of only reporting, however young the records are."""
    self.policy = dataclasses.replace(
        self.policy, settle_time=datetime.timedelta(0))
    return self.clean(bdms)


def _off(original: Any, self: Any) -> bool:
    return True


def _swapped(original: Any, self: Any) -> Ending:
    return Ending.SUCCESS


# The order of the steps


def _record_later(original: Any, self: Any, found: Any) -> Any:
    """Record the plan after the actions."""
    begin, later = self.journal.begin, mock.Mock(id='entry')
    with mock.patch.object(self.journal, 'begin', lambda *_, **__: later):
        result = original(self, found)
    begin(self._record(found.plan), [], server=self.server.uuid)
    return result


def _without(step: str, original: Any, self: Any) -> None:
    """Skip one call of the instance."""
    with mock.patch.object(self.instance, step, lambda: None):
        original(self)


def _claim_later(original: Any, self: Any) -> None:
    _without('claim', original, self)
    self.instance.claim()


def _power_off_first(original: Any, self: Any, *args: Any) -> None:
    """Power off before the row is deleted, and so after the disk."""
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
    """Disconnect without a check that the device is on the host."""
    self._disconnect_all(bdm, self._connection_info(bdm), {})
    return True


def _keep_guard(original: Any, self: Any, volume: str) -> Any:
    self._manager.guard = original(self, volume)
    self._manager.guard.__enter__()
    return contextlib.nullcontext()


# The other servers of the host, and the addresses


def _without_claims(is_left_out: Callable[[Any, Any], bool], original: Any,
                    self: Any, disks: Any, *args: Any) -> Any:
    """Leave out some rows that name the disk of a mapping."""
    return {uuid: [claim for claim in claims
                   if not is_left_out(claim, disks[uuid].volume_id)]
            for uuid, claims in original(self, disks, *args).items()}


def _has_its_volume(claim: Any, volume: str) -> bool:
    return bool(claim.volume_id == volume)


def _has_another_volume(claim: Any, volume: str) -> bool:
    return bool(claim.volume_id != volume)


def _believe_denial(original: Any, self: Any, *args: Any) -> Any:
    """Take each other guest for off, and each row for old."""
    return {uuid: [dataclasses.replace(c, may_run=False, is_young=False)
                   for c in claims]
            for uuid, claims in original(self, *args).items()}


def _apply_no_rule(original: Any, self: Any, plan: Any, *args: Any) -> Any:
    return plan


def _give_all(original: Any, self: Any, *args: Any) -> Any:
    """Give the driver all disks while Cinder is silent."""
    return {}


def _give_what_is_over_limit(original: Any, self: Any, *args: Any) -> Any:
    removed, found = original(self, *args)
    return removed, dataclasses.replace(found, not_connected={}, left_out={})


def _skip(original: Any, *args: Any) -> None:
    return None


# Moves


def _no_obstacle(original: Any, *args: Any) -> tuple[str, str]:
    return '', ''


def _report_in_use(original: Any, *args: Any) -> str:
    return 'it is in use'


def _go_on_with_rest(original: Any, cleanup: Any, bdms: Any, *args: Any
                     ) -> Any:
    """Leave what could not be removed in Nova's list."""
    left = original(cleanup, list_of(bdms), *args)
    instance_cleanup.take_out(bdms, cleanup.cleaner.removed)
    return left


def list_of(bdms: Any) -> Any:
    """Return a copy of a list of mappings."""
    return type(bdms)(objects=bdms.objects)


def _forget_seen(original: Any, self: Any, bdms: Any) -> None:
    self._dangling = ()
    original(self, bdms)


def _give_each(original: Any, self: Any, bdms: Any) -> Any:
    return bdms


def _take_out_all(original: Any, bdms: Any, uuids: Any) -> None:
    original(bdms, {bdm.uuid for bdm in bdms})


def _lock_again(original: Any, self: Any, bdms: Any) -> Any:
    """Acquire the lock of the server although Nova holds it."""
    trigger = dataclasses.replace(
        self.trigger, nova_holds_lock=False)
    with mock.patch.object(self, 'trigger', trigger):
        return original(self, bdms)


FAULTS: dict[str, Fault] = {fault.name: fault for fault in (

    # The looks
    Fault('no-second-look',
          'A disk is removed that was repaired while the guest shut down.',
          'healthy-disks-stay', 'reboot-reset-resets-status',
          ((Cleaner, '_look_again', _no_second_look),)),
    Fault('first-look-forgotten',
          'Cinder does not answer the second look, and the guest is started '
          'with the disk of another server.',
          'own-volumes-only', 'reboot-missing-foreign-writes',
          ((Cleaner, '_look_again', _forget_first_look),)),
    Fault('kept-disk-connected',
          'A disk that could not be removed, and already belongs to another '
          'server, is connected again.',
          'own-volumes-only', 'reboot-available-neighbour-takes',
          ((Cleaner, 'clean', _only_removed),)),
    Fault('wait-skipped',
          'A disk that was attached seconds ago is removed, since reads of '
          'Cinder lag.',
          'healthy-disks-stay', 'lag-reboot',
          ((Policy, 'settles_in', _is_settled),)),
    Fault('soft-reboot-removes',
          'A mapping is deleted, and the guest keeps its disk.',
          'soft-reboot-removes-nothing', 'hanging-available',
          ((Cleaner, 'withhold_all', _remove),)),
    Fault('running-guest-not-asked',
          'A disk is disconnected while a guest that should be off has it.',
          'device-before-row', 'evacuate-isolated-available',
          ((NovaInstance, 'is_off', _off),)),
    Fault('open-swap-not-asked',
          'The attachment of a disk that the guest uses is deleted.',
          'attachment-last', 'reboot-missing-swap',
          ((NovaInstance, 'swaps', _swapped),)),

    # The order of the steps
    Fault('journal-after-the-act',
          'After a crash the journal does not have the removals, so they '
          'cannot be undone.',
          'journal-is-true', 'reboot-available',
          ((Cleaner, '_act', _record_later),)),
    Fault('claim-after-power-off',
          'After a crash between the two, Nova leaves the server off.',
          'starts-after-a-kill', 'reboot-available-nova26',
          ((Actions, 'power_off', _claim_later),)),
    Fault('power-off-after-disconnect',
          'The guest writes to a disk that is being disconnected.',
          'device-before-row', 'reboot-available',
          ((Actions, 'power_off', functools.partial(_without, 'power_off')),
           (Actions, '_destroy', _power_off_first))),
    Fault('row-before-disconnect',
          'After a crash no record names the device that is still connected.',
          'device-before-row', 'reboot-available',
          ((Actions, '_disconnect', _row_first),)),
    Fault('cinder-before-row',
          'Cinder attaches a volume to another server, and Nova would '
          'connect it again (CVE-2023-2088).',
          'attachment-last', 'reboot-reset',
          ((Actions, '_destroy', _cinder_first),)),
    Fault('failed-disconnect-ignored',
          'Cinder attaches a volume to another server that this host still '
          'has.',
          'attachment-last', 'error-stale',
          ((NovaInstance, 'disconnect', _disconnected),)),
    Fault('disconnect-of-missing-device',
          'os-brick looks for a missing device, and disconnects that of '
          'another server.',
          'only-present-devices', 'boot-available',
          ((NovaInstance, 'disconnect', _disconnect_unseen),)),
    Fault('guard-kept',
          'No more volumes can be attached on the host.',
          'every-operation-ends', 'reboot-stale-neighbour-attaches',
          ((NovaInstance, 'guard', _keep_guard),)),

    # The other servers of the host
    Fault('neighbours-not-asked',
          'A disk is disconnected that another server of the host uses.',
          'healthy-disks-stay', 'reboot-available-neighbour-takes',
          ((Neighbours, '_claims', functools.partial(
              _without_claims, _has_its_volume)),)),
    Fault('address-not-asked',
          'A disk is disconnected that already has the address of the old '
          'one.',
          'healthy-disks-stay', 'reboot-missing-remote-arrives',
          ((Neighbours, '_claims', functools.partial(
              _without_claims, _has_another_volume)),)),
    Fault('rule-of-addresses-not-asked',
          "A guest is given another guest's disk, or takes it from it, where "
          'the mapping is kept.',
          'healthy-disks-stay', 'address-reboot',
          ((Cleaner, '_apply_rule_of_addresses', _apply_no_rule),)),
    Fault('denial-believed',
          "A guest loses a disk because Cinder's record of it was reset.",
          'devices-of-running-guests-stay', 'address-start',
          ((Neighbours, '_claims', _believe_denial),)),
    Fault('silence-overrides-addresses',
          'While Cinder is down, a reboot takes the disk of another guest.',
          'devices-of-running-guests-stay', 'address-reboot',
          ((Cleaner, 'rows_alone', _give_all),)),
    Fault('limit-overrides-addresses',
          'A tenant uses up the limit of the hour, and gets the disk of '
          'another guest.',
          'healthy-disks-stay', 'address-boot',
          ((Cleaner, '_act_on_rest', _give_what_is_over_limit),)),
    Fault('attach-not-seen',
          'A disk is disconnected that is being connected for another '
          'server.',
          'healthy-disks-stay', 'reboot-missing-neighbour-attaches',
          ((Neighbours, '_check_attaches', _skip),)),

    # Moves
    Fault('move-disconnects-all',
          'A migration disconnects a disk of another guest of the host.',
          'healthy-disks-stay', 'migrate-beside',
          ((Departure, '_obstacles', _no_obstacle),
           (Cleaner, '_apply_rule_of_addresses', _apply_no_rule))),
    Fault('move-with-the-rest',
          'A disk that could not be removed is attached to the server again.',
          'no-foreign-disk', 'revert-available-neighbour-takes',
          ((disks, 'remove', _go_on_with_rest),)),
    Fault('foreseen-forgotten',
          'libvirt does not answer once, and the migration fails half done.',
          'no-half-done-move', 'migrate-missing',
          ((Departure, 'remove', _forget_seen),)),
    Fault('healthy-disks-left-out',
          'A deleted server leaves its disks on the host.',
          'one-host-only', 'remove-beside',
          ((instance_cleanup, 'take_out', _take_out_all),)),
    Fault('live-migration-refused',
          'A host cannot be drained because of harmless disks.',
          'refused-for-a-reason', 'live-available',
          ((live_migration, '_obstacle_to_attach', _report_in_use),)),
    Fault('refused-revert-not-restored',
          'A server whose revert is refused can be neither reverted nor '
          'confirmed.',
          'can-be-rebooted-again', 'circumstances-revert',
          ((moves, '_restore_task_state', _skip),)),
    Fault('other-host-does-not-look',
          'A migration fails half done because the old host could not remove '
          'a disk.',
          'no-half-done-move', 'migrate-available',
          ((moves, 'finish', _skip),)),
    Fault('former-host-forgets',
          'A host that comes back keeps the device of a disk that was removed '
          'in an evacuation.',
          'one-host-only', 'evacuate-isolated-available',
          ((evacuation, '_disconnect_removed', _skip),)),
    Fault('live-migration-disconnects-all',
          'The end of a live migration takes a disk from another guest.',
          'healthy-disks-stay', 'live-available-neighbour-attaches',
          ((Departure, 'given', _give_each),)),
    Fault('shelve-waits-for-itself',
          'A server with a dangling mapping gets stuck when it is shelved.',
          'can-be-rebooted-again', 'shelve-available-attach',
          ((Cleaner, 'clean', _lock_again),)),
)}
