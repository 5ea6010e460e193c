# SPDX-License-Identifier: Apache-2.0
"""Every interleaving, kill and fault within a bound, over a small model.

The hooks, the cleaner, the rules, ``NovaInstance`` and ``Neighbours`` are the
real ones.  Cinder, its back end, Nova's rows, task states and locks, the
devices of the hosts and the guests are a model of a few hundred lines, which
the functional suite compares with the real things call by call.

``scheduler``
    runs actors step by step in a given order
``world``, ``cinder``, ``compute``, ``moving``, ``nova``
    the model
``ports``
    what the plugin sees of it
``actors``, ``movers``
    what people, Nova, Cinder and neighbours do meanwhile
``properties``
    what must never happen, and how it must end
``scenarios``
    who meets whom
``search``
    all schedules of a scenario within a bound
``faults``
    what the search must find if a programmer gets it wrong
``story``
    a schedule that broke a property, as a person reads it

``python -m nova_bdm_cleanup.tests.simulation`` runs it.
"""
