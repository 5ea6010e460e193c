# SPDX-License-Identifier: Apache-2.0
"""The HTML page that ``openstack bdm audit --report`` writes."""

from __future__ import annotations

import datetime
import errno
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
from typing import Any
import unittest
from unittest import mock

from nova_bdm_cleanup.client.cloud import nights, page
from nova_bdm_cleanup.client.cloud.findings import CloudFinding
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.unit import make
from nova_bdm_cleanup.tests.unit.client import commandcase

BROWSER = shutil.which('chromium')

#: A script that uses the page; the title then holds the results.
_PAGE_SCRIPT = """
<script>
const seen = {};
const look = () => [...document.querySelectorAll('#findings tbody')]
    .filter(b => !b.hidden).map(b => b.rows[0].cells[0].textContent);
const look_for = (words) => {
  const field = document.getElementById('text');
  field.value = words;
  field.dispatchEvent(new Event('input'));
  return look();
};
for (const words of ['server-gone', 'compute1', 'bdm  CLEAN', ''])
  seen[words] = look_for(words);
const head = document.querySelector('#findings th button');
head.click(); seen.up = look();
head.click(); seen.down = look();
seen.status = document.getElementById('shown').textContent;
document.title = JSON.stringify(seen);
</script>
"""


class ReportCase(commandcase.CommandCase):

    def setUp(self) -> None:
        super().setUp()
        self.path_of_page = pathlib.Path(self.path('report.html'))

    def audit(self, *arguments: str) -> tuple[int, Any]:
        return self.bdm('audit', '--report', str(self.path_of_page),
                        *arguments)

    def content(self) -> str:
        return self.path_of_page.read_text(encoding='utf-8')


class PageTest(ReportCase):

    def test_page_shows_findings_and_is_private(self) -> None:
        self.break_volume()
        code, rows = self.audit()
        self.assertEqual((ExitCode.FINDINGS, 1), (code, len(rows)))
        page = self.content()
        for words in ('cloud 127.0.0.1:%d, project own' % self.server.port,
                      '<strong>1 finding: 1 to clean.</strong>',
                      'volume-available',
                      '<td>In Cinder the volume is free for any server.</td>',
                      'Volume changed',
                      'openstack bdm clean ' + self.alpha, 'server is ACTIVE',
                      'volume is available', 'device /dev/vdb'):
            self.assertIn(words, page)
        self.assertEqual(0o600, stat.S_IMODE(
            os.stat(self.path_of_page).st_mode))

    def test_page_loads_nothing_else(self) -> None:
        self.break_volume()
        self.audit()
        self.assertIn("default-src 'none'", self.content())
        self.assertNotRegex(self.content(),
                            r'(?i)(src|href|url|import)\s*[=(]')

    def test_names_of_tenants_are_escaped(self) -> None:
        self.break_volume()
        self.cloud.servers[self.alpha]['name'] = (
            '<script>alert("x")</script>\x1b[2J%s')
        self.audit()
        self.assertIn('&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;'
                      '\\x1b[2J%s', self.content())
        self.assertEqual(1, self.content().count('<script>'))

    def test_page_of_incomplete_audit_says_so(self) -> None:
        self.cloud.silent_hosts = ['compute7']
        self.assertEqual(ExitCode.PARTLY, self.audit('--all-projects')[0])
        self.assertRegex(self.content(), 'Incomplete:.*compute7')

    def test_refused_audit_keeps_the_earlier_page(self) -> None:
        self.path_of_page.write_text('of yesterday')
        code, _ = self.bdm(
            'audit', '--all-projects', '--report', str(self.path_of_page),
            user='member')
        self.assertEqual(ExitCode.REFUSED, code)
        self.assertEqual('of yesterday', self.content())
        self.assertEqual(ExitCode.OK, self.audit()[0])
        self.assertIn('Nothing in project own', self.content())

    def test_full_disk_is_shown_by_the_exit_code(self) -> None:
        """Show the findings, and the failure by the exit code."""
        self.break_volume()
        with mock.patch('os.replace', autospec=True,
                        side_effect=OSError(errno.ENOSPC, 'No space left')):
            code, rows = self.audit()
        self.assertEqual((ExitCode.PARTLY, 1), (code, len(rows)))
        self.assertIn('free some space there, or raise the quota; it was not '
                      'written', self.stderr.getvalue())
        self.assertEqual([], os.listdir(self.path_of_page.parent))
        self.path_of_page.write_text('of yesterday')
        with mock.patch('os.replace', autospec=True,
                        side_effect=OSError(errno.ENOSPC, 'No space left')):
            self.audit()
        self.assertIn('it is unchanged', self.stderr.getvalue())
        self.assertEqual('of yesterday', self.content())

    def test_only_the_first_1000_are_shown(self) -> None:
        finding = CloudFinding(Reason.VOLUME_MISSING, 'words', server='s',
                               volume='v')
        text = page.render([finding] * 100000, '100000 findings', 'a cloud',
                           'all', (), make.NOW)
        self.assertEqual(1000, text.count('<tbody'))
        self.assertIn('The first 1000;', text)
        self.assertIn('<td>100000</td>', text)
        self.assertLess(len(text), 1.5e6)


