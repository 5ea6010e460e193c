# SPDX-License-Identifier: Apache-2.0
"""Rules that a user satisfies, by Cinder's own policy engine.

Run by :func:`nova_bdm_cleanup.tests.cloud.cinder.allowed` with the interpreter
of an environment that has Cinder.  It reads cases as JSON from its standard
input and prints one list of rules for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import json
import pathlib
import sys
import tempfile

from cinder import policies
from oslo_config import cfg
from oslo_policy import opts, policy


def allowed(path: pathlib.Path, rules: Mapping[str, str],
            roles: Sequence[str], project: str, new_defaults: bool
            ) -> list[str]:
    """Return the rules that a user of the project "own" satisfies.

    :param path: where to write the rules
    :param rules: those that differ from Cinder's defaults
    :param project: the project of the volume that is asked about
    :param new_defaults: the option ``enforce_new_defaults``
    """
    # JSON is YAML.
    path.write_text(json.dumps(rules))
    conf = cfg.ConfigOpts()
    conf([], default_config_files=[])
    opts._register(conf)
    conf.set_override('policy_file', str(path), 'oslo_policy')
    conf.set_override('enforce_new_defaults', new_defaults, 'oslo_policy')
    enforcer = policy.Enforcer(conf)
    enforcer.suppress_deprecation_warnings = True
    enforcer.register_defaults(policies.list_rules())
    # As Cinder's context does.
    user = {'user_id': 'user', 'project_id': 'own', 'roles': list(roles),
            'is_admin_project': True}
    user['is_admin'] = enforcer.enforce('context_is_admin', user, user)
    target = {'project_id': project, 'user_id': 'owner'}
    return [rule.name for rule in policies.list_rules()
            if enforcer.enforce(rule.name, target, user)]


if __name__ == '__main__':
    with tempfile.TemporaryDirectory() as directory:
        json.dump([allowed(pathlib.Path(directory, str(number)), **case)
                   for number, case in enumerate(json.load(sys.stdin))],
                  sys.stdout)
