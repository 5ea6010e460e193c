#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make a frozen list of ``environments/`` again.

OpenStack says with which versions of everything else a release was tested:
in ``upper-constraints.txt`` of the repository openstack/requirements.
Download that file from the branch or tag that ``--help`` names for the list,
and give it to this command, which writes a new list::

    python3 tools/freeze.py nova-34 --constraints upper-constraints.txt

What those files do not say, or say for another Python, is written down here
with its reason.  Only the standard library and pip are used.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
import dataclasses
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import environments

#: What the tests use besides the services.
NOVA_TESTS = ('ddt', 'fixtures', 'gabbi', 'hypothesis', 'osprofiler',
              'oslotest', 'PyMySQL', 'python-barbicanclient',
              'requests-mock', 'stestr', 'testresources', 'testscenarios',
              'testtools', 'wsgi-intercept')
#: What runs the Cinder of the tests, and speaks to it.
CINDER_TESTS = ('cheroot', 'python-cinderclient', 'testresources',
                'testscenarios')
#: In no constraints: pip takes the newest that fits without these.
UNCONSTRAINED = {
    # Found its examples in this version; another finds others.
    'hypothesis': '6.170.15',
    # The last versions of old services import its pkg_resources.
    'setuptools': '65.5.0',
    # With it pip builds what is published as source only.
    'wheel': '0.45.1',
}
#: Needed on other Pythons than the one that makes the list.
PYTHON_3_13 = 'legacy-cgi==2.6.4 ; python_version >= "3.13"'
PYTHON_3_11_2 = 'async-timeout==5.0.1 ; python_full_version < "3.11.3"'


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The recipe of a list."""

    #: Where in openstack/requirements its constraints are.
    constraints: str
    #: The services, in the versions that the list is for.
    services: tuple[str, ...]
    #: Instead of what the constraints say.
    pins: dict[str, str] = dataclasses.field(default_factory=dict)
    #: The Pythons it is for; the first one makes it.
    pythons: tuple[str, ...] = ('3.11',)
    #: Lines for some of these Pythons only.
    conditional: tuple[str, ...] = ()
    #: What the tests of this release alone need.
    more: tuple[str, ...] = ()

    @property
    def tests(self) -> tuple[str, ...]:
        """Return the packages that the tests need besides the services."""
        usual = (CINDER_TESTS if self.services[0].startswith('cinder==')
                 else NOVA_TESTS)
        return usual + self.more


RECIPES = {
    'cinder-29': Recipe(
        'stable/2026.2', ('cinder==29.0.0',),
        # As for nova-34.
        pins={'keystoneauth1': '5.16.0', 'oslo.versionedobjects': '3.12.0'},
        pythons=('3.11', '3.12', '3.13'), conditional=(PYTHON_3_13,)),
    'nova-25': Recipe(
        'unmaintained/yoga', ('nova==25.3.0', 'openstack-placement==7.0.0'),
        pins={
            # Older ones do not compile for Python 3.11.
            'greenlet': '1.1.3', 'yappi': '1.4.0',
            # The one before imports inspect.formatargspec, which 3.11 lacks.
            'wrapt': '1.14.1',
            # The first with wheels for Python 3.11; building the older ones
            # takes headers of libxml2, or minutes.
            'cffi': '1.15.1', 'lxml': '4.9.1', 'numpy': '1.23.2',
        },
        # Nova's own fixtures import it.
        more=('mock',)),
    'nova-26': Recipe(
        'unmaintained/zed', ('nova==26.3.0', 'openstack-placement==8.0.0'),
        # The one before does not compile for Python 3.11.
        pins={'yappi': '1.4.0'}),
    'nova-27': Recipe(
        'unmaintained/2023.1',
        ('nova==27.5.1', 'openstack-placement==9.0.0')),
    'nova-28': Recipe(
        '2023.2-eol', ('nova==28.3.1', 'openstack-placement==11.0.1')),
    'nova-29': Recipe(
        'unmaintained/2024.1',
        ('nova==29.4.0', 'openstack-placement==11.0.1')),
    'nova-30': Recipe(
        '2024.2-eol', ('nova==30.3.0', 'openstack-placement==12.0.2')),
    'nova-31': Recipe(
        'stable/2025.1', ('nova==31.3.1', 'openstack-placement==15.0.0')),
    'nova-32': Recipe(
        'stable/2025.2', ('nova==32.2.1', 'openstack-placement==15.0.0')),
    'nova-33': Recipe(
        'stable/2026.1', ('nova==33.0.2', 'openstack-placement==15.0.0')),
    'nova-34': Recipe(
        'stable/2026.2', ('nova==34.0.0', 'openstack-placement==16.0.0'),
        # The list was made from the constraints of August 2026, which had
        # older ones than this Nova requires.
        pins={'keystoneauth1': '5.16.0', 'oslo.versionedobjects': '3.12.0'},
        pythons=('3.11', '3.12', '3.13'),
        conditional=(PYTHON_3_11_2, PYTHON_3_13)),
}


class FreezeFailure(Exception):
    """The list could not be made; the text says why."""


def normalized(name: str) -> str:
    """Return a package's name as pip compares it."""
    return re.sub(r'[-_.]+', '-', name).lower()


