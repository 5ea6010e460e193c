# SPDX-License-Identifier: Apache-2.0
"""The operators' commands, installed as an operator installs them.

``openstack bdm`` is installed from this checkout with its extra ``[cli]``
into a virtual environment that sees nothing of Debian's OpenStack, and knows
the cloud only from a clouds.yaml.  ``nova-bdm-cleanup`` is the one that is
installed with the plugin.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
from typing import Any

from e2e import lab as lab_mod, plugin as plugin_mod

#: The names of clouds.yaml.
ADMIN, MEMBER = 'e2e-admin', 'e2e-member'

HOST_COMMAND = '/usr/local/bin/nova-bdm-cleanup'

CLOUDS = """\
clouds:
  {admin}:
    auth: &auth
      auth_url: http://127.0.0.1:5000/v3
      username: admin
      password: {password}
      project_name: admin
      user_domain_id: default
      project_domain_id: default
    region_name: {region}
  {member}:
    auth:
      <<: *auth
      username: demo
      project_name: demo
    region_name: {region}
"""


@dataclasses.dataclass(frozen=True)
class Answer:
    """The output and exit code of a command."""

    code: int
    output: str
    errors: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return the table, which is requested as JSON."""
        rows: list[dict[str, Any]] = json.loads(self.output)
        return rows

    def __str__(self) -> str:
        return f'exit code {self.code}\n{self.output}\n{self.errors}'


class Client:
    """The commands of one lab."""

    def __init__(self, lab: lab_mod.Lab) -> None:
        self.lab = lab
        self.directory = lab.directory / 'client'
        self.python = self.directory / 'bin' / 'python'

    def install(self) -> None:
        """Install this checkout; keep the dependencies of the last time."""
        if not self.python.exists():
            # Debian packages pip apart from the wheel that venv installs it
            # from, so Debian's pip installs into the environment.
            lab_mod.run(lab_mod.PYTHON, '-m', 'venv', '--without-pip',
                        str(self.directory))
        wheel = plugin_mod.wheel(self.lab)
        pip = [*plugin_mod.PIP, '--python', str(self.python), 'install']
        lab_mod.run(*pip, f'{wheel}[cli]', env=lab_mod.package_index_env())
        # The version does not change with every change of the source.
        lab_mod.run(*pip, '--no-deps', '--force-reinstall', str(wheel))
        (self.directory / 'clouds.yaml').write_text(CLOUDS.format(
            admin=ADMIN, member=MEMBER, password=lab_mod.PASSWORD,
            region=lab_mod.REGION))

    def openstack(self, cloud: str, *words: str) -> Answer:
        """Run ``openstack`` as the user of one of the clouds."""
        return _answer(
            str(self.directory / 'bin' / 'openstack'), '--os-cloud', cloud,
            *words,
            OS_CLIENT_CONFIG_FILE=str(self.directory / 'clouds.yaml'))

    def bdm(self, cloud: str, command: str, *words: str) -> Answer:
        """Run ``openstack bdm``; the table comes as JSON."""
        return self.openstack(cloud, 'bdm', command, '-f', 'json', *words)

    def host(self, *words: str) -> Answer:
        """Run ``nova-bdm-cleanup`` with nova-compute's configuration."""
        return _answer(HOST_COMMAND, '--config-file',
                       str(self.lab.nova_conf), *words)


def _answer(*command: str, **env: str) -> Answer:
    done = lab_mod.run(*command, check=False, env=env, timeout=600,
                       stdin=subprocess.DEVNULL)
    return Answer(done.returncode, done.stdout, done.stderr)
