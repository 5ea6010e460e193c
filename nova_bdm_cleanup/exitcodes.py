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
"""How the commands end."""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """The exit codes of every command."""

    #: Everything asked for was done.
    OK = 0

    #: Nothing matches, or there is nothing to do.
    NOTHING = 1

    #: An argument or the configuration is wrong.
    BAD_INPUT = 2

    #: The journal, the credentials or a check forbid it; nothing was changed.
    REFUSED = 3

    #: Some of it was not done, or is not known to be done.
    PARTLY = 4

    #: Something is inconsistent (or would be done), and nothing was changed.
    FINDINGS = 5

    #: Something was inconsistent, and all of it was put right.
    REPAIRED = 6

    #: The tool itself broke, or was interrupted.
    BROKEN = 255


class CommandError(Exception):
    """Ends the command with one line for the user."""

    def __init__(self, code: ExitCode, text: str) -> None:
        super().__init__(text)
        self.code = code
