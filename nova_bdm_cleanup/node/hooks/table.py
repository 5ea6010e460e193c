# SPDX-License-Identifier: Apache-2.0
"""The table of hooks: what wraps which method of Nova, and when it runs.

Installing, the check of Nova at start and in ``nova-bdm-cleanup check``, and
the table in the documentation are derived from ``HOOKS``.  A row for a new
trigger (see :mod:`nova_bdm_cleanup.node.cleanup.triggers`) needs a handler in
a module of this package, which is imported only when the row is installed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
import dataclasses
import enum
from typing import NamedTuple

from nova_bdm_cleanup.node.cleanup import triggers
from nova_bdm_cleanup.node.cleanup.triggers import Trigger


class Wraps(enum.Enum):
    """The moment at which a handler runs, and its kind.

    The value is the text in the documentation.
    """

    #: A function.
    BEFORE = 'before it'
    #: A context manager, in which the method runs; not if it yields True.
    AROUND = 'around it'
    #: A function; it does not run if the method has failed.
    AFTER = 'after it'


class NovaRelease(enum.Enum):
    """The releases of Nova in which a row is installed.

    They are distinguished by the method ``_delete_dangling_bdms``, not by
    their version.  The value is the text in the documentation.
    """

    ANY = ''
    WITH_BUILTIN = 'Nova 28 and later'
    WITHOUT_BUILTIN = 'Nova 25 to 27'


#: The classes of Nova that have the methods.
MANAGER = 'ComputeManager'
LIBVIRT = 'LibvirtDriver'
VOLUME_API = 'nova.volume.cinder.API'


class Method(NamedTuple):
    """A method of Nova."""

    name: str
    #: The parameters that it must have; None: any.
    parameters: str | None = None
    #: Its class.
    owner: str = MANAGER

    def __str__(self) -> str:
        return '%s.%s' % (self.owner, self.name)


@dataclasses.dataclass(frozen=True)
class Hook:
    """A method of Nova that is wrapped for a trigger.

    The rows of the same method and handler are installed as one wrapper.
    """

    #: None: it is installed with any triggers.
    trigger: Trigger | None
    method: Method
    wraps: Wraps
    #: The module in this package and the function: ``module.function``.
    handler: str
    #: What the handler does, for the documentation.
    does: str
    #: The methods of ``ComputeManager`` that must call the method.
    callers: Sequence[str] = ()
    release: NovaRelease = NovaRelease.ANY


@dataclasses.dataclass(frozen=True)
class Requirement:
    """A function of Nova that is called, and its parameters."""

    #: The class or module, and the function.
    function: str
    #: None: any.
    parameters: str | None = None
    #: The triggers that need it; empty: all.
    triggers: Sequence[Trigger] = ()
    #: The methods of ``ComputeManager`` that must call it.
    callers: Sequence[str] = ()


BUILTIN_CLEANUP = Method(
    '_delete_dangling_bdms', 'self, context, instance, bdms')
REBOOT = Method(
    '_reboot_instance',
    'self, context, instance, block_device_info, reboot_type')
BLOCK_DEVICE_INFO = Method(
    '_get_instance_block_device_info',
    'self, context, instance, refresh_conn_info, bdms')
POWER_ON = Method('_power_on', 'self, context, instance')
RESUME = Method(
    '_resume_guests_state', 'self, context, instance, net_info')
TERMINATE_CONNECTIONS = Method(
    '_terminate_volume_connections', 'self, context, instance, bdms')
RESIZE = Method(
    '_resize_instance', 'self, context, instance, image, migration, flavor, '
    'clean_shutdown, request_spec')
REVERT = Method(
    'revert_resize', 'self, context, instance, migration, request_spec')
OFFLOAD = Method(
    '_shelve_offload_instance',
    'self, context, instance, clean_shutdown, bdms, accel_uuids')
UNSHELVE_INSTANCE = Method(
    '_unshelve_instance', 'self, context, instance, image, '
    'filter_properties, node, request_spec, accel_uuids')
#: Each release gives it other parameters.
REBUILD = Method('_rebuild_default_impl')
DESTROY_EVACUATED = Method(
    '_destroy_evacuated_instances', 'self, context, node_cache')
POST_LIVE_MIGRATION = Method(
    '_post_live_migration', 'self, ctxt, instance, dest, block_migration, '
    'migrate_data, source_bdms')
#: Each release gives it other parameters.
ROLL_BACK = Method('_rollback_live_migration')
GIVE_UP = Method('_reset_live_migration', 'self, context, instance')
SHUT_DOWN = Method(
    '_shutdown_instance', 'self, context, instance, bdms, '
    'requested_networks, notify, try_deallocate_networks')
INIT_HOST = Method('init_host')
UPDATE_RESOURCES = Method(
    '_update_available_resource_for_node', 'self, context, nodename, startup')
CLEANUP_HOST = Method('cleanup_host')
INIT_INSTANCE = Method('_init_instance', 'self, context, instance')
DISCONNECT_VOLUME = Method(
    '_disconnect_volume',
    'self, context, connection_info, instance, encryption, destroy_secrets, '
    'force', LIBVIRT)
POWER_OFF = Method('_destroy', 'self, instance', LIBVIRT)
ATTACHMENT_CREATE = Method(
    'attachment_create', 'self, ctx, volume_id, args, kwargs', VOLUME_API)
ATTACHMENT_UPDATE = Method(
    'attachment_update', 'self, ctx, attachment_id, args, kwargs', VOLUME_API)
ATTACHMENT_DELETE = Method(
    'attachment_delete', 'self, ctx, attachment_id, args, kwargs', VOLUME_API)
INITIALIZE_CONNECTION = Method(
    'initialize_connection', 'self, ctx, volume_id, args, kwargs', VOLUME_API)

_CLEANS = 'Cleans up, with the guest off.'
_TAKES_OUT = ('Takes the disks that must not be connected out of what the '
              'driver is given.')
_BEGINS = 'Begins the operation.'
_REMOVES = ('Removes dangling mappings before Nova asks Cinder for new '
            'attachments.')
_PREPARES = (_REMOVES[:-1] + ', and has each disk have one attachment, which '
             'its mapping names.')
_KEEPS = ('The driver disconnects by address: nothing that another server of '
          'the host claims.')
_LEAVES = ('Before it connects the disks, the driver disconnects them: not '
           'one that Cinder has just connected to this host.')
_ADOPTS = ('Has the mappings take over the attachments by which the guest, '
           'which goes on, has its disks.')
_REMEMBERS = ('Remembers the address that Cinder gives this host, until a '
              'guest or a row shows it. Before, waits until no guest is '
              'started with a disk that Cinder does not connect.')

#: All hooks.  Their order has no meaning.
HOOKS: Sequence[Hook] = (
    Hook(triggers.HARD_REBOOT, BUILTIN_CLEANUP, Wraps.AROUND,
         'start.replace_builtin',
         'Cleans up in place of it; in ``observe`` mode, before it.',
         callers=(REBOOT.name,), release=NovaRelease.WITH_BUILTIN),
    Hook(triggers.HARD_REBOOT, REBOOT, Wraps.AROUND, 'start.begin_reboot',
         _BEGINS, release=NovaRelease.WITH_BUILTIN),
    Hook(triggers.SOFT_REBOOT, REBOOT, Wraps.AROUND, 'start.begin_reboot',
         _BEGINS, release=NovaRelease.WITH_BUILTIN),
    Hook(triggers.HARD_REBOOT, DISCONNECT_VOLUME, Wraps.AROUND,
         'operation.disconnect', _LEAVES),
    Hook(triggers.SOFT_REBOOT, BUILTIN_CLEANUP, Wraps.AROUND,
         'start.replace_builtin',
         'Reports in place of it; in ``observe`` mode, before it.',
         callers=(REBOOT.name,), release=NovaRelease.WITH_BUILTIN),
    Hook(triggers.HARD_REBOOT, REBOOT, Wraps.AROUND,
         'start.clean_before_reboot', 'Cleans up before it.',
         release=NovaRelease.WITHOUT_BUILTIN),
    Hook(triggers.HARD_REBOOT, BLOCK_DEVICE_INFO, Wraps.BEFORE,
         'operation.give', _TAKES_OUT, callers=(REBOOT.name,),
         release=NovaRelease.WITHOUT_BUILTIN),
    Hook(triggers.SOFT_REBOOT, REBOOT, Wraps.AROUND,
         'start.clean_before_reboot', 'Reports before it.',
         release=NovaRelease.WITHOUT_BUILTIN),
    Hook(triggers.SOFT_REBOOT, BLOCK_DEVICE_INFO, Wraps.BEFORE,
         'operation.give', _TAKES_OUT, callers=(REBOOT.name,),
         release=NovaRelease.WITHOUT_BUILTIN),

    Hook(triggers.START, POWER_ON, Wraps.AROUND, 'start.clean_before',
         _CLEANS),
    Hook(triggers.START, BLOCK_DEVICE_INFO, Wraps.BEFORE, 'operation.give',
         _TAKES_OUT, callers=(POWER_ON.name,)),
    Hook(triggers.START, DISCONNECT_VOLUME, Wraps.AROUND,
         'operation.disconnect', _LEAVES),
    Hook(triggers.HOST_BOOT, RESUME, Wraps.AROUND, 'start.clean_before',
         _CLEANS, callers=(INIT_INSTANCE.name,)),
    Hook(triggers.HOST_BOOT, BLOCK_DEVICE_INFO, Wraps.BEFORE,
         'operation.give', _TAKES_OUT, callers=(RESUME.name,)),
    Hook(triggers.HOST_BOOT, DISCONNECT_VOLUME, Wraps.AROUND,
         'operation.disconnect', _LEAVES),

    Hook(triggers.MOVE, RESIZE, Wraps.AROUND, 'operation.leave', _BEGINS,
         callers=('resize_instance',)),
    Hook(triggers.MOVE, REVERT, Wraps.AROUND, 'operation.leave', _BEGINS),
    Hook(triggers.MOVE, DISCONNECT_VOLUME, Wraps.AROUND,
         'operation.disconnect', _KEEPS),
    Hook(triggers.MOVE, TERMINATE_CONNECTIONS, Wraps.BEFORE,
         'operation.remove', _REMOVES, callers=(RESIZE.name, REVERT.name)),
    Hook(triggers.INTERRUPTED_MOVE, INIT_INSTANCE, Wraps.AROUND,
         'start.clean_interrupted_move', _CLEANS, callers=(INIT_HOST.name,)),
    Hook(triggers.INTERRUPTED_MOVE, BLOCK_DEVICE_INFO, Wraps.BEFORE,
         'operation.give', _TAKES_OUT, callers=(INIT_INSTANCE.name,)),
    Hook(triggers.INTERRUPTED_MOVE, DISCONNECT_VOLUME, Wraps.AROUND,
         'operation.disconnect', _LEAVES),

    Hook(triggers.SHELVE, OFFLOAD, Wraps.AROUND, 'operation.leave', _BEGINS),
    Hook(triggers.SHELVE, DISCONNECT_VOLUME, Wraps.AROUND,
         'operation.disconnect', _KEEPS),
    Hook(triggers.SHELVE, TERMINATE_CONNECTIONS, Wraps.BEFORE,
         'operation.remove', _REMOVES, callers=(OFFLOAD.name,)),
    Hook(triggers.UNSHELVE, UNSHELVE_INSTANCE, Wraps.BEFORE,
         'operation.arrive', _PREPARES),

    Hook(triggers.EVACUATE, REBUILD, Wraps.BEFORE, 'evacuation.evacuate',
         'In an evacuation, on the new host: r' + _PREPARES[1:],
         callers=('_do_rebuild_instance',)),
    Hook(triggers.RETURN, DESTROY_EVACUATED, Wraps.AROUND,
         'evacuation.destroy',
         'On the former host, when it is back: disconnects what was removed '
         'in an evacuation.', callers=(INIT_HOST.name,)),
    Hook(triggers.RETURN, DISCONNECT_VOLUME, Wraps.AROUND,
         'operation.disconnect', _KEEPS),
    Hook(triggers.RETURN, POWER_OFF, Wraps.AROUND, 'evacuation.power_off',
         'On the former host: disconnects what was removed in an evacuation, '
         'once the guest is off.'),

    Hook(triggers.LIVE_MIGRATION, POST_LIVE_MIGRATION, Wraps.AROUND,
         'operation.leave', _BEGINS),
    Hook(triggers.LIVE_MIGRATION, DISCONNECT_VOLUME, Wraps.AROUND,
         'operation.disconnect', _KEEPS),

    Hook(triggers.ROLLBACK, ROLL_BACK, Wraps.AFTER, 'rollback.adopt', _ADOPTS,
         callers=('_do_live_migration',)),
    Hook(triggers.ROLLBACK, GIVE_UP, Wraps.AFTER, 'rollback.adopt',
         'At the end of this start: h' + _ADOPTS[1:],
         callers=(INIT_INSTANCE.name,)),

    Hook(triggers.DELETE, SHUT_DOWN, Wraps.AROUND, 'operation.leave', _BEGINS,
         callers=('_delete_instance', '_cleanup_running_deleted_instances')),
    Hook(triggers.DELETE, DISCONNECT_VOLUME, Wraps.AROUND,
         'operation.disconnect', _KEEPS),

    Hook(None, SHUT_DOWN, Wraps.BEFORE, 'delete.renew',
         'Brings the mappings up to date that the API has sent: a reboot may '
         'have given a disk a new attachment meanwhile. Drops those that this '
         'host has removed before the server was deleted: Nova would delete '
         'their volumes with it.'),
    Hook(None, INIT_HOST, Wraps.AROUND, 'init_host.begin',
         'Records this nova-compute for ``nova-bdm-cleanup status``, begins '
         'the periodic task, and has all instances that Nova resumes '
         'share one time limit. After it, disconnects what had to stay '
         'connected before, reports the operations that an earlier '
         'nova-compute has not ended, and begins to take up the requests of '
         '``nova-bdm-cleanup repair``.'),
    Hook(None, UPDATE_RESOURCES, Wraps.AFTER, 'placement.show_mode',
         'Has the compute node in Placement have the trait of the mode, which '
         '``openstack bdm clean`` requires.'),
    Hook(None, CLEANUP_HOST, Wraps.BEFORE, 'placement.hide_mode',
         'Removes that trait: the next nova-compute may be without the '
         'plugin.'),
    Hook(None, ATTACHMENT_CREATE, Wraps.AROUND, 'connections.remember',
         _REMEMBERS),
    Hook(None, ATTACHMENT_UPDATE, Wraps.AROUND, 'connections.remember',
         _REMEMBERS),
    Hook(None, INITIALIZE_CONNECTION, Wraps.AROUND,
         'connections.remember_without_attachment', _REMEMBERS),
    Hook(None, ATTACHMENT_DELETE, Wraps.AFTER, 'connections.forget',
         'Forgets that address.'),
)

_REBOOTS = (triggers.HARD_REBOOT, triggers.SOFT_REBOOT)
_NEED_GUEST_OFF = (triggers.START, triggers.HOST_BOOT)

#: What the hooks call or rely on besides the methods that they wrap.
REQUIREMENTS: Sequence[Requirement] = (
    Requirement('ComputeDriver.detach_volume',
                'self, context, connection_info, instance, mountpoint, '
                'encryption'),
    Requirement('LibvirtDriver._disconnect_volume',
                DISCONNECT_VOLUME.parameters),
    Requirement('Host.delete_secret', 'self, usage_type, usage_id'),
    Requirement('Host.list_instance_domains', 'self, only_running'),
    Requirement('DriverVolumeBlockDevice._get_volume',
                'context, volume_api, volume_id'),
    Requirement('nova.volume.cinder.cinderclient',
                'context, microversion, skip_version_check, check_only'),
    Requirement('ComputeManager._reboot_instance', REBOOT.parameters,
                _REBOOTS),
    Requirement('ComputeDriver.power_off',
                'self, instance, timeout, retry_interval', _REBOOTS),
    Requirement('API.get_instance_nw_info',
                'self, context, instance, kwargs', _REBOOTS),
    Requirement('ComputeDriver.get_volume_connector', 'self, instance'),
    Requirement('ComputeDriver.get_info', 'self, instance, use_cache',
                _NEED_GUEST_OFF),
    Requirement('Host.get_guest', 'self, instance'),
    Requirement('Guest.is_active', 'self', _NEED_GUEST_OFF),
    Requirement('Guest.get_job_info', 'self'),
    Requirement('SchedulerReportClient.get_provider_traits',
                'self, context, rp_uuid'),
    Requirement('SchedulerReportClient.set_traits_for_provider',
                'self, context, rp_uuid, traits, generation'),
    Requirement('nova.volume.cinder.API.attachment_get',
                ATTACHMENT_UPDATE.parameters),
    Requirement('ComputeManager._init_instance', INIT_INSTANCE.parameters,
                (triggers.HOST_BOOT,), callers=(INIT_HOST.name,)),
)


def hooks_for(selected: Collection[Trigger], has_builtin: bool,
              hooks: Sequence[Hook] = HOOKS) -> list[Hook]:
    """Return the rows of some triggers.

    :param has_builtin: whether Nova has a cleanup of its own
    """
    excluded = (NovaRelease.WITHOUT_BUILTIN if has_builtin
                else NovaRelease.WITH_BUILTIN)
    return [hook for hook in hooks if hook.release is not excluded
            and (hook.trigger is None or hook.trigger in selected)]


class HookTable:
    """The table in the documentation."""

    header = ('Trigger', 'Method of Nova', 'The hook runs', 'What it does')

    def lines(self) -> Iterator[tuple[str, ...]]:
        """Yield the cells of each row."""
        for hook in HOOKS:
            yield (
                '``%s``' % hook.trigger.name if hook.trigger else 'any',
                '``%s``%s' % (hook.method, ', called by ' + ' and '.join(
                    '``%s``' % name for name in hook.callers)
                    if hook.callers else ''),
                hook.wraps.value + (
                    ' (%s)' % hook.release.value if hook.release.value
                    else ''),
                hook.does)


TABLE = HookTable()
