# SPDX-License-Identifier: Apache-2.0
"""The one command of the end-to-end tests."""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import random
import sys
from typing import TYPE_CHECKING

from e2e import lab as lab_mod, machine
from e2e.devices import command as devices

if TYPE_CHECKING:
    from e2e import (
        runner as runner_mod,
        stack as stack_mod,
        trial as trial_mod,
    )

SUITES = ('scenarios', 'faults', 'commands', 'monitoring', 'moves', 'soak')


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog='e2e', description='The plugin inside a whole OpenStack Zed of '
        'Debian 12 packages on this machine. Needs root; for a machine (or '
        'a chroot, or a container) that is thrown away afterwards.')
    parser.add_argument('--dir', default=lab_mod.DEFAULT_DIR,
                        help='where everything lives (default: %(default)s)')
    parser.add_argument('--backend', choices=(*lab_mod.BACKENDS, 'both'),
                        default='both')
    commands = parser.add_subparsers(dest='command')
    run = commands.add_parser(
        'run', help='bring the cloud up, run, take it down (the default)')
    run.add_argument('--suite', action='append', choices=SUITES,
                     help='default: all; may be repeated')
    run.add_argument('--only', action='append', default=[],
                     help='shell pattern of the trials to run; may be '
                          'repeated')
    run.add_argument('--with', dest='plugin', action='store_const',
                     const='with', default='both',
                     help='only with the plugin')
    run.add_argument('--without', dest='plugin', action='store_const',
                     const='without', help='only stock Nova')
    run.add_argument('--seed', type=int, help='of the soak (default: new)')
    run.add_argument('--minutes', type=float, default=10,
                     help='length of the soak (default: %(default)s)')
    run.add_argument('--keep', action='store_true',
                     help='leave the cloud up for a look')
    up = commands.add_parser('up', help='only bring the cloud up')
    up.add_argument('--plugin', action='store_true',
                    help='with the plugin installed and enabled')
    down = commands.add_parser('down', help='take it down')
    down.add_argument('--wipe', action='store_true',
                      help='and delete its directory, results included')
    commands.add_parser('install', help='only install the packages')
    commands.add_parser(
        'alerts', help='show the alerts and the dashboard to a real '
        'Prometheus; needs no cloud')
    commands.add_parser('list', help='the names of all trials')
    devices.add_arguments(commands.add_parser(
        'devices', help='run the cases on real block devices, in a virtual '
        'machine; needs QEMU and root, and no cloud'))
    table = commands.add_parser(
        'table', help='the tables of the documentation, from results')
    table.add_argument('results', nargs='+', type=pathlib.Path,
                       help='the .jsonl file of a cloud, or the directory of '
                            'the results of devices')
    return parser


def main() -> None:
    parser = _parser()
    args = parser.parse_args()
    if args.command is None:
        args = parser.parse_args([*sys.argv[1:], 'run'])
    if args.command == 'devices':
        sys.exit(devices.run(args))
    if args.command == 'table':
        _table(args.results)
        return
    if args.command in ('list', 'alerts'):
        try:
            {'list': _list, 'alerts': _alerts}[args.command]()
        except machine.Unfit as exc:
            sys.exit(f'e2e: {exc}')
        except ModuleNotFoundError as exc:
            sys.exit(f'e2e: {exc.name} is missing; "e2e/run install" installs '
                     'the packages that the suites need')
        return
    backends = lab_mod.BACKENDS if args.backend == 'both' else (args.backend,)
    try:
        for backend in backends:
            machine.check(backend)
        sys.exit(_on_machine(args, backends))
    except machine.Unfit as exc:
        print(f'e2e: {exc}', file=sys.stderr)
        sys.exit(2)


def _alerts() -> None:
    from e2e import monitoring, prometheus
    missing = prometheus.missing()
    if missing:
        raise machine.Unfit(f'{" and ".join(missing)} are missing; '
                            '"e2e/run install" installs what is needed')
    print(monitoring.alone())


