# SPDX-License-Identifier: Apache-2.0
"""The processes of the cloud: started, found again, stopped, killed.

There is no init system.  A process is known by its id *and* its start time,
so that no other process is signalled when an id is reused.
"""

from __future__ import annotations

from collections.abc import Callable
import json
import os
import pathlib
import signal
import socket
import subprocess
import time

from e2e import lab as lab_mod


class TimedOut(Exception):
    """A condition that did not become true in time."""


def wait_until(check: Callable[[], object], what: str, seconds: float = 60,
               pause: float = 0.3) -> None:
    """Poll until ``check`` returns something true and does not raise."""
    end = time.monotonic() + seconds
    while True:
        try:
            if check():
                return
            last = 'the condition is false'
        except Exception as exc:  # any error is possible while it starts
            last = f'{type(exc).__name__}: {exc}'
        if time.monotonic() > end:
            raise TimedOut(f'timed out after {seconds:.0f} s waiting for '
                           f'{what} ({last[:300]})')
        time.sleep(pause)


def is_listening(port: int) -> bool:
    """Return whether a process listens on the port."""
    with socket.socket() as probe:
        return probe.connect_ex(('127.0.0.1', port)) == 0


def _start_time(pid: int) -> str | None:
    """Return the kernel's start time of a live process, or None."""
    try:
        text = pathlib.Path(f'/proc/{pid}/stat').read_text()
    except OSError:
        return None
    fields = text.rpartition(')')[2].split()
    return None if fields[0] in 'ZX' else fields[19]


class Processes:
    """All processes of one cloud; the record is on disk."""

    #: Children of this interpreter, to be reaped when they end.
    _children: dict[int, subprocess.Popen[bytes]] = {}

    def __init__(self, lab: lab_mod.Lab) -> None:
        self.lab = lab

    def _record(self, name: str) -> pathlib.Path:
        return self.lab.pids / name

    def pid(self, name: str) -> int | None:
        """Return the id of the running process of that name."""
        try:
            pid, started = json.loads(self._record(name).read_text())
        except (OSError, ValueError):
            return None
        if pid in self._children:
            self._children[pid].poll()
        return pid if _start_time(pid) == started else None

    def is_running(self, name: str) -> bool:
        return self.pid(name) is not None

    def names(self) -> list[str]:
        """Return the recorded names, newest first."""
        records = [p for p in self.lab.pids.iterdir() if p.is_file()]
        records.sort(key=lambda p: p.stat().st_mtime, reverse=True)
        return [p.name for p in records]

    def start(self, name: str, command: list[str],
              env: dict[str, str] | None = None) -> None:
        """Start it in its own session, unless it already runs."""
        if self.is_running(name):
            return
        with self.lab.log_of(name).open('ab') as log:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=lab_mod.environment(**(env or {})),
                cwd=self.lab.directory, start_new_session=True)
        self._children[child.pid] = child
        self._record(name).write_text(
            json.dumps([child.pid, _start_time(child.pid)]))

    def stop(self, name: str, timeout: float = 10) -> None:
        """Send TERM to its process group, then KILL to the rest."""
        pid = self.pid(name)
        if pid is not None:
            if timeout:
                self._signal_group(pid, signal.SIGTERM)
            end = time.monotonic() + timeout
            while self._is_group_alive(pid) and time.monotonic() < end:
                time.sleep(0.1)
            self._signal_group(pid, signal.SIGKILL)
            child = self._children.pop(pid, None)
            if child is not None:
                child.wait()
        self._record(name).unlink(missing_ok=True)

    def kill(self, name: str) -> None:
        """Send SIGKILL, as the kernel does when memory runs out."""
        self.stop(name, timeout=0)

    def pause(self, name: str) -> None:
        self._signal_group(self.pid(name), signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self._signal_group(self.pid(name), signal.SIGCONT)

    @staticmethod
    def _signal_group(pid: int | None, number: int) -> None:
        if pid is None:
            return
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            pass

    def _is_group_alive(self, pid: int) -> bool:
        if pid in self._children:
            self._children[pid].poll()
        try:
            os.killpg(pid, 0)
        except ProcessLookupError:
            return False
        return True
