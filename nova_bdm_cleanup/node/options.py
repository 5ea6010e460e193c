# SPDX-License-Identifier: Apache-2.0
"""The options of ``[bdm_cleanup]``, and the policy that they ask for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
import dataclasses
import datetime
import textwrap
from typing import Any

from oslo_config import cfg, types

from nova_bdm_cleanup.node.audit import metrics
from nova_bdm_cleanup.node.cleanup import triggers
from nova_bdm_cleanup.node.cleanup.log_lines import Counters
from nova_bdm_cleanup.node.cleanup.triggers import Trigger
from nova_bdm_cleanup.node.option_group import GROUP, mode_option
from nova_bdm_cleanup.rules.facts import Policy
from nova_bdm_cleanup.rules.reasons import Reason

#: The reason that each word of ``remove`` stands for.
_REMOVE = {
    'missing': Reason.VOLUME_MISSING,
    'available': Reason.VOLUME_AVAILABLE,
    'attached-elsewhere': Reason.ATTACHED_ELSEWHERE,
    'never-attached': Reason.NEVER_ATTACHED,
    'duplicate': Reason.DUPLICATE_MAPPING,
    'stale': Reason.STALE_ATTACHMENT,
}

#: The word of ``remove`` for missing volumes that Nova created.
_CREATED = 'created'

#: The minimum number of seconds from one audit to the next, if there is one.
MIN_AUDIT_INTERVAL = 60

#: The words of ``triggers``.
_CHOICES = {choice.word: choice for choice in triggers.CHOICES}


def _help_of(choice: triggers.Choice) -> str:
    return textwrap.fill(
        '* ``%s``: %s' % (choice.word, choice.help), width=79,
        subsequent_indent='  ', break_on_hyphens=False)


OPTS: list[cfg.Opt] = [
    mode_option(),
    cfg.BoolOpt(
        'required',
        default=False,
        help="""
Refuse to start nova-compute when the plugin is on but cannot work.

The plugin installs itself only into a Nova whose methods and signatures it
knows, and only with valid options and with credentials in ``[cinder]``.
Otherwise it logs one CRITICAL line, leaves Nova as it is, and nova-compute
starts without it. Set this to ``true`` where such a compute node must not go
into service. It has no effect where the package is not installed, for example
after an upgrade: then nothing of it is loaded.
"""),
    cfg.ListOpt(
        'triggers',
        default=[],
        item_type=types.String(choices=(*_CHOICES, 'all')),
        help="""
The operations in which a server is cleaned up, besides its hard reboots. A
soft reboot only reports.

%s
* ``all``: all of these.
""" % '\n'.join(map(_help_of, _CHOICES.values()))),
    cfg.ListOpt(
        'remove',
        default=list(_REMOVE),
        item_type=types.String(choices=(*_REMOVE, _CREATED)),
        help="""
What is removed. Findings without a word in this list are only reported. A disk
whose mapping dangles is not connected all the same, unless it is the root
disk. To leave everything to Nova, set ``mode`` to ``observe``.

* ``missing``: mappings of volumes that do not exist (``volume-missing``)
* ``available``: mappings of volumes that are free for any server in Cinder
  (``volume-available``)
* ``attached-elsewhere``: mappings of volumes that Cinder attaches to other
  servers only (``attached-elsewhere``)
* ``never-attached``: mappings whose attach has ended without success, and
  which the guest does not have (``never-attached``)
* ``duplicate``: mappings that were never connected, of a disk that another
  mapping has (``duplicate-mapping``)
* ``stale``: Cinder attachments that name a server which has no mapping for
  them (``stale-attachment``). They keep a volume from being used or deleted.
  Remove the word if other software creates attachments for Nova servers in
  Cinder directly.
* ``created``, not in the default: with ``missing``, also mappings of disks
  that Nova created from an image, a snapshot or blank. Without it such a
  server starts without the disk, and keeps the mapping for ever. A root disk
  is never removed.
"""),
    cfg.BoolOpt(
        'reconnect',
        default=Policy.reconnect,
        help="""
