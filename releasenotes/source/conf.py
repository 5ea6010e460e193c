# SPDX-License-Identifier: Apache-2.0
"""How Sphinx builds the release notes."""

import pathlib
import sys

from docutils import nodes

# They are built without the package.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from nova_bdm_cleanup import VERSION

extensions = ['reno.sphinxext']

project = 'nova-bdm-cleanup release notes'
copyright = 'nova-bdm-cleanup developers'  # noqa: A001
version = release = VERSION
root_doc = 'index'
html_theme = 'alabaster'
html_sidebars = {
    '**': ['about.html', 'searchfield.html', 'navigation.html']}
html_theme_options = {'show_powered_by': False}


def _name_the_version(app, doctree):
    """Where there is no tag, reno calls what is not released yet 0.0.0."""
    for title in doctree.findall(nodes.title):
        if title.astext() == '0.0.0':
            title[:] = [nodes.Text(VERSION)]


def setup(app):
    # Before Sphinx makes the table of contents.
    app.connect('doctree-read', _name_the_version, priority=100)
