# SPDX-License-Identifier: Apache-2.0
"""The volume back end: a Cinder driver that stores nothing.

It records every call, so that a test can check the calls of the back end and
not only Cinder's records, and it fails on request.  Both use files in Cinder's
state directory, because it runs in a process of its own.
"""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Any

from cinder import exception
from cinder.volume import driver
from oslo_config import cfg

LOG_FILE = 'driver.log'
FAULTS_FILE = 'driver-faults.json'

CONF = cfg.CONF
_lock = threading.Lock()


class RecordingDriver(driver.VolumeDriver):
    """Driver that exports its volumes over an iSCSI that does not exist."""

    VERSION = '1.0'
    CI_WIKI_NAME = 'none'

    def _call(self, call: str, volume: Any, connector: Any = None) -> None:
        """Record a call, after an injected fault if there is one."""
        fails = self._fails(call, volume.id)
        line = json.dumps({
            'time': time.time(), 'call': call, 'volume': volume.id,
            'host': (connector or {}).get('host'), 'failed': fails})
        with _lock, open(os.path.join(CONF.state_path, LOG_FILE), 'a') as log:
            log.write(line + '\n')
        if fails:
            raise exception.VolumeBackendAPIException(data='injected')

    @staticmethod
    def _fails(call: str, volume_id: str) -> bool:
        try:
            with open(os.path.join(CONF.state_path, FAULTS_FILE)) as file:
                faults = json.load(file)
        except OSError:
            return False
        return any(fault['call'] == call
                   and fault['volume'] in (None, volume_id)
                   for fault in faults)

    def do_setup(self, context: Any) -> None:
        pass

    def check_for_setup_error(self) -> None:
        pass

    def _update_volume_stats(self) -> None:
        self._stats = {
            'volume_backend_name':
                self.configuration.safe_get('volume_backend_name'),
            'vendor_name': 'none', 'driver_version': self.VERSION,
            'storage_protocol': 'iSCSI', 'total_capacity_gb': 1 << 20,
            'free_capacity_gb': 1 << 20, 'reserved_percentage': 0,
            'multiattach': True, 'thin_provisioning_support': True,
            'QoS_support': False}

    def create_volume(self, volume: Any) -> None:
        self._call('create_volume', volume)

    def delete_volume(self, volume: Any) -> None:
        self._call('delete_volume', volume)

    def create_volume_from_snapshot(self, volume: Any, snapshot: Any) -> None:
        self._call('create_volume', volume)

    def create_cloned_volume(self, volume: Any, source: Any) -> None:
        self._call('create_volume', volume)

    def clone_image(self, context: Any, volume: Any, image_location: Any,
                    image_meta: Any, image_service: Any
                    ) -> tuple[dict[str, Any], bool]:
        # The back end claims to have copied the image, so that Cinder does
        # not download it.
        self._call('create_volume', volume)
        return {}, True

    def create_snapshot(self, snapshot: Any) -> None:
        pass

    def delete_snapshot(self, snapshot: Any) -> None:
        pass

    def extend_volume(self, volume: Any, new_size: int) -> None:
        self._call('extend_volume', volume)

    def ensure_export(self, context: Any, volume: Any) -> None:
        pass

    def create_export(self, context: Any, volume: Any, connector: Any
                      ) -> None:
        self._call('create_export', volume, connector)

    def remove_export(self, context: Any, volume: Any) -> None:
        self._call('remove_export', volume)

    def initialize_connection(self, volume: Any, connector: Any
                              ) -> dict[str, Any]:
        self._call('initialize_connection', volume, connector)
        return {
            'driver_volume_type': 'iscsi',
            'data': {
                'volume_id': volume.id, 'target_discovered': False,
                'target_portal': '127.0.0.1:3260', 'target_lun': 1,
                'target_iqn': f'iqn.2026-01.test:{volume.id}',
                # A secret: tests check that it does not appear where it
                # must not.
                'auth_method': 'CHAP', 'auth_username': 'chap',
                'auth_password': f'secret-of-{volume.id}',
                'initiator_host': connector.get('host')}}

    def terminate_connection(self, volume: Any, connector: Any,
                             **kwargs: Any) -> None:
        self._call('terminate_connection', volume, connector)
