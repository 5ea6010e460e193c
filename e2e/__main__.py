# SPDX-License-Identifier: Apache-2.0
"""Entry point of the command; the script ``run`` picks the interpreter."""

from e2e import cli

cli.main()
