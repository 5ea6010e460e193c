# SPDX-License-Identifier: Apache-2.0
"""Random worlds for property tests.

Most random data is far from any danger.  So the strategy prefers the worlds in
which a disk is lost if a rule is wrong: several mappings and attachments of
one volume, statuses that contradict the attachments, roots, records that only
one of Cinder's two lists shows, volumes of another project and the records
of that project about the server.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import functools
import pprint
from typing import Any

import hypothesis
from hypothesis import strategies as st
from testtools import content

from nova_bdm_cleanup.rules import facts
from nova_bdm_cleanup.rules.facts import Policy, WitnessAnswer
from nova_bdm_cleanup.rules.reasons import REMOVED
from nova_bdm_cleanup.tests.unit import base, make
from nova_bdm_cleanup.tests.unit.node.cleanup import fakes


def profile(share: float = 1.0) -> hypothesis.settings:
    """Return settings for a test that uses this share of the examples."""
    return hypothesis.settings(max_examples=max(
        10, int(hypothesis.settings.default.max_examples * share)))


#: Whether each run uses the same examples.
_IS_REPEATED = hypothesis.settings.default.derandomize


class Shared:
    """A few examples that all tests of a process share.

    To draw an example takes much longer than to check it.  With random
    examples each test draws its own: Hypothesis can reduce only those.

    :param share: their share of the examples
    """

    def __init__(self, strategy: st.SearchStrategy, share: float) -> None:
        self._strategy = strategy
        self._share = share

    @functools.cached_property
    def examples(self) -> list[Any]:
        found: list[Any] = []

        @profile(self._share)
        @hypothesis.given(self._strategy)
        def draw(example):
            found.append(example)

        draw()
        return found

    def strategy(self) -> st.SearchStrategy:
        """Return a strategy for tests that draw something else, too."""
        if not _IS_REPEATED:
            return self._strategy
        return st.deferred(lambda: st.sampled_from(self.examples))

    def each(self, test: Callable[..., None]) -> Callable[..., None]:
        """Run a test with each of them."""
        if not _IS_REPEATED:
            return profile()(hypothesis.given(self._strategy)(test))

        @functools.wraps(test)
        def run(case: base.TestCase) -> None:
            for example in self.examples:
                try:
                    test(case, example)
                except Exception:
                    case.addDetail('example', content.text_content(
                        pprint.pformat(example)))
                    raise

        return run


VOLUMES = ('volume-1', 'volume-2', 'volume-3')
ATTACHMENTS = tuple('attachment-%d' % n for n in range(1, 10))


def _kinds(*weighted):
    """Draw a whole template: many times faster than a draw for each field."""
    return st.sampled_from([
        template for weight, template in weighted for _ in range(weight)])


def _volume(**values):
    return make.volume(id='', updated_at=make.ago(60), **values)


_volumes = _kinds(
    (6, _volume()),
    (6, _volume(status='available')),
    (4, None),
    (2, _volume(multiattach=True)),
    (1, _volume(status='available', multiattach=True)),
    (1, _volume(status='attaching', multiattach=True)),
    (1, _volume(status='detaching', multiattach=True)),
    *((1, _volume(status=status)) for status in (
        'reserved', 'attaching', 'detaching', 'error', 'deleting',
        'awaiting-transfer', 'retyping', 'maintenance', 'unheard-of')),
    (1, make.volume(id='', status='attaching', updated_at=make.ago(7200))),
    (1, make.volume(id='', status='detaching', updated_at=None)),
    *((1, _volume(status=status, migration_status=word))
      for status in ('in-use', 'available')
      for word in ('success', 'error', 'migrating', 'target:volume-9')))

_attachments = _kinds(*(
    (weight, make.attachment(id='', volume_id=volume, **values))
    for volume in VOLUMES
    for weight, values in (
        (6, {}),
        (1, {'connected': False}),
        (2, {'status': 'reserved', 'connected': False}),
        (1, {'status': 'reserved'}),
        (1, {'status': 'attaching', 'connected': False}),
        (1, {'status': 'attaching'}),
        (1, {'status': 'detached'}),
        (2, {'server_id': make.OTHER_SERVER}),
        (1, {'server_id': None}))))

_bdms = _kinds(*(
    (weight, make.bdm(uuid='', volume_id=volume, attachment_id=None,
                      **values))
    for volume in VOLUMES
    for weight, values in (
        (6, {}),
        (1, {'has_connection_info': False}),
        (1, {'has_connection_info': False, 'created_at': make.ago(300)}),
        (1, {'has_connection_info': False, 'created_at': make.ago(299)}),
        (1, {'has_connection_info': False, 'created_at': None}),
        (1, {'has_connection_info': False, 'created_at': make.ago(-60)}),
        (1, {'boot_index': 0}),
        (1, {'boot_index': 0, 'source_type': 'image'}),
        (1, {'source_type': 'snapshot'}),
        (1, {'destination_type': 'local'}))),
    (1, make.bdm(uuid='', volume_id=None, attachment_id=None,
                 has_connection_info=False)))

#: The project of a mapping's volume: ours, another (transferred), or unknown.
_projects = _kinds((12, make.PROJECT), (2, make.OTHER_PROJECT), (1, None))

#: A volume of another project, with records that name the server.
FOREIGN = 'volume-foreign'

_foreign_volumes = _kinds(
    (2, None),
    *((1, make.volume(id=FOREIGN, project=make.OTHER_PROJECT, **values))
      for values in ({}, {'status': 'reserved'}, {'status': 'detaching'},
                     {'status': 'error'},
                     {'migration_status': 'migrating'})))

_foreign_records = _kinds(*(
    (1, make.attachment(id='', volume_id=FOREIGN, **values))
    for values in (
        {}, {'connected': False}, {'status': 'reserved', 'connected': False},
        {'status': 'reserved'}, {'status': 'attaching', 'connected': False})))

_noise = st.integers(0, 3).map(lambda n: max(0, n - 1))

#: Which attachment a mapping carries: mostly one of its volume.
_carried = _kinds((6, 'of its volume'), (3, 'any'), (1, None),
                  (1, 'attachment-gone'))

_servers = _kinds((9, make.server()), (1, make.server(is_locked=True)))

_swaps = _kinds((12, facts.Ending.SUCCESS), (2, facts.Ending.FAILURE),
                (1, facts.Ending.NONE))

_OTHERS = {'server_id': make.OTHER_SERVER}
_RESERVED = {'status': 'reserved', 'connected': False}
_ATTACHING = {'status': 'attaching'}
_FAILED = {'status': 'error_attaching'}
_AVAILABLE = {'status': 'available'}
_YOUNG = {'has_connection_info': False, 'created_at': make.ago(5)}
_UNCONNECTED = {'has_connection_info': False}
_ROOT = {'boot_index': 0}

#: The history of one volume: the volume, its attachments, and its mappings,
#: each with the number of the attachment that it carries (-1: a deleted one,
#: None: none).
_stories = _kinds(*((1, story) for story in (
    # In order
    ({}, [{}], [(0, {})]),
    ({}, [{}], [(0, _ROOT)]),
    ({}, [{}], [(0, {**_ROOT, 'source_type': 'image'})]),
    ({}, [{'connected': False}], [(None, {})]),
    ({'multiattach': True}, [{}, _OTHERS], [(0, {})]),
    ({'multiattach': True, 'status': 'detaching'}, [{}, _OTHERS], [(0, {})]),
    # Dangling
    (None, [], [(-1, {})]),
    (None, [], [(-1, _ROOT)]),
    (None, [], [(None, {'has_connection_info': False})]),
    (_AVAILABLE, [], [(-1, {})]),
    (_AVAILABLE, [], [(-1, _ROOT)]),
    (_AVAILABLE, [{}], [(0, {})]),
    (_AVAILABLE, [{}], [(0, _ROOT)]),
    (_AVAILABLE, [{}, {}], [(0, {})]),
    (_AVAILABLE, [{'connected': False}], [(None, {})]),
    ({}, [_OTHERS], [(-1, {})]),
    ({}, [_OTHERS], [(-1, _ROOT)]),
    ({'multiattach': True}, [_OTHERS, _OTHERS], [(-1, {})]),
    (_AVAILABLE, [_OTHERS], [(-1, {})]),
    (_AVAILABLE, [], [(-1, {'source_type': 'snapshot'})]),
    (None, [], [(-1, {'source_type': 'blank'})]),
    # Under way
    ({'multiattach': True}, [{}, {**_OTHERS, **_RESERVED}], [(0, {})]),
    (_AVAILABLE, [], [(None, _YOUNG)]),
    ({'status': 'reserved'}, [_RESERVED], [(None, _YOUNG)]),
    ({'status': 'reserved'}, [_RESERVED], [(0, _YOUNG)]),
    ({'status': 'detaching'}, [{}], [(0, {})]),
    (_ATTACHING, [_ATTACHING], [(0, {})]),
    ({'migration_status': 'migrating'}, [{}], [(0, {})]),
    ({'status': 'attaching', 'updated_at': make.ago(7200)}, [], [(-1, {})]),
    # Died half way: a second attach of the volume, a migration, a swap
    (_AVAILABLE, [], [(-1, {}), (None, _YOUNG)]),
    (_AVAILABLE, [_RESERVED], [(-1, {}), (0, _YOUNG)]),
    (_AVAILABLE, [{}], [(None, {'has_connection_info': False}), (0, {})]),
    ({}, [{}, {}], [(0, {})]),
    ({}, [{}, {}], [(-1, {})]),
    ({}, [_RESERVED, {}], [(0, {})]),
    ({}, [], [(-1, {})]),
    # A move that died before it saved its new attachment
    *(({'status': status}, [_RESERVED], [(-1, values)])
      for status in ('reserved', 'in-use', 'available')
      for values in ({}, _ROOT)),
    ({'status': 'reserved', 'updated_at': make.ago(7200)}, [_RESERVED],
     [(-1, {})]),
    ({'multiattach': True}, [_OTHERS, _RESERVED], [(-1, {})]),
    ({'multiattach': True}, [_OTHERS, _ATTACHING], [(1, {})]),
    ({}, [_ATTACHING, _ATTACHING], [(-1, {})]),
    *((_ATTACHING, records, [(number, {})])
      for records in ([_ATTACHING, {}], [_ATTACHING, _ATTACHING],
                      [_ATTACHING, _RESERVED])
      for number in (0, -1)),
    *(({'status': status}, [_RESERVED], [(0, {})])
      for status in ('reserved', 'in-use')),
    ({'status': 'reserved'}, [_FAILED], [(0, {})]),
    ({'multiattach': True}, [_FAILED, _OTHERS], [(0, {})]),
    ({}, [_RESERVED, {}], [(0, _ROOT)]),
    # An attach whose answer was lost, and a second one
    ({}, [{}], [(0, {}), (None, _UNCONNECTED)]),
    ({}, [{}], [(0, {}), (-1, _UNCONNECTED)]),
    ({}, [{}], [(0, {}), (0, _UNCONNECTED)]),
    ({}, [{}], [(0, {}), (0, {'device_name': '/dev/vdc'})]),
    ({}, [{}], [(0, {}), (-1, {'device_name': '/dev/vdc'})]),
    ({}, [{}], [(0, _ROOT), (None, _UNCONNECTED)]),
    ({}, [{}, {}], [(0, {}), (None, _UNCONNECTED)]),
    ({}, [_OTHERS, {}], [(1, {}), (0, _UNCONNECTED)]),
    ({'multiattach': True}, [{}, _OTHERS], [(0, {}), (0, _UNCONNECTED)]),
    # An attachment without a mapping
    ({}, [{}], []),
    ({}, [{'connected': False}], []),
    ({'status': 'reserved'}, [_RESERVED], []),
    ({}, [{}, _RESERVED], [(0, {})]),
    *[({}, [{}, {}], [(0, {})])] * 3,
)))


#: Of a mapping that was never connected.
_attach_endings = _kinds((2, facts.Attach.UNKNOWN), (1, facts.Attach.FAILED))


@st.composite
def worlds(draw):
    """Draw a world in any state, sound or not.

    Each volume gets a story; then any other records are added.
    """
    volumes, attachments, bdms = [], [], []
    ids = iter(ATTACHMENTS)
    for volume_id in VOLUMES:
        volume, records, mappings = draw(_stories)
        if volume is not None:
            volumes.append(make.volume(
                id=volume_id, **{'project': draw(_projects), **volume}))
        records = [make.attachment(**{
            'id': next(ids), 'volume_id': volume_id, **record})
            for record in records]
        attachments += records
        for number, values in mappings:
            carried = (None if number is None else 'attachment-gone'
                       if number < 0 else records[number].id)
            bdms.append(make.bdm(volume_id=volume_id, attachment_id=carried,
                                 **values))
    for kind in (draw(_volumes) for _ in range(draw(_noise))):
        if kind and volumes:
            place = draw(st.integers(0, len(volumes) - 1))
            volumes[place] = dataclasses.replace(
                kind, id=volumes[place].id, project=volumes[place].project)
    known = {v.id for v in volumes}
    for _ in range(draw(_noise)):
        # Cinder deletes the attachments of a volume together with it.
        attachment = draw(_attachments)
        if attachment.volume_id in known:
            attachments.append(dataclasses.replace(attachment, id=next(ids)))
    foreign = draw(_foreign_volumes)
    if foreign is not None:
        volumes.append(foreign)
        attachments += [
            dataclasses.replace(draw(_foreign_records), id='foreign-%d' % n)
            for n in range(1 + draw(_noise))]
    for _ in range(draw(_noise)):
        bdms.append(_with_attachment(draw, draw(_bdms), attachments))
    if draw(st.integers(0, 7)):
        bdms.append(make.root())
    away = draw(st.integers(0, 2 ** len(ATTACHMENTS) - 1))
    world = fakes.World(
        [dataclasses.replace(b, uuid='bdm-%d' % n)
         for n, b in enumerate(bdms)],
        volumes, attachments,
        neighbours=draw(_kinds((4, ()), *((1, [v]) for v in VOLUMES))),
        hosts={i: make.OTHER_HOST for n, i in enumerate(ATTACHMENTS)
               if away >> n & 1})
    world.server = draw(_servers)
    world.swaps = draw(_swaps)
    world.is_here = draw(st.booleans())
    ending = draw(_attach_endings)
    world.attaches = {uuid: ending for uuid in world.rows}
    return world


def _with_attachment(draw, bdm, attachments):
    wanted = draw(_carried)
    candidates = [a.id for a in attachments
                  if wanted == 'any' or a.volume_id == bdm.volume_id]
    if wanted in ('any', 'of its volume'):
        wanted = draw(st.sampled_from(candidates)) if candidates else None
    return dataclasses.replace(bdm, attachment_id=wanted)


def look(world, witness=WitnessAnswer.KNOWN, hidden=(), unlisted=()):
    """Return a look at a world, with the facts that Cinder shows.

    :param hidden: volumes of another project, with the credentials of the
        project; None with those of a service
    :param unlisted: attachments that only the list of their volume shows
    """
    volumes, attachments, _ = fakes.Cinder(world).look(
        world.server.uuid, tuple(world.rows.values()))
    return facts.Snapshot(
        world.server, tuple(world.rows.values()),
        {i: None if hidden and i in hidden else v
         for i, v in volumes.items()},
        tuple(a for a in attachments if a.id not in unlisted
              and not (hidden and a.volume_id in hidden)),
        witness=witness, sees_all=hidden is None, swaps=world.swaps,
        guest_is_here=world.is_here, attaches=world.attaches)


@st.composite
def looks(draw):
    """Draw a world and one look at it, with any credentials."""
    world = draw(worlds())
    hidden = draw(_kinds((4, None), (1, ()), *((1, [v]) for v in VOLUMES)))
    unlisted = draw(_kinds((4, ()), *((1, [a]) for a in ATTACHMENTS[:3])))
    witness = draw(_kinds((5, WitnessAnswer.KNOWN),
                          *((1, answer) for answer in WitnessAnswer)))
    return world, look(world, witness, hidden, unlisted)


policies = _kinds(
    (6, Policy()),
    (1, Policy(remove=REMOVED)),
    (2, Policy(max_removals=1)),
    (1, Policy(max_removals=0)),
    *((1, Policy(remove=frozenset([reason])))
      for reason in sorted(Policy.remove)))
