# SPDX-License-Identifier: Apache-2.0
"""The configuration files of the cloud, from the templates beside this."""

from __future__ import annotations

from collections.abc import Mapping
import pathlib
import string

from e2e import lab as lab_mod

TEMPLATES = pathlib.Path(__file__).parent / 'templates'

LOG_LEVELS = ','.join((
    'amqp=WARN', 'sqlalchemy=WARN', 'oslo.messaging=INFO',
    'oslo_messaging=INFO', 'urllib3.connectionpool=WARN',
    'keystonemiddleware=WARN', 'keystoneauth=WARN', 'stevedore=WARN',
    'oslo_policy=WARN', 'oslo.privsep.daemon=INFO',
))

OSLO = """\
[oslo_concurrency]
lock_path = {tmp}
[oslo_messaging_rabbit]
heartbeat_in_pthread = false
[oslo_messaging_notifications]
driver = noop"""

#: A service token is accepted and effective only with the role.
MIDDLEWARE = """\
www_authenticate_uri = http://127.0.0.1:5000/
interface = internal
service_token_roles = service
service_token_roles_required = true"""

#: The options with which a service gets its own token.
CREDENTIALS = """\
auth_type = password
auth_url = http://127.0.0.1:5000/v3
username = {user}
password = {password}
project_name = service
user_domain_name = Default
project_domain_name = Default
region_name = {region}"""

SERVICE_USERS = ('nova', 'cinder', 'placement', 'neutron', 'glance')


def database_url(service: str = 'mariadb') -> str:
    port = lab_mod.PORTS[service]
    return f'mysql+pymysql://e2e:{lab_mod.PASSWORD}@127.0.0.1:{port}'


def _values(lab: lab_mod.Lab) -> dict[str, str]:
    values = {
        'dir': str(lab.directory),
        'host': lab_mod.HOST,
        'region': lab_mod.REGION,
        'rabbit': 'rabbit://guest:guest@127.0.0.1:5672/',
        'database': database_url(),
        'cinder_database': 'cinder',
        'log_levels': LOG_LEVELS,
        'middleware': MIDDLEWARE,
        'oslo': OSLO.format(tmp=lab.tmp),
        'backend': lab.backend,
        'ceph_fsid': lab_mod.CEPH_FSID,
        'ceph_pool': lab_mod.CEPH_POOL,
        'ceph_secret': lab_mod.CEPH_SECRET,
    }
    for user in SERVICE_USERS:
        values[f'credentials_{user}'] = CREDENTIALS.format(
            user=user, password=lab_mod.PASSWORD, region=lab_mod.REGION)
    return values


def _render(template: str | pathlib.Path, values: Mapping[str, str]) -> str:
    text = (TEMPLATES / template).read_text()
    return string.Template(text).substitute(values)


def write_all(lab: lab_mod.Lab) -> None:
    values = _values(lab)
    for path in TEMPLATES.glob('etc/**/*.c*'):
        target = path.relative_to(TEMPLATES)
        _put(lab.directory / target, _render(target, values))
    for path, changes in (
            (lab.empty_cinder_conf, {'cinder_database': 'cinder_empty'}),
            (lab.replica_cinder_conf,
             {'database': database_url('mariadb-replica')})):
        _put(path, _render('etc/cinder/cinder.conf', {**values, **changes}))
    _put(lab.etc / 'rabbitmq' / 'enabled_plugins', '[].')
    # nova-api finds its paste file beside its configuration.
    paste = pathlib.Path('/etc/nova/api-paste.ini').read_text()
    _put(lab.etc / 'nova' / 'api-paste.ini', paste)
    if not lab.nova_conf.exists():
        write_nova(lab)


def write_nova(lab: lab_mod.Lab,
               extra: Mapping[str, Mapping[str, str]] = {}) -> None:
    """Write nova.conf, with the options of the scenario at its end.

    oslo.config lets a section appear twice and takes the last value, so the
    extra options override the template's.
    """
    lines = [_render('nova.conf', _values(lab))]
    for section, options in extra.items():
        lines.append(f'[{section}]')
        lines += [f'{name} = {value}' for name, value in options.items()]
    _put(lab.nova_conf, '\n'.join(lines) + '\n')


def _put(path: pathlib.Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def write_host(lab: lab_mod.Lab, home: pathlib.Path,
               host_values: Mapping[str, str]) -> None:
    """Write the configuration of one of several compute hosts."""
    values = {**_values(lab), **host_values}
    _put(home / 'nova.conf', _render('nova-host.conf', values))
    for name in ('libvirtd', 'qemu', 'virtlogd'):
        text = _render(f'etc/libvirt/{name}.conf', values)
        if name != 'virtlogd':
            text += _render(f'{name}-host.conf', values)
        _put(home / 'libvirt' / f'{name}.conf',
             text.replace('-messages', f'-{host_values["name"]}-messages'))
