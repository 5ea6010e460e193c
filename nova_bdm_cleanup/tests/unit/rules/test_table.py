# SPDX-License-Identifier: Apache-2.0
"""The tables as tables: their words, their order, their last rows."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import hypothesis

from nova_bdm_cleanup.client.cloud import findings, inspection, remedies
from nova_bdm_cleanup.client.cloud.release.attachments import HELD_ATTACHMENTS
from nova_bdm_cleanup.client.cloud.release.volumes import HELD_VOLUMES
from nova_bdm_cleanup.rules import (
    addresses,
    attachments,
    disks,
    facts,
    guards,
    mappings,
    table,
)
from nova_bdm_cleanup.rules.facts import Policy
from nova_bdm_cleanup.rules.reasons import ONLY_IN_CLOUD, Reason, WITHOUT_RULE
from nova_bdm_cleanup.rules.world import World
from nova_bdm_cleanup.tests.unit import base, make, worlds

DOCUMENTATION = pathlib.Path(__file__).resolve().parents[4] / 'doc' / 'source'

#: The places in the documentation, in its order.
TABLES: dict[str, Any] = {
    'nova_bdm_cleanup.rules.mappings.MAPPINGS': mappings.MAPPINGS,
    'nova_bdm_cleanup.rules.mappings.DANGLING_MAPPINGS':
        mappings.DANGLING_MAPPINGS,
    'nova_bdm_cleanup.rules.mappings.RECONNECTS': mappings.RECONNECTS,
    'nova_bdm_cleanup.rules.mappings.HALF_SWAPPED': mappings.HALF_SWAPPED,
    'nova_bdm_cleanup.rules.attachments.ATTACHMENTS':
        attachments.ATTACHMENTS,
    'nova_bdm_cleanup.rules.guards.GUARDS': guards.GUARDS,
    'nova_bdm_cleanup.rules.addresses.ADDRESSES': addresses.ADDRESSES,
    'nova_bdm_cleanup.rules.disks.DISKS': disks.DISKS,
    'nova_bdm_cleanup.client.cloud.remedies.WAYS': remedies.WAYS,
    'nova_bdm_cleanup.client.cloud.findings.HINDRANCES': findings.HINDRANCES,
    'nova_bdm_cleanup.client.cloud.release.attachments.HELD_ATTACHMENTS':
        HELD_ATTACHMENTS,
    'nova_bdm_cleanup.client.cloud.release.volumes.HELD_VOLUMES':
        HELD_VOLUMES,
    'nova_bdm_cleanup.client.cloud.inspection.CONTEXT': inspection.CONTEXT,
}


def rows(decisions):
    """Return all rows of a table, with or without sections."""
    return [part for row in decisions.rows
            for part in getattr(row, 'rows', [row])]


class DocumentedTest(base.TestCase):
    """The lines from which the documentation is generated."""

    def test_the_documentation_shows_every_table_once(self):
        shown = [name for page in sorted(DOCUMENTATION.rglob('*.rst'))
                 for name in re.findall(r'^\.\. decision-table:: (\S+)$',
                                        page.read_text(), re.M)]
        self.assertEqual(sorted(TABLES), sorted(shown))

    def test_every_row_has_a_text_for_each_column(self):
        for decisions in TABLES.values():
            for line in decisions.lines():
                self.assertEqual(len(decisions.header), len(line))
                for cell in line:
                    self.assertTrue(cell.strip())
                    self.assertNotIn('\n', cell)

    def test_the_lines_are_the_rows(self):
        """Check order and sections, and that no two rows ask the same."""
        for decisions in TABLES.values():
            lines = list(decisions.lines())
            self.assertEqual(
                [(r.cell, str(r.outcome)) for r in rows(decisions)],
                [line[-2:] for line in lines])
            self.assertEqual(len(lines), len({line[:-1] for line in lines}))
            for row in rows(decisions):
                if isinstance(row, table.Text):
                    continue
                # A row with a finding has words for the log.
                self.assertEqual(
                    getattr(row.outcome, 'action', None) not in (
                        facts.Action.IGNORE, facts.Action.LEAVE_TO_MAPPING),
                    bool(row.words), row)

    def test_every_reason_is_in_a_table(self):
        shown = ' '.join(line[-1] for decisions in TABLES.values()
                         for line in decisions.lines())
        for reason in set(Reason) - ONLY_IN_CLOUD - WITHOUT_RULE:
            self.assertIn('``%s``' % reason, shown)


class FirstTest(base.TestCase):
    """The decision of a table."""

    def row(self, holds):
        return table.Row('', lambda facts: holds, None, '')

    def test_the_first_row_that_holds_decides(self):
        rows = [self.row(False), self.row(True), self.row(True)]
        self.assertIs(rows[1], table.first(rows, None))

    def test_a_row_outside_its_section_does_not_count(self):
        inside = self.row(True)
        sections = [
            table.Section('', lambda facts: False, (self.row(True),)),
            table.Section('', lambda facts: True, (self.row(False),)),
            table.Section('', lambda facts: True, (inside,))]
        self.assertIs(inside, table.first_in_sections(sections, None))

    def test_a_table_that_decides_nothing_is_an_error(self):
        self.assertRaises(LookupError, table.first, [self.row(False)], None)
        self.assertRaises(LookupError, table.first_in_sections, [
            table.Section('', lambda facts: True, (self.row(False),))], None)

    def test_words_are_filled_in_from_the_facts(self):
        row = table.Row('', bool, None, '{it.id} is {it.status}')
        self.assertEqual('attachment-1 is attached',
                         row.explain(make.attachment()))

    def test_braces_in_the_facts_are_not_filled_in(self):
        row = table.Row('', bool, None, 'it is {it.status}')
        self.assertEqual('it is {it.id}',
                         row.explain(make.attachment(status='{it.id}')))


class EnumeratedTest(base.TestCase):
    """The ids in a log line, if there are many."""

    def test_ids_are_sorted(self):
        self.assertEqual('', table.enumerated([]))
        self.assertEqual('a, b', table.enumerated('ba'))

    def test_only_the_first_five_are_listed(self):
        for ids, words in (('abcde', 'a, b, c, d, e'),
                           ('fedcba', 'a, b, c, d, e and 1 more'),
                           ('abcdefg', 'a, b, c, d, e and 2 more')):
            self.assertEqual(words, table.enumerated(ids))


class TotalTest(base.TestCase):
    """Totality: in every world a row of each table decides."""

    @worlds.profile()
    @hypothesis.given(worlds.looks())
    def test_the_last_row_always_holds(self, look):
        world = World(look[1], Policy(), make.NOW)
        found = mappings.mappings_of(world)
        last = mappings.MAPPINGS.rows[-1]
        for mapping in found.values():
            self.assertTrue(last.holds(mapping))
            self.assertTrue(last.rows[-1].holds(mapping))
            self.assertTrue(mappings.DANGLING_MAPPINGS.rows[-1].holds(
                mapping))
        for attachment in look[1].attachments:
            self.assertTrue(attachments.ATTACHMENTS.rows[-1].holds(
                attachments.AttachmentFacts(attachment, found, world)))
