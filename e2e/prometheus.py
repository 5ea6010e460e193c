# SPDX-License-Identifier: Apache-2.0
"""node_exporter and Prometheus of Debian's packages, with our alerts.

node_exporter runs as its package's own user, which may read no more than it
may anywhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
import contextlib
import json
import pathlib
import shutil
from typing import Any
import urllib.parse
import urllib.request

from e2e import lab as lab_mod, processes

PROJECT = pathlib.Path(__file__).resolve().parents[1]
RULES = PROJECT / 'etc' / 'prometheus' / 'bdm-cleanup.rules.yaml'
DASHBOARD = PROJECT / 'etc' / 'grafana' / 'bdm-cleanup.json'

#: Of both packages.
_USER = 'prometheus'

_CONFIG = """\
global:
  scrape_interval: 1s
  evaluation_interval: 1s
rule_files:
  - {rules}
scrape_configs:
  - job_name: node
    static_configs:
      - targets: ['127.0.0.1:{port}']
        labels:
          instance: {host}
"""

#: An alert's name and state.
Alert = tuple[str, str]


class Prometheus:
    """Both programs, and a directory for what they read.

    :param lab: whose directory they live in
    """

    def __init__(self, lab: lab_mod.Lab) -> None:
        self._lab = lab
        self._procs = processes.Processes(lab)
        self._directory = lab.directory / 'prometheus'
        #: Where the textfiles go.
        self.textfiles = self._directory / 'textfiles'

    def _start(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)
        self.textfiles.mkdir(parents=True)
        data = self._directory / 'data'
        data.mkdir()
        shutil.chown(data, _USER)
        # The checkout may be where this user cannot look.
        rules = self._directory / RULES.name
        shutil.copy(RULES, rules)
        config = self._directory / 'prometheus.yml'
        config.write_text(_CONFIG.format(
            rules=rules, port=lab_mod.PORTS['node-exporter'],
            host=lab_mod.HOST))
        self._run('prometheus-node-exporter', 'node-exporter',
                  '--collector.disable-defaults', '--collector.textfile',
                  f'--collector.textfile.directory={self.textfiles}')
        self._run('prometheus', 'prometheus', f'--config.file={config}',
                  f'--storage.tsdb.path={data}')
        processes.wait_until(
            lambda: self.query('up{job="node"} == 1'), 'the first scrape')

    @contextlib.contextmanager
    def running(self) -> Iterator[Prometheus]:
        """Begin with no data and no textfile."""
        self._stop()
        try:
            self._start()
            yield self
        finally:
            self._stop()

    def _stop(self) -> None:
        for name in ('prometheus', 'node-exporter'):
            self._procs.stop(name)

    def _run(self, program: str, name: str, *arguments: str) -> None:
        address = f'127.0.0.1:{lab_mod.PORTS[name]}'
        self._procs.start(name, [
            'runuser', '-u', _USER, '--', program,
            f'--web.listen-address={address}', *arguments])

    def query(self, expression: str) -> list[Any]:
        """What a query gives now; it raises when it is wrong."""
        found: list[Any] = self._get(
            'query?' + urllib.parse.urlencode({'query': expression}))[
                'result']
        return found

    def value(self, expression: str) -> float:
        """Of a query that has one answer."""
        [one] = self.query(expression)
        return float(one['value'][1])

    def alerts(self) -> set[Alert]:
        return {(one['labels']['alertname'], one['state'])
                for one in self._get('alerts')['alerts']}

    def wait_alerts(self, check: Callable[[set[Alert]], bool], what: str,
                    seconds: float = 60) -> None:
        """Wait for what the alerts are to be; say what they are if not."""
        def good() -> bool:
            seen = self.alerts()
            if not check(seen):
                raise AssertionError(f'alerts: {sorted(seen)}')
            return True

        processes.wait_until(good, what, seconds)

    def dashboard(self) -> Mapping[str, list[Any]]:
        """What each panel of the dashboard shows."""
        panels = json.loads(DASHBOARD.read_text())['panels']
        return {panel['title']: [
            sample for target in panel['targets']
            for sample in self.query(
                target['expr'].replace('$host', '.*').replace(
                    '$__rate_interval', '1m'))]
            for panel in panels if panel['type'] != 'row'}

    def _get(self, path: str) -> Any:
        # Past any proxy of the caller's.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        port = lab_mod.PORTS['prometheus']
        with opener.open(f'http://127.0.0.1:{port}/api/v1/{path}',
                         timeout=10) as answer:
            return json.load(answer)['data']


def complaints(text: str) -> str:
    """What ``promtool check metrics`` says of a file."""
    done = lab_mod.run('promtool', 'check', 'metrics', input=text,
                       check=False)
    return done.stdout + done.stderr if done.returncode else ''
