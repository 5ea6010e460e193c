# SPDX-License-Identifier: Apache-2.0
"""See the plugin work in one command: ``python3 demo``.

This part needs only the standard library.  It prepares an environment with a
real Nova and one with a real Cinder, plays the story in a child process in the
environment of Nova, and leaves no process and no file behind.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

if sys.version_info < (3, 9):
    sys.exit('The demonstration needs Python 3.9 or later.')

CHECKOUT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / 'tools')]

import environments  # noqa: E402
import options  # noqa: E402

from nova_bdm_cleanup.tests.cloud import damage  # noqa: E402

INTERRUPTED = 130
#: Seconds that the child process gets to stop by itself.
STOP_TIMEOUT = 20


def list_scenarios() -> None:
    """Print all scenarios and mark those of the story."""
    width = max(map(len, damage.DAMAGE))
    for name, kind in damage.DAMAGE.items():
        in_story = '*' if name in options.STORY else ' '
        print(f'{in_story} {name:{width}}  {kind.title}')
    print('\n* part of the story that is played without --scenario')


def play(interpreter: pathlib.Path, directory: str) -> int:
    """Run the story in a child process.

    :param interpreter: the Python of an environment with Nova
    :param directory: the directory for all files; the caller removes it
    :returns: its exit code; 130 after an interrupt, unless the story was over
        and the cloud was kept running until the interrupt
    """
    child = subprocess.Popen(
        [str(interpreter), '-W', 'ignore',
         str(pathlib.Path(__file__).with_name('inside.py')), *sys.argv[1:]],
        # The child ends when this pipe is closed, so also when this process
        # is killed.  In a session of its own it does not get the terminal's
        # Ctrl-C together with the processes that it started: this process
        # asks it to stop in order instead.
        stdin=subprocess.PIPE, start_new_session=True,
        env={**os.environ, 'TMPDIR': directory,
             'PYTHONPATH': str(CHECKOUT), 'PYTHONDONTWRITEBYTECODE': '1',
             # The default of Nova 34; earlier releases do not read it.
             'OS_NOVA_DISABLE_EVENTLET_PATCHING': 'true'
             if options.parse().nova >= 34 else 'false'})
    try:
        return child.wait()
    except KeyboardInterrupt:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        child.send_signal(signal.SIGINT)
        try:
            return child.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            return INTERRUPTED


def remove(directory: str) -> None:
    """Remove a directory that a dying process may still be writing to."""
    deadline = time.monotonic() + STOP_TIMEOUT
    while os.path.exists(directory) and time.monotonic() < deadline:
        shutil.rmtree(directory, ignore_errors=True)
        time.sleep(0.05)


def main() -> int:
    """Play the story and clean up after it."""
    arguments = options.parse()
    if arguments.list:
        list_scenarios()
        return 0
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        try:
            nova = environments.interpreter(f'nova-{arguments.nova}')
            environments.interpreter('cinder-29')
        except environments.EnvironmentFailure as failure:
            print(failure, file=sys.stderr)
            return 1
        directory = tempfile.mkdtemp(prefix='bdm-cleanup-demo-')
        try:
            code = play(nova, directory)
        finally:
            remove(directory)
    except KeyboardInterrupt:
        code = INTERRUPTED
    if code == INTERRUPTED:
        print('\nInterrupted; everything is stopped and removed.',
              file=sys.stderr)
    return code


if __name__ == '__main__':
    sys.exit(main())
