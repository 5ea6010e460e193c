# SPDX-License-Identifier: Apache-2.0
"""Links between pages that also work where the sources are read.

A forge renders the sources of pages, but knows no roles of Sphinx.  So the
pages that the README names link to other pages by their files
(```Security <security.rst>`__``), and Sphinx makes links to its pages of them.
Some of these files are in the root directory, and included in a page.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx import addnodes

#: A file of a page, relative to the page with the link, and a label in it.
_FILE = re.compile(r'(?P<page>[\w./-]+)\.rst(?:#(?P<label>[\w-]+))?')

#: What a link has before a page if it is in another directory, and the pages
#: that include a file of the root directory.
_ROOT = re.compile(r'(?:\.\./)*doc/source/')
_INCLUDED = {'SUPPORT': '/guide/support'}


def resolve(app: Any, doctree: Any) -> None:
    """Make references of Sphinx of the links to files of pages."""
    for link in list(doctree.findall(nodes.reference)):
        found = _FILE.fullmatch(link.get('refuri', ''))
        if found:
            kind, target = 'ref', found['label']
            if not target:
                page = _ROOT.sub('/', found['page'])
                kind, target = 'doc', _INCLUDED.get(
                    page.rpartition('/')[2], page)
            link.replace_self(addnodes.pending_xref(
                '', nodes.inline('', link.astext()), refdomain='std',
                refdoc=app.env.docname, reftype=kind, reftarget=target,
                refexplicit=True, refwarn=True))


def setup(app: Any) -> dict[str, Any]:
    app.connect('doctree-read', resolve)
    return {'parallel_read_safe': True, 'parallel_write_safe': True}
