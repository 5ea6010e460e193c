# SPDX-License-Identifier: Apache-2.0
"""The part of the demonstration that runs where Nova is installed."""

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

    Nothing has to be tidied up here: Cinder ends by itself when this process
    is gone, and the parent removes the one directory that holds all files.
    """
    os._exit(INTERRUPTED)


def follow_parent() -> None:
    """Stop when the parent is gone, even if it was killed."""
    def wait() -> None:
        os.read(sys.stdin.fileno(), 1)
        stop()

    threading.Thread(target=wait, daemon=True).start()


signal.signal(signal.SIGINT, stop)
# While threads are still threads: the import of Nova's tests may turn them
# into something that a read of standard input blocks altogether.
follow_parent()

# Nova logs to its log; what it and its libraries say besides, while they are
# imported or torn down, is not part of the story.
logging.disable(logging.CRITICAL)
warnings.showwarning = lambda *arguments, **options: None

import contextlib  # noqa: E402

import keep  # noqa: E402
import options  # noqa: E402
import screen as screens  # noqa: E402
import story as stories  # noqa: E402  (imports Nova)
import verdict  # noqa: E402

from nova_bdm_cleanup.tests.cloud import cinder  # noqa: E402


def side_by_side(screen: screens.Screen, stock: stories.Ending,
                 plugin: stories.Ending) -> None:
    """Compare how the story ends without and with the plugin."""
    screen.heading('Side by side, after the hard reboot')
    rows = []
    # The volumes differ, their names do not.
    volumes = {name: volume for volume, name in plugin.names.items()}
    for volume, name in stock.names.items():
        without = verdict.of(stock.after, volume)
        with_it = verdict.of(plugin.after, volumes[name])
        damage = stock.broken.get(volume)
        rows.append([
            (name, 'bold'), (damage.name if damage else '-', ''),
            (without.text, without.style), (with_it.text, with_it.style)])
    rows.append([('server', 'bold'), ('', ''), (stock.after.status, ''),
                 (plugin.after.status, '')])
    screen.table(('volume', 'what went wrong', 'Nova alone',
                  'Nova with the plugin'), rows)


def tell(arguments: argparse.Namespace, screen: screens.Screen) -> int:
    problems: list[str] = []
    endings = []
    modes = [False, True] if arguments.both else [not arguments.stock]
    for plugin in modes:
        with contextlib.ExitStack() as resources:
            story = stories.Story(screen, plugin, arguments.scenario)
            ending = story.tell(resources)
            endings.append(ending)
            problems += ending.problems
            if arguments.keep:
                conclude(screen, problems)
                keep.keep(screen, story.cloud, 1 if problems else 0)
    if arguments.both:
        side_by_side(screen, *endings)
    if not arguments.keep:
        conclude(screen, problems)
    return 1 if problems else 0


def conclude(screen: screens.Screen, problems: list[str]) -> None:
    screen.line()
    if not problems:
        screen.line(screen.style(
            'Verified: Nova, Cinder, the guest, the host and the back end '
            'were asked, and it ended as told.', 'bold', 'green'))
        return
    screen.line(screen.style('NOT as promised:', 'bold', 'red'))
    for problem in problems:
        screen.line(f'  {problem}')


def main() -> int:
    arguments = options.parse()
    screen = screens.Screen()
    logging.root.handlers[:] = [logging.NullHandler()]
    logging.disable(logging.NOTSET)
    try:
        return tell(arguments, screen)
    finally:
        cinder.shared().close()


if __name__ == '__main__':
    code = main()
    sys.stdout.flush()
    # Threads of Nova's services may outlive the story; they must not
    # outlive the cloud.
    os._exit(code)
