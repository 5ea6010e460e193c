# SPDX-License-Identifier: Apache-2.0
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