class NightsTest(ReportCase):
    """The page of an audit that is compared with earlier ones."""

    def setUp(self) -> None:
        super().setUp()
        self.nights = pathlib.Path(self.tempdir())

    def night(self, name: str, day: int) -> None:
        """Keep the output of an audit, of a day of January 2026."""
        self.bdm('audit', '--all-projects')
        path = self.nights / name
        path.write_text(self.stdout.getvalue())
        written = datetime.datetime(
            2026, 1, day, 2, tzinfo=datetime.timezone.utc).timestamp()
        os.utime(path, (written, written))

    def bars(self) -> list[tuple[str, str, str]]:
        return re.findall(
            '<tr><td>([^<]*)</td><td>([^<]*)</td>'
            '<td><div class="bar" style="width: (.*?)%"', self.content())

    def test_every_night_has_a_bar(self) -> None:
        self.orphan()
        # By time, not by name.
        self.night('c.json', 1)
        self.break_volume()
        self.night('b.json', 2)
        self.cloud.volume('nobodys', 'in-use')
        self.cloud.volume('another', 'in-use')
        self.night('a.json', 3)
        (self.nights / 'plan.new').write_text('no plan')
        self.audit('--all-projects', '--since', str(self.nights))
        (today, *earlier) = self.bars()
        self.assertEqual(('4', '100.0'), today[1:])
        self.assertEqual([
            ('2026-01-03 02:00', '4', '100.0'),
            ('2026-01-02 02:00', '2', '50.0'),
            ('2026-01-01 02:00', '1', '25.0')], earlier)
        self.audit('--all-projects')
        self.assertNotIn('By night', self.content())

    def test_new_and_ended_findings_are_shown(self) -> None:
        self.break_volume()
        self.cloud.volumes[self.disk]['size'] = 7
        self.orphan()
        self.night('1.json', 1)
        self.night('2.json', 2)
        self.cloud.volume('nobodys', 'in-use')
        self.cloud.volumes[self.disk]['status'] = 'in-use'
        self.cloud.attachment('attachment of disk', self.alpha, self.disk)
        self.audit('--all-projects', '--since', str(self.nights))
        self.assertEqual(
            ['2026-01-01 02:00', '<strong>new</strong>'],
            sorted(re.findall('data-name="Found since">(.*?)</td>',
                              self.content())))
        self.assertIn(
            'Ended since the earlier audit</h2><table><tr><td>'
            'volume-available</td><td><code>alpha<br>%s</code></td><td>'
            '<code>disk<br>%s<br>7 GiB</code></td></tr></table>' % (
                self.alpha, self.disk), self.content())
        self.assertRegex(self.content(), '<td data-name="Volume">orphan<br>')
        # It may only not have been seen.
        self.cloud.on('/attachments/detail[?]all', lambda: (500, {}))
        self.audit('--all-projects', '--since', str(self.nights))
        self.assertNotIn('Ended', self.content())

    def test_finding_that_came_again_is_found_since_then(self) -> None:
        first, second, third = (
            nights.Night(make.ago(days * 86400), tuple(
                CloudFinding(Reason.VOLUME_MISSING, '', volume=volume)
                for volume in volumes))
            for days, volumes in ((3, 'ab'), (2, 'b'), (1, 'abc')))
        self.assertEqual(
            {'a': third.written, 'b': first.written, 'c': third.written},
            {key[2]: since for key, since in nights.found_since(
                (first, second, third)).items()})

    def test_in_the_first_night_everything_is_new(self) -> None:
        self.break_volume()
        code, (row,) = self.audit('--since', str(self.nights))
        self.assertEqual((ExitCode.FINDINGS, True), (code, row['New']))
        self.assertEqual(1, len(self.bars()))

    def test_file_that_is_no_audit_is_named(self) -> None:
        self.night('good.json', 1)
        for name, content in (('no.json', 'no plan'), ('half.json', '[{'),
                              ('empty.json', '')):
            bad = self.nights / name
            bad.write_text(content)
            code, _ = self.audit('--since', str(self.nights))
            self.assertEqual(ExitCode.BAD_INPUT, code)
            self.assertIn('%s: Expecting' % bad, self.stderr.getvalue())
            bad.unlink()
        (self.nights / 'gone.json').symlink_to('nowhere')
        code, _ = self.audit('--since', str(self.nights))
        self.assertEqual(ExitCode.BAD_INPUT, code)
        self.assertIn('gone.json: No such file', self.stderr.getvalue())

    def test_texts_of_a_file_are_escaped(self) -> None:
        self.break_volume()
        self.night('1.json', 1)
        path = self.nights / '1.json'
        path.write_text(path.read_text().replace(self.disk, '<b>%s'))
        self.audit('--all-projects', '--since', str(path))
        self.assertIn('<br>&lt;b&gt;%s<br>', self.content())


