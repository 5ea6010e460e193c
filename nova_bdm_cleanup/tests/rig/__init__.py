# SPDX-License-Identifier: Apache-2.0
"""Tests of what the other tests stand on.

The test cloud, the model of the search, the search itself, the counts of a
run, and the demonstration.  They do not test the plugin.
"""

# Before all other imports: it may monkey patch the standard library, for the
# whole process.
import nova.tests.functional  # noqa: F401
