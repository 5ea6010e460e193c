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
"""What both APIs said, side by side, in memory that does not grow.

A cloud has more attachments than should be held in Python objects.  They go
into a private temporary SQLite database, on disk and gone when it is closed;
what does not fit together is then a query.  The database is only the sieve:
it names suspects, and judges nothing.
"""

from __future__ import annotations

import sqlite3
from types import TracebackType
from typing import Iterable, Iterator, List, Optional, Tuple, Type

from nova_bdm_cleanup.fleet.compute import ComputeServer
from nova_bdm_cleanup.model import Attachment

_TABLES = """
CREATE TABLE server (id TEXT PRIMARY KEY, shelved INTEGER) WITHOUT ROWID;
CREATE TABLE claim (volume TEXT, server TEXT, PRIMARY KEY (volume, server))
    WITHOUT ROWID;
CREATE TABLE attachment (id TEXT PRIMARY KEY, volume TEXT, server TEXT,
    status TEXT, legacy INTEGER) WITHOUT ROWID;
CREATE TABLE volume (id TEXT PRIMARY KEY, status TEXT) WITHOUT ROWID;
"""

# Built once everything is in, which is cheaper than keeping them in order.
_INDEXES = """
CREATE INDEX attachment_volume ON attachment (volume, server);
CREATE INDEX attachment_server ON attachment (server);
"""

#: Servers of which Nova and Cinder do not say the same.
_SERVERS = """
-- Nova claims a volume that Cinder does not attach, or not normally.
SELECT claim.server FROM claim JOIN server ON server.id = claim.server
WHERE NOT EXISTS (
    SELECT 1 FROM attachment AS a JOIN volume AS v ON v.id = a.volume
    WHERE a.volume = claim.volume AND a.server = claim.server
    AND (a.status = 'attached' AND v.status = 'in-use'
         OR server.shelved AND a.status = 'reserved'
         AND v.status = 'reserved'))
UNION
-- Cinder attaches a volume that Nova does not claim.
SELECT a.server FROM attachment AS a JOIN server ON server.id = a.server
WHERE NOT EXISTS (SELECT 1 FROM claim
    WHERE claim.volume = a.volume AND claim.server = a.server)
UNION
-- Cinder attaches a volume twice.
SELECT a.server FROM attachment AS a JOIN server ON server.id = a.server
GROUP BY a.volume, a.server HAVING COUNT(*) > 1
"""

#: Those with an attachment of which Cinder keeps no connection.
_LEGACY_SERVERS = """
UNION
SELECT a.server FROM attachment AS a JOIN server ON server.id = a.server
WHERE a.legacy
"""

_CLAIMANTS = 'SELECT DISTINCT server FROM claim'

#: Those among them that have no volume at all in Nova.
_UNCLAIMING = """
SELECT DISTINCT a.server FROM attachment AS a
JOIN server ON server.id = a.server
WHERE NOT EXISTS (SELECT 1 FROM claim WHERE claim.server = a.server)
"""

#: Servers that Cinder names and Nova did not list.
_STRANGERS = """
SELECT DISTINCT server FROM attachment AS a WHERE server IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM server WHERE server.id = a.server)
"""

#: Volumes that are taken, and nobody has them.
_VOLUMES = """
SELECT id FROM volume AS v
WHERE NOT EXISTS (SELECT 1 FROM attachment AS a WHERE a.volume = v.id
    AND (a.server IS NOT NULL OR v.status = 'in-use'))
AND NOT EXISTS (SELECT 1 FROM claim WHERE claim.volume = v.id)
"""

_ANYTHING = """
SELECT 1 FROM server UNION ALL SELECT 1 FROM attachment
UNION ALL SELECT 1 FROM volume LIMIT 1
"""
_CLAIMED = 'SELECT 1 FROM claim LIMIT 1'
_CLAIMED_AND_KNOWN = """
SELECT 1 FROM claim JOIN volume ON volume.id = claim.volume LIMIT 1
"""


class CrossCheck:
    """Both sides of the books; a context manager."""

    def __init__(self) -> None:
        # The empty name is a private temporary file: see sqlite3_open().
        self._database = sqlite3.connect('')
        self._database.executescript(
            'PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;' + _TABLES)

    def __enter__(self) -> CrossCheck:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]],
                 error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self._database.close()

    # Writing

    def add_servers(self, servers: Iterable[ComputeServer]) -> None:
        known = list(servers)
        self._database.executemany(
            'INSERT OR REPLACE INTO server VALUES (?, ?)',
            ((s.id, s.is_shelved) for s in known))
        self._database.executemany(
            'INSERT OR IGNORE INTO claim VALUES (?, ?)',
            ((v, s.id) for s in known for v in s.volumes))

    def add_attachments(self, attachments: Iterable[Attachment]) -> None:
        self._database.executemany(
            'INSERT OR REPLACE INTO attachment VALUES (?, ?, ?, ?, ?)',
            ((a.id, a.volume_id, a.server_id, a.status, a.is_legacy)
             for a in attachments))

    def add_volumes(self, volume_ids: Iterable[str], status: str) -> None:
        self._database.executemany(
            'INSERT OR REPLACE INTO volume VALUES (?, ?)',
            ((v, status) for v in volume_ids))

    def close_books(self) -> None:
        """Everything is in."""
        self._database.executescript(_INDEXES)

    # Reading

    def some_claims(self, count: int) -> List[str]:
        """A few of the volumes that Nova names."""
        return [row[0] for row in self._database.execute(
            'SELECT volume FROM claim LIMIT ?', (count,))]

    def suspects(self, thorough: bool, legacy: bool) -> Iterator[str]:
        """Servers to look at.

        :param thorough: first all that have a volume
        :param legacy: also those whose legacy attachments are in order
        """
        if not thorough:
            yield from self._column(
                _SERVERS + (_LEGACY_SERVERS if legacy else ''))
            return
        yield from self._column(_CLAIMANTS)
        yield from self._column(_UNCLAIMING)

    def strangers(self) -> Iterator[str]:
        """Servers to look for."""
        return self._column(_STRANGERS)

    def nobodys_volumes(self) -> Iterator[str]:
        """Volumes to look at."""
        return self._column(_VOLUMES)

    @property
    def is_empty(self) -> bool:
        """Neither side has anything."""
        return not self._any(_ANYTHING)

    @property
    def legacy(self) -> int:
        """How many legacy attachments of servers there are."""
        row = self._database.execute(
            'SELECT COUNT(*) FROM attachment '
            'WHERE legacy AND server IS NOT NULL').fetchone()
        return int(row[0])

    @property
    def size(self) -> Tuple[int, int, int]:
        """How many servers, claims of volumes, and attachments there are."""
        row = self._database.execute(
            'SELECT (SELECT COUNT(*) FROM server), '
            '(SELECT COUNT(*) FROM claim), '
            '(SELECT COUNT(*) FROM attachment)').fetchone()
        return int(row[0]), int(row[1]), int(row[2])

    @property
    def cinder_is_witnessed(self) -> Optional[bool]:
        """Whether Cinder knows a volume of Nova's; None: Nova has none."""
        if not self._any(_CLAIMED):
            return None
        return self._any(_CLAIMED_AND_KNOWN)

    def _any(self, query: str) -> bool:
        return self._database.execute(query).fetchone() is not None

    def _column(self, query: str) -> Iterator[str]:
        for row in self._database.execute(query):
            yield row[0]