def _on_machine(args: argparse.Namespace, backends: tuple[str, ...]) -> int:
    # Down and wipe must work when packages are missing, too.
    from e2e import stack as stack_mod
    stacks = [stack_mod.Stack(lab_mod.Lab(
        pathlib.Path(args.dir).absolute() / backend, backend))
        for backend in backends]
    if args.command == 'down':
        for stack in stacks:
            _down(stack, args.wipe)
        return 0
    for backend in backends:
        machine.install(backend)
    if args.command == 'install':
        return 0
    if args.command == 'up':
        if len(stacks) != 1:
            raise machine.Unfit('up needs --backend loop or --backend rbd: '
                                'two clouds do not fit on one machine')
        from e2e import runner as runner_mod
        stacks[0].up()
        runner_mod.Runner(stacks[0], []).nova_compute(args.plugin)
        return 0
    return sum(_run(args, stack) for stack in stacks) and 1


def _down(stack: 'stack_mod.Stack', wipe: bool = False) -> None:
    from e2e import plugin
    stack.down(wipe)
    plugin.uninstall()


def _run(args: argparse.Namespace, stack: 'stack_mod.Stack') -> int:
    """All that was asked for on one back end; the number of failures."""
    from e2e import hosts, runner as runner_mod
    suites = args.suite or list(SUITES)
    stack.up()
    hosts.Hosts(stack).leave()
    runner = runner_mod.Runner(stack, args.only)
    try:
        for plugin in (False, True):
            if args.plugin != ('without' if plugin else 'with'):
                _run_trials(runner, plugin, suites)
        if args.plugin != 'without':
            _soak(args, runner, suites)
    finally:
        if not args.keep:
            _down(stack)
    print(f'{stack.lab.backend}: {runner.ran} trials, {runner.failed} '
          f'failed; results in {runner.path}, logs of failures beside it',
          flush=True)
    return runner.failed


def trials() -> 'dict[str, list[trial_mod.Scenario]]':
    """Those that run with and without the plugin, by suite."""
    from e2e import coming_back, commands, faults, monitoring, moves, scenarios
    return {
        'scenarios': coming_back.COMING_BACK + scenarios.SCENARIOS,
        'faults': faults.FAULTS,
        'commands': commands.COMMANDS,
        'monitoring': monitoring.MONITORING,
        'moves': moves.MOVES,
    }


def _run_trials(runner: 'runner_mod.Runner', plugin: bool,
                suites: list[str]) -> None:
    from e2e import client, hosts, moves, trial as trial_mod
    for suite, all_of_it in trials().items():
        wanted = [one for one in all_of_it
                  if runner.wanted(one.name) and (plugin or one.stock)]
        moving = suite == 'moves'
        if suite not in suites or not wanted or (
                moving and not runner.lab.is_rbd()):
            continue
        runner.kind = moves.Moves if moving else trial_mod.Trial
        with (hosts.instead_of_one(runner.stack) if moving
              else contextlib.nullcontext()):
            runner.nova_compute(plugin)
            if suite in ('commands', 'monitoring'):
                client.Client(runner.lab).install()
            for one in wanted:
                runner.trial(suite, one.name, one.title, plugin, one.run)
    runner.kind = trial_mod.Trial


def _soak(args: argparse.Namespace, runner: 'runner_mod.Runner',
          suites: list[str]) -> None:
    from e2e import soak

    if 'soak' not in suites or not runner.wanted('soak'):
        return
    runner.nova_compute(True)
    seed = args.seed
    if seed is None:
        seed = random.randrange(10 ** 6)

    def run(trial: 'trial_mod.Trial') -> str:
        trial.restart(**soak.OPTIONS)
        return soak.soak(runner.stack, seed, args.minutes)

    runner.trial('soak', 'soak', 'Random damage and repair', True, run)


def _list() -> None:
    for suite in trials().values():
        for one in suite:
            print(f'{one.name:20} {one.title}')


def _table(paths: list[pathlib.Path]) -> None:
    from e2e import results
    for path in [path for path in paths if path.is_dir()]:
        print(devices.table(path))
        paths.remove(path)
    loaded = results.load(paths)
    for suite in sorted({one.suite for one in loaded}):
        print(f'{suite}\n')
        print(results.table(loaded, suite))
