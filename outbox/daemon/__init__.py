"""
What relay and reconciler share: how a daemon starts, shows that it lives, keeps time, and stops.

Nothing here decides about an operation. A start refuses what the promises cannot rest on (an unknown schema, a role
that commits asynchronously); every new connection is asked which life of the database it leads to; and the database's
clock is watched, since windows are measured by it.
"""

from outbox.daemon.chores import do_chores, timed
from outbox.daemon.clock import ClockWatch
from outbox.daemon.heart import Heart
from outbox.daemon.member import Kind, Member, program_version
from outbox.daemon.start import Life, check_role, check_schema, collect_rarely, opened, weak_settings
from outbox.daemon.stop import CANCEL_AGAIN_SECONDS, CANCEL_SECONDS_MAX, Crew, Stopping, cancelled, until_answered

__all__ = [
    "CANCEL_AGAIN_SECONDS",
    "CANCEL_SECONDS_MAX",
    "ClockWatch",
    "Crew",
    "Heart",
    "Kind",
    "Life",
    "Member",
    "Stopping",
    "cancelled",
    "check_role",
    "check_schema",
    "collect_rarely",
    "do_chores",
    "opened",
    "program_version",
    "timed",
    "until_answered",
    "weak_settings",
]
