# SPDX-License-Identifier: Apache-2.0
"""The story: a server, damage to its volumes, and a hard reboot."""

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

_LOG_PREFIX = 'bdm-cleanup: '
#: The server is on the first host, the server that gets one of its volumes on
#: the second.
_HOSTS = ('compute1', 'compute2')


@dataclasses.dataclass
class Middle:
    """The story before the hard reboot.

    :ivar server: the server with the damaged volumes
    :ivar damaged: the damage to each damaged volume, by id
    :ivar before: the cloud
    """

    server: fixture.Server
    damaged: dict[str, Damage]
    before: snapshot.Snapshot


@dataclasses.dataclass
class Ending:
    """The end of the story.

    :ivar names: the name of each volume of the story, by id
    :ivar damaged: the damage to each damaged volume, by id
    :ivar before: the cloud before the hard reboot
    :ivar after: the cloud after it
    :ivar problems: a sentence for each thing that is not as expected
    """

    names: dict[str, str]
    damaged: dict[str, Damage]
    before: snapshot.Snapshot
    after: snapshot.Snapshot
    problems: list[str]


class Story:
    """The story of one cloud, printed on a screen.

    :param screen: the screen
    :param plugin: whether the plugin is in nova-compute
    :param scenario: the only scenario to play, or None for the whole story
    """

    def __init__(self, screen: screens.Screen, plugin: bool,
                 scenario: str | None) -> None:
        self._screen = screen
        self._plugin = plugin
        self._scenarios = [DAMAGE[name] for name in (
            [scenario] if scenario else options.STORY)]
        self._names: dict[str, str] = {}
        #: The cloud; it runs after :meth:`begin`.
        self.cloud = fixture.Cloud(plugin=plugin, hosts=_HOSTS)

    def begin(self, resources: contextlib.ExitStack) -> Middle:
        """Play the story up to the hard reboot.

        :param resources: the stack that stops the cloud; the caller closes it
            when the cloud is no longer used
        """
        server = self._set_up(resources)
        damaged = self._damage(server)
        return Middle(server, damaged, self._look(
            server, damaged, 'Before the hard reboot'))

    def end(self, middle: Middle) -> Ending:
        """Play the hard reboot and what comes after it."""
        server, damaged, before = (
            middle.server, middle.damaged, middle.before)
        self._reboot(server)
        after = self._look(server, damaged, 'After the hard reboot')
        timeline = self.cloud.timeline(server.id, *damaged)
        if self._plugin:
            problems = promise.find_broken(
                self._names, damaged, before, after, timeline,
                self.cloud.log(_LOG_PREFIX))
            problems += self._show_journal(after)
        else:
            problems = self._explain_damage(damaged, after)
        return Ending(self._names, damaged, before, after, problems)

    def _set_up(self, resources: contextlib.ExitStack) -> fixture.Server:
        """Start the cloud and make the server."""
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
        # Besides the damaged volumes the server has a healthy one.
        count = max(2, len(self._scenarios))
        with screen.progress(
                f'A server with a root disk and {count} volumes'):
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

    def _damage(self, server: fixture.Server) -> dict[str, Damage]:
        """Damage the volumes as the scenarios say."""
        self._screen.heading('What goes wrong')
        damaged = {}
        assert server.root is not None
        for damage, disk in zip(self._scenarios, server.volumes):
            volume = server.root if damage.is_root else disk
            affected = damage.inflict(self.cloud, server, volume) or volume
            self._names.setdefault(affected, 'left-over')
            damaged[affected] = damage
            self._screen.item(self._names[affected], damage.title)
        return damaged

    def _look(self, server: fixture.Server, damaged: dict[str, Damage],
              heading: str) -> snapshot.Snapshot:
        """Return the state of the cloud, and print it."""
        self._screen.heading(heading)
        view = self.cloud.look(server, *damaged)
        self._table(view)
        return view

    def _table(self, view: snapshot.Snapshot) -> None:
        self._screen.table(verdict.HEADER, [
            verdict.table_row(name, view, volume)
            for volume, name in self._names.items()])
        self._screen.line()
        self._screen.paragraph(
            f'The server is {view.status}'
            + (f': {view.fault}.' if view.fault else '.'))

    def _reboot(self, server: fixture.Server) -> None:
        """Reboot the server and print the plugin's log lines."""
        screen = self._screen
        screen.heading('The hard reboot')
        self.cloud.start_timeline()
        started = time.monotonic()
        try:
            self.cloud.reboot(server)
        except fixture.APIError as error:
            # In some releases of Nova the request itself fails.
            screen.paragraph(f'The reboot failed: {error}')
        screen.command('openstack server reboot --hard --wait web')
        screen.line()
        seconds = time.monotonic() - started
        screen.paragraph(f'The reboot took {seconds:.1f} s.')
        if not self._plugin:
            return
        screen.line()
        screen.paragraph('The plugin logged in nova-compute:')
        screen.line()
        screen.command(
            f"grep -o '{_LOG_PREFIX}.*' nova-compute.log",
            '\n'.join(line[line.index(_LOG_PREFIX):]
                      for line in self.cloud.log(_LOG_PREFIX)), hanging=True)

    def _explain_damage(self, damaged: dict[str, Damage],
                        after: snapshot.Snapshot) -> list[str]:
        """Explain the damage that is left without the plugin.

        :returns: a sentence for each scenario that left no damage
        """
        consequences: dict[str, list[str]] = {}
        for volume, name in self._names.items():
            consequence = verdict.judge(after, volume).consequence
            if consequence:
                consequences.setdefault(consequence, []).append(name)
        self._screen.line()
        for consequence, names in consequences.items():
            self._screen.paragraph(f'{", ".join(names)}: {consequence}')
        harmless = _harmless_scenarios()
        return [f'{damage.name}: no damage is left'
                for volume, damage in damaged.items()
                if damage.name not in harmless and after.status == 'ACTIVE'
                and verdict.judge(after, volume).is_fine]

    # -- the journal -------------------------------------------------------

    def _show_journal(self, after: snapshot.Snapshot) -> list[str]:
        """Show the journal and how to undo a cleanup.

        :returns: a sentence for each removed BDM that the journal lacks
        """
        screen = self._screen
        entry = next((found.group(1) for found in (
            re.search(r'event=finished .*journal entry (\w+)', line)
            for line in reversed(self.cloud.log(_LOG_PREFIX))) if found), None)
        removed = [row.volume_id for row in after.removed_block_devices
                   if row.volume_id]
        if entry is None:
            return ['there is no journal entry'] if removed else []
        screen.heading('The journal, and how to undo the cleanup')
        self._run('journal', 'list')
        screen.line()
        shown = self._run('journal', 'show', entry, show=False)
        screen.command(f'nova-bdm-cleanup journal show {entry}',
                       _shorten(shown, 22))
        screen.line()
        undo = self._run('journal', 'undo', entry)
        missing = [volume for volume in removed
                   if volume not in shown or volume not in undo]
        return [f'the journal lacks volume {volume}'
                for volume in missing]

    def _run(self, *words: str, show: bool = True) -> str:
        """Run nova-bdm-cleanup with the configuration of this nova-compute."""
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


def _shorten(text: str, count: int) -> str:
    lines = text.splitlines()
    if len(lines) <= count:
        return text
    return '\n'.join(
        lines[:count] + [f'... ({len(lines) - count} more lines)'])


def _harmless_scenarios() -> set[str]:
    """Return the scenarios that leave no damage without the plugin."""
    if hasattr(manager.ComputeManager, '_delete_dangling_bdms'):
        return {'healthy', 'stale-attachment'}
    return {'healthy'}