Give a disk that a failed move, shelve or rebuild has left without a complete
attachment to this host a new one, in hard reboots and, if they are selected,
in starts of servers (``start``) and boots of the host (``host_boot``). Cinder
then connects the volume to this host once more, and the guest comes back with
it. An attachment that may serve the guest on another host is deleted only if
the guest was certainly on this host, with the disk, when the operation began.
With ``move``, an unshelve or an evacuation that failed can be repeated: each
disk has one attachment before Nova connects it.

With any ``triggers``, after a live migration that failed, the mappings of a
guest that still runs on this host take over the attachments by which it has
its disks, without an outage, if Cinder, the kernel, the guest and Nova agree.

Without it such disks are only reported.
"""),
    cfg.IntOpt(
        'grace_period',
        default=int(Policy.grace_period.total_seconds()),
        min=0,
        # No attach takes a day.
        max=86400,
        help="""
Seconds during which a new block device mapping without connection information
counts as an attach in progress and is kept.

Attaching a volume writes the mapping before it reserves the volume in Cinder.
Raise this if attaching takes long because of a loaded message bus or a slow
storage back end.
"""),
    cfg.IntOpt(
        'settle_time',
        default=int(Policy.settle_time.total_seconds()),
        min=0,
        # No reboot waits longer for a database that lags more.
        max=60,
        help="""
Seconds until a change in Cinder's or Nova's database is certainly seen by all
that read it; less than ``timeout``. Until then no disk is removed, reconnected
or left out because of it.

A read replica, or another node of a Galera cluster, may answer as before a
change that another one has confirmed. If a removal, a reconnect, or a disk
that is not connected, rests on records that are younger than this, the
operation waits for this time, once, before it powers the guest off, and then
asks again. Set it to 0 where every read of Cinder's and of Nova's database
sees every write before it, and raise it above the longest lag that you have
measured.
"""),
    cfg.IntOpt(
        'timeout',
        default=int(Policy.timeout),
        min=1,
        help="""
Seconds that one reboot or start spends on the cleanup at most, and that all
cleanups of one start of nova-compute spend together. After that Nova goes on,
and the next cleanup does the rest. Calls to Cinder are cut off. A call to the
hypervisor or to os-brick that has begun is waited for, as Nova itself does in
the same reboot, since two of them must not work on one device at the same
time. A soft reboot, which changes nothing, waits for Cinder no longer than
five seconds, a live migration no longer than ten. A wait for ``settle_time``
is not counted.

While nova-compute starts, servers wait for each other: those that it resumes
(``host_boot``), and those whose interrupted reboot or start it finishes. Each
has a quarter of the remaining time. When Cinder does not answer at all, the
other servers come back without a cleanup, and one line in the log says how
many these are.
"""),
    cfg.IntOpt(
        'max_removals',
        default=Policy.max_removals,
        min=1,
        help="""
How many block device mappings one reboot may remove, and how many stale
attachments it may delete. The two are counted separately, and attachments that
are deleted with a mapping do not count. If there are more, none of that kind
is removed (``over-limit``): then Cinder or Nova's database is probably
wrong, and not the server.
"""),
    cfg.IntOpt(
        'max_removals_per_hour',
        default=Policy.max_removals_per_hour,
        min=1,
        help="""
How many block device mappings, and how many stale attachments, may be removed
on this host within an hour from the servers of one project. The two are
counted separately, and each project has its own counts, since its members can
ask for the operations. A boot of the host (``host_boot``) has counts of its
own, for all projects together; an evacuation counts for its server alone, so
that no limit leaves servers on a host that is down. The counts are in the
store and survive restarts of nova-compute. An operation that would exceed one
of the limits removes nothing of that kind (``over-limit``). Raise it during a
planned clean-up of many servers of one project.
"""),
    cfg.IntOpt(
        'audit_interval',
        default=0,
        min=0,
        help="""
Seconds from one audit of all servers of this host to the next, 60 or more; 0:
no audit.

An audit changes nothing. It finds what a hard reboot of each server would
find, except that another server claims the address of a disk, with two
requests to Cinder for a server in order. The servers are looked at one by one
over the whole interval, each at its own moment, so that Cinder is asked
steadily. A finding that two consecutive audits see is logged once, and once
more when it is gone.
"""),
    cfg.StrOpt(
        'metrics_file',
        default='',
        help="""
