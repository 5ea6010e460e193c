# SPDX-License-Identifier: Apache-2.0
"""Tests of what the other tests stand on.

The test cloud, the model of the search, the search itself, the counts of a
run, and the demonstration.  They do not test the plugin.
"""

from __future__ import annotations

import os
import unittest

# Before all other imports: it may monkey patch the standard library, for the
# whole process.
from nova_bdm_cleanup.tests import functional


def load_tests(loader: unittest.TestLoader, tests: unittest.TestSuite,
               pattern: str | None) -> unittest.TestSuite:
    # The demonstration and the search, which take longest, come first so.
    return functional.in_order_of_clouds(loader.discover(
        os.path.dirname(__file__), pattern or 'test*.py'))
