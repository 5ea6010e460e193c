# SPDX-License-Identifier: Apache-2.0
"""The one cloud of this process, kept from test to test.

Starting a cloud takes more than a second, and Nova has so much in global
variables that there can be only one at a time.  It is kept while the tests
want one with the same arguments, and reset between them: see
:meth:`fixture.Cloud.reset`.
"""

from __future__ import annotations

import atexit
from typing import Any

from nova_bdm_cleanup.tests.cloud import fixture

_arguments: dict[str, Any] = {}
_cloud: fixture.Cloud | None = None
_user: type | None = None


def get(user: type, arguments: dict[str, Any]) -> fixture.Cloud:
    """Return a cloud that looks as if it had just been started.

    :param user: the class of the test; every class finds nova-computes that
        have just been started, too
    :param arguments: those of :class:`fixture.Cloud`
    """
    global _arguments, _cloud, _user
    cloud = _cloud if arguments == _arguments else None
    if cloud is not None:
        # Keep no cloud whose reset fails.
        _cloud = None
        try:
            cloud.reset(restart=user is not _user)
        except BaseException:
            cloud.cleanUp()
            raise
    else:
        close()
        cloud = fixture.Cloud(**arguments)
        cloud.setUp()
        cloud.save()
        # Stop it before the parts that clouds share, which are already
        # registered.
        atexit.unregister(close)
        atexit.register(close)
    _arguments, _cloud, _user = arguments, cloud, user
    return cloud


def close() -> None:
    """Stop the cloud."""
    global _cloud
    if _cloud is not None:
        cloud, _cloud = _cloud, None
        cloud.cleanUp()

