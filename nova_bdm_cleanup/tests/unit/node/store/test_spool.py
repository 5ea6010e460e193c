# SPDX-License-Identifier: Apache-2.0
"""The spool: requests and answers, whatever else is in the directory."""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from unittest import mock

import testtools

from nova_bdm_cleanup.node.store import spool as module
from nova_bdm_cleanup.node.store.database import StoreError
from nova_bdm_cleanup.node.store.spool import NoAnswer, Spool
from nova_bdm_cleanup.tests.unit import base

NAME = 'a' * 32


class SpoolTest(base.TestCase):

    def setUp(self):
        super().setUp()
        home = self.tempdir()
        self.spool = Spool(os.path.join(home, 'store.sqlite'), 'host/1')
        self.spool.make()

    def path(self, name):
        return os.path.join(self.spool.path, name)

    def write(self, content, name=NAME + '.request'):
        with open(self.path(name), 'wb') as file:
            file.write(content)

    def taken(self):
        return [request.record for request in self.spool.requests(
            time.time())]

    def test_directory_is_private_and_beside_the_store(self):
        status = os.stat(self.spool.path)
        self.assertEqual(0o700, stat.S_IMODE(status.st_mode))
        self.assertEqual('store.sqlite-host%2F1.spool',
                         os.path.basename(self.spool.path))

    def test_answer_comes_back_and_nothing_is_left(self):
        def answer():
            end = time.monotonic() + 5
            while time.monotonic() < end:
                for request in self.spool.requests(time.time()):
                    self.spool.answer(request, {'got': request.record})
                    return
                time.sleep(0.01)

        thread = threading.Thread(target=answer)
        thread.start()
        self.assertEqual({'got': {'server': 'one'}},
                         self.spool.ask({'server': 'one'}, 5))
        thread.join()
        self.assertEqual([], os.listdir(self.spool.path))

    def test_request_without_answer_is_withdrawn(self):
        self.assertRaises(NoAnswer, self.spool.ask, {}, 0.0)
        self.assertEqual([], os.listdir(self.spool.path))

    def test_file_is_private_from_the_beginning(self):
        seen = []
        rename = os.rename

        def look(old, new, **options):
            status = os.stat(old, dir_fd=options['src_dir_fd'])
            seen.append(stat.S_IMODE(status.st_mode))
            rename(old, new, **options)

        with mock.patch.object(os, 'rename', look), \
                testtools.ExpectedException(NoAnswer):
            self.spool.ask({}, 0.0)
        self.assertEqual([0o600], seen)

    def test_request_of_root_is_given_to_the_owner_of_the_directory(self):
        given = []
        with mock.patch.object(os, 'geteuid', lambda: -1), \
                mock.patch.object(
                    os, 'fchown',
                    lambda *values: given.append(values[1:])), \
                testtools.ExpectedException(NoAnswer):
            self.spool.ask({}, 0.0)
        owner = os.stat(self.spool.path)
        self.assertEqual([(owner.st_uid, owner.st_gid)], given)

    def test_damaged_requests_are_dropped(self):
        for content in (b'', b'{', b'[]', b'null', b'\xff', b'[' * 100000,
                        b' ' * (module._MAX_BYTES + 1)):
            self.write(content)
            self.assertEqual([], self.taken(), content[:9])
            self.assertEqual([], os.listdir(self.spool.path))

    def test_request_that_is_no_file_is_not_waited_for(self):
        target = os.path.join(self.tempdir(), 'target')
        with open(target, 'w') as file:
            file.write('{}')
        os.mkfifo(self.path('1' * 32 + '.request'))
        os.symlink(target, self.path('2' * 32 + '.request'))
        os.mkdir(self.path('3' * 32 + '.request'))
        self.write(b'{"server": "one"}')
        self.assertEqual([{'server': 'one'}], self.taken())
        self.assertEqual(['3' * 32 + '.request'],
                         os.listdir(self.spool.path))
        self.assertTrue(os.path.exists(target))

    def test_other_names_are_left_alone(self):
        for name in ('notes', NAME, NAME + '.request.new', 'b.request'):
            self.write(b'{}', name)
        self.assertEqual([], self.taken())
        self.assertEqual(4, len(os.listdir(self.spool.path)))

    def test_old_request_is_dropped(self):
        """nova-compute was down when it was made."""
        for moment in (time.time() - 61, time.time() + 3600):
            self.write(b'{}')
            os.utime(self.path(NAME + '.request'), (moment, moment))
            self.assertEqual([], self.taken())
            self.assertEqual([], os.listdir(self.spool.path))

    def test_files_of_an_earlier_process_are_dropped(self):
        names = {NAME + end for end in ('.request', '.answer', '.request.new')}
        for name in names:
            self.write(b'{}', name)
        # A command may still be about to rename one, or wait for another.
        self.spool.make()
        self.assertEqual(names, set(os.listdir(self.spool.path)))
        for name in names:
            os.utime(self.path(name), (0, 0))
        self.spool.make()
        self.assertEqual([], os.listdir(self.spool.path))

    def test_directory_that_others_can_change_is_not_used(self):
        os.chmod(self.spool.path, 0o770)  # noqa: S103
        self.assertRaises(StoreError, self.taken)
        self.assertRaises(StoreError, self.spool.ask, {}, 0.0)

    def test_link_in_place_of_the_directory_is_not_followed(self):
        os.rename(self.spool.path, self.spool.path + '.moved')
        os.symlink(self.spool.path + '.moved', self.spool.path)
        self.assertRaises(StoreError, self.taken)
        self.assertRaises(StoreError, self.spool.ask, {}, 0.0)

    def test_missing_directory_is_told(self):
        os.rmdir(self.spool.path)
        error = self.assertRaises(StoreError, self.spool.ask, {}, 0.0)
        self.assertIn('nova-compute makes it', str(error))

    def test_damaged_answer_is_told(self):
        def damage(name, record, directory):
            if name.endswith('.request'):
                self.write(b'[', name[:-len('.request')] + '.answer')

        with mock.patch.object(module, '_write', damage):
            self.assertRaises(StoreError, self.spool.ask, {}, 1.0)

    def test_answer_is_plain_json(self):
        self.write(json.dumps({'server': 'one'}).encode())
        request, = self.spool.requests(time.time())
        self.spool.answer(request, {'problem': 'busy'})
        with open(self.path(NAME + '.answer')) as file:
            self.assertEqual({'problem': 'busy'}, json.load(file))
