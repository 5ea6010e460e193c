# SPDX-License-Identifier: Apache-2.0
"""Cleans up dangling block device mappings when a server is rebooted."""

#: setup.cfg and the documentation take it from here, so that it is the same
#: in a checkout, in an archive without git, and in what is installed.
VERSION = '1.0.0'
