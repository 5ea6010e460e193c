# SPDX-License-Identifier: Apache-2.0
"""The disks of other servers on the host, and of those on their way to it."""

from __future__ import annotations

import datetime
import json

from nova import objects
from nova.db.main import api as db
from oslo_utils import timeutils

from nova_bdm_cleanup.tests.cloud import fixture, recorder
from nova_bdm_cleanup.tests.functional import base


def make_old(cloud, row):
    """A mapping of which nothing can be under way, by its age."""
    db.block_device_mapping_update(
        cloud.nova.context(), row.id,
        {'created_at': timeutils.utcnow() - datetime.timedelta(minutes=6)},
        legacy=False)


def begin(cloud, server, action):
    """Nova begins something with a server.

    :returns: what ends it
    """
    context = cloud.nova.context()
    objects.InstanceAction.action_start(context, server.id, action)

    def end():
        event = f'compute_{action}'
        objects.InstanceActionEvent.event_start(context, server.id, event)
        objects.InstanceActionEvent.event_finish(context, server.id, event)

    return end


class ReusedAddressTest(base.FunctionalTestCase):
    """The array gave the number of a lost volume to the next one."""

    CLOUD = {'plugin': True}

    def setUp(self):
        super().setUp()
        self.server = self.cloud.server(fixture.Disk())
        self.neighbour = self.cloud.server(fixture.Disk(), name='neighbour')
        self.volume, = self.server.volumes
        self.cloud.lose_attachment(self.server, self.volume)
        self.address(self.server, 5)

    def row(self, server):
        return self.cloud.row(server, server.volumes[0])

    def address(self, server, unit=5, **data):
        """Have a server's disk behind a target with many units."""
        info = json.loads(self.row(server).connection_info)
        info['data'].update(target_iqn='iqn.2010-10.org.openstack:array',
                            target_lun=unit, **data)
        self._write(server, json.dumps(info))
        self.cloud.nova.kernel.tell(info['data'])

    def _write(self, server, connection_info):
        row = self.row(server)
        row.connection_info = connection_info
        row.save()
        return row

    def disconnects(self, removed=True):
        self.cloud.forget()
        self.cloud.reboot(self.server)
        view = self.cloud.look(self.server)
        self.assertEqual(removed, view.block_device(self.volume) is None)
        # Also without what is kept until it can be decided.
        self.assertFalse(view.has_disk(self.volume))
        return [event for event in self.cloud.timeline(self.volume)
                if event.party == recorder.HOST]

    def _move(self, source, target, task_state='migrating'):
        """The neighbour is being migrated, and Nova has not yet finished."""
        instance = self.cloud.nova.instance(self.neighbour.id)
        migration = objects.Migration(
            self.cloud.nova.context(), instance_uuid=instance.uuid,
            migration_type='live-migration', status='running',
            source_compute=source, source_node=source, dest_compute=target,
            dest_node=target)
        if 'dest_compute_id' in migration.fields:
            # Recent releases want it, whatever it is.
            migration.dest_compute_id = 1
        migration.create()
        instance.host = source
        instance.task_state = task_state
        instance.save()
        return instance, migration

    def test_another_number(self):
        self.address(self.neighbour, 6)
        self.assertEqual(1, len(self.disconnects()))

    def test_the_same_number(self):
        self.address(self.neighbour, 5)
        self.assertEqual([], self.disconnects())
        self.assertEqual(1, len(self.cloud.log('event=left')))

    def test_the_same_number_in_a_mapping_that_dangles_itself(self):
        """Its address is nobody's, and the disk would be left for good."""
        self.address(self.neighbour, 5)
        self.cloud.lose_attachment(self.neighbour, self.neighbour.volumes[0])
        self.assertEqual(1, len(self.disconnects()))

    def test_the_same_number_where_cinder_does_not_tell_whose_it_is(self):
        volume, = self.neighbour.volumes
        self.address(self.neighbour, 5)
        self.cloud.lose_attachment(self.neighbour, volume)
        self.cloud.reset_status(volume, 'error')
        self.assertEqual([], self.disconnects(removed=False))
        self.assertEqual(1, len(self.cloud.log('event=failed.*same address')))

    def test_on_its_way_between_others(self):
        self.address(self.neighbour, 6)
        self._move('elsewhere', 'nowhere')
        self.assertEqual(1, len(self.disconnects()))

    def test_leaving_by_a_cold_migration(self):
        """Until its disks are disconnected, its rows say where they are."""
        self.address(self.neighbour, 5)
        instance, _ = self._move(
            self.server.host, 'elsewhere', 'resize_migrating')
        self.assertEqual([], self.disconnects())
        self.assertEqual(1, len(self.cloud.log('event=left')))

    def test_left_by_a_cold_migration(self):
        """The same address is another disk's, on the other host."""
        self.address(self.neighbour, 5)
        instance, _ = self._move(
            self.server.host, 'elsewhere', 'resize_migrated')
        instance.host = 'elsewhere'
        instance.save()
        self.assertEqual(1, len(self.disconnects()))

    def test_coming_by_a_live_migration(self):
        """Its disks are here before it is, and no row tells by what."""
        self.address(self.neighbour, 6)
        instance, migration = self._move('elsewhere', self.server.host)
        self.assertEqual([], self.disconnects(removed=False))
        self._end(instance, migration, self.server.host)
        self.assertEqual(1, len(self.disconnects()))

    def test_leaving_by_a_live_migration(self):
        """Its rows say how it is connected there, already."""
        self.address(self.neighbour, 6)
        instance, migration = self._move(self.server.host, 'elsewhere')
        self.assertEqual([], self.disconnects(removed=False))
        self._end(instance, migration, 'elsewhere')
        self.assertEqual(1, len(self.disconnects()))

    @staticmethod
    def _end(instance, migration, host):
        migration.status = 'completed'
        migration.save()
        instance.host = host
        instance.task_state = None
        instance.save()

    def test_coming_by_a_cold_migration(self):
        self.address(self.neighbour, 6)
        self._move('elsewhere', self.server.host, 'resize_prep')
        self.assertEqual([], self.disconnects(removed=False))

    def test_being_attached(self):
        """Nova connects first and writes down the address after that."""
        row = self._write(self.neighbour, None)
        self.assertEqual([], self.disconnects(removed=False))
        self.assertEqual(1, len(self.cloud.log('event=failed.*attached to')))
        make_old(self.cloud, row)
        # It may have waited for whatever else went on with the server.
        end = begin(self.cloud, self.neighbour, 'attach_volume')
        self.assertEqual([], self.disconnects(removed=False))
        end()
        self.assertEqual(1, len(self.disconnects()))

    def test_an_attach_that_died(self):
        """Until the guest has lost the disk when the server is stopped."""
        make_old(self.cloud, self._write(self.neighbour, None))
        begin(self.cloud, self.neighbour, 'attach_volume')
        self.assertEqual([], self.disconnects(removed=False))
        begin(self.cloud, self.neighbour, 'stop')
        self.assertEqual(1, len(self.disconnects()))


