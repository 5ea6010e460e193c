# SPDX-License-Identifier: Apache-2.0
"""The Debian package: installed, upgraded, downgraded, removed and purged.

All of it while nova-compute runs, which goes on with the code that it has
loaded until it is restarted.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import json
import os
import pathlib

from e2e import client, lab as lab_mod, plugin as plugin_mod
from e2e.scenarios import expect_stock
from e2e.trial import Suite, Trial
from nova_bdm_cleanup import VERSION

PACKAGE = Suite()

#: A version that is later than any release.
_LATER = '999.0.0'

#: The default store.  The nova-compute of these tests has another one.
_STORE = '/var/lib/nova/bdm-cleanup'

#: The records of dpkg and deb-systemd-helper.
_RECORDS = ('/var/lib/dpkg/info/', '/var/lib/systemd/deb-systemd-helper-')

#: Here stevedore caches the entry points of all packages.
_CACHE = '/var/lib/nova/.cache'

#: Directories below which a package could leave something.
_PLACES = ('/etc', '/opt', '/usr', '/var/lib/dpkg/info', '/var/lib/nova',
           '/var/lib/systemd')


def _files() -> set[str]:
    """Return the paths of all files and directories in these places."""
    return {
        os.path.join(parent, name) for place in _PLACES
        for parent, directories, names in os.walk(os.path.realpath(place))
        for name in (*directories, *names) if not parent.startswith(_CACHE)}


def _shipped() -> set[str]:
    """Return the real paths of what the installed package has."""
    listed = lab_mod.run('dpkg', '-L', plugin_mod.PACKAGE).stdout
    return {os.path.realpath(path) for path in listed.split()}


def _new(before: set[str]) -> list[str]:
    """Return what is there since then, without the records of packages."""
    return sorted(path for path in _files() - before
                  if not path.startswith(_RECORDS))


@contextlib.contextmanager
def _nova_compute_goes_on(t: Trial) -> Iterator[None]:
    """Check that the same process runs before and after a change."""
    running = t.stack.procs.pid('nova-compute')
    yield
    t.equal('process of nova-compute', t.stack.procs.pid('nova-compute'),
            running)


def _expect_cleanup(t: Trial) -> None:
    server = t.damaged('attachment-deleted')
    t.reboot(server)
    t.expect_clean(server)
    t.expect_log_line('event=removed', 'reason=volume-available')
    _delete_all(t)


def _delete_all(t: Trial) -> None:
    t.delete_all()
    t.volumes.clear()


def _expect_version(t: Trial, version: str) -> None:
    shown = json.loads(t.client.host('status', '--json').output)
    t.equal('running plugin', (shown['state'], shown['process']['version']),
            ('active', version))


@PACKAGE.add('Upgraded and downgraded')
def upgrade(t: Trial) -> str:
    own = plugin_mod.build(t.lab)
    later = plugin_mod.build(t.lab, _LATER)
    for package, running, version in (
            (later, VERSION, _LATER), (own, _LATER, VERSION)):
        with _nova_compute_goes_on(t):
            plugin_mod.install_package(package)
            _expect_version(t, running)
            _expect_cleanup(t)
        t.restart()
        _expect_version(t, version)
        _expect_cleanup(t)
    return ('nova-compute goes on and cleans up, and has the other version '
            'after its restart')


@PACKAGE.add('Installed, removed and purged')
def remove(t: Trial) -> str:
    package = plugin_mod.build(t.lab)
    t.compute.stop()
    plugin_mod.uninstall()
    before = _files()
    t.compute.restart(False)
    with _nova_compute_goes_on(t):
        plugin_mod.install_package(package)
    shipped = _shipped()
    t.equal('files of no package', [
        path for path in _new(before)
        if path not in shipped and '/__pycache__' not in path], [_STORE])
    t.equal('status', t.client.host('status').code, 1)
    t.restart()
    _expect_cleanup(t)

    # It has the default store if its configuration does not say otherwise.
    lab_mod.run('sudo', '-u', 'nova', client.HOST_COMMAND, 'check',
                check=False)
    with _nova_compute_goes_on(t):
        lab_mod.run('dpkg', '--remove', plugin_mod.PACKAGE)
        t.equal('files after the removal', _new(before),
                [_STORE, f'{_STORE}/store.sqlite'])
        t.equal('owner', pathlib.Path(_STORE, 'store.sqlite').owner(), 'nova')
        _expect_cleanup(t)
    t.restart()
    server = t.damaged('attachment-deleted')
    t.reboot(server)
    expect_stock(t, server)
    t.equal('log lines of the plugin', t.log_lines(), [])
    _delete_all(t)

    with _nova_compute_goes_on(t):
        plugin_mod.uninstall()
    t.equal('files after the purge', sorted(_files() ^ before), [])
    plugin_mod.install_package(package)
    t.restart()
    return ('nothing but the journal is left after the removal, and nothing '
            'after the purge; nova-compute goes on and cleans up until its '
            'restart')
