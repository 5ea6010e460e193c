# SPDX-License-Identifier: Apache-2.0
"""The operators' commands, as the Debian package installs them.

``openstack bdm`` is a plugin of Debian's OpenStackClient, which knows the
cloud only from a clouds.yaml.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
from typing import Any

from e2e import lab as lab_mod

#: The names of clouds.yaml.
ADMIN, MEMBER = 'e2e-admin', 'e2e-member'

HOST_COMMAND = '/usr/bin/nova-bdm-cleanup'

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
        self.clouds = lab.directory / 'clouds.yaml'

    def configure(self) -> None:
        self.clouds.write_text(CLOUDS.format(
            admin=ADMIN, member=MEMBER, password=lab_mod.PASSWORD,
            region=lab_mod.REGION))

    def openstack(self, cloud: str, *words: str) -> Answer:
        """Run ``openstack`` as the user of one of the clouds."""
        return answer_of('/usr/bin/openstack', '--os-cloud', cloud, *words,
                         OS_CLIENT_CONFIG_FILE=str(self.clouds))

    def bdm(self, cloud: str, command: str, *words: str) -> Answer:
        """Run ``openstack bdm``; the table comes as JSON."""
        return self.openstack(cloud, 'bdm', command, '-f', 'json', *words)

    def host(self, *words: str) -> Answer:
        """Run ``nova-bdm-cleanup`` with nova-compute's configuration."""
        return answer_of(HOST_COMMAND, '--config-file',
                         str(self.lab.nova_conf), *words)


def answer_of(*command: str, **env: str) -> Answer:
    """Run a command of an operator to its end."""
    done = lab_mod.run(*command, check=False, env=env, timeout=600,
                       stdin=subprocess.DEVNULL)
    return Answer(done.returncode, done.stdout, done.stderr)
