# SPDX-License-Identifier: Apache-2.0
"""The audit lines of a round of the periodic audit."""

from __future__ import annotations

import logging as levels

from nova_bdm_cleanup.node.cleanup import log_lines
from nova_bdm_cleanup.rules.facts import Finding, Reason


class RoundLines(log_lines.LogLines):
    """The log lines about one server, or about all, in one round."""

    def found(self, finding: Finding) -> None:
        """Something is there that was there a round ago, too."""
        self._line(log_lines.level_of(finding.reason), 'found', finding.reason,
                   finding.explanation, finding)

    def gone(self, finding: Finding) -> None:
        """What was found is no longer so."""
        self._line(levels.INFO, 'gone', finding.reason, finding.explanation,
                   finding)

    def audited(self, summary: str) -> None:
        """The sum of a round."""
        self._line(levels.INFO, 'audited', None, summary)

    def not_audited(self, reason: Reason, error: object, then: str,
                    is_new: bool) -> None:
        """A round failed.

        :param then: when the next one comes
        :param is_new: the one before did not
        """
        self._count(reason)
        self._line(levels.WARNING if is_new else levels.DEBUG, 'not-audited',
                   reason, '%s; %s' % (log_lines.masked(error), then))
