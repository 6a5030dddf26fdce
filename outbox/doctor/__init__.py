"""
What is wrong with an outbox, and what to do about it.

Each check reads a few statements, never waits for a lock, and says what it found in words; the judgement is a pure
function of what was read. A check that cannot be made (a right is missing) says so, and the others go on.
"""

from typing import Final

from outbox import registry
from outbox.doctor import foundation, storage, work
from outbox.doctor.finding import Check, Finding, Level, Patient, warning
from outbox.errors import ConfigError, NotPermitted

# The files of statements that a store needs for all checks.
STATEMENTS: Final = ("doctor", "inspect", registry.READING)

CHECKS: Final[tuple[Check, ...]] = (
    foundation.schema,
    foundation.server,
    foundation.roles,
    foundation.clock,
    foundation.registry,
    storage.xmin,
    storage.bloat,
    storage.replication,
    work.daemons,
    work.lanes,
    work.sending,
    work.receivers,
    work.doubts,
    work.placement,
)


async def diagnose(patient: Patient) -> list[Finding]:
    """
    Make every check, one after the other.

    Raises DatabaseUnavailable, DatabaseError where there is no schema, and NotPermitted for a role that may not even
    see which schema it is: whoever watches by it must not take what was not checked for health.
    """
    found: list[Finding] = []
    for check in CHECKS:
        try:
            found += await check(patient)
        except NotPermitted as error:
            if check is foundation.schema:
                raise
            found.append(warning(check.__name__, f"not checked: {error.message}", "use the role outbox_operator"))
        except ConfigError as error:
            found.append(warning(check.__name__, f"not checked: {error.message}", "outbox contracts"))
    return found


__all__ = ["CHECKS", "STATEMENTS", "Finding", "Level", "Patient", "diagnose"]
