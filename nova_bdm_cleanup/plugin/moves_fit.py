# SPDX-License-Identifier: Apache-2.0
"""What the hooks of moves replace and call, to be compared with this Nova."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nova.compute import manager as nova_manager

from nova_bdm_cleanup.cleanup import move_triggers
from nova_bdm_cleanup.cleanup.triggers import Trigger

DISKS = '_get_instance_block_device_info'
TERMINATE = '_terminate_volume_connections'
PREPARE = '_prep_block_device'
REBUILD = '_rebuild_default_impl'
CHECK = 'check_can_live_migrate_source'

_RESIZE, _REVERT = '_resize_instance', 'revert_resize'
_OFFLOAD = '_shelve_offload_instance'
_UNSHELVE = '_unshelve_instance'
_EVACUATE = '_do_rebuild_instance'
_RETURN = '_destroy_evacuated_instances'
_DELETE = '_shutdown_instance'

_MANAGER = nova_manager.ComputeManager
_DISKS = (_MANAGER, DISKS + '(self, context, instance, refresh_conn_info, '
                            'bdms)')
_TERMINATE = (_MANAGER, TERMINATE + '(self, context, instance, bdms)')

FUNCTIONS: Mapping[str, Sequence[tuple[Any, str]]] = {
    'move': (_DISKS, _TERMINATE),
    'shelve': (_DISKS, _TERMINATE),
    'unshelve': ((_MANAGER, PREPARE + '(self, context, instance, bdms)'),),
    # Every release gives it other parameters, all of them by name.
    'evacuate': (_DISKS, (_MANAGER, REBUILD)),
    'live_migration': (
        (_MANAGER, CHECK + '(self, ctxt, instance, dest_check_data)'),),
    'delete': (_DISKS,),
}

CALLS: Mapping[str, Sequence[tuple[str, str]]] = {
    'move': tuple((caller, called) for caller in (_RESIZE, _REVERT)
                  for called in (DISKS, TERMINATE)),
    'shelve': ((_OFFLOAD, DISKS), (_OFFLOAD, TERMINATE)),
    'unshelve': ((_UNSHELVE, PREPARE),),
    'evacuate': ((_EVACUATE, REBUILD), (_EVACUATE, PREPARE),
                 (_RETURN, DISKS)),
    'live_migration': (),
    'delete': ((_DELETE, DISKS),),
}

TRIGGERS: Mapping[str, Sequence[Trigger]] = {
    trigger.name: (trigger,) for trigger in (
        move_triggers.MOVE, move_triggers.SHELVE, move_triggers.UNSHELVE,
        move_triggers.EVACUATE, move_triggers.LIVE_MIGRATION,
        move_triggers.DELETE)}
