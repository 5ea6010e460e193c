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
import functools
from typing import Any
from unittest import mock

from nova_bdm_cleanup.node import connections, instance, instance_cleanup
from nova_bdm_cleanup.node.cleanup import actions
from nova_bdm_cleanup.node.cleanup.actions import Actions
from nova_bdm_cleanup.node.cleanup.cleaner import Cleaner
from nova_bdm_cleanup.node.hooks.operation import Operation
from nova_bdm_cleanup.node.instance import NovaInstance
from nova_bdm_cleanup.node.neighbours import Neighbours
from nova_bdm_cleanup.rules import addresses
from nova_bdm_cleanup.rules.facts import Claimant, InCinder, Plan
from nova_bdm_cleanup.tests.simulation import (
    known_violations,
    ports,
    search,
    trace,
)
from nova_bdm_cleanup.tests.simulation.reconnects import SCENARIOS
from nova_bdm_cleanup.tests.simulation.scenarios import Scenario

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


def _forget_first_look(original: Any, self: Any, plan: Plan,
                       error: Exception) -> Plan:
    return Plan(tuple(
        dataclasses.replace(finding, address='', in_cinder=InCinder.ATTACHED)
        for finding in original(self, plan, error).findings))


def _believe_records(original: Any, self: Any, bdms: Any) -> Any:
    return {bdm.uuid: bdm.source for bdm in bdms}


def _remember_no_disk(original: Any, self: Any, bdms: Any) -> Any:
    return {}


def _off(original: Any, self: Any) -> bool:
    return True


# The order of the steps


def _record_later(original: Any, self: Any, plan: Plan) -> Any:
    """Record the plan after the actions."""
    begin, later = self.journal.begin, mock.Mock(id='entry')
    with mock.patch.object(self.journal, 'begin', lambda *_, **__: later):
        result = original(self, plan)
    begin(self._record(plan), [], server=self.server.uuid)
    return result


def _claim_later(original: Any, self: Any) -> None:
    with mock.patch.object(self.instance, 'claim', lambda: None):
        original(self)
    self.instance.claim()


def _cinder_first(original: Any, self: Any, finding: Any, bdm: Any) -> None:
    for attachment in finding.dependent:
        self._delete(finding, attachment)
    original(self, finding, bdm)


def _keep_guard(original: Any, self: Any, volume: str) -> Any:
    self._manager.guard = original(self, volume)
    self._manager.guard.__enter__()
    return contextlib.nullcontext()


# The other servers of the host, and the addresses


def _believe_rows(original: Any, *args: Any) -> Any:
    """Leave out the guests: Cinder decides whether a row counts."""
    return (claim for claim in original(*args)
            if claim.claimant is not Claimant.GUEST)


def _believe_silence(original: Any, *args: Any) -> Any:
    """Leave out that the guests or the rows could not be read."""
    found = original(*args)
    return dataclasses.replace(found, others={
        uuid: tuple(claim for claim in claims if claim.claimant not in (
            Claimant.ANY_GUEST, Claimant.ANY_ROW))
        for uuid, claims in found.others.items()})


def _believe_attached(original: Any, plan: Plan, *args: Any) -> Plan:
    """Ask for no claims on a disk that Cinder says is attached."""
    return Plan(tuple(
        before if before.in_cinder is InCinder.ATTACHED else after
        for before, after in zip(
            plan.findings, original(plan, *args).findings)))


def _remember_nothing(original: Any, *args: Any) -> tuple[()]:
    return ()


def _announce_nothing(original: Any, *args: Any) -> Any:
    return contextlib.nullcontext()


def _skip(original: Any, *args: Any) -> None:
    return None


# Reconnects


def _delete_first(original: Any, self: Any, finding: Any, bdm: Any) -> Any:
    """Delete the attachments before the row names the new one."""
    for attachment in finding.dependent:
        self._delete(finding, attachment)
    return original(self, finding, bdm)


def _keep_address(original: Any, self: Any, bdm: Any,
                  is_multiattach: bool) -> Any:
    """Connect the attachment, and keep the address in the mapping."""
    row = self._rows[bdm.uuid]
    former = row.connection_info
    original(self, bdm, is_multiattach)
    row.connection_info = former
    row.save()
    return instance.mapping_of(row)


def _believe_host(original: Any, self: Any) -> bool:
    """Take the guest to be where Nova has it."""
    return True


def _as_before(original: Any, self: Any, plan: Plan) -> Plan:
    """Do not ask once more who claims the disks."""
    return plan


def _leave_none_out(original: Any, self: Any,
                    proved: Any) -> frozenset[str]:
    return frozenset()


def _leave_as_it_is(original: Any, self: Any, finding: Any, bdm: Any) -> Any:
    """Have Nova connect the disk by what its mapping names already."""
    return finding


def _believe_absent(original: Any, self: Any, attachments: Any
                    ) -> frozenset[str]:
    """Take this host to have no device of an attach that died."""
    return frozenset(a.id for a in attachments)


def _fail(original: Any, *args: Any) -> None:
    raise RuntimeError('planted')


# Moves


def _take_out_first(original: Any, self: Any, instance: Any,
                    bdms: Any) -> None:
    """Take all that dangles out of Nova's list, removed or not."""
    outcome = self.cleanup(instance).run(bdms)
    instance_cleanup.take_out(bdms, {
        f.bdm.uuid for f in outcome.plan.findings if f.bdm and f.is_removal})


def _lock_again(original: Any, self: Any, bdms: Any) -> Any:
    """Acquire the lock of the server although Nova holds it."""
    trigger = dataclasses.replace(
        self.trigger, nova_holds_lock=False)
    with mock.patch.object(self, 'trigger', trigger):
        return original(self, bdms)


