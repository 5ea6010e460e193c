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
"""open-iscsi's records of targets, which one process at a time may change.

On a host the lock of os-brick sees to that.  Here each case has a lock path of
its own: one of them would have all others wait while it flushes for a minute.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import fcntl


@contextlib.contextmanager
def changing() -> Iterator[None]:
    """Hold this while ``iscsiadm`` changes a record."""
    with open('/run/iscsi-records.lock', 'w') as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
