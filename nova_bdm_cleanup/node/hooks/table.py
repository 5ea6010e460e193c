# SPDX-License-Identifier: Apache-2.0
"""The table of hooks: what wraps which method of Nova's ``ComputeManager``.

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

    #: A function, whose result is returned.
    IN_PLACE_OF = 'in place of it'
    #: A function.
    BEFORE = 'before it'
    #: A context manager, in which the method runs.
    AROUND = 'around it'


class NovaRelease(enum.Enum):
    """The releases of Nova in which a row is installed.

    They are distinguished by the method ``_delete_dangling_bdms``, not by
    their version.  The value is the text in the documentation.
    """

    ANY = ''
    WITH_BUILTIN = 'Nova 28 and later'
    WITHOUT_BUILTIN = 'Nova 25 to 27'


class Method(NamedTuple):
    """A method of ``ComputeManager``."""

    name: str
    #: The parameters that it must have; None: any.
    parameters: str | None = None


@dataclasses.dataclass(frozen=True)
class Hook:
    """A method of ``ComputeManager`` that is wrapped for a trigger.

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
    #: What happens when the handler fails, for the documentation.
    failure: str
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
UPDATE_ATTACHMENTS = Method(
    '_update_volume_attachments', 'self, context, instance, bdms')
RESIZE = Method(
    '_resize_instance', 'self, context, instance, image, migration, flavor, '
    'clean_shutdown, request_spec')
REVERT = Method(
    'revert_resize', 'self, context, instance, migration, request_spec')
RESIZE_ACROSS_CELLS = Method(
    '_prep_snapshot_based_resize_at_source',
    'self, ctxt, instance, migration, snapshot_id')
SHELVE_INSTANCE = Method(
    '_shelve_instance',
    'self, context, instance, image_id, clean_shutdown, accel_uuids')
OFFLOAD = Method(
    '_shelve_offload_instance',
    'self, context, instance, clean_shutdown, bdms, accel_uuids')
UNSHELVE_INSTANCE = Method(
    '_unshelve_instance', 'self, context, instance, image, '
    'filter_properties, node, request_spec, accel_uuids')
#: Each release gives it other parameters.
REBUILD = Method('_do_rebuild_instance')
DESTROY_EVACUATED = Method(
    '_destroy_evacuated_instances', 'self, context, node_cache')
CHECK_SOURCE = Method(
    'check_can_live_migrate_source', 'self, ctxt, instance, dest_check_data')
POST_LIVE_MIGRATION = Method(
    '_post_live_migration', 'self, ctxt, instance, dest, block_migration, '
    'migrate_data, source_bdms')
SHUT_DOWN = Method(
    '_shutdown_instance', 'self, context, instance, bdms, '
    'requested_networks, notify, try_deallocate_networks')
INIT_HOST = Method('init_host')

_GOES_ON = 'One log line; Nova goes on as without the plugin.'
_ALL_DISKS = 'One log line; the driver is given all disks.'
_CLEANS = 'Cleans up, with the guest off.'
_TAKES_OUT = ('Takes the disks that are not connected out of what the '
                  'driver is given.')
_KEEPS_DISKS = ('Keeps connected what a neighbour uses: the driver '
                'disconnects by address.')
_LOOKS_FIRST = ('Looks first, and refuses if a dangling mapping cannot be '
                'removed later.')
_REMOVES = ('Removes dangling mappings before Nova asks Cinder for new '
            'attachments.')
_CLEANS_OR_REFUSES = ('Removes dangling mappings; nothing is connected yet. '
                      'Refuses if one cannot be removed.')

