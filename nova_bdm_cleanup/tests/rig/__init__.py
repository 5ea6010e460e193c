# SPDX-License-Identifier: Apache-2.0
"""Tests of the test cloud, the counts of a run and the demonstration.

They are for changes of these, and do not test the plugin.
"""

# Before all other imports: it may monkey patch the standard library, for the
# whole process.
import nova.tests.functional  # noqa: F401
