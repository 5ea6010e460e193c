# SPDX-License-Identifier: Apache-2.0
"""The navigation beside each page, for the theme Furo.

Sphinx has one tree of all pages, in which those of the guide are below a
closed "Guide".  Here each page that the first page lists has its groups, with
titles: a group is a list of pages, and its title that of its section.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx


class Page(NamedTuple):
    """A page in the navigation."""

    name: str
    title: str


class Group(NamedTuple):
    """A group of pages.

    :ivar title: its title
    :ivar index: the page with the title, if it is the title of the page
    :ivar pages: the pages, in the order of the group
    """

    title: str
    index: str | None
    pages: list[Page]


def groups(app: Sphinx) -> Iterator[Group]:
    """Yield the groups of all pages, in the order of the documentation."""
    environment = app.builder.env

    def lists(name: str) -> Iterator[addnodes.toctree]:
        yield from environment.get_doctree(name).findall(addnodes.toctree)

    def page(name: str) -> Page:
        return Page(name, environment.titles[name].astext())

    for first in lists(app.config.root_doc):
        for index in first['includefiles']:
            for group in lists(index):
                section = group
                while not isinstance(section, nodes.section):
                    section = section.parent
                is_whole = isinstance(section.parent, nodes.document)
                yield Group(
                    section[0].astext(), index if is_whole else None,
                    [page(name) for name in group['includefiles']])


def _add_to_context(app: Sphinx, pagename: str, templatename: str,
                    context: dict[str, Any], doctree: Any) -> None:
    context['page_groups'] = list(groups(app))


def _allow_contents(app: Sphinx, doctree: nodes.document) -> None:
    # Furo marks a contents inside a page as an error unless it has this
    # class: it has one beside the page, but a narrow window does not show it.
    for topic in doctree.findall(nodes.topic):
        if 'contents' in topic['classes']:
            topic['classes'].append('this-will-duplicate-information-and-it-'
                                    'is-still-useful-here')


def setup(app: Sphinx) -> dict[str, Any]:
    """Give the groups to the templates."""
    app.connect('html-page-context', _add_to_context)
    app.connect('doctree-read', _allow_contents)
    return {'parallel_read_safe': True, 'parallel_write_safe': True}
