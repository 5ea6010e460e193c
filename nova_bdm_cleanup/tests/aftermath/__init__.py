# SPDX-License-Identifier: Apache-2.0
"""Each operation of Nova on volumes, with a fault at each of its points.

The functional tests have one case of each kind of state; no gate runs the
rest.
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
