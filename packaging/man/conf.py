# SPDX-License-Identifier: Apache-2.0
"""Configuration of Sphinx for the manual pages, made from the parsers."""

from nova_bdm_cleanup import VERSION

extensions = ['cliff.sphinxext', 'sphinxarg.ext']

project = 'nova-bdm-cleanup'
author = 'nova-bdm-cleanup developers'
version = release = VERSION
root_doc = 'nova-bdm-cleanup'

# The commands are those of "openstack".
autoprogram_cliff_application = 'openstack'

man_pages = [
    ('nova-bdm-cleanup', 'nova-bdm-cleanup',
     'check the bdm-cleanup plugin of nova-compute, show what it did',
     author, 1),
    ('openstack-bdm', 'openstack-bdm',
     'find and clean up what Nova and Cinder disagree about', author, 1),
]