#: All hooks.  Their order has no meaning.
HOOKS: Sequence[Hook] = (
    Hook(triggers.HARD_REBOOT, BUILTIN_CLEANUP, Wraps.IN_PLACE_OF,
         'reboot.replace_builtin',
         'Cleans up. In ``observe`` mode, calls Nova\'s own cleanup after it.',
         _GOES_ON, callers=(REBOOT.name,),
         release=NovaRelease.WITH_BUILTIN),
    Hook(triggers.SOFT_REBOOT, BUILTIN_CLEANUP, Wraps.IN_PLACE_OF,
         'reboot.replace_builtin',
         'Reports. In ``observe`` mode, calls Nova\'s own cleanup after it.',
         _GOES_ON, callers=(REBOOT.name,),
         release=NovaRelease.WITH_BUILTIN),
    Hook(triggers.HARD_REBOOT, REBOOT, Wraps.AROUND, 'reboot.clean_before',
         'Cleans up before it.', _GOES_ON,
         release=NovaRelease.WITHOUT_BUILTIN),
    Hook(triggers.HARD_REBOOT, BLOCK_DEVICE_INFO, Wraps.BEFORE,
         'start.take_out', _TAKES_OUT, _ALL_DISKS,
         callers=(REBOOT.name,), release=NovaRelease.WITHOUT_BUILTIN),
    Hook(triggers.SOFT_REBOOT, REBOOT, Wraps.AROUND, 'reboot.clean_before',
         'Reports before it.', _GOES_ON,
         release=NovaRelease.WITHOUT_BUILTIN),
    Hook(triggers.SOFT_REBOOT, BLOCK_DEVICE_INFO, Wraps.BEFORE,
         'start.take_out', _TAKES_OUT, _ALL_DISKS,
         callers=(REBOOT.name,), release=NovaRelease.WITHOUT_BUILTIN),

    Hook(triggers.START, POWER_ON, Wraps.AROUND, 'start.clean_before',
         _CLEANS, _GOES_ON),
    Hook(triggers.START, BLOCK_DEVICE_INFO, Wraps.BEFORE, 'start.take_out',
         _TAKES_OUT, _ALL_DISKS, callers=(POWER_ON.name,)),
    Hook(triggers.HOST_BOOT, RESUME, Wraps.AROUND, 'start.clean_before',
         _CLEANS, _GOES_ON, callers=('_init_instance',)),
    Hook(triggers.HOST_BOOT, BLOCK_DEVICE_INFO, Wraps.BEFORE,
         'start.take_out', _TAKES_OUT, _ALL_DISKS,
         callers=(RESUME.name,)),

    Hook(triggers.MOVE, RESIZE, Wraps.AROUND, 'moves.resize', _LOOKS_FIRST,
         _GOES_ON, callers=('resize_instance',)),
    Hook(triggers.MOVE, RESIZE_ACROSS_CELLS, Wraps.BEFORE,
         'moves.resize_across_cells', 'Refuses if a mapping dangles.',
         _GOES_ON),
    Hook(triggers.MOVE, REVERT, Wraps.IN_PLACE_OF, 'moves.revert',
         'On the new host: looks first, and ends the revert with everything '
         'as it was if a dangling mapping cannot be removed later.',
         _GOES_ON),
    Hook(triggers.MOVE, BLOCK_DEVICE_INFO, Wraps.BEFORE, 'departure.withhold',
         _KEEPS_DISKS, _ALL_DISKS, callers=(RESIZE.name, REVERT.name)),
    Hook(triggers.MOVE, TERMINATE_CONNECTIONS, Wraps.BEFORE,
         'departure.remove', _REMOVES, _GOES_ON,
         callers=(RESIZE.name, REVERT.name)),
    Hook(triggers.FINISH, UPDATE_ATTACHMENTS, Wraps.BEFORE, 'moves.finish',
         'On the other host: removes what could not be removed before, or '
         'takes it out of the list.', _GOES_ON,
         callers=('_finish_resize', '_finish_revert_resize')),

    Hook(triggers.SHELVE, SHELVE_INSTANCE, Wraps.BEFORE, 'shelve.shelve',
         _LOOKS_FIRST, _GOES_ON, callers=('shelve_instance',)),
    Hook(triggers.SHELVE, OFFLOAD, Wraps.AROUND, 'shelve.offload',
         _LOOKS_FIRST, _GOES_ON, callers=(SHELVE_INSTANCE.name,)),
    Hook(triggers.SHELVE, BLOCK_DEVICE_INFO, Wraps.BEFORE,
         'departure.withhold', _KEEPS_DISKS, _ALL_DISKS,
         callers=(OFFLOAD.name,)),
    Hook(triggers.SHELVE, TERMINATE_CONNECTIONS, Wraps.BEFORE,
         'departure.remove', _REMOVES, _GOES_ON, callers=(OFFLOAD.name,)),
    Hook(triggers.UNSHELVE, UNSHELVE_INSTANCE, Wraps.BEFORE, 'shelve.unshelve',
         _CLEANS_OR_REFUSES, _GOES_ON),

    Hook(triggers.EVACUATE, REBUILD, Wraps.BEFORE, 'evacuation.evacuate',
         'On the new host: r' + _CLEANS_OR_REFUSES[1:], _GOES_ON,
         callers=('_do_rebuild_instance_with_claim',)),
    Hook(triggers.RETURN, DESTROY_EVACUATED, Wraps.AROUND,
         'evacuation.destroy',
         'On the former host, when it is back: disconnects what was removed '
         'in an evacuation.', _GOES_ON, callers=(INIT_HOST.name,)),
    Hook(triggers.RETURN, BLOCK_DEVICE_INFO, Wraps.BEFORE,
         'evacuation.withhold', _KEEPS_DISKS, _ALL_DISKS,
         callers=(DESTROY_EVACUATED.name,)),

    Hook(triggers.LIVE_MIGRATION, CHECK_SOURCE, Wraps.BEFORE,
         'live_migration.check',
         'Refuses if Nova would attach a volume of another project, or one '
         'that is not ``available``, or disconnect the disk of another '
         'guest.', _GOES_ON),
    Hook(triggers.LIVE_MIGRATION, POST_LIVE_MIGRATION, Wraps.AROUND,
         'live_migration.finish', 'Looks again, on the source.', _GOES_ON),
    Hook(triggers.LIVE_MIGRATION, BLOCK_DEVICE_INFO, Wraps.BEFORE,
         'departure.withhold', _KEEPS_DISKS, _ALL_DISKS,
         callers=(POST_LIVE_MIGRATION.name,)),

    Hook(triggers.DELETE, SHUT_DOWN, Wraps.AROUND, 'delete.shut_down',
         'Looks at the disks of the server.', _GOES_ON,
         callers=('_delete_instance', '_cleanup_running_deleted_instances')),
    Hook(triggers.DELETE, BLOCK_DEVICE_INFO, Wraps.BEFORE,
         'departure.withhold', _KEEPS_DISKS, _ALL_DISKS,
         callers=(SHUT_DOWN.name,)),

    Hook(None, SHUT_DOWN, Wraps.BEFORE, 'delete.drop_removed',
         'Drops the mappings that were removed before the server was deleted: '
         'Nova would delete their volumes with it.',
         'One log line; Nova goes on with all mappings.'),
    Hook(None, INIT_HOST, Wraps.AROUND, 'init_host.begin',
         'Records this nova-compute for ``nova-bdm-cleanup status``, begins '
         'the periodic task, and has all instances that Nova brings back '
         'share one time limit.',
         'One log line; nothing is done periodically.'),
)

