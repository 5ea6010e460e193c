# SPDX-License-Identifier: Apache-2.0
"""Runs the command; the script beside this takes the right interpreter."""

from e2e import cli

cli.main()
