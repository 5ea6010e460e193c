# SPDX-License-Identifier: Apache-2.0
"""Runner of consecutive trials that keeps the logs of a failure."""

from __future__ import annotations

from collections.abc import Sequence
import fnmatch
import shutil
import time
import traceback

from e2e import (
    cloud as cloud_mod,
    logs as logs_mod,
    plugin as plugin_mod,
    processes,
    results,
    stack as stack_mod,
    trial as trial_mod,
)


class Runner:
    """A runner on one back end that records the results.

    :param only: shell patterns of the names to run; empty for all
    """

    def __init__(self, stack: stack_mod.Stack, only: Sequence[str]) -> None:
        self.stack = stack
        self.lab = stack.lab
        self.only = only
        self.path = self.lab.results / f'{self.lab.backend}.jsonl'
        self.failed = 0
        self.ran = 0
        #: The class of the running suite.
        self.trial_class: type[trial_mod.Trial] = trial_mod.Trial

    def is_selected(self, name: str) -> bool:
        return not self.only or any(
            fnmatch.fnmatch(name, pattern) for pattern in self.only)

    def set_up_nova_compute(self, plugin: bool) -> None:
        """Set nova-compute up for the following trials."""
        if plugin:
            plugin_mod.install(self.lab)
        else:
            self.stack.procs.stop('nova-compute')
            plugin_mod.uninstall()
        self.trial_class(self.stack, plugin).compute.restart(plugin)
        # An interrupted run leaves its servers.
        cloud_mod.Cloud(self.stack).delete_all()

    def run_trial(self, suite: str, scenario: trial_mod.Scenario,
                  plugin: bool) -> None:
        """Run a trial in a cloud without servers and volumes."""
        began = time.monotonic()
        trial = self.trial_class(self.stack, plugin)
        name = scenario.name
        try:
            outcome, passed = scenario.run(trial), True
        except Exception as exc:
            outcome, passed = f'{type(exc).__name__}: {exc}', False
            self.keep_logs(f'{name}-{"plugin" if plugin else "stock"}',
                           traceback.format_exc(), trial)
        try:
            self._clean_up(trial, passed)
        except Exception as exc:
            traceback.print_exc()
            if passed:
                outcome, passed = f'the cleanup failed: {exc}', False
        result = results.Result(
            suite, name, scenario.title, self.lab.backend, plugin, passed,
            outcome, round(time.monotonic() - began, 1))
        results.append(self.path, result)
        print(result.line(), flush=True)
        self.ran += 1
        self.failed += not passed

    def _clean_up(self, trial: trial_mod.Trial, passed: bool) -> None:
        # A failed trial may leave nova-compute down or with its options.
        compute = trial.compute
        if not passed or (compute.plugin, compute.extra) not in (
                (None, {}), (trial.plugin, {})):
            compute.restart(trial.plugin)
        elif not compute.is_running():
            compute.start()
        trial.delete_all()
        # The hourly limit counts removals in the store, and many trials run
        # in an hour.
        for path in trial.plugin_files('store*'):
            path.unlink()
        # On a busy machine a guest holds its devices for a moment longer.
        processes.wait_until(
            lambda: not stack_mod.loop_devices(self.lab),
            'the end of all loop devices', 20)

    def keep_logs(self, name: str, text: str,
                  trial: trial_mod.Trial) -> None:
        """Copy the logs of a failure to where the next run keeps them."""
        target = self.lab.results / 'failures' / (
            f'{time.strftime("%H%M%S")}-{self.lab.backend}-{name}')
        target.mkdir(parents=True, exist_ok=True)
        (target / 'failure.txt').write_text(
            text + '\n' + '\n'.join(trial.log_lines()) + '\n')
        for service in logs_mod.SERVICES:
            (target / f'{service}.log').write_text(
                '\n'.join(trial.logs.lines(service)) + '\n')
        for path in trial.plugin_files():
            shutil.copy2(path, target)
