# SPDX-License-Identifier: Apache-2.0
"""Stores as released versions wrote them, dumped as SQL text.

Each has entries of all outcomes, charges, steps, findings, a round and a
process.  Make the one of a release with the code of that release, and do not
change it afterwards.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import sqlite3

#: The versions, the oldest first.
VERSIONS = ('0.1.0',)
#: The host whose store it is, and its server.
HOST = 'compute1'
SERVER = '3ec95eb2-c8ce-4283-9aee-756117db4c62'
PROJECT = 'project-0ebe72e398d2'
#: When the first of the entries was begun.  The others are a minute apart.
BEGUN = 1795740685.7713065
#: The outcomes of the entries.
OUTCOMES = ['done', 'partly', 'nothing', 'interrupted']


def make(version: str, path: str | os.PathLike[str]) -> None:
    """Make the store that a release wrote.

    :param path: of the file, which does not exist
    """
    dump = pathlib.Path(__file__).parent / f'{version}.sql'
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(dump.read_text(encoding='utf-8'))
    os.chmod(path, 0o600)


def schema(path: str | os.PathLike[str]) -> list[tuple[str, str]]:
    """Return name and statement of all tables and indexes of a store."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute(
            'SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL '
            'ORDER BY name').fetchall()
