# SPDX-License-Identifier: Apache-2.0
"""Check the installed package; run by the interpreter it is installed for.

With an argument, also the entry points of the group of that name.
"""

from __future__ import annotations

from importlib import metadata
import sys
import types

NAME = 'nova-bdm-cleanup'
MODULE = 'nova_bdm_cleanup'
#: What must load with nothing but the requirements of the package.
GROUPS = ('os_vif', 'oslo.config.opts', 'console_scripts')
#: What a nova-compute may import of ours where the plugin is disabled.
LOADER = [MODULE, f'{MODULE}.node', f'{MODULE}.node.loader',
          f'{MODULE}.node.option_group']


def imports_when_disabled() -> list[str]:
    """Return our modules that nova-compute imports with the plugin off."""
    sys.modules['nova.cmd.compute'] = types.ModuleType('nova.cmd.compute')
    loader, = (point for point in metadata.distribution(NAME).entry_points
               if point.group == 'os_vif')
    loader.load().load(loader.name)
    return sorted(name for name in sys.modules
                  if name.partition('.')[0] == MODULE)


def main() -> int:
    """Print the problems and what was checked."""
    imported = imports_when_disabled()
    print('imported when disabled: ' + ', '.join(imported))
    if imported != LOADER:
        print('That is more than the loader.', file=sys.stderr)
        return 1
    # Only now, or it would have been counted.
    from nova_bdm_cleanup import VERSION

    installed = metadata.version(NAME)
    print(f'version: {installed}')
    if installed != VERSION:
        print(f'The package calls itself {VERSION}.', file=sys.stderr)
        return 1
    for point in metadata.distribution(NAME).entry_points:
        if point.group in (*GROUPS, *sys.argv[1:]):
            point.load()
            print(f'entry point {point.group} {point.name}: loads')
    return 0


if __name__ == '__main__':
    sys.exit(main())
