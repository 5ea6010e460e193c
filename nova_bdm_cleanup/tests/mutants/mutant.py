# SPDX-License-Identifier: Apache-2.0
"""What a mutant is, and how it is planted."""

from __future__ import annotations

import dataclasses
import pathlib


class Misplaced(Exception):
    """The code that a mutant changes is not, or no longer, there."""


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One planted fault."""

    name: str
    #: What is wrong then, or what an operator would lose.
    harm: str
    #: Within the package.
    path: str
    #: What is replaced, which is there once, and by what.
    edits: tuple[tuple[str, str], ...]

    def apply(self, source: str) -> str:
        """The source of its module with the fault in it.

        :raises Misplaced: when a text to be replaced is not there just once
        """
        for old, new in self.edits:
            found = source.count(old)
            if found != 1:
                raise Misplaced('%s: %s has this %d times, not once:\n%s' % (
                    self.name, self.path, found, old))
            source = source.replace(old, new)
        return source

    def changed(self, package: pathlib.Path) -> str:
        """The same for the module of some copy of the package."""
        return self.apply((package / self.path).read_text(encoding='utf-8'))

    def plant(self, package: pathlib.Path) -> None:
        """Change a copy of the package."""
        changed = self.changed(package)
        (package / self.path).write_text(changed, encoding='utf-8')
