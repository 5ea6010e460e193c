# SPDX-License-Identifier: Apache-2.0
"""Plays an operation with each fault, and what the states end with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
import dataclasses
import functools
import json
import os
import pathlib
from typing import Any
import uuid

from nova import version
from nova.cmd import manage

from nova_bdm_cleanup.node import adoption
from nova_bdm_cleanup.tests.aftermath.saved import SavedCloud
from nova_bdm_cleanup.tests.cloud import fixture
from nova_bdm_cleanup.tests.cloud.faults import (
    CALL,
    DEAD_AFTER,
    DEAD_BEFORE,
    Fault,
    LOST,
    Point,
    REFUSED,
    SAVE,
)
from nova_bdm_cleanup.tests.cloud.recorder import REQUEST
from nova_bdm_cleanup.tests.functional import aftermath
from nova_bdm_cleanup.tests.functional.aftermath import OPERATIONS, State
from nova_bdm_cleanup.tests.functional.commands import NO_WAITING
from nova_bdm_cleanup.tests.functional.moving import HERE

#: Where a run writes what it has seen, one file for each operation.
RESULTS = 'NOVA_BDM_CLEANUP_AFTERMATHS'
#: The kinds of points at which something fails, if not all of them.
POINTS = 'NOVA_BDM_CLEANUP_POINTS'
#: Whether a run writes the lists of open states.
WRITE = 'NOVA_BDM_CLEANUP_WRITE_PAGES'
#: The states that nothing ends, or that become worse, by operation.
OPEN = pathlib.Path(__file__).parent / 'open'
#: The release that the lists are of.
_RELEASE = '34.'
#: How many times the commands that the audit prints are followed.
_DEPTH = 3

ENDED, NOT_ENDED, WORSE = 'ended', 'not ended', 'made worse'


@dataclasses.dataclass(frozen=True)
class Played:
    """The finding of the audit about a state, and the end of the state.

    :ivar found: ``all``, ``some`` or ``nothing`` of what is not healthy
    :ivar reasons: of the audit
    :ivar is_true: whether a hard reboot did what ``bdm show`` said; None: it
        said nothing
    :ivar steps: the commands that were followed, and their ends
    :ivar by_steps: the end of the commands
    :ivar by_again: the end of the operation, requested again
    :ivar by_reboot: the end of a hard reboot with the plugin
    :ivar by_stock: the end of a hard reboot with Nova alone
    :ivar beside_stock: ``better``, ``same`` or ``worse``
    :ivar said: events and reasons in the plugin's log lines in the reboot
    :ivar after: the states after the operation again, the hard reboot, and
        that of Nova alone
    :ivar notes: what could not be done
    """

    found: str
    reasons: tuple[str, ...]
    is_true: bool | None
    steps: tuple[str, ...]
    by_steps: str
    by_again: str
    by_reboot: str
    by_stock: str
    beside_stock: str
    said: tuple[str, ...]
    after: tuple[str, str, str]
    notes: tuple[str, ...] = ()

    def open_for(self) -> list[str]:
        """Return why the state is open, in words."""
        found = []
        if self.found != 'all':
            found.append('not-found')
        if ENDED not in (self.by_steps, self.by_again):
            found.append('not-ended')
        if self.by_steps == WORSE:
            found.append('made-worse')
        if self.beside_stock == 'worse':
            found.append('reboot-worse')
        return found


#: A state, the faults that lead to it, and its end.
Case = tuple[str, list[str], Played]


def faults_at(points: Sequence[Point], kinds: Sequence[str]
              ) -> Iterator[Fault]:
    """Yield each fault that can happen at the points of an operation.

    nova-api, which does not die here, has the points without a host.
    """
    numbers = dict.fromkeys((REQUEST, SAVE, CALL), 0)
    for point in points:
        numbers[point.kind] += 1
        number = numbers[point.kind]
        if point.kind not in kinds:
            continue
        if point.kind == REQUEST:
            yield Fault(REFUSED, number)
            # Nothing changes in a request that only asks.
            if not point.what.startswith('GET '):
                yield Fault(LOST, number)
                if point.host:
                    yield Fault(DEAD_AFTER, number)
        if point.host:
            yield Fault(DEAD_BEFORE, number, point=point.kind)


class GeneratorTestCase(aftermath.AftermathTestCase):
    """Base class of the tests of operations."""

    #: The states that were played in this process.
    _played: dict[str, Played] = {}

    def check_operation(self, operation: str) -> None:
        """Play all faults of an operation, and compare with the list."""
        cases = self.cases(operation)
        self.write(operation, cases)
        if version.version_string().startswith(_RELEASE):
            self.compare(operation, {
                state: {'case': names[0], 'why': played.open_for()}
                for state, names, played in cases if played.open_for()})

    def write(self, operation: str, cases: Sequence[Case]) -> None:
        """Write what was seen so far, if a run is to do so."""
        directory = os.environ.get(RESULTS)
        if directory:
            path = pathlib.Path(directory)
            path.mkdir(parents=True, exist_ok=True)
            (path / f'{operation}.json').write_text(json.dumps({
                'operation': operation, 'cases': self.count,
                'damaged': sum(len(names) for _, names, _ in cases),
                'points': sorted(self.kinds()), 'states': [{
                    'state': state, 'cases': names, 'open': played.open_for(),
                    **dataclasses.asdict(played)}
                    for state, names, played in cases]}, indent=1))

    @staticmethod
    def kinds() -> Sequence[str]:
        return os.environ.get(
            POINTS, ','.join((REQUEST, SAVE, CALL))).split(',')

    def compare(self, operation: str, found: Mapping[str, Any]) -> None:
        """Compare the open states with those that are known."""
        path = OPEN / f'{operation}.json'
        kinds = sorted(self.kinds())
        if os.environ.get(WRITE):
            path.write_text(json.dumps(
                {'points': kinds, 'states': found}, indent=1,
                sort_keys=True) + '\n')
        if not path.exists():
            self.skipTest(f'{path.name} is not written: see {WRITE}')
        recorded = json.loads(path.read_text())
        if recorded['points'] != kinds:
            self.skipTest(f'{path.name} is of the points '
                          f'{", ".join(recorded["points"])}: see {POINTS}')
        lines = differences(recorded['states'], found)
        self.assertEqual([], lines, '\n'.join(lines))

    def cases(self, operation: str) -> list[Case]:
        """Return the states, the faults that lead to each, and its end."""
        self.begin_anew()
        self.usual = self.leave(operation)
        names: dict[str, list[str]] = {}
        self.count = 0
        for fault in faults_at(list(self.points), self.kinds()):
            self.begin_anew()
            try:
                state = self.leave(operation, fault)
            except aftermath.NotReached:
                continue
            self.count += 1
            if not set(state.problems()) - set(self.usual.problems()):
                continue
            known = names.setdefault(state.key, [])
            known.append(f'{operation}/{fault}')
            if state.key not in self._played:
                self._played[state.key] = self.play(operation, state)
            self.write(operation, self.as_cases(names))
        return self.as_cases(names)

    def as_cases(self, names: Mapping[str, list[str]]) -> list[Case]:
        return [(state, found, self._played[state])
                for state, found in names.items()]

    def create_store(self) -> None:
        """Have the plugin begin with an empty journal."""
        self.store_path = (self.store_path.parents[1] / uuid.uuid4().hex
                           / 'store.sqlite')
        self.store_path.parent.mkdir(parents=True, mode=0o700)
        self.set_options(store=str(self.store_path))

    def begin_anew(self) -> None:
        self.come_back()
        self.cloud.reset()
        self.start_recording()

    # -- playing -----------------------------------------------------------

    def play(self, operation: str, before: State) -> Played:
        """Give a state to all that may end it."""
        saved = SavedCloud(self.cloud), self._dead, self.server
        self.notes: list[str] = []

        def begin(plugin: bool) -> None:
            cloud, dead, self.server = saved
            if self._dead and not dead:
                self.come_back()
            cloud.restore()
            if dead and not self._dead:
                self.cloud.nova.computes[HERE].stop()
                self._dead = dead
            self.cloud.switch_plugin_off()
            if plugin:
                self.create_store()
                self.cloud.switch_plugin_on()
            self.restart()
            self.start_recording()

        begin(plugin=True)
        found = self.find()
        shown = self.show()
        steps: list[str] = []
        by_steps = self.follow(before, steps)
        begin(plugin=False)
        stock = self.reboot_or_reset(before)
        begin(plugin=True)
        enforced = self.reboot_or_reset(before)
        said = sorted({f'{line.event} {line.reason}'
                       for line in self.log_lines(self.server)})
        is_true = self.was_true(shown, enforced)
        begin(plugin=True)
        again = self.attempt(
            lambda: getattr(self, OPERATIONS[operation].act)(self.server))
        by_again = self.outcome(before, again, self.usual)
        return Played(
            found=self.part_found(before, set(found)),
            reasons=tuple(sorted({reason for reason, _ in found.values()})),
            is_true=is_true, steps=tuple(steps), by_steps=by_steps,
            by_again=by_again, by_reboot=self.outcome(before, enforced),
            by_stock=self.outcome(before, stock),
            beside_stock=beside(before, enforced, stock),
            said=tuple(said), after=(again.key, enforced.key, stock.key),
            notes=tuple(self.notes))

    def attempt(self, act: Callable[[], Any]) -> State:
        """Do something that Nova may refuse; return the state afterwards."""
        self._ignores_task_state = bool(self.state().task_state)
        try:
            act()
        except (fixture.APIError, AssertionError) as error:
            self.notes.append(str(error)[-120:])
        self.wait_until_quiet()
        self._ignores_task_state = False
        return self.state()

    def reboot_or_reset(self, before: State) -> State:
        """Reboot the server hard, with a reset of its state if need be."""
        if before.task_state:
            self.attempt(lambda: self.cloud.request(
                'POST', f'/servers/{self.server.id}/action',
                {'os-resetState': {'state': 'error'}}, by=self.cloud.admin))
        return self.attempt(lambda: self.cloud.request(
            'POST', f'/servers/{self.server.id}/action',
            {'reboot': {'type': 'HARD'}}, by=self.cloud.admin))

    def follow(self, before: State, steps: list[str]) -> str:
        """Follow the commands that the audit prints; return the end."""
        tried: set[str] = set()
        outcome = NOT_ENDED
        for _ in range(_DEPTH):
            printed = dict.fromkeys(
                action for _, action in self.find().values())
            new = [action for action in printed if action not in tried]
            for action in new:
                tried.add(action)
                after = self.attempt(
                    functools.partial(self.run_printed, action))
                outcome = self.outcome(before, after)
                steps.append(f'{self.without_ids(action)}: {outcome}')
                if outcome != NOT_ENDED:
                    return outcome
            if not new:
                break
        return outcome

    def find(self) -> dict[str | None, tuple[str, str]]:
        """Return reason and action of the audit's findings, by volume."""
        # Only an audit of the project finds what a deleted server has left.
        where = (('--project', self.cloud.owner.project)
                 if self.state().status == 'deleted'
                 else ('--server', self.server.id, '--all-projects'))
        _, rows = self.bdm('audit', *where, *NO_WAITING)
        if rows is None:
            self.notes.append('audit: ' + self.stderr.getvalue()[-120:])
        return {row['Volume']: (row['Reason'], row['Action'])
                for row in rows or ()}

    def roles(self) -> dict[str, str]:
        return {name: volume for name, volume in (
            ('root', self.server.root), ('data', self.data),
            ('other', self.other)) if volume}

    def without_ids(self, text: str) -> str:
        text = text.replace(self.server.id, '<server>')
        for name, volume in self.roles().items():
            text = text.replace(volume, f'<{name}>')
        return aftermath.UUID.sub('<attachment>', text)

    def run_printed(self, action: str) -> None:
        """Run a printed command, or each of its steps."""
        text = action.replace('look: ', '').split('ask an administrator: ')[-1]
        # A step with nova-manage uses the file of the one before it.
        for step in [text] if 'nova-manage' in text else text.split('; '):
            self.run_step(step, action)

    def run_step(self, step: str, action: str) -> None:
        words = step.split()
        if words[:2] == ['openstack', 'bdm']:
            if words[2] == 'show':
                for row in self.show():
                    if row['Action'] not in ('none', 'wait', action):
                        self.run_printed(row['Action'])
            elif words[2] in ('clean', 'release'):
                code, rows = self.bdm(words[2], *words[3:], '--yes', *(
                    # No other server shows that the APIs belong together.
                    (*NO_WAITING, '--same-cloud')
                    if words[2] == 'release' else ()))
                if code:
                    self.notes.append(f'{words[2]}: {str(rows)[-120:]}')
        elif words[:2] == ['openstack', 'server'] or {
                'nova-manage', 'nova-bdm-cleanup'} & set(words):
            try:
                self.run_action(step, self.host_of(self.server) or HERE)
            except (AttributeError, adoption.NotHere,
                    manage.exception.NovaException) as error:
                self.notes.append(str(error)[-120:])

    def show(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.bdm(
            'show', self.server.id, '--all-projects')[1] or []
        return rows

    # -- judging -----------------------------------------------------------

    def part_found(self, before: State, volumes: set[str | None]) -> str:
        """Return how much of a state the audit finds.

        :param volumes: of its findings; None: one is of the server, and says
            how to start it
        """
        if None in volumes:
            return 'all'
        roles = self.roles()
        damaged = {roles[name] for name in before.problems() if name in roles}
        if not damaged:
            return 'all' if volumes else 'nothing'
        return ('all' if damaged <= volumes else
                'some' if damaged & volumes else 'nothing')

    def outcome(self, before: State, after: State,
                usual: State | None = None) -> str:
        """Return the end of a state.

        :param usual: the end of the operation, if that is as good
        """
        is_off = usual is None and before.runs() and not after.runs()
        if not is_off and not set(after.problems()) - set(
                usual.problems() if usual else ()):
            return ENDED
        for name, disk in before.disks.items():
            now = after.disks[name]
            if (disk.volume and not now.volume) or (
                    before.host in disk.guests and not now.guests
                    and not now.is_free()):
                return WORSE
        if after.status == 'error' and before.status != 'error':
            return WORSE
        return NOT_ENDED

    def was_true(self, shown: Sequence[Mapping[str, Any]], after: State
                 ) -> bool | None:
        """Return whether a reboot did what was said of it."""
        if not after.runs() or not shown:
            return None
        names = {volume: name for name, volume in self.roles().items()}
        for row in shown:
            if row['Volume'] is None:
                continue
            disk = after.disks[names[row['Volume']]]
            said = row['Hard Reboot'].startswith('removes the mapping')
            if said != (disk.row is None) and row['Attachment in Nova']:
                return False
            if row['Connects'] is not None and row['Connects'] != (
                    after.host in disk.guests):
                return False
        return True


def differences(known: Mapping[str, Any], found: Mapping[str, Any]
                ) -> list[str]:
    """Return what is not as in the list of open states, one line each."""
    return [
        *(f'newly open ({", ".join(each["why"])}): {each["case"]}: {state}'
          for state, each in found.items() if state not in known),
        *(f'open ({", ".join(each["why"])}) and not as before '
          f'({", ".join(known[state]["why"])}): {each["case"]}: {state}'
          for state, each in found.items()
          if state in known and known[state]['why'] != each['why']),
        *(f'no longer open, take it out: {each["case"]}: {state}'
          for state, each in known.items() if state not in found)]


def beside(before: State, enforced: State, stock: State) -> str:
    """Compare a reboot with the plugin to one with Nova alone.

    A guest has not lost a disk that it had left in a swap, or that another
    guest has: two of them would write to it.
    """
    def lost(ours: State, theirs: State) -> bool:
        return (ours.status == 'error' != theirs.status) or any(
            disk.guests == (theirs.host,)
            and ours.host not in ours.disks[name].guests
            and not (before.runs()
                     and before.host not in before.disks[name].guests)
            for name, disk in theirs.disks.items())

    if lost(enforced, stock):
        return 'worse'
    if lost(stock, enforced) or (
            len(enforced.problems()) < len(stock.problems())):
        return 'better'
    return 'same'
