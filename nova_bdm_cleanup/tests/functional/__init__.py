# SPDX-License-Identifier: Apache-2.0
"""Tests of the plugin in a real Nova."""

from __future__ import annotations

import os
import unittest

# Import this first for every test: it may monkey patch the standard library,
# and decides so for the whole process.
import nova.tests.functional  # noqa: F401
import testtools


def load_tests(loader: unittest.TestLoader, tests: unittest.TestSuite,
               pattern: str | None) -> unittest.TestSuite:
    return in_order_of_clouds(loader.discover(
        os.path.dirname(__file__), pattern or 'test*.py'))


def in_order_of_clouds(tests: unittest.TestSuite) -> unittest.TestSuite:
    """Have the classes that can share a cloud follow one another."""
    return unittest.TestSuite(
        sorted(testtools.iterate_tests(tests), key=_cloud_of))


def _cloud_of(test: unittest.TestCase | unittest.TestSuite) -> str:
    name = getattr(test, 'cloud_name', None)
    return name() if name else ''
