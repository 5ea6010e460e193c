# SPDX-License-Identifier: Apache-2.0
"""A small real cloud for tests, demonstration and benchmarks.

A real Nova (API, conductor, scheduler, nova-compute with the libvirt driver
on a fake libvirt) runs in this process, a real Cinder (API, scheduler, volume
service) in a child process, and a proxy between them records requests and
injects faults.  Everything listens on the loopback only, on free
ports, and keeps its files in one temporary directory.

A scenario is a short function over one object, the
:class:`~nova_bdm_cleanup.tests.cloud.fixture.Cloud`::

    from nova_bdm_cleanup.tests.cloud import fixture

    with fixture.Cloud(plugin=True) as cloud:
        # "A server with these volumes",
        server = cloud.server(fixture.Disk(), fixture.Disk(tag='data'))
        lost, kept = server.volumes
        # "break it like this",
        cloud.lose_attachment(server, lost)
        cloud.reboot(server)
        # "what do all services report now".
        view = cloud.look(server)
        assert view.block_device(lost) is None
        assert view.has_disk(kept)

The modules:

``fixture``
    The cloud: makes, breaks, reboots and inspects servers and volumes.
``server``
    The disks requested for a server, and the server as made.
``template``
    Copies of servers and volumes, for tests that need many.
``damage``
    Ways to break a server, with the plugin's expected result; add yours.
``snapshot``
    The result of a look: Nova's rows, Cinder's volumes and attachments, the
    guest's disks, the host's connections, the instance actions.
``recorder``
    The timeline of all steps, and hooks to fail, to crash or to interfere
    just before a chosen step.
``faults``
    Faults at a chosen request, save or step of an operation of Nova.
``proxy``
    Rules for requests to Cinder: delay, hang, refuse, garble, cut, falsify.
``identity``
    Callers; their tokens are readable text.
``cinder``
    The parent's side of the child process: clients, the call log of the
    volume back end, faults in it.
``nova``
    Nova's own test harness with a real nova.conf, API server and Cinder.
``nova_compute``
    nova-compute alone, in a process of its own, up to its manager.
``messages``
    Immediate delivery of RPC messages.
``cinder_server``, ``cinder_driver``
    The child process; they run in an environment that has Cinder.
``standin``, ``web``
    The needed parts of Keystone and Glance, and a small HTTP server.

Nova comes from the environment this runs in, see ``tools/environments.py``;
any release from 25 on will do.
"""
