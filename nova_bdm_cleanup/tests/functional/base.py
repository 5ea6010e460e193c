# SPDX-License-Identifier: Apache-2.0
"""Base class of the tests that run on the embedded cloud."""

from __future__ import annotations

import os
import pathlib
from typing import Any, ClassVar

import testtools
from testtools import content

from nova_bdm_cleanup.tests.cloud import fixture, recorder, snapshot
from nova_bdm_cleanup.tests.functional import clouds

CHECKOUT = pathlib.Path(__file__).resolve().parents[3]


#: Where pip writes the metadata of the package.
METADATA = 'nova_bdm_cleanup-1.2.3.dist-info'


def write_metadata(site: pathlib.Path) -> None:
    """Write what pip leaves of the package besides its modules."""
    info = site / METADATA
    info.mkdir(parents=True)
    (info / 'METADATA').write_text(
        'Metadata-Version: 2.1\nName: nova-bdm-cleanup\nVersion: 1.2.3\n')
    (info / 'entry_points.txt').write_text(
        '[os_vif]\nbdm_cleanup = nova_bdm_cleanup.node.loader:Loader\n')


def install_into(site: pathlib.Path) -> dict[str, str]:
    """Write the metadata of the package that is in the checkout.

    :param site: a directory
    :returns: the environment of a process that finds the package with it
    """
    write_metadata(site)
    return dict(os.environ, PYTHONPATH=f'{site}{os.pathsep}{CHECKOUT}')


class FunctionalTestCase(testtools.TestCase):
    """A test with a cloud in ``self.cloud`` that looks new.

    No test sees what another one left: see :mod:`.clouds`.
    """

    #: The arguments of the cloud; a test may also call :meth:`start_cloud`
    #: itself, with its own, after setting this to None.
    CLOUD: ClassVar[dict[str, Any] | None] = {}
    #: Whether every server and volume is made through the API, and none is a
    #: copy.
    THROUGH_API: ClassVar[bool] = False

    @classmethod
    def cloud_arguments(cls) -> dict[str, Any] | None:
        return cls.CLOUD

    @classmethod
    def cloud_name(cls) -> str:
        """Return what only classes have in common that can share a cloud.

        It is asked for before the tests run, when nothing is started yet.
        """
        return repr(cls.cloud_arguments())

    def setUp(self) -> None:
        super().setUp()
        arguments = self.cloud_arguments()
        if arguments is not None:
            self.start_cloud(**arguments)

    def start_cloud(self, **arguments: Any) -> fixture.Cloud:
        self.cloud = clouds.get(type(self), arguments)
        self.cloud.through_api = self.THROUGH_API
        # Nova's log explains a failed test.
        self.addOnException(self._keep_log)
        return self.cloud

    def _keep_log(self, exc_info: Any) -> None:
        self.addDetail('nova.log', content.text_content(
            '\n'.join(self.cloud.log())))

    def assert_healthy(self, view: snapshot.Snapshot, *volumes: str) -> None:
        """Check that all records agree that a server has some volumes."""
        for volume in volumes:
            row = view.block_device(volume)
            self.assertIsNotNone(row, 'Nova has no row')
            assert row is not None
            self.assertEqual(
                [(row.attachment_id, 'attached')],
                [(each.id, each.status)
                 for each in view.attachments_of(volume)])
            self.assertEqual('in-use', view.volume_status(volume))
            self.assertTrue(view.has_disk(volume), 'the guest has no disk')
            self.assertIn(volume, view.connected)

    def assert_gone(self, view: snapshot.Snapshot, volume: str,
                    shared: bool = False) -> None:
        """Check that all records agree that a server has no such volume.

        :param shared: another server of the host has it
        """
        self.assertIsNone(view.block_device(volume), 'Nova has a row')
        self.assertEqual((), view.attachments_of(volume))
        self.assertFalse(view.has_disk(volume), 'the guest has a disk')
        self.assertEqual(shared, volume in view.connected)

    def assert_order(self, events: list[recorder.Event],
                     *expected: tuple[str, str]) -> None:
        """Check that steps were taken, and in this order.

        :param events: the timeline to look at
        :param expected: party and step; others may lie between them
        """
        remaining = list(expected)
        for event in events:
            if remaining and (event.party, event.what) == remaining[0]:
                del remaining[0]
        self.assertEqual(
            [], remaining,
            'missing, or in another order:\n'
            + '\n'.join(str(event) for event in events))
