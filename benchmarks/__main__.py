# SPDX-License-Identifier: Apache-2.0
"""The cost of the plugin: ``python3 -m benchmarks NAME``.

Each benchmark answers one question and runs in the environment of a real
Nova, or of the unit tests, which is built at the first use.  Arguments after
the name are for the benchmark::

    python3 -m benchmarks reboot --help
    python3 -m benchmarks reboot --rounds 5 --volumes 1 26 --json reboot.json

Only the standard library is used here: this runs before anything is
installed.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

BENCHMARKS = {
    'reboot': 'a healthy hard reboot: the plugin, Nova\'s own function, '
              'neither; and the bare requests',
    'dangling': 'a hard reboot with k dangling of n volumes, by phase',
    'boot': 'the boot of a host with many guests, with the plugin and '
            'without',
    'move': 'a healthy cold migration, and taking it back',
    'loader': 'the start of nova-compute with the package and without, in ms '
              'and MiB',
    'audit': '"openstack bdm audit" of 20,000 servers with 40,000 volumes, '
             'and a loop',
}
NOVA = 'nova-34'
CINDER = 'cinder-29'
#: Benchmarks without Cinder, whose environment takes a minute to build.
WITHOUT_CINDER = ('loader',)
#: Those of the commands; the environment of the unit tests has the client.
WITHOUT_NOVA = ('audit',)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog='benchmarks', formatter_class=argparse.RawTextHelpFormatter,
        description='Measure what the plugin costs.',
        epilog='\n'.join(f'{name:10}{text}'
                         for name, text in BENCHMARKS.items()))
    parser.add_argument('name', choices=BENCHMARKS, metavar='NAME',
                        help='one of those below')
    parser.add_argument('arguments', nargs=argparse.REMAINDER,
                        metavar='ARGUMENT',
                        help='for the benchmark; see NAME --help')
    chosen = parser.parse_args()
    # SIGTERM has to clean up like Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _run(chosen.name, chosen.arguments)
    except KeyboardInterrupt:
        print('interrupted', file=sys.stderr)
        return 130


def _run(name: str, arguments: list[str]) -> int:
    """Run a benchmark in its environment and return its exit code."""
    sys.path.insert(0, str(ROOT / 'tools'))
    import environments
    import run_tests

    try:
        if name in WITHOUT_NOVA:
            python = run_tests.unit_environment(sys.executable)
        else:
            if name not in WITHOUT_CINDER:
                environments.interpreter(CINDER)
            python = environments.interpreter(NOVA)
    except environments.EnvironmentFailure as failure:
        print(failure, file=sys.stderr)
        return 1
    with subprocess.Popen(
            [str(python), '-W', 'ignore', '-m', f'benchmarks.{name}',
             *arguments], cwd=ROOT,
            # A session of its own keeps Ctrl-C from reaching it and what it
            # started all at once; it is asked to stop in good order instead.
            start_new_session=True, env={
                **os.environ,
                # Nova 34's nova-compute uses native threads; its functional
                # test harness would otherwise not.
                'OS_NOVA_DISABLE_EVENTLET_PATCHING': 'true'}) as child:
        try:
            return child.wait()
        except KeyboardInterrupt:
            child.terminate()
            child.wait()
            raise


if __name__ == '__main__':
    sys.exit(main())
