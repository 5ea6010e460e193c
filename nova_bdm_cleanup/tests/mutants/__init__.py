# SPDX-License-Identifier: Apache-2.0
"""Faults planted one at a time: what is there to find them has to find each.

Every mutant is an error that a programmer could make, and that would cost an
operator something.  One that nobody finds means that a property is missing, or
that the code is not needed::

    python3 -m nova_bdm_cleanup.tests.mutants

``of_rules``, ``of_cleanup``, ``of_plugin``, ``of_moves``
    the mutants, by the part of the package that they change
``mutant``
    what one is, and how it is planted
``finders``
    what has to find it
"""

from nova_bdm_cleanup.tests.mutants import (
    of_cleanup,
    of_moves,
    of_plugin,
    of_rules,
)

MUTANTS = (*of_rules.MUTANTS, *of_cleanup.MUTANTS, *of_plugin.MUTANTS,
           *of_moves.MUTANTS)
