# SPDX-License-Identifier: Apache-2.0
"""An audit as one HTML page for people.

The page needs no network and no other file.  So it can be sent by mail, and
text from others (names of servers and of hosts) cannot make the browser fetch
or run anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
import datetime
import html
from typing import Callable

from nova_bdm_cleanup import terminal
from nova_bdm_cleanup.client import runbook
from nova_bdm_cleanup.client.cloud.findings import CloudFinding
from nova_bdm_cleanup.client.cloud.nights import found_since, Night

_HTML_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Volumes that Nova and Cinder disagree about</title>
<style>
:root { color-scheme: light dark; --line: #8886; --soft: #8882; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto;
       max-width: 78rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0; }
h2 { font-size: 1.1rem; }
code, #findings tr:first-child td:nth-child(even) {
  font-family: ui-monospace, monospace; font-size: .86em;
  overflow-wrap: anywhere; }
table { border-collapse: collapse; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem;
         border-bottom: 1px solid var(--line); }
.sums { display: flex; flex-wrap: wrap; gap: 0 3rem; }
.nights { max-height: 15rem; overflow-y: auto; }
.nights td:last-child { width: 10rem; }
.bar { background: #48b; height: 1rem; margin: .15rem 0;
       print-color-adjust: exact; }
.gap { border-left: 4px solid #c50; padding: .2rem .8rem; }
#findings { width: 100%%; }
#findings tbody tr:first-child td { border-bottom: 0; padding-top: .7rem; }
.sides { display: grid; gap: 0 1.5rem; margin: .5rem 0 0;
         grid-template-columns: repeat(3, minmax(0, 1fr)); }
.sides h3 { font-size: .85rem; margin: 0; }
.sides ul { margin: 0; padding-left: 1.1rem; overflow-wrap: anywhere; }
.action { background: var(--soft); display: inline-block; padding: 0 .4rem; }
form { display: flex; flex-wrap: wrap; gap: .6rem; margin: 1rem 0; }
th button { all: unset; cursor: pointer; font-weight: 600; }
th button:focus-visible { outline: 2px solid; }
th[aria-sort=ascending] button::after { content: " \\2191"; }
th[aria-sort=descending] button::after { content: " \\2193"; }
@media print { form { display: none; } tbody { break-inside: avoid; }
               .nights { max-height: none; } }
@media (max-width: 700px) {
  body { margin: 1rem auto; }
  #findings, #findings tbody, #findings tr, #findings td {
    display: block; width: auto; }
  #findings thead { display: none; }
  #findings tbody { border: 1px solid var(--line); margin: 0 0 1rem; }
  #findings td { border: 0; padding: .1rem .6rem; }
  #findings td[data-name]::before { content: attr(data-name) ": "; }
  .sides { grid-template-columns: 1fr; }
}
</style>
</head>
<body>
<h1>Volumes that Nova and Cinder disagree about</h1>
<p><strong>%(total)s</strong></p>
<p>%(cloud)s, %(scope)s, %(when)s UTC</p>
%(gaps)s
<div class="sums">
<section><h2>By reason</h2>%(reasons)s</section>
<section><h2>By host</h2>%(hosts)s</section>
%(nights)s
</div>
%(ended)s
<h2>Findings</h2>
%(cut)s
<form>
<input id="text" type="search" placeholder="Any word" aria-label="Any word">
<span id="shown" role="status"></span>
</form>
<table id="findings">
<thead><tr>%(headings)s</tr></thead>
%(rows)s
</table>
<script>
'use strict';
const table = document.getElementById('findings');
const field = document.getElementById('text');
function filter() {
  const words = field.value.toLowerCase().split(/\\s+/).filter(Boolean);
  let count = 0;
  for (const body of table.tBodies) {
    const all = body.textContent.toLowerCase();
    body.hidden = !words.every(w => all.includes(w));
    count += !body.hidden;
  }
  document.getElementById('shown').textContent =
      count + ' of ' + table.tBodies.length + ' are shown';
}
field.addEventListener('input', filter);
document.querySelector('form').addEventListener(
    'submit', event => event.preventDefault());
const heads = [...table.tHead.rows[0].cells];
const sort = (head, index) => () => {
  const down = head.getAttribute('aria-sort') === 'ascending';
  heads.forEach(h => h.removeAttribute('aria-sort'));
  head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
  const key = body => body.rows[0].cells[index].textContent;
  [...table.tBodies].sort((a, b) =>
      (down ? -1 : 1) * key(a).localeCompare(key(b), 'en', {numeric: true})
  ).forEach(body => table.append(body));
};
heads.forEach((head, index) =>
    head.firstChild.addEventListener('click', sort(head, index)));
filter();
</script>
</body>
</html>
"""

_HEADINGS = ('Reason', 'Server', 'Host', 'Volume', 'Device',
             'Volume changed')