@unittest.skipUnless(BROWSER, 'there is no chromium')
class BrowserTest(ReportCase):
    """The page in use in a browser, which must log no errors."""

    def browse(self, *arguments: str) -> tuple[str, str]:
        done = subprocess.run(
            [str(BROWSER), '--headless', '--no-sandbox', '--disable-gpu',
             '--user-data-dir=' + self.tempdir(), '--enable-logging=stderr',
             '--virtual-time-budget=2000', *arguments,
             self.path_of_page.as_uri()],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120,
            check=True, encoding='utf-8')
        return done.stdout, done.stderr

    def test_filter_sort_and_print(self) -> None:
        self.break_volume()
        self.orphan()
        self.cloud.volume('nobodys', 'in-use')
        self.audit('--all-projects')
        with open(self.path_of_page, 'a', encoding='utf-8') as file:
            file.write(_PAGE_SCRIPT)
        page, log = self.browse('--dump-dom')
        self.assertNotIn('CONSOLE', log)
        title = re.search('<title>(.*)</title>', page)
        assert title is not None
        seen = json.loads(title.group(1).replace('&quot;', '"'))
        reasons = ['server-gone', 'volume-available', 'volume-unreferenced']
        for words, found in (
                ('', reasons), ('server-gone', ['server-gone']),
                ('compute1', ['server-gone', 'volume-available']),
                ('bdm  CLEAN', ['volume-available'])):
            self.assertEqual(found, sorted(seen[words]))
        self.assertEqual((reasons, reasons[::-1]),
                         (seen['up'], seen['down']))
        self.assertEqual('3 of 3 are shown', seen['status'])
        printed = self.path_of_page.with_suffix('.pdf')
        _, log = self.browse('--print-to-pdf=%s' % printed)
        self.assertNotIn('CONSOLE', log)
        self.assertEqual(b'%PDF', printed.read_bytes()[:4])

    def test_page_fits_a_telephone(self) -> None:
        """Check that the page needs no horizontal scrolling."""
        self.break_volume()
        plan = self.plan()
        self.cloud.lose_server(self.alpha)
        self.orphan()
        self.audit('--all-projects', '--since', plan)
        with open(self.path_of_page, 'a', encoding='utf-8') as file:
            file.write('<script>document.title = innerWidth + ":" + '
                       'document.documentElement.scrollWidth</script>')
        page, _ = self.browse('--dump-dom', '--window-size=360,700')
        found = re.search('<title>(.*):(.*)</title>', page)
        assert found is not None
        window, needed = map(int, found.groups())
        self.assertLess(window, 700)
        self.assertLessEqual(needed, window)
