# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""The one option that is read before anything else is imported.

Both the entry point and the options take it from here.  Standard library only
at import, as in the entry point itself.
"""

from __future__ import annotations

from typing import Any

GROUP = 'bdm_cleanup'


def enabled_option() -> Any:
    """``[bdm_cleanup] enabled``."""
    from oslo_config import cfg

    return cfg.BoolOpt(
        'enabled',
        default=False,
        help="""
Clean up dangling block device mappings when a server is rebooted hard or
started (see ``triggers``).

The package does nothing in nova-compute until this is set. Restart
nova-compute after changing it.
""")
