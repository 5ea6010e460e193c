# SPDX-License-Identifier: Apache-2.0
"""Nova's own fake libvirt, without Nova's other fixtures."""

from __future__ import annotations

import importlib
import pathlib
import sys
import types

import nova.tests

_NAME = 'nova.tests.fixtures'

if _NAME not in sys.modules:
    # The package itself imports all fixtures, which takes ten seconds in
    # the machine.
    package = types.ModuleType(_NAME)
    package.__path__ = [
        str(pathlib.Path(nova.tests.__file__).parent / 'fixtures')]
    sys.modules[_NAME] = package

libvirt = importlib.import_module(f'{_NAME}.libvirt')