FAULTS: dict[str, Fault] = {fault.name: fault for fault in (

    # The looks
    Fault('first-look-forgotten',
          'Cinder does not answer the second look, and the guest is started '
          'with the disk of another server.',
          'own-volumes-only', 'reboot-missing-foreign-writes',
          ((Cleaner, '_withheld', _forget_first_look),)),
    Fault('running-guest-not-asked',
          'A disk is disconnected while a guest that should be off has it.',
          'device-before-row', 'evacuate-isolated-available',
          ((NovaInstance, 'is_off', _off),)),

    # The order of the steps
    Fault('journal-after-the-act',
          'After a crash the journal does not have the removals, so they '
          'cannot be undone.',
          'journal-is-true', 'reboot-available',
          ((Cleaner, '_act', _record_later),)),
    Fault('claim-after-power-off',
          'After a crash between the two, Nova leaves the server off.',
          'starts-after-a-kill', 'reboot-missing-nova26',
          ((Actions, 'power_off', _claim_later),)),
    Fault('cinder-before-row',
          'Cinder attaches a volume to another server, and Nova would '
          'connect it again (CVE-2023-2088).',
          'attachment-last', 'reboot-reset',
          ((Actions, '_destroy', _cinder_first),)),
    Fault('guard-kept',
          'No more volumes can be attached on the host.',
          'every-operation-ends', 'reboot-stale-neighbour-attaches',
          ((NovaInstance, 'guard', _keep_guard),)),

    # The other servers of the host
    Fault('denial-believed',
          "A guest loses a disk because Cinder's record of it was reset.",
          'devices-of-running-guests-stay', 'address-start',
          ((Neighbours, '_claims', _believe_rows),)),
    Fault('unread-is-no-claim',
          'A guest loses its disk since Nova or libvirt does not answer.',
          'healthy-disks-stay', 'reboot-missing-remote-arrives',
          ((actions, 'claims_on', _believe_silence),)),
    Fault('attached-decides',
          'A member of the project writes an attachment, and another guest '
          'loses its disk.',
          'healthy-disks-stay', 'address-reboot',
          ((addresses, 'judged', _believe_attached),)),
    Fault('attach-not-seen',
          'A disk is disconnected that is being connected for another '
          'server.',
          'healthy-disks-stay', 'reboot-missing-neighbour-attaches',
          ((connections, 'given', _remember_nothing),)),
    Fault('attach-does-not-wait',
          'A disk is disconnected that another server got after the last '
          'question.',
          'healthy-disks-stay', 'reboot-missing-neighbour-attaches',
          ((connections, 'disconnecting', _announce_nothing),)),

    # Reconnects
    Fault('others-deleted-first',
          'The volume is free in a reconnect, and Cinder gives it to another '
          'server.',
          'volume-stays-taken', 'reconnect-reboot-unknown',
          ((Actions, '_reconnect', _delete_first),)),
    Fault('former-address-kept',
          'The guest is given the disk of another guest, which has the '
          'former address now.',
          'no-address-of-a-running-guest', 'reconnect-reboot-elsewhere',
          ((NovaInstance, 'connect', _keep_address),)),
    Fault('guest-taken-to-be-here',
          'The guest runs on another host, and loses its disks.',
          'serving-attachments-stay', 'reconnect-reboot-served',
          ((NovaInstance, 'guest_is_here', _believe_host),
           (NovaInstance, 'left_out', _leave_none_out))),
    Fault('address-given-away',
          'A disk whose reconnect has failed gets the data of another one, '
          'which has its address now.',
          'own-volumes-only', 'reconnect-reboot-two',
          ((Cleaner, '_claimed_since', _as_before),)),
    Fault('arrival-not-prepared',
          'An unshelve that has failed fails each time.',
          'no-half-done-move', 'reconnect-unshelve-root',
          ((Actions, '_leave_to_nova', _leave_as_it_is),)),

    # Attaches that died
    Fault('device-of-attach-forgotten',
          'The export of a volume ends while the host has its device, which '
          'is then that of the next volume.',
          'attachment-last', 'reboot-missing-attach',
          ((NovaInstance, 'absent', _believe_absent),)),

    # Swaps
    Fault('records-taken-for-the-guest',
          'The guest gets the old disk of a swap, and not what it has written '
          'since.',
          'last-disk-only', 'swap-reboot-rolled-back',
          ((Cleaner, '_ask_sources', _believe_records),)),
    Fault('guest-forgotten',
          'nova-compute dies while it ends a swap, and nothing ends it any '
          'more.',
          'in-order-at-the-end', 'swap-reboot-completed',
          ((Cleaner, '_journal_sources', _remember_no_disk),)),

    # Moves
    Fault('removed-disk-moves',
          'A migration attaches a disk to the server again whose mapping was '
          'removed.',
          'no-foreign-disk', 'migrate-available',
          ((instance_cleanup, 'take_out', _skip),)),
    Fault('neighbour-forgotten',
          'A migration disconnects the disk of another guest.',
          'healthy-disks-stay', 'migrate-beside',
          ((actions, 'claim_on', _skip),)),
    Fault('left-out-without-removal',
          'The mapping of a disk stays behind when the server is migrated.',
          'ends-as-without-the-plugin', 'circumstances-migrate',
          ((Operation, 'remove', _take_out_first),)),
    Fault('error-in-a-hook',
          'A reboot is as on stock Nova, and only the log says why.',
          'no-unexpected-exception', 'reboot-available',
          ((Operation, 'clean', _fail),)),
    Fault('shelve-waits-for-itself',
          'A shelved server keeps its dangling mapping.',
          'kept-for-a-reason', 'shelve-available',
          ((Cleaner, 'clean', _lock_again),)),
)}
