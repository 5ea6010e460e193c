# SPDX-License-Identifier: Apache-2.0
"""Configuration of Sphinx for the release notes."""

import pathlib
import sys

# They are built without the package.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from nova_bdm_cleanup import VERSION

extensions = ['reno.sphinxext']

project = 'nova-bdm-cleanup release notes'
copyright = 'nova-bdm-cleanup developers'  # noqa: A001
version = release = VERSION
root_doc = 'index'
# As for the documentation.
html_theme = 'furo'
html_title = project
html_show_sourcelink = False
