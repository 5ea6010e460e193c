# SPDX-License-Identifier: Apache-2.0
"""Validation of the options in ``[bdm_cleanup]``.

oslo.config ignores unknown keys, so a typo would make the plugin act by a
default.  Here an unknown key is a problem, like a wrong value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import difflib
import glob
import os
from typing import NamedTuple

from oslo_config import cfg

from nova_bdm_cleanup.node.option_group import ENVIRONMENT_PREFIX, GROUP
from nova_bdm_cleanup.node.options import MIN_AUDIT_INTERVAL, OPTS


class _Entry(NamedTuple):
    """A key of the group with its value."""

    key: str
    value: str
    #: The file that it is written in, or the environment variable.
    place: str


def problems(conf: cfg.ConfigOpts) -> list[str]:
    """Return one sentence for each unknown key and each wrong value."""
    entries = list(_entries(conf))
    known = [opt.dest for opt in OPTS]
    found = ['[%s] %s in %s: %s' % (
        GROUP, entry.key, entry.place, _explain_unknown(entry.key, known))
        for entry in entries if entry.key not in known]
    for opt in OPTS:
        if _is_wrong(conf, opt):
            # The last one counts.
            entry = next((e for e in reversed(entries) if e.key == opt.dest),
                         None)
            found += ['[%s] %s%s: %s' % (
                GROUP, opt.dest, ' = %s in %s' % (
                    ' '.join(entry.value.split()) or '""', entry.place)
                if entry else '', text)
                for text in _explain_wrong(opt, entry.value if entry else '')]
    return list(dict.fromkeys(found))


def forget_wrong_values(conf: cfg.ConfigOpts) -> None:
    """Replace each value that cannot be read by the default.

    Every OpenStack service logs all registered options at its start, and exits
    if one of them is wrong.
    """
    for opt in OPTS:
        if _is_wrong(conf, opt):
            conf.set_override(opt.dest, opt.default, group=GROUP)


def _entries(conf: cfg.ConfigOpts) -> Iterator[_Entry]:
    """Read the group again, from all sources of oslo.config.

    Later entries take precedence.
    """
    paths = list(conf.config_file)
    # The usual directories, if the command line names none.
    for directory in conf.config_dirs or conf.config_dir:
        paths += sorted(glob.glob(
            os.path.join(os.path.expanduser(directory), '*.conf')))
    for path in map(os.path.abspath, map(os.path.expanduser, paths)):
        sections: dict[str, dict[str, list[str]]] = {}
        cfg.ConfigParser(path, sections).parse()
        for section, keys in sections.items():
            if section.lower() == GROUP:
                for key, values in keys.items():
                    yield _Entry(key, values[-1], path)
    for name, value in os.environ.items():
        if name.startswith(ENVIRONMENT_PREFIX):
            # oslo.config accepts only upper case.
            yield _Entry(name[len(ENVIRONMENT_PREFIX):].swapcase(), value,
                         'the environment variable ' + name)


def _is_wrong(conf: cfg.ConfigOpts, opt: cfg.Opt) -> bool:
    try:
        value = conf[GROUP][opt.dest]
    except cfg.Error:
        return True
    # Values that oslo.config accepts.
    if value in (None, '', []):
        return opt.default not in ('', [])
    if opt.dest == 'store':
        # The commands would use another file than nova-compute.
        return not os.path.isabs(value)
    if opt.dest == 'settle_time':
        # Nothing young would ever be removed.
        return not _is_less_than_timeout(conf, value)
    return bool(opt.dest == 'audit_interval'
                and 0 < value < MIN_AUDIT_INTERVAL)


def _is_less_than_timeout(conf: cfg.ConfigOpts, value: int) -> bool:
    try:
        timeout = conf[GROUP].timeout
    except cfg.Error:
        return True  # The other option is the one that is wrong.
    return timeout is None or value < timeout


def _explain_unknown(key: str, known: Sequence[str]) -> str:
    return 'there is no such option; ' + (
        _nearest(key, known) or 'there are ' + ', '.join(known))


def _explain_wrong(opt: cfg.Opt, text: str) -> Iterator[str]:
    """Yield the reasons why a text is wrong, with what is allowed."""
    # The choices of the items of a list, or of the value itself.
    words: Sequence[str] = list(getattr(
        getattr(opt.type, 'item_type', opt.type), 'choices', None) or ())
    if isinstance(opt, cfg.ListOpt) and not text.strip():
        yield 'it is empty; set mode = observe to have nothing removed'
    elif isinstance(opt, cfg.ListOpt):
        for word in map(str.strip, text.rstrip(', ').split(',')):
            if word not in words:
                yield '%s is none of %s' % (
                    word or '""', _one_of(words, word))
    elif words:
        yield 'it must be one of ' + _one_of(words, text)
    elif opt.dest == 'audit_interval':
        yield 'it must be 0 for no audit, or a whole number of %d or more' % (
            MIN_AUDIT_INTERVAL)
    elif opt.dest == 'settle_time':
        yield ('it must be a whole number from %d to %d, and less than '
               'timeout; the default is %d' % (
                   opt.type.min, opt.type.max, opt.default))
    elif isinstance(opt, cfg.IntOpt):
        yield 'it must be a whole number ' + (
            'from %d to %d' % (opt.type.min, opt.type.max) if opt.type.max
            else 'of %d or more' % opt.type.min)
    elif isinstance(opt, cfg.BoolOpt):
        yield 'it must be true or false'
    else:
        yield ('it must be the absolute path of a file, in which $NAME stands '
               'for an option of [DEFAULT]')


def _one_of(words: Sequence[str], word: str) -> str:
    """Return the words, and a hint to the most similar one."""
    nearest = _nearest(word, words)
    return ', '.join(words) + (nearest and '; ' + nearest)


def _nearest(word: str, words: Sequence[str]) -> str:
    """Return a hint to the most similar word; empty: none is similar."""
    similar = difflib.get_close_matches(word.lower(), words, 1)
    return 'did you mean %s?' % similar[0] if similar else ''
