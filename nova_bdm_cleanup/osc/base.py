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
"""What the ``openstack bdm`` commands have in common."""

from __future__ import annotations

import argparse
import datetime
import logging
from typing import Any, Optional

from nova_bdm_cleanup.cli.exitcodes import ExitCode
from nova_bdm_cleanup import conf
from nova_bdm_cleanup.fleet import cinder as cinders
from nova_bdm_cleanup.fleet import http
from nova_bdm_cleanup.fleet import nova as novas
from nova_bdm_cleanup.osc import progress

LOG = logging.getLogger(__name__)


class BdmCommand:
    """Mixed into the command classes of osc-lib.

    It adds the options that bound the requests, and gives every end of a
    command its exit code, which cliff leaves at 0 or 1.
    """

    app: Any
    exit_code = ExitCode.OK

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = \
            super().get_parser(prog_name)  # type: ignore[misc]
        group = parser.add_argument_group('bounds')
        group.add_argument(
            '--rate', type=number(0), metavar='<requests>', default=20,
            help='Requests per second at most; 0: no limit (default: 20)')
        group.add_argument(
            '--max-requests', type=number(0), metavar='<requests>',
            default=20000,
            help='Requests at most; what is left is reported as incomplete; '
                 '0: no limit (default: 20000)')
        group.add_argument(
            '--grace-period', type=number(0), metavar='<seconds>',
            default=300,
            help='How long something unfinished is taken for an operation '
                 'that is under way (default: 300)')
        group.add_argument(
            '--stuck-after', type=number(0), metavar='<seconds>',
            default=3600,
            help='How long a volume may be reserved, attaching or detaching '
                 'until it is reported as stuck (default: 3600)')
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        self.progress = progress.Progress()
        try:
            failed: int = super().run(parsed_args)  # type: ignore[misc]
            return failed or self.exit_code
        except http.BadInput as exc:
            return self._complain(exc, ExitCode.BAD_INPUT)
        except (http.Refused, http.Conflict) as exc:
            return self._complain(exc, ExitCode.REFUSED)
        except http.FleetError as exc:
            return self._complain(exc, ExitCode.PARTLY)
        except BrokenPipeError:
            raise
        except Exception as exc:
            LOG.debug('where it happened:', exc_info=True)
            return self._complain('%s: %s (this is a bug; --debug shows '
                                  'where)' % (type(exc).__name__, exc),
                                  ExitCode.BROKEN)

    def _complain(self, problem: object, code: ExitCode) -> ExitCode:
        self.say(problem)
        return code

    def say(self, text: object) -> None:
        """A line that the operator must see, also with --quiet."""
        self.progress.clear()
        self.app.stderr.write('%s\n' % text)

    def note(self, text: str, *values: object) -> None:
        """A line for the operator that is not part of the output."""
        self.progress.clear()
        LOG.warning(text, *values)

    def connect(self, args: argparse.Namespace) -> None:
        """Make the readers of both APIs."""
        client = self.app.client_manager.bdm_cleanup
        self.gate = http.Gate(args.rate, args.max_requests)
        self.nova: novas.Nova = client.nova(self.gate)
        self.cinder: cinders.Cinder = client.cinder(self.gate)

    def project_of_token(self) -> Optional[str]:
        project: Optional[str] = self.app.client_manager.session \
            .get_project_id()
        return project


def policy(args: argparse.Namespace) -> conf.Policy:
    """What the rules take for young and for stuck."""
    return conf.Policy(
        grace_period=datetime.timedelta(seconds=args.grace_period),
        stuck_after=datetime.timedelta(seconds=args.stuck_after))


def now() -> datetime.datetime:
    """The time, with its time zone."""
    return datetime.datetime.now(datetime.timezone.utc)


def number(least: int) -> Any:
    """A whole number, as the type of an option."""
    def parse(text: str) -> int:
        value = int(text) if text.isdecimal() else least - 1
        if value < least:
            raise argparse.ArgumentTypeError(
                '"%s" is not a whole number from %d on' % (text, least))
        return value

    return parse