#: The format of a time.
_MINUTE = '%Y-%m-%d %H:%M'

#: A browser is slow with more, and no operator reads them.
MOST = 1000


def render(findings: Sequence[CloudFinding], total: str, cloud: str,
           scope: str, gaps: Sequence[str], created: datetime.datetime,
           nights: Sequence[Night] | None = None,
           ended: Sequence[CloudFinding] = ()) -> str:
    """Return the whole page.

    :param total: the summary in one line
    :param gaps: why the audit is incomplete
    :param nights: the earlier audits, if it is compared with them
    :param ended: the findings of the last one that have ended
    """
    shown = findings[:MOST]
    headings = _HEADINGS if nights is None else (*_HEADINGS, 'Found since')
    since = found_since(nights or ())
    reasons: Counter[str] = Counter()
    hosts: Counter[str] = Counter()
    for finding in findings:
        reasons[str(finding.reason)] += finding.count
        hosts[finding.host or 'none'] += finding.count
    return _HTML_PAGE % {
        'when': created.strftime(_MINUTE), 'scope': _text(scope),
        'cloud': _text(cloud), 'total': _text(total),
        'cut': '' if shown == findings else
        '<p>The first %d; "openstack bdm audit -f csv" has all %d.</p>' % (
            MOST, len(findings)),
        'gaps': ''.join('<p class="gap"><strong>Incomplete:</strong> %s</p>'
                        % _text(g) for g in gaps),
        'reasons': _sums(reasons, runbook.meaning),
        'hosts': _sums(hosts),
        'nights': '' if nights is None else _bars([
            (created, len(findings)), *(
                (n.written, len(n.findings)) for n in reversed(nights))]),
        'ended': _ended(ended) if ended else '',
        'headings': ''.join(
            '<th scope="col"><button type="button">%s</button></th>' % h
            for h in headings),
        'rows': '\n'.join(
            _row(i, headings, since.get(i.key)) for i in shown)}


def _text(text: str | None) -> str:
    """Escape untrusted text for the page."""
    return html.escape(terminal.clean(text))


def _sums(counts: Counter[str],
          meaning: Callable[[str], str] | None = None) -> str:
    return '<table>%s</table>' % ''.join(
        '<tr><td>%s</td><td>%d</td>%s</tr>' % (
            _text(name), count,
            '<td>%s</td>' % _text(meaning(name)) if meaning else '')
        for name, count in counts.most_common())


def _bars(nights: Sequence[tuple[datetime.datetime, int]]) -> str:
    """Return a bar for the number of findings of each audit."""
    most = max(count for _, count in nights) or 1
    return (
        '<section><h2>By night</h2><div class="nights" tabindex="0">'
        '<table>%s</table></div></section>' % ''.join(
            '<tr><td>%s</td><td>%d</td>'
            '<td><div class="bar" style="width: %.1f%%"></div></td></tr>' % (
                night.strftime(_MINUTE), count, 100 * count / most)
            for night, count in nights))


def _ended(findings: Sequence[CloudFinding]) -> str:
    """Return the list of the findings that have ended."""
    return '<h2>Ended since the earlier audit</h2>%s<table>%s</table>' % (
        '<p>The first %d of %d.</p>' % (MOST, len(findings))
        if len(findings) > MOST else '', ''.join(
            '<tr><td>%s</td><td><code>%s</code></td><td><code>%s</code></td>'
            '</tr>' % (_text(str(i.reason)), _server(i), _volume(i))
            for i in findings[:MOST]))


def _server(finding: CloudFinding) -> str:
    return _lines(finding.server_name, finding.server)


def _volume(finding: CloudFinding) -> str:
    label = finding.label
    return _lines(label.name, finding.volume, None if label.size is None
                  else '%s GiB' % label.size)


def _lines(*texts: str | None) -> str:
    return '<br>'.join(map(_text, filter(None, texts))) or '-'


def _row(finding: CloudFinding, headings: Sequence[str],
         found_since: datetime.datetime | None) -> str:
    cells = [
        _text(str(finding.reason)), _server(finding),
        _text(finding.host), _volume(finding), _text(finding.device),
        _text(finding.since.strftime(_MINUTE) if finding.since else None),
        found_since.strftime(_MINUTE) if found_since
        else '<strong>new</strong>']
    return (
        '<tbody><tr>%s</tr>'
        '<tr><td colspan="%d">%s<br><code class="action">%s</code>'
        '<div class="sides">%s</div></td></tr></tbody>' % (
            ''.join('<td data-name="%s">%s</td>' % cell
                    for cell in zip(headings, cells)),
            len(headings), _text(finding.explanation),
            _text(str(finding.action)), ''.join(
                '<div><h3>%s</h3><ul>%s</ul></div>' % (title, ''.join(
                    '<li>%s</li>' % _text(w) for w in words or ('none',)))
                for title, words in finding.sides.items())))
