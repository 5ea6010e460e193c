# SPDX-License-Identifier: Apache-2.0
"""Guests: processes that hold their disks open and write to them.

libvirt is Nova's own fake, whose state ends with its process.  Here
nova-compute is killed, so the state is in files too, and the guests live on,
as QEMU does.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import pathlib
import signal
import time
from typing import Any
import uuid
from xml.etree import ElementTree

from e2e.devices import fakes

#: The offset of a guest's writes.  Other data of a volume is elsewhere.
OFFSET = 2 << 20

#: libvirt's reason for the state of a domain: its user wanted it.
_BY_REQUEST = 1

#: Seconds that a killed guest may take to end; libvirt allows 15.
_KILL_TIMEOUT = 8


def mark(server: str) -> str:
    """Return the eight letters that the guest of a server writes."""
    return server[:8]


class Libvirt:
    """The state of a nova-compute's fake libvirt, in files.

    :param directory: the directory of domains and secrets
    """

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        directory.mkdir(exist_ok=True)

    def is_running(self, server: str) -> bool:
        """Return whether the guest of a server runs."""
        try:
            pid = int(self.path(server, 'pid').read_text())
            os.kill(pid, 0)
        except (OSError, ValueError):
            return False
        return 'Z' not in _state(pid)

    def files(self, kind: str) -> list[pathlib.Path]:
        """Return the files of all domains, or of all secrets."""
        return sorted(self._directory.glob(f'*.{kind}'))

    def secrets(self) -> list[str]:
        """Return the volumes that have a secret in libvirt."""
        return [path.stem for path in self.files('secret')]

    def disks(self, server: str) -> list[str]:
        """Return the block devices of a server's domain."""
        path = self.path(server, 'domain')
        return _sources(path.read_text()) if path.exists() else []

    def start(self, server: str) -> None:
        """Start the guest of a server."""
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            return
        try:
            os.setsid()
            child = os.fork()
            if child:
                self.path(server, 'pid').write_text(str(child))
            else:
                _run_guest(self.disks(server), mark(server).encode(),
                           self.path(server, 'failed-writes'))
        finally:
            os._exit(0)

    def stop(self, server: str) -> bool:
        """Kill the guest of a server and wait for its end.

        :returns: whether it ended; a process that waits for its disk cannot
            be killed
        """
        path = self.path(server, 'pid')
        if path.exists():
            pid = int(path.read_text())
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            deadline = time.monotonic() + _KILL_TIMEOUT
            while _state(pid) not in ('', 'Z'):
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.02)
            path.unlink()
        return True

    def stop_all(self) -> None:
        """Kill all guests."""
        for path in self.files('pid'):
            self.stop(path.stem)

    def failed_writes(self, server: str) -> list[str]:
        """Return the errors of the writes of a server's guests."""
        path = self.path(server, 'failed-writes')
        return path.read_text().splitlines() if path.exists() else []

    def process(self, server: str) -> str:
        """Return the process of the guest of a server, or nothing."""
        path = self.path(server, 'pid')
        return path.read_text() if self.is_running(server) else ''

    def path(self, name: str, kind: str) -> pathlib.Path:
        return self._directory / f'{name}.{kind}'


