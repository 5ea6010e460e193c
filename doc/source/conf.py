# SPDX-License-Identifier: Apache-2.0
"""How Sphinx builds the documentation and the manual page."""

import os
import sys

from nova_bdm_cleanup import VERSION

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '_ext'))

extensions = [
    'cliff.sphinxext',
    'code_tables',
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
# Sphinx has this theme; it has a search, and names no other project.
html_theme = 'alabaster'
html_static_path = ['_static']
html_sidebars = {
    '**': ['about.html', 'searchfield.html', 'navigation.html']}
html_theme_options = {
    'body_max_width': 'none',
    'description': 'Removes dangling block device mappings of Nova',
    'fixed_sidebar': True,
    'page_width': '1180px',
    'show_powered_by': False,
    'sidebar_width': '240px',
}

# The commands are those of "openstack".
autoprogram_cliff_application = 'openstack'

man_pages = [
    ('guide/cli/nova-bdm-cleanup', 'nova-bdm-cleanup',
     'what the bdm-cleanup plugin of nova-compute did on this host', '', 1),
]

config_generator_config_file = '../../etc/config-generator.conf'
sample_config_basename = '_static/nova-bdm-cleanup'