class MigratingNeighbourTest(base.FunctionalTestCase):
    """A live migration connects its volumes before the server moves."""

    CLOUD = {'plugin': True, 'hosts': ('compute1', 'compute2')}

    def setUp(self):
        super().setUp()
        self.server = self.cloud.server(fixture.Disk(), root='volume',
                                        host='compute1')
        self.volume = self.server.volumes[0]
        self.neighbour = self.cloud.give_away(self.server, self.volume,
                                              host='compute2')

    def disconnects(self, removed=True):
        self.cloud.forget()
        self.cloud.reboot(self.server)
        self.assertEqual(
            removed,
            self.cloud.look(self.server).block_device(self.volume) is None)
        return [event for event in self.cloud.timeline(self.volume)
                if (event.party, event.what) == (recorder.HOST, 'disconnect')]

    def test_at_rest_elsewhere(self):
        self.assertEqual(1, len(self.disconnects()))

    def test_busy_elsewhere(self):
        instance = self.cloud.nova.instance(self.neighbour.id)
        instance.task_state = 'image_uploading'
        instance.save()
        self.assertEqual(1, len(self.disconnects()))

    def test_perhaps_on_its_way_here(self):
        """Then nothing is done, and tried again when it has arrived."""
        instance = self.cloud.nova.instance(self.neighbour.id)
        instance.task_state = 'migrating'
        instance.save()
        self.assertEqual([], self.disconnects(removed=False))
        self.assertEqual(1, len(self.cloud.log('event=failed.*migrating')))
        instance.task_state = None
        instance.save()
        self.assertEqual(1, len(self.disconnects()))

    def _of_this_host(self, **values):
        instance = self.cloud.nova.instance(self.neighbour.id)
        instance.host = 'compute1'
        for name, value in values.items():
            setattr(instance, name, value)
        instance.save()

    def test_never_connected_on_this_host(self):
        """A row alone keeps no disk: nobody would disconnect it later."""
        self._of_this_host()
        row = self.cloud.row(self.neighbour, self.volume)
        row.connection_info = None
        row.save()
        self.assertEqual([], self.disconnects(removed=False))
        self.assertEqual(1, len(self.cloud.log('event=failed.*attached to')))
        make_old(self.cloud, row)
        self.assertEqual(1, len(self.disconnects()))

    # Lists of servers leave these out; they are connected all the same.

    def test_soft_deleted_on_this_host(self):
        self._of_this_host(vm_state='soft-delete')
        self.assertEqual([], self.disconnects())

    def test_hidden_on_this_host(self):
        self._of_this_host(hidden=True)
        self.assertEqual([], self.disconnects())
