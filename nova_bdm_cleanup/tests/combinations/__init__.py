# SPDX-License-Identifier: Apache-2.0
"""Tests of the plugin in a real Nova, in many combinations.

Each state with the commands that end it, each rule of a policy left out.  The
functional tests have one of each.
"""

from __future__ import annotations

import os
import unittest

# First of all, as in its tests.
from nova_bdm_cleanup.tests import functional


def load_tests(loader: unittest.TestLoader, tests: unittest.TestSuite,
               pattern: str | None) -> unittest.TestSuite:
    return functional.in_order_of_clouds(loader.discover(
        os.path.dirname(__file__), pattern or 'test*.py'))
