"""Named places where a test can kill, stop or break this very process.

`reach(name)` stands in production code at every border that matters: around each commit, around the first and the
last byte of a request, around each read that a decision rests on. It does nothing, at the price of one comparison,
unless the environment says

    OUTBOX_CRASHPOINT="name[:action[:n]]"          several may be given, separated by commas

read once, at import. `action` is `kill` (SIGKILL to this process; the default), `stop` (SIGSTOP: the process sleeps
here until somebody sends SIGCONT) or `raise` (`Reached`, an exception that nobody foresaw). It happens the `n`-th time
the point is reached (default 1), once.

Just before it acts, it says so in one line of JSON on standard error: a test whose crash did not land has shown
nothing.

What is guaranteed: `kill` and `stop` take effect before `reach` returns, so not one further instruction of the process
runs in between. What is not: nothing is flushed, closed or rolled back first. That is the point.
"""

import os
import signal
from collections.abc import Mapping
from types import MappingProxyType

ENVIRONMENT_VARIABLE = "OUTBOX_CRASHPOINT"

ACTIONS = ("kill", "stop", "raise")

WHERE: Mapping[str, str] = MappingProxyType(
    {
        # The writer, inside the caller's transaction.
        "before_put": "put: before outbox.put(...) is sent on the caller's connection",
        "after_put": "put: the row is inserted, the caller has not committed",
        # The relay, in the order of an operation's life.
        "before_take": "relay: before a lane is taken",
        "after_take": "relay: the lane is taken and the old holder's attempts are unknown, nothing is claimed",
        "before_begin": "relay: before the statement that commits an exposure",
        "after_begin": "relay: the exposure is committed, the receiver has not been called",
        "before_send": "receiver: between the last check and the first byte",
        "mid_send": "receiver: between two bytes of the request",
        "after_send": "receiver: the last byte was handed to the kernel, no answer has been read",
        "after_answer": "relay: the receiver's answer is in memory and nowhere else",
        "before_record": "relay: before the statement that records what an attempt said",
        "after_record": "relay: the result is committed, its commit has not been looked at",
        "before_late_evidence": "relay: an answer whose lease was lost, before it is kept as evidence",
        "after_late_evidence": "relay: that answer is evidence, nothing has been decided from it",
        "before_renew": "relay: before a lease is renewed",
        "after_renew": "relay: the lease is renewed, this process does not know it yet",
        "before_sweep": "relay: before the holder sweeps its own orphans",
        "after_sweep": "relay: its own orphans are converted",
        "before_release": "relay: stopping, before a lane is given back",
        "after_release": "relay: the lane is given back, the process still lives",
        "before_expire": "relay and reconciler: before permissions that lapsed are rejected",
        # The reconciler.
        "before_claim_doubt": "reconciler: before unknown operations are claimed",
        "after_claim_doubt": "reconciler: they are claimed, nothing has been read",
        "before_lookup": "reconciler: before a read is sent to the receiver",
        "after_lookup": "reconciler: the receiver's record was read, nothing is written",
        "before_settle": "reconciler: before the statement that settles an operation",
        "after_settle": "reconciler: it is settled, its commit has not been looked at",
        "before_convert": "reconciler: before orphaned attempts become unknown",
        # People and releases.
        "before_resolve": "operator: before a person's statement is written",
        "mid_apply": "apply: some tools of the file are written, others are not, nothing is committed",
        "mid_migrate": "migrate: some files of a migration have run, others have not, nothing is committed",
    }
)
"""Every point, and where it stands. Closed: `reach` of another name is refused by a test."""

POINTS: tuple[str, ...] = tuple(WHERE)


class Reached(Exception):
    """A crash point with the action `raise` was reached."""


class _Armed:
    """One point that will act, and how often it must still be passed first."""

    __slots__ = ("action", "left", "name")

    def __init__(self, name: str, action: str, count: int) -> None:
        self.name = name
        self.action = action
        self.left = count

    def pass_by(self) -> None:
        self.left -= 1
        if self.left != 0:
            return
        # Past every buffer and every logger: there is no later.
        os.write(2, f'{{"event": "crash_point", "point": "{self.name}", "action": "{self.action}"}}\n'.encode())
        if self.action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.action == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            raise Reached(self.name)


def parse(specification: str) -> dict[str, _Armed]:
    """Read the value of OUTBOX_CRASHPOINT.

    Raises ValueError for a point or an action that does not exist: a crash test whose crash is misspelt would pass
    without having tested anything.
    """
    armed: dict[str, _Armed] = {}
    for item in filter(None, (part.strip() for part in specification.split(","))):
        name, _, rest = item.partition(":")
        action, _, count = rest.partition(":")
        action = action or "kill"
        if name not in WHERE:
            raise ValueError(f"{ENVIRONMENT_VARIABLE}: there is no crash point {name!r}; there are {', '.join(POINTS)}")
        if action not in ACTIONS:
            raise ValueError(f"{ENVIRONMENT_VARIABLE}: there is no action {action!r}; there are {', '.join(ACTIONS)}")
        if count and (not count.isascii() or not count.isdigit() or int(count) < 1):
            raise ValueError(f"{ENVIRONMENT_VARIABLE}: {count!r} is not a number of times, from 1 on")
        armed[name] = _Armed(name, action, int(count or 1))
    return armed


_armed: dict[str, _Armed] = parse(os.environ.get(ENVIRONMENT_VARIABLE, ""))


def reach(name: str) -> None:
    """Act if this point is armed and has been passed often enough; otherwise nothing."""
    if not _armed:
        return
    point = _armed.get(name)
    if point is not None:
        point.pass_by()


def armed(name: str) -> bool:
    """Whether this point may still act.

    For the one point (`mid_send`) that needs another way of doing things, two writes instead of one, to exist at all.
    """
    point = _armed.get(name)
    return point is not None and point.left > 0
