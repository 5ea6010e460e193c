# SPDX-License-Identifier: Apache-2.0
"""Tests of what the tests stand on: of the cloud and of the demonstration.

They are for whoever changes these, and say nothing about the plugin.
"""

# Before anything else: it may monkey patch the standard library, and decides
# so for the whole process.
import nova.tests.functional  # noqa: F401
