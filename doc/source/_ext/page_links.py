# SPDX-License-Identifier: Apache-2.0
"""Links between pages that also work where the sources are read.

A forge renders the sources of pages, but knows no roles of Sphinx.  So the
pages that the README names link to other pages by their files
(```Security <security.rst>`__``), and Sphinx makes links to its pages of them.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx import addnodes

#: A file of a page, relative to the page with the link, and a label in it.
_FILE = re.compile(r'(?P<page>[\w./-]+)\.rst(?:#(?P<label>[\w-]+))?')


def resolve(app: Any, doctree: Any) -> None:
    """Make references of Sphinx of the links to files of pages."""
    for link in list(doctree.findall(nodes.reference)):
        found = _FILE.fullmatch(link.get('refuri', ''))
        if found:
            kind, target = (('ref', found['label']) if found['label']
                            else ('doc', found['page']))
            link.replace_self(addnodes.pending_xref(
                '', nodes.inline('', link.astext()), refdomain='std',
                refdoc=app.env.docname, reftype=kind, reftarget=target,
                refexplicit=True, refwarn=True))


def setup(app: Any) -> dict[str, Any]:
    app.connect('doctree-read', resolve)
    return {'parallel_read_safe': True, 'parallel_write_safe': True}
