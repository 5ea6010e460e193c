# SPDX-License-Identifier: Apache-2.0
"""The command of the end-to-end tests."""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import sys

from e2e import (
    aftermath,
    commands,
    faults,
    hosts,
    lab as lab_mod,
    machine,
    move_faults,
    moves,
    package,
    plugin as plugin_mod,
    results,
    runner as runner_mod,
    scenarios,
    stack as stack_mod,
    starts,
    trial as trial_mod,
)
from e2e.devices import command as devices

SUITES = ('scenarios', 'faults', 'commands', 'moves', 'aftermath', 'package')

#: The suites with two compute hosts.
_TRIAL_CLASSES: dict[str, type[trial_mod.Trial]] = {
    'moves': moves.Moves, 'aftermath': aftermath.Aftermath}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog='e2e', description='Test the plugin in a complete OpenStack '
        'Zed of Debian 12 packages on this machine. Needs root. Use a '
        'machine, a chroot or a container that you can delete afterwards.')
    parser.add_argument('--dir', default=lab_mod.DEFAULT_DIR,
                        help='directory of all files (default: %(default)s)')
    parser.add_argument('--backend', choices=(*lab_mod.BACKENDS, 'both'),
                        default='both')
    commands = parser.add_subparsers(dest='command')
    run = commands.add_parser(
        'run', help='start the cloud, run the scenarios, stop the cloud (the '
                    'default)')
    run.add_argument('--suite', action='append', choices=SUITES,
                     help='suite to run (default: all); may be repeated')
    run.add_argument('--only', action='append', default=[],
                     help='shell pattern of the scenarios to run; may be '
                          'repeated')
    run.add_argument('--with', dest='plugin', action='store_const',
                     const='with', default='both',
                     help='only with the plugin')
    run.add_argument('--without', dest='plugin', action='store_const',
                     const='without', help='only stock Nova')
    run.add_argument('--keep', action='store_true',
                     help='leave the cloud running')
    down = commands.add_parser('down', help='stop the cloud')
    down.add_argument('--wipe', action='store_true',
                      help='also delete its directory and the results')
    commands.add_parser('install', help='only install the packages')
    commands.add_parser('list', help='print the names of all scenarios')
    devices.add_arguments(commands.add_parser(
        'devices', help='run the cases on real block devices in a virtual '
        'machine; needs QEMU and root, but no cloud'))
    table = commands.add_parser(
        'table', help='print results as the tables of the documentation')
    table.add_argument('results', nargs='+', type=pathlib.Path,
                       help='.jsonl file of a cloud, or directory of the '
                            'results of devices')
    return parser


def main() -> None:
    parser = _parser()
    args = parser.parse_args()
    if args.command is None:
        args = parser.parse_args([*sys.argv[1:], 'run'])
    without_cloud = {'devices': devices.run, 'table': _table, 'list': _list}
    try:
        sys.exit(without_cloud.get(args.command, _on_machine)(args))
    except machine.Unsuitable as exc:
        print(f'e2e: {exc}', file=sys.stderr)
        sys.exit(2)


def _on_machine(args: argparse.Namespace) -> int:
    backends = lab_mod.BACKENDS if args.backend == 'both' else (args.backend,)
    for backend in backends:
        machine.check(backend)
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
    return sum(_run(args, stack) for stack in stacks) and 1


def _down(stack: stack_mod.Stack, wipe: bool = False) -> None:
    stack.down(wipe)
    plugin_mod.uninstall()


def _run(args: argparse.Namespace, stack: stack_mod.Stack) -> int:
    """Run everything requested on one back end; count the failures."""
    stack.up()
    hosts.Hosts(stack).shut_down()
    runner = runner_mod.Runner(stack, args.only)
    try:
        for plugin in (False, True):
            if args.plugin != ('without' if plugin else 'with'):
                for name, suite in trials().items():
                    if not args.suite or name in args.suite:
                        _run_suite(runner, plugin, name, suite)
    finally:
        if not args.keep:
            _down(stack)
    print(f'{stack.lab.backend}: {runner.ran} trials, {runner.failed} '
          f'failed; results in {runner.path}, logs of failures beside it',
          flush=True)
    return runner.failed


def trials() -> dict[str, list[trial_mod.Scenario]]:
    """Return the trials of each suite."""
    return {
        'scenarios': starts.STARTS + scenarios.SCENARIOS,
        'faults': faults.FAULTS,
        'commands': commands.COMMANDS,
        'moves': moves.MOVES + move_faults.MOVE_FAULTS,
        'aftermath': aftermath.AFTERMATH,
        'package': package.PACKAGE,
    }


def _run_suite(runner: runner_mod.Runner, plugin: bool, name: str,
               suite: list[trial_mod.Scenario]) -> None:
    selected = [one for one in suite
                if runner.is_selected(one.name) and (plugin or one.stock)]
    if not selected:
        return
    runner.trial_class = _TRIAL_CLASSES.get(name, trial_mod.Trial)
    with (hosts.two_hosts(runner.stack) if name in _TRIAL_CLASSES
          else contextlib.nullcontext()):
        runner.set_up_nova_compute(plugin)
        if name in ('commands', 'aftermath'):
            trial_mod.Trial(runner.stack, plugin).client.configure()
        for one in selected:
            runner.run_trial(name, one, plugin)


def _list(args: argparse.Namespace) -> None:
    for suite in trials().values():
        for one in suite:
            print(f'{one.name:27} {one.title}')


def _table(args: argparse.Namespace) -> None:
    for path in args.results:
        if path.is_dir():
            print(devices.table(path))
    loaded = results.load([one for one in args.results if not one.is_dir()])
    for suite in sorted({one.suite for one in loaded}):
        print(f'{suite}\n')
        print(results.table(loaded, suite))
