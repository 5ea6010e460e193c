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
"""Runs the command, also where only the directory is named."""

import pathlib
import subprocess
import sys

if __package__:
    from e2e import cli

    cli.main()
else:
    # Of "python3 e2e": the script takes the right interpreter.
    run = str(pathlib.Path(__file__).resolve().with_name('run'))
    sys.exit(subprocess.run([run, *sys.argv[1:]]).returncode)