def constraints(text: str, python: str, pins: dict[str, str]
                ) -> Iterator[str]:
    """Yield the constraints for one Python, as lines for pip.

    Some packages have a line for each Python, and the files of old releases
    know no new one.  Where none fits, that of the newest Python counts: with
    no line at all pip would take a version of today.

    :param text: the contents of ``upper-constraints.txt``
    :param python: such as ``3.11``
    :param pins: versions by package, instead of those in the text
    """
    candidates: dict[str, list[tuple[bool, tuple[int, ...], str]]] = {}
    for line in re.findall(r'^[^#\s].*$', text, re.M):
        found = re.fullmatch(
            r'(?P<name>[\w.-]+)===(?P<version>[^\s;]+)(?:\s*;\s*'
            r'python_version\s*(?P<operator>[<>=]=|[<>])\s*'
            r'[\'"](?P<python>[\d.]+)[\'"])?', line.strip())
        if not found:
            raise FreezeFailure(f'Not a line of upper-constraints: {line}')
        candidates.setdefault(normalized(found['name']), []).append((
            _fits(python, found['operator'], found['python']),
            _numbers(found['python'] or '0'), found['version']))
    for name, lines in candidates.items():
        if name not in map(normalized, pins):
            yield f'{name}==={max(lines)[-1]}'
    for name, version in pins.items():
        yield f'{name}==={version}'


def _fits(python: str, operator: str | None, other: str | None) -> bool:
    if operator is None or other is None:
        return True
    this, that = _numbers(python), _numbers(other)
    return {'==': this == that, '<': this < that, '<=': this <= that,
            '>': this > that, '>=': this >= that}[operator]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split('.')))


def resolve(recipe: Recipe, limits: Iterable[str], python: str) -> list[str]:
    """Ask pip what it would install, as lines of a list.

    :param limits: lines for pip's ``--constraint``
    :param python: the interpreter that the list is made with
    """
    with tempfile.TemporaryDirectory(prefix='freeze-') as directory:
        scratch = pathlib.Path(directory)
        report = scratch / 'report.json'
        limit = scratch / 'constraints.txt'
        limit.write_text('\n'.join(limits) + '\n', encoding='ascii')
        bare = scratch / 'venv'
        _run([python, '-m', 'venv', str(bare)])
        pip = [str(bare / 'bin' / 'python'), '-m', 'pip', 'install',
               '--no-input', '--disable-pip-version-check', '--quiet',
               f'--constraint={limit}']
        # Packages that are published as source only are asked with these
        # what they require, as they are built with them later.
        _run([*pip, 'setuptools', 'wheel'])
        _run([*pip, '--dry-run', '--ignore-installed', f'--report={report}',
              'setuptools', 'wheel', *recipe.services, *recipe.tests])
        found = json.loads(report.read_text(encoding='utf-8'))['install']
    pinned = {normalized(line.partition('==')[0])
              for line in recipe.conditional}
    lines = [
        '{name}=={version}'.format(**item['metadata']) for item in found
        if normalized(item['metadata']['name']) not in pinned]
    return sorted([*lines, *recipe.conditional],
                  key=lambda line: line.partition('==')[0].lower())


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, text=True,
                          capture_output=True)
    if done.returncode:
        raise FreezeFailure(
            f'{" ".join(command[:4])} failed with exit code '
            f'{done.returncode}:\n{done.stderr.strip()}')


def contents(name: str, text: str, python: str) -> str:
    """Return a whole list.

    :param name: that of the list, such as ``nova-34``
    :param text: the contents of ``upper-constraints.txt``
    :param python: the interpreter it is made with
    """
    recipe = RECIPES[name]
    pins = {package: version for package, version in UNCONSTRAINED.items()
            if not re.search(rf'^{package}===', text, re.M)}
    limits = constraints(text, recipe.pythons[0], {**pins, **recipe.pins})
    return '\n'.join([
        f'# The complete, frozen contents of an environment with a real '
        f'{name.partition("-")[0]}.',
        '# python: ' + ' '.join(recipe.pythons),
        *resolve(recipe, limits, python), ''])


def differences(old: str, new: str) -> list[str]:
    """Return the changes, one line for each package."""
    before, after = ({
        normalized(line.partition('==')[0]): line
        for line in text.splitlines() if not line.startswith('#')}
        for text in (old, new))
    return [f'{before.get(name, "-")} -> {after.get(name, "-")}'
            for name in sorted(before.keys() | after.keys())
            if before.get(name) != after.get(name)]


def main() -> int:
    parser = argparse.ArgumentParser(
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description='Make a frozen list of an environment again.',
        epilog='upper-constraints.txt is in the repository '
               'openstack/requirements, at this branch or tag:\n\n'
               + '\n'.join(f'  {name:10} {recipe.constraints}'
                           for name, recipe in RECIPES.items()))
    parser.add_argument('name', choices=RECIPES, metavar='NAME',
                        help='the list, such as nova-34')
    parser.add_argument('--constraints', type=pathlib.Path, required=True,
                        metavar='FILE',
                        help='upper-constraints.txt of its release')
    parser.add_argument('--output', type=pathlib.Path, metavar='FILE',
                        help='write it there, not into tools/environments/')
    arguments = parser.parse_args()
    path = environments.LISTS / f'{arguments.name}.txt'
    old = path.read_text(encoding='utf-8') if path.exists() else ''
    try:
        new = contents(
            arguments.name, arguments.constraints.read_text(encoding='utf-8'),
            environments.base_interpreter(
                arguments.name, RECIPES[arguments.name].pythons[:1]))
    except (FreezeFailure, environments.EnvironmentFailure,
            OSError) as failure:
        print(failure, file=sys.stderr)
        return 1
    (arguments.output or path).write_text(new, encoding='utf-8')
    for line in differences(old, new):
        print(line)
    print(f'{arguments.output or path}: {len(new.splitlines()) - 2} packages')
    return 0


if __name__ == '__main__':
    sys.exit(main())
