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
"""How Sphinx builds the release notes."""

import pathlib
import sys

from docutils import nodes

# They are built without the package.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from nova_bdm_cleanup.version import VERSION

extensions = ['openstackdocstheme', 'reno.sphinxext']

project = 'nova-bdm-cleanup release notes'
copyright = 'nova-bdm-cleanup developers'  # noqa: A001
version = release = VERSION
root_doc = 'index'
pygments_style = 'native'
html_theme = 'openstackdocs'
html_theme_options = {'show_other_versions': False}

openstackdocs_auto_name = False
openstackdocs_auto_version = False
openstackdocs_pdf_link = False


def _name_the_version(app, doctree):
    """Where there is no tag, reno calls what is not released yet 0.0.0."""
    for title in doctree.findall(nodes.title):
        if title.astext() == '0.0.0':
            title[:] = [nodes.Text(VERSION)]


def setup(app):
    # Before Sphinx makes the table of contents.
    app.connect('doctree-read', _name_the_version, priority=100)
