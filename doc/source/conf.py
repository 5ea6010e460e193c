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
"""How Sphinx builds the documentation and the manual page."""

import os
import sys

from nova_bdm_cleanup.version import VERSION

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '_ext'))

extensions = [
    'cliff.sphinxext',
    'code_tables',
    'openstackdocstheme',
    'oslo_config.sphinxconfiggen',
    'oslo_config.sphinxext',
]

project = 'nova-bdm-cleanup'
copyright = 'nova-bdm-cleanup developers'  # noqa: A001
version = release = VERSION
root_doc = 'index'
pygments_style = 'native'
html_theme = 'openstackdocs'
html_static_path = ['_static']
html_theme_options = {'show_other_versions': False}

# The commands are those of "openstack".
autoprogram_cliff_application = 'openstack'

man_pages = [
    ('guide/cli/nova-bdm-cleanup', 'nova-bdm-cleanup',
     'what the bdm-cleanup plugin of nova-compute did on this host', '', 1),
]

openstackdocs_auto_name = False
openstackdocs_auto_version = False
openstackdocs_pdf_link = False

config_generator_config_file = '../../etc/config-generator.conf'
sample_config_basename = '_static/nova-bdm-cleanup'