File into which nova-compute writes its metrics every minute, for the textfile
collector of Prometheus' node_exporter; empty: none. Its name must end in
``.prom``, and its directory must be writable for the user of nova-compute, and
sticky if others can write there. All users of this host may read it.
"""),
    cfg.StrOpt(
        'store',
        default='$state_path/bdm-cleanup/store.sqlite',
        help="""
File in which this host keeps every plan and every step. ``nova-bdm-cleanup
journal`` reads them from there, and prints the commands that undo a removal.
It is an SQLite database; its directory is created if it is missing. A removal
or a reconnect that cannot be recorded is not begun.
"""),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options; a second time changes nothing."""
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options, for ``oslo-config-generator``."""
    return [(GROUP, OPTS)]


def effective(conf: cfg.ConfigOpts) -> dict[str, Any]:
    """Return the value of every option."""
    return {opt.dest: conf[GROUP][opt.dest] for opt in OPTS}


def without_effect(conf: cfg.ConfigOpts) -> list[str]:
    """Return a sentence for each valid word that has no effect."""
    found = []
    if ('host_boot' in conf[GROUP].triggers
            and not conf.resume_guests_state_on_host_boot):
        found.append(
            '"host_boot" of [%s] triggers has no effect: [DEFAULT] '
            'resume_guests_state_on_host_boot is not true, so nova-compute '
            'resumes no server when the host boots' % GROUP)
    words = conf[GROUP].remove
    if _CREATED in words and 'missing' not in words:
        found.append('"created" of [%s] remove has no effect without "missing"'
                     % GROUP)
    found += [
        '[%s] %s: [DEFAULT] periodic_enable is false, so nova-compute runs no '
        'periodic task' % (GROUP, words)
        for name, words in (
            ('audit_interval', 'audit_interval has no effect'),
            ('metrics_file', 'metrics_file is written at the start only'))
        if conf[GROUP][name] and not conf.periodic_enable]
    return found


def words_of(conf: cfg.ConfigOpts) -> list[str]:
    """Return the words of ``triggers``, each once."""
    given = conf[GROUP].triggers
    return [word for word in _CHOICES if word in given or 'all' in given]


def triggers_of(words: Collection[str]) -> tuple[Trigger, ...]:
    """Return the triggers that some words select, and those always on."""
    return (*triggers.ALWAYS_ON,
            *triggers.selected_by(*map(_CHOICES.__getitem__, words)))


def triggers_of_word(word: str) -> tuple[Trigger, ...]:
    """Return the triggers that one word selects."""
    return triggers.selected_by(_CHOICES[word])


def words_for(selected: Collection[Trigger]) -> list[str]:
    """Return the words whose triggers are all selected."""
    return [word for word, choice in _CHOICES.items()
            if set(triggers.selected_by(choice)) <= set(selected)]


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings that the options ask for."""

    policy: Policy
    triggers: Sequence[Trigger]
    #: Seconds from one round of the audit to the next; 0: there is none.
    audit_interval: int
    #: Whether anything is done periodically.
    watches: bool
    #: The path of the store.
    store: str


def counters(conf: cfg.ConfigOpts) -> Counters:
    """Return the counters of this nova-compute.

    They count only where ``metrics_file`` is set.
    """
    if not conf[GROUP].metrics_file:
        return Counters()
    return metrics.HostCounters(conf.host)


def settings(conf: cfg.ConfigOpts) -> Settings:
    """Return the settings that the options ask for now."""
    group = conf[GROUP]
    return Settings(
        policy=Policy(
            observe=group.mode != 'enforce',
            remove=frozenset(
                reason for word, reason in _REMOVE.items()
                if word in group.remove),
            remove_created=_CREATED in group.remove,
            reconnect=group.reconnect,
            grace_period=datetime.timedelta(seconds=group.grace_period),
            settle_time=datetime.timedelta(seconds=group.settle_time),
            max_removals=group.max_removals,
            max_removals_per_hour=group.max_removals_per_hour,
            timeout=group.timeout),
        triggers=triggers_of(words_of(conf)),
        audit_interval=group.audit_interval,
        watches=bool(group.audit_interval or group.metrics_file),
        store=group.store)
