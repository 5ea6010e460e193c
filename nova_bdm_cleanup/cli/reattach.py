# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""Attaching volumes again, one by one, with a look before and after."""

from __future__ import annotations

import enum
import time
from typing import Any, Callable, Dict, Mapping, Optional, Tuple
import urllib.parse

from nova_bdm_cleanup.cli.exitcodes import CommandError
from nova_bdm_cleanup.cli.exitcodes import ExitCode

#: The lowest that shows the tag and delete_on_termination of an attachment.
_MICROVERSION = '2.79'

#: Seconds that nova-compute gets to attach, and between two looks.
_WAIT, _PAUSE = 60.0, 2.0


class Outcome(enum.Enum):
    """What became of one volume."""

    ATTACHED = 'attached'
    ALREADY = 'already attached'
    REFUSED = 'refused'
    FAILED = 'failed'

    @property
    def is_fine(self) -> bool:
        return self in (Outcome.ATTACHED, Outcome.ALREADY)


class _ApiError(Exception):
    """A request was not answered, or not with success.

    :param missing: the API itself, and no proxy, says that it is not there
    :param refused: the API will not do it, and has not done it
    """

    def __init__(self, text: str, missing: bool = False,
                 refused: bool = False) -> None:
        super().__init__(text)
        self.missing = missing
        self.refused = refused


class Server:
    """A server that volumes are attached to.

    :param cloud: a connection of openstacksdk
    :param uuid: the server
    :raises CommandError: when it does not exist or cannot be asked for
    """

    def __init__(self, cloud: Any, uuid: str,
                 clock: Callable[[], float] = time.monotonic,
                 sleep: Callable[[float], None] = time.sleep) -> None:
        self._cloud = cloud
        self._uuid = uuid
        self._path = '/servers/' + urllib.parse.quote(uuid, safe='')
        self._clock = clock
        self._sleep = sleep
        try:
            self._compute('GET', self._path)
        except _ApiError as exc:
            raise CommandError(
                ExitCode.REFUSED, 'cannot see server %s: %s' % (uuid, exc)
            ) from exc

    def attach(self, request: Mapping[str, Any],
               microversion: str) -> Tuple[Outcome, str]:
        """Attach a volume unless it is attached or not free.

        :param request: what the compute API is asked for
        :param microversion: the lowest that knows all of it
        :returns: what became of it, and a few words
        """
        volume_id = request['volumeId']
        try:
            attached = self._attached(volume_id)
            if attached is not None:
                return Outcome.ALREADY, 'as %s' % attached.get('device')
            obstacle = self._obstacle(volume_id)
            if obstacle:
                return Outcome.REFUSED, obstacle
        except _ApiError as exc:
            return Outcome.REFUSED, str(exc)
        try:
            self._compute('POST', self._path + '/os-volume_attachments',
                          {'volumeAttachment': dict(request)}, microversion)
        except _ApiError as exc:
            return (Outcome.REFUSED if exc.refused else Outcome.FAILED,
                    str(exc))
        try:
            return self._read_back(request)
        except _ApiError as exc:
            return Outcome.FAILED, 'requested, but now: %s' % exc

    def _obstacle(self, volume_id: str) -> str:
        """Why the volume is not free; empty when it is."""
        try:
            volume = self._volume(volume_id)
        except _ApiError as exc:
            if exc.missing:
                return 'the volume does not exist in Cinder'
            raise
        status = volume.get('status')
        if status == 'available' or (
                status == 'in-use' and volume.get('multiattach')):
            return ''
        users = sorted(str(a.get('server_id'))
                       for a in volume.get('attachments') or ())
        return 'the volume is %s%s' % (
            status, ' by server %s' % ', '.join(users) if users else '')

    def _read_back(self, request: Mapping[str, Any]) -> Tuple[Outcome, str]:
        """Wait until it is attached, and compare it with what was asked."""
        volume_id = request['volumeId']
        end = self._clock() + _WAIT
        while not self._is_connected(volume_id):
            if self._attached(volume_id) is None:
                return (Outcome.FAILED, 'nova-compute could not attach it; '
                        'see "openstack server event list"')
            if self._clock() >= end:
                return (Outcome.FAILED, 'requested, but not attached after '
                        '%d s; look at it again' % _WAIT)
            self._sleep(_PAUSE)
        now = self._attached(volume_id) or {}
        differing = [
            '%s is %s' % (key, now.get(key))
            for key in ('tag', 'delete_on_termination')
            if now.get(key) != request.get(key) and (
                now.get(key) or request.get(key))]
        if differing:
            return Outcome.FAILED, 'attached, but %s' % ', '.join(differing)
        return Outcome.ATTACHED, 'as %s' % now.get('device')

    def _is_connected(self, volume_id: str) -> bool:
        volume = self._volume(volume_id)
        return volume.get('status') == 'in-use' and any(
            a.get('server_id') == self._uuid
            for a in volume.get('attachments') or ())

    def _attached(self, volume_id: str) -> Optional[Dict[str, Any]]:
        """The volume as Nova has it on the server, if it has it."""
        try:
            body = self._compute(
                'GET', '%s/os-volume_attachments/%s' % (
                    self._path, urllib.parse.quote(volume_id, safe='')))
        except _ApiError as exc:
            if exc.missing:
                return None
            raise
        return _object(body, 'volumeAttachment')

    def _volume(self, volume_id: str) -> Dict[str, Any]:
        return _object(
            self._request('block_storage', 'GET', '/volumes/'
                          + urllib.parse.quote(volume_id, safe='')), 'volume')

    def _compute(self, method: str, path: str,
                 body: Optional[Mapping[str, Any]] = None,
                 microversion: str = _MICROVERSION) -> Any:
        return self._request('compute', method, path, body,
                             microversion=microversion)

    def _request(self, service: str, method: str, path: str,
                 body: Optional[Mapping[str, Any]] = None,
                 **kwargs: Any) -> Any:
        from keystoneauth1 import exceptions as ksa_exceptions
        from openstack import exceptions

        try:
            response = getattr(self._cloud, service).request(
                path, method, json=body, raise_exc=False, **kwargs)
        except (exceptions.SDKException,
                ksa_exceptions.ClientException) as exc:
            raise _ApiError(str(exc)) from exc
        try:
            answer = response.json()
        except ValueError:
            answer = None
        status = response.status_code
        if status >= 400:
            raise _ApiError(
                '%s (%d)' % (_words(answer) or 'no reason given', status),
                missing=(status == 404 and isinstance(answer, dict)
                         and 'itemNotFound' in answer),
                refused=status < 500)
        return answer


def _object(body: Any, key: str) -> Dict[str, Any]:
    value = body.get(key) if isinstance(body, dict) else None
    if not isinstance(value, dict):
        raise _ApiError('an answer has no "%s"' % key)
    return value


def _words(body: Any) -> str:
    """What an error of Nova or Cinder says."""
    if isinstance(body, dict):
        for error in body.values():
            if isinstance(error, dict) and error.get('message'):
                return str(error['message'])
    return ''