_REBOOTS = (triggers.HARD_REBOOT, triggers.SOFT_REBOOT)
_NEED_GUEST_OFF = (triggers.START, triggers.HOST_BOOT)

#: What the hooks call or rely on besides the methods that they wrap.
REQUIREMENTS: Sequence[Requirement] = (
    Requirement('ComputeDriver.detach_volume',
                'self, context, connection_info, instance, mountpoint, '
                'encryption'),
    Requirement('LibvirtDriver._disconnect_volume',
                'self, context, connection_info, instance, encryption, '
                'destroy_secrets, force'),
    Requirement('Host.delete_secret', 'self, usage_type, usage_id'),
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
    Requirement('ComputeDriver.get_info', 'self, instance, use_cache',
                _NEED_GUEST_OFF),
    Requirement('Host.get_guest', 'self, instance', _NEED_GUEST_OFF),
    Requirement('Guest.is_active', 'self', _NEED_GUEST_OFF),
    Requirement('ComputeManager._init_instance', None, (triggers.HOST_BOOT,),
                callers=(INIT_HOST.name,)),
    Requirement('ComputeManager._error_out_instance_on_exception',
                'self, context, instance, instance_state', (triggers.MOVE,)),
    Requirement('nova.compute.manager.errors_out_migration_ctxt',
                'migration', (triggers.MOVE,)),
    Requirement('ComputeManager._delete_snapshot_of_shelved_instance',
                'self, context, instance, snapshot_id', (triggers.SHELVE,)),
    Requirement('SchedulerReportClient.delete_allocation_for_instance',
                'self, context, uuid, consumer_type, force',
                (triggers.UNSHELVE,)),
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

    header = ('Trigger', 'Method of ``ComputeManager``', 'The hook runs',
              'What it does', 'When it fails itself')

    def lines(self) -> Iterator[tuple[str, ...]]:
        """Yield the cells of each row."""
        for hook in HOOKS:
            yield (
                '``%s``' % hook.trigger.name if hook.trigger else 'any',
                '``%s``%s' % (hook.method.name, ', called by ' + ' and '.join(
                    '``%s``' % name for name in hook.callers)
                    if hook.callers else ''),
                hook.wraps.value + (
                    ' (%s)' % hook.release.value if hook.release.value
                    else ''),
                hook.does, hook.failure)


TABLE = HookTable()
