# SPDX-License-Identifier: Apache-2.0
"""The story: a server, what goes wrong with it, and a hard reboot."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import subprocess
import sys
import time

# First: its import of Nova decides whether this process may use eventlet.
from nova_bdm_cleanup.tests.cloud import fixture  # isort: skip

from nova import version
from nova.compute import manager
import options
import promise
import screen as screens
import verdict

from nova_bdm_cleanup.tests.cloud import cinder, snapshot
from nova_bdm_cleanup.tests.cloud.damage import DAMAGE, Damage

_AUDIT = 'bdm-cleanup: '
#: The server is on the first, the next user of its volume on the second.
_HOSTS = ('compute1', 'compute2')


@dataclasses.dataclass
class Ending:
    """The end of the story.

    :ivar names: the volumes of the story by id
    :ivar broken: what has happened to which volume
    :ivar before: everybody's view before the hard reboot
    :ivar after: and after it
    :ivar problems: what is not as it was promised
    """

    names: dict[str, str]
    broken: dict[str, Damage]
    before: snapshot.Snapshot
    after: snapshot.Snapshot
    problems: list[str]


class Story:
    """The story of one cloud, told on a screen.

    :param screen: where to tell it
    :param plugin: whether the plugin is in nova-compute
    :param scenario: one thing to go wrong instead of all
    """

    def __init__(self, screen: screens.Screen, plugin: bool,
                 scenario: str | None) -> None:
        self._screen = screen
        self._plugin = plugin
        self._played = [DAMAGE[name] for name in
                        ([scenario] if scenario else options.STORY)]
        self._names: dict[str, str] = {}
        #: The cloud, once it is set up.
        self.cloud = fixture.Cloud(plugin=plugin, hosts=_HOSTS)

    def tell(self, resources: contextlib.ExitStack) -> Ending:
        """Tell the whole story.

        :param resources: the stack that owns the cloud; the caller closes it
        """
        server = self._set_up(resources)
        broken = self._break(server)
        before = self._look(server, broken, 'Before the hard reboot')
        self._reboot(server)
        after = self._look(server, broken, 'After the hard reboot')
        timeline = self.cloud.timeline(server.id, *broken)
        if self._plugin:
            problems = promise.broken(self._names, broken, before, after,
                                      timeline, self.cloud.log(_AUDIT))
            problems += self._journal(after)
        else:
            problems = self._damage(broken, after)
        return Ending(self._names, broken, before, after, problems)

    def _set_up(self, resources: contextlib.ExitStack) -> fixture.Server:
        screen = self._screen
        screen.heading(
            'A small cloud ' + ('with' if self._plugin else 'without')
            + ' the plugin')
        with screen.progress(
                'Cinder 29: API, scheduler and volume service'):
            cinder.shared().cinder()
        with screen.progress(
                f'Nova {version.version_string()}: API, conductor, scheduler '
                'and nova-compute on libvirt'):
            resources.enter_context(self.cloud)
        # Beside what is broken there is a healthy disk, too.
        count = max(2, len(self._played))
        with screen.progress(
                f'a server with a root disk and {count} volumes'):
            server = self.cloud.server(
                *(fixture.Disk(name=f'data-{number}')
                  for number in range(1, count + 1)),
                root='volume', name='web', host=_HOSTS[0])
        assert server.root is not None
        self._names[server.root] = 'root'
        for number, volume in enumerate(server.volumes, 1):
            self._names[volume] = f'data-{number}'
        screen.line()
        self._table(self.cloud.look(server))
        return server

    def _break(self, server: fixture.Server) -> dict[str, Damage]:
        """Cause all the damage that belongs to the story."""
        self._screen.heading('What goes wrong')
        broken = {}
        assert server.root is not None
        for damage, disk in zip(self._played, server.volumes):
            volume = server.root if damage.is_root else disk
            concerned = damage.break_it(self.cloud, server, volume) or volume
            self._names.setdefault(concerned, 'left-over')
            broken[concerned] = damage
            self._screen.point(self._names[concerned], damage.title)
        return broken

    def _look(self, server: fixture.Server, broken: dict[str, Damage],
              heading: str) -> snapshot.Snapshot:
        self._screen.heading(heading)
        view = self.cloud.look(server, *broken)
        self._table(view)
        return view

    def _table(self, view: snapshot.Snapshot) -> None:
        self._screen.table(verdict.HEADER, [
            verdict.row(name, view, volume)
            for volume, name in self._names.items()])
        self._screen.line()
        self._screen.say(f'The server is {view.status}'
                         + (f': {view.fault}.' if view.fault else '.'))

    def _reboot(self, server: fixture.Server) -> None:
        screen = self._screen
        screen.heading('The hard reboot')
        self.cloud.forget()
        started = time.monotonic()
        try:
            self.cloud.reboot(server)
        except fixture.APIError as error:
            # Some releases of Nova let a failed reboot show here.
            screen.say(f'The reboot failed: {error}')
        screen.command('openstack server reboot --hard --wait web')
        screen.line()
        screen.say(f'It took {time.monotonic() - started:.1f} s.')
        if not self._plugin:
            return
        screen.line()
        screen.say('This is what nova-compute logged:')
        screen.line()
        screen.command(
            f"grep -o '{_AUDIT}.*' nova-compute.log",
            '\n'.join(line[line.index(_AUDIT):]
                      for line in self.cloud.log(_AUDIT)), hanging=True)

    def _damage(self, broken: dict[str, Damage],
                after: snapshot.Snapshot) -> list[str]:
        """Explain what is left without the plugin; check that there is."""
        meanings: dict[str, list[str]] = {}
        for volume, name in self._names.items():
            meaning = verdict.of(after, volume).meaning
            if meaning:
                meanings.setdefault(meaning, []).append(name)
        self._screen.line()
        for meaning, names in meanings.items():
            self._screen.say(f'{", ".join(names)}: {meaning}')
        healed = _healed_by_nova()
        return [f'{damage.name}: there is no damage to show'
                for volume, damage in broken.items()
                if damage.name not in healed and after.status == 'ACTIVE'
                and verdict.of(after, volume).is_fine]

    # -- the journal -------------------------------------------------------

    def _journal(self, after: snapshot.Snapshot) -> list[str]:
        """Show the journal and how to undo; check that it is complete."""
        screen = self._screen
        entry = next((found.group(1) for found in (
            re.search(r'event=finished .*journal entry (\w+)', line)
            for line in reversed(self.cloud.log(_AUDIT))) if found), None)
        removed = [row.volume_id for row in after.removed_block_devices
                   if row.volume_id]
        if entry is None:
            return ['there is no journal entry'] if removed else []
        screen.heading('The journal, and the way back')
        self._run('journal', 'list')
        screen.line()
        shown = self._run('journal', 'show', entry, show=False)
        screen.command(f'nova-bdm-cleanup journal show {entry}',
                       _shortened(shown, 22))
        screen.line()
        undo = self._run('journal', 'undo', entry)
        missing = [volume for volume in removed
                   if volume not in shown or volume not in undo]
        return [f'the journal does not know volume {volume}'
                for volume in missing]

    def _run(self, *words: str, show: bool = True) -> str:
        """Run the host command on this nova-compute's configuration."""
        result = subprocess.run(
            [sys.executable, '-W', 'ignore', '-m',
             'nova_bdm_cleanup.admin.main', '--config-file',
             str(self.cloud.state / 'etc' / 'nova' / 'nova.conf'), *words],
            stdin=subprocess.DEVNULL, capture_output=True, text=True)
        output = result.stdout + result.stderr
        if show:
            self._screen.command(' '.join(('nova-bdm-cleanup', *words)),
                                 output)
        return output


def _shortened(text: str, count: int) -> str:
    lines = text.splitlines()
    if len(lines) <= count:
        return text
    return '\n'.join(
        lines[:count] + [f'... ({len(lines) - count} more lines)'])


def _healed_by_nova() -> set[str]:
    """Return the cases that leave no damage without the plugin either."""
    if hasattr(manager.ComputeManager, '_delete_dangling_bdms'):
        return {'healthy', 'stale-attachment'}
    return {'healthy'}
