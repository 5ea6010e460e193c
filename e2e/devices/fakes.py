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
"""Nova's own fake libvirt, without all of Nova's other fixtures."""

from __future__ import annotations

import importlib
import pathlib
import sys
import types

import nova.tests

_NAME = 'nova.tests.fixtures'

if _NAME not in sys.modules:
    # The package itself imports every fixture, which takes ten seconds in
    # the machine.
    package = types.ModuleType(_NAME)
    package.__path__ = [
        str(pathlib.Path(nova.tests.__file__).parent / 'fixtures')]
    sys.modules[_NAME] = package

libvirt = importlib.import_module(f'{_NAME}.libvirt')
