# SPDX-License-Identifier: Apache-2.0
"""Configuration of Sphinx for the documentation."""

import os
import sys

from nova_bdm_cleanup import VERSION

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '_ext'))

extensions = [
    'cliff.sphinxext',
    'code_tables',
    'contrast',
    'navigation',
    'oslo_config.sphinxconfiggen',
    'oslo_config.sphinxext',
    'page_links',
]

project = 'nova-bdm-cleanup'
copyright = 'nova-bdm-cleanup developers'  # noqa: A001
version = release = VERSION
root_doc = 'index'
# What a page shows without saying so is a log line or what a command prints.
highlight_language = 'none'
# It has a dark scheme, a contents of each page, and previous and next.
html_theme = 'furo'
html_title = project
# The extension "contrast" checks them.
pygments_style = 'a11y-light'
pygments_dark_style = 'a11y-dark'
html_show_sourcelink = False
html_static_path = ['_static']
html_css_files = ['custom.css']
templates_path = ['_templates']

# The commands are those of "openstack".
autoprogram_cliff_application = 'openstack'

config_generator_config_file = '../../etc/config-generator.conf'
sample_config_basename = '_static/nova-bdm-cleanup'
