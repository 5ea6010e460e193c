# SPDX-License-Identifier: Apache-2.0
"""The child process of the demonstration: it runs where Nova is installed."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
import warnings

INTERRUPTED = 130


def stop(*arguments: object) -> None:
    """Stop at once.

    Nothing has to be cleaned up here: Cinder ends by itself when this process
    is gone, and the parent removes the directory that holds all files.
    """
    os._exit(INTERRUPTED)


def follow_parent() -> None:
    """Stop when the parent is gone, even if it was killed."""
    def wait() -> None:
        os.read(sys.stdin.fileno(), 1)
        stop()

    threading.Thread(target=wait, daemon=True).start()


signal.signal(signal.SIGINT, stop)
# Before eventlet may patch threads: the import of Nova's tests does that in
# some releases, and then a read of standard input blocks all green threads.
follow_parent()

# Nova logs to its log file.  What it and its libraries print besides, during
# import and teardown, is not part of the story.
logging.disable(logging.CRITICAL)
warnings.showwarning = lambda *arguments, **options: None

import contextlib  # noqa: E402

import keep  # noqa: E402
import options  # noqa: E402
import screen as screens  # noqa: E402
import story as stories  # noqa: E402  (imports Nova)
import verdict  # noqa: E402

from nova_bdm_cleanup.tests.cloud import cinder  # noqa: E402


def show_side_by_side(screen: screens.Screen, stock: stories.Ending,
                      plugin: stories.Ending) -> None:
    """Compare how the story ends without and with the plugin."""
    screen.heading('Side by side, after the hard reboot')
    rows = []
    # The clouds have different volumes by the same names.
    volumes = {name: volume for volume, name in plugin.names.items()}
    for volume, name in stock.names.items():
        without = verdict.judge(stock.after, volume)
        with_it = verdict.judge(plugin.after, volumes[name])
        damage = stock.damaged.get(volume)
        rows.append([
            (name, 'bold'), (damage.name if damage else '-', ''),
            (without.text, without.style), (with_it.text, with_it.style)])
    rows.append([('server', 'bold'), ('', ''), (stock.after.status, ''),
                 (plugin.after.status, '')])
    screen.table(('volume', 'what went wrong', 'Nova alone',
                  'Nova with the plugin'), rows)


def play(arguments: argparse.Namespace, screen: screens.Screen) -> int:
    """Play the story, with --both once without and once with the plugin.

    :returns: the exit code
    """
    problems: list[str] = []
    endings = []
    modes = [False, True] if arguments.both else [not arguments.stock]
    for plugin in modes:
        with contextlib.ExitStack() as resources:
            story = stories.Story(screen, plugin, arguments.scenario)
            middle = story.begin(resources)
            if arguments.keep == options.BROKEN:
                keep.keep_broken(screen, story.cloud, middle)
            ending = story.end(middle)
            endings.append(ending)
            problems += ending.problems
            if arguments.keep:
                conclude(screen, problems, arguments.stock)
                keep.keep_healed(screen, story.cloud, 1 if problems else 0)
    if arguments.both:
        show_side_by_side(screen, *endings)
    if not arguments.keep:
        conclude(screen, problems, arguments.stock)
    return 1 if problems else 0


def conclude(screen: screens.Screen, problems: list[str],
             stock: bool) -> None:
    """Print whether the story ended as expected."""
    screen.line()
    if not problems:
        result = ('this damage is expected without the plugin' if stock
                  else 'all is as expected')
        screen.line(screen.style(
            'Verified in Nova, Cinder, the guest, the host and the storage '
            f'back end: {result}.', 'bold', 'green'))
        return
    screen.line(screen.style('NOT as expected:', 'bold', 'red'))
    for problem in problems:
        screen.line(f'  {problem}')


def main() -> int:
    """Play the story on the screen and stop Cinder."""
    arguments = options.parse()
    screen = screens.Screen()
    logging.root.handlers[:] = [logging.NullHandler()]
    logging.disable(logging.NOTSET)
    try:
        return play(arguments, screen)
    finally:
        cinder.shared().close()


if __name__ == '__main__':
    code = main()
    sys.stdout.flush()
    # Threads of Nova's services may still run; they must not outlive the
    # cloud.
    os._exit(code)
