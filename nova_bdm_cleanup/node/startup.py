# SPDX-License-Identifier: Apache-2.0
"""Start of the plugin, once in each nova-compute."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from nova_bdm_cleanup import VERSION
from nova_bdm_cleanup.node import options, process_record, validation
from nova_bdm_cleanup.node.audit import metrics
from nova_bdm_cleanup.node.auth_section import missing_credentials
from nova_bdm_cleanup.node.cleanup.log_lines import masked, with_traceback
from nova_bdm_cleanup.node.option_group import GROUP
from nova_bdm_cleanup.node.store.database import Database, StoreError

LOG = logging.getLogger(__name__)

_OFF = 'bdm-cleanup is off; Nova is left as it is: %s'


class StartRefused(RuntimeError):
    """``required`` is set and the plugin cannot work."""


def start(conf: cfg.ConfigOpts) -> None:
    """Install the hooks, or log why not and leave Nova as it is.

    :raises StartRefused: when the plugin cannot work and ``required`` is set
    """
    try:
        _start(conf)
        return
    except StartRefused:
        raise
    except Exception as exc:
        # For example, Nova has moved an imported name.  An error here would
        # keep nova-compute from starting.
        failure = with_traceback(exc)
    LOG.error('bdm-cleanup could not be installed', exc_info=failure)
    _refuse(conf, _OFF % failure)


def _start(conf: cfg.ConfigOpts) -> None:
    options.register_opts(conf)
    problems = validation.problems(conf)
    if not problems:
        if conf[GROUP].mode == 'off':
            return
        # nova-compute imports its manager right after this.  Here it is
        # imported only when the options are known to be valid.
        from nova import version as nova_version

        from nova_bdm_cleanup.node.hooks import installation, requirements

        problems = [*missing_credentials(conf), *requirements.differences()]
    if problems:
        _refuse(conf, _OFF % '; '.join(problems))
        validation.forget_wrong_values(conf)
        return
    differences = requirements.differences_by_word(options.words_of(conf))
    for word, found in differences.items():
        if found:
            _refuse(conf, 'bdm-cleanup is not installed for "%s" of '
                          '[bdm_cleanup] triggers, and Nova is not changed '
                          'there: %s'
                    % (word, '; '.join(found)))
    words = [word for word, found in differences.items() if not found]
    _check_store(conf)
    _check_service_token(conf)
    for text in options.without_effect(conf):
        LOG.warning('bdm-cleanup: %s', text)
    active = 'bdm-cleanup %s is active in Nova %s: %s' % (
        VERSION, nova_version.version_string_with_package(),
        _options(conf, words))
    installation.install(options.triggers_of(words))
    LOG.info(active)


def _refuse(conf: cfg.ConfigOpts, text: str) -> None:
    LOG.critical(text)
    _remember(conf, text)
    try:
        required = conf[GROUP].required
    except cfg.Error:
        required = True
    if required:
        raise StartRefused(text)


def _remember(conf: cfg.ConfigOpts, problem: str) -> None:
    """Record a problem for ``nova-bdm-cleanup status`` and the metrics."""
    try:
        process = process_record.record(conf, (), problem)
        if conf[GROUP].metrics_file:
            metrics.MetricsFile(conf, process).write()
        return
    except Exception as exc:
        # Perhaps the options that this needs are wrong.
        failure = masked(exc)
    LOG.debug('bdm-cleanup: the refusal is not recorded: %s', failure)


def _check_store(conf: cfg.ConfigOpts) -> None:
    """Log if the store is unusable, so that nothing can be changed."""
    try:
        Database(conf[GROUP].store).check()
        return
    except StoreError as exc:
        failure = exc
    text = ('bdm-cleanup cannot write its journal and will therefore change '
            'nothing: %s' % masked(failure))
    LOG.error(text)
    if conf[GROUP].required:
        raise StartRefused(text) from failure


def _check_service_token(conf: cfg.ConfigOpts) -> None:
    """Log if Cinder may refuse to delete attachments."""
    if not conf.service_user.send_service_user_token:
        LOG.warning(
            'bdm-cleanup: [service_user] send_service_user_token is not true. '
            'Cinder must then ask Nova before it deletes an attachment, and '
            'refuses if it cannot (service-token-required)')


def _options(conf: cfg.ConfigOpts, words: list[str]) -> str:
    values = dict(options.effective(conf), triggers=words)
    return ' '.join('%s=%s' % (name, _word(value))
                    for name, value in values.items())


def _word(value: Any) -> str:
    if isinstance(value, list):
        return ','.join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)

