# SPDX-License-Identifier: Apache-2.0
"""A search through every interleaving, kill and failure within a bound.

The hooks, the cleaner, the rules, ``NovaInstance`` and ``Neighbours`` are the
real ones.  Cinder, its back end, Nova's rows, task states and locks, the
devices of the hosts and the guests are a model of a few hundred lines, which
the functional suite compares with the real things call by call.

``scheduler``
    runs actors step by step in a given order
``world``, ``cinder``, ``compute``, ``compute_moves``, ``nova``
    the model
``ports``
    the model as the plugin sees it
``operations``, ``move_operations``
    operations of users, administrators and other projects
``properties``
    the properties that every schedule must have
``ends``
    the end of an operation, compared with that without the plugin
``scenarios``
    the initial state, the operation on the server and a concurrent one
``reconnects``
    the same for disks that failed operations of Nova leave half attached
``search``
    all schedules of a scenario within a bound
``known_violations``
    violations that are expected
``faults``
    programming faults that the search must find
``trace``
    the steps of a schedule, printed for a reader

``python -m nova_bdm_cleanup.tests.simulation`` runs it.
"""