class Connection(fakes.libvirt.Connection):  # type: ignore[name-defined]
    """The fake libvirt of one process: it loads what former processes have
    defined, and saves what is defined in it.
    """

    def __init__(self, libvirt: Libvirt) -> None:
        super().__init__('qemu:///system')
        self._libvirt = libvirt
        for path in libvirt.files('domain'):
            domain = self.defineXML(path.read_text())
            if libvirt.is_running(path.stem):
                domain._state = fakes.libvirt.VIR_DOMAIN_RUNNING
                super()._mark_running(domain)
        for path in libvirt.files('secret'):
            secret = json.loads(path.read_text())
            self.secretDefineXML(secret['xml']).setValue(
                secret['value'].encode())

    def defineXML(self, xml: str) -> Any:
        domain = super().defineXML(xml)
        self._libvirt.path(domain.UUIDString(), 'domain').write_text(xml)
        describe = domain.XMLDesc
        domain.XMLDesc = lambda flags: _with_serials(describe(flags), xml)
        domain.state = lambda: [domain._state, _BY_REQUEST]
        domain._job_type = fakes.libvirt.VIR_DOMAIN_JOB_NONE
        return domain

    def _undefine(self, domain: Any) -> None:
        super()._undefine(domain)
        self._libvirt.path(domain.UUIDString(), 'domain').unlink(
            missing_ok=True)

    def _mark_running(self, domain: Any) -> None:
        if not self._libvirt.is_running(domain.UUIDString()):
            self._libvirt.start(domain.UUIDString())
        super()._mark_running(domain)

    def _mark_not_running(self, domain: Any) -> None:
        if not self._libvirt.stop(domain.UUIDString()):
            domain._state = fakes.libvirt.VIR_DOMAIN_RUNNING
            raise fakes.libvirt.make_libvirtError(
                fakes.libvirt.libvirtError, 'Failed to terminate process '
                'with SIGKILL: Device or resource busy',
                error_code=fakes.libvirt.VIR_ERR_SYSTEM_ERROR,
                int1=errno.EBUSY)
        super()._mark_not_running(domain)

    def secretDefineXML(self, xml: str) -> Any:
        # libvirt generates a UUID; the fake one requires it.
        if '<uuid>' not in xml:
            xml = xml.replace('</secret>', f'<uuid>{uuid.uuid4()}</uuid>'
                              '</secret>')
        return super().secretDefineXML(xml)

    def _add_secret(self, secret: Any) -> None:
        super()._add_secret(secret)
        set_value = secret.setValue

        def keep(value: Any, flags: int = 0) -> Any:
            text = value.decode() if isinstance(value, bytes) else value
            self._libvirt.path(secret.usageID(), 'secret').write_text(
                json.dumps({'xml': secret._xml, 'value': text}))
            return set_value(value, flags)

        secret.setValue = keep

    def _remove_secret(self, secret: Any) -> None:
        super()._remove_secret(secret)
        self._libvirt.path(secret.usageID(), 'secret').unlink(missing_ok=True)


def _with_serials(xml: str, defined: str) -> str:
    """Return the XML of a domain with the serials of its disks, which the fake
    libvirt drops.

    :param defined: the XML that Nova has defined
    """
    # XML made by Nova is no threat.
    serials = {
        source.attrib['dev']: disk.findtext('serial')
        for disk in ElementTree.fromstring(defined).iterfind(  # noqa: S314
            './devices/disk')
        for source in disk.iterfind('source') if 'dev' in source.attrib}
    domain = ElementTree.fromstring(xml)  # noqa: S314
    for disk in domain.iterfind('./devices/disk'):
        source = disk.find('source')
        serial = None if source is None else serials.get(
            source.get('dev', ''))
        if serial:
            ElementTree.SubElement(disk, 'serial').text = serial
    return ElementTree.tostring(domain, encoding='unicode')


def _sources(xml: str) -> list[str]:
    # XML made by Nova is no threat.
    domain = ElementTree.fromstring(xml)  # noqa: S314
    return [source.attrib['dev'] for source in
            domain.findall('./devices/disk/source')
            if 'dev' in source.attrib]


def _state(pid: int) -> str:
    try:
        text = pathlib.Path(f'/proc/{pid}/stat').read_text()
    except OSError:
        return ''
    return text.rpartition(')')[2].split()[0]


def _run_guest(devices: list[str], word: bytes,
               failed_writes: pathlib.Path) -> None:
    """Write to all disks in a loop, past the host's cache, as QEMU does for
    Nova.

    :param failed_writes: the file of the errors
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    disks = [os.open(device, os.O_RDWR | os.O_DIRECT) for device in devices]
    with mmap.mmap(-1, 4096) as block:
        block[:] = word * (4096 // len(word))
        while True:
            for disk in disks:
                try:
                    os.pwritev(disk, [block], OFFSET)
                except OSError as exc:
                    # A guest sees an I/O error of its disk and goes on.
                    with open(failed_writes, 'a') as file:
                        file.write(f'{exc.strerror}\n')
            time.sleep(0.2)
