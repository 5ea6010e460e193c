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
"""Tests of the plugin in a real Nova."""

from __future__ import annotations

import os
import unittest

# Before anything else, whichever test is asked for: it may monkey patch the
# standard library, and decides so for the whole process.
import nova.tests.functional  # noqa: F401
import testtools


def load_tests(loader: unittest.TestLoader, tests: unittest.TestSuite,
               pattern: str | None) -> unittest.TestSuite:
    """Have the classes that can share a cloud follow one another."""
    found = loader.discover(os.path.dirname(__file__), pattern or 'test*.py')
    return unittest.TestSuite(
        sorted(testtools.iterate_tests(found), key=_cloud_of))


def _cloud_of(test: unittest.TestCase | unittest.TestSuite) -> str:
    arguments = getattr(test, 'cloud_arguments', None)
    return repr(arguments()) if arguments else ''
