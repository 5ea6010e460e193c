# SPDX-License-Identifier: Apache-2.0
"""A Cinder back end of sparse files shown as loop devices.

Its connections have the type ``local`` of os-brick and Nova: the path of a
block device.  As with iSCSI or Fibre Channel, the path exists only while a
host is connected, so a server that still needs a volume without an export
fails to start.

The path is a symlink for this volume only, as in /dev/disk/by-path, and not
/dev/loopN: a loop device in use survives ``losetup -d`` until its last user
closes it, and its number then goes to another volume.

Each host has its own device of a volume, since the kernel of one host knows
nothing of the other's: it is over a hard link of the file, whose name is the
host's.
"""

from __future__ import annotations

import glob
import os
from typing import Any

from cinder import context, interface, objects
from cinder.volume import configuration, driver
from oslo_concurrency import processutils
from oslo_config import cfg
from oslo_log import log as logging

LOG = logging.getLogger(__name__)

OPTIONS = [cfg.StrOpt('e2e_loop_dir', help='Directory of the volume files.')]
cfg.CONF.register_opts(OPTIONS, group=configuration.SHARED_CONF_GROUP)


def _losetup(*arguments: str) -> list[str]:
    out, _ = processutils.execute('losetup', *arguments)
    return str(out).splitlines()


def _devices(path: str) -> list[str]:
    """Return the loop devices over a file of this name."""
    pairs = (line.split(maxsplit=1) for line in _losetup(
        '-n', '--raw', '-O', 'NAME,BACK-FILE'))
    return [pair[0] for pair in pairs if pair[1:] == [path]]


@interface.volumedriver
class LoopDriver(driver.VolumeDriver):
    """Only the parts of a volume driver that the scenarios need."""

    VERSION = '1'
    CI_WIKI_NAME = 'none'

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.configuration.append_config_values(OPTIONS)

    def _path(self, kind: str, volume: Any, host: str = '') -> str:
        return os.path.join(self.configuration.e2e_loop_dir,
                            f'{kind}-{volume["id"]}{host and "-"}{host}')

    def check_for_setup_error(self) -> None:
        _losetup('--version')

    def create_volume(self, volume: Any) -> None:
        with open(self._path('volume', volume), 'wb') as stream:
            stream.truncate(volume['size'] << 30)

    def delete_volume(self, volume: Any) -> None:
        prefix = self._path('volume', volume)
        for path in glob.glob(f'{prefix}-*'):
            self._remove_device(volume, path[len(prefix) + 1:])
            os.unlink(path)
        if os.path.exists(prefix):
            os.unlink(prefix)

    def create_export(self, ctxt: Any, volume: Any, connector: Any) -> None:
        pass

    def ensure_export(self, ctxt: Any, volume: Any) -> None:
        pass

    def remove_export(self, ctxt: Any, volume: Any) -> None:
        pass

    def initialize_connection(self, volume: Any, connector: Any,
                              **kwargs: Any) -> dict[str, Any]:
        host = connector['host']
        path = self._path('volume', volume, host)
        if not os.path.exists(path):
            os.link(self._path('volume', volume), path)
        device, = _devices(path) or _losetup('-f', '--show', path)
        link = self._path('dev', volume, host)
        if os.path.lexists(link):
            os.unlink(link)
        os.symlink(device, link)
        LOG.info('e2e_loop: volume %s shown to %s at %s', volume['id'], host,
                 device)
        return {'driver_volume_type': 'local',
                'data': {'device_path': link, 'volume_id': volume['id']}}

    def terminate_connection(self, volume: Any, connector: Any,
                             **kwargs: Any) -> None:
        attachments = objects.VolumeAttachmentList.get_all_by_volume_id(
            context.get_admin_context(), volume['id'])
        hosts = [one.connector['host'] for one in attachments
                 if one.connection_info]
        for host in set(hosts):
            # The attachment being terminated is still in the list.
            if connector is None or (
                    host == connector['host'] and hosts.count(host) == 1):
                self._remove_device(volume, host)

    def _remove_device(self, volume: Any, host: str) -> None:
        link = self._path('dev', volume, host)
        if os.path.lexists(link):
            os.unlink(link)
        for device in _devices(self._path('volume', volume, host)):
            LOG.info('e2e_loop: volume %s no longer shown to %s at %s',
                     volume['id'], host, device)
            _losetup('-d', device)

    def _update_volume_stats(self) -> None:
        self._stats = {
            'volume_backend_name': self.configuration.safe_get(
                'volume_backend_name'),
            'vendor_name': 'nova-bdm-cleanup',
            'driver_version': self.VERSION,
            'storage_protocol': 'local',
            'total_capacity_gb': 500,
            'free_capacity_gb': 500,
            'multiattach': True,
        }
