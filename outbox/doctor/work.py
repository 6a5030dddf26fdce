"""Whether the work gets done: daemons, lanes, receivers that are left alone, doubts, intents that nobody placed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from outbox.doctor.finding import Finding, Patient, ok, problem, warning
from outbox.inspect.unsent import WITHOUT_EFFECT, remedy, why_unsent
from outbox.inspect.words import clock, lanes_of, span
from outbox.states import Cause

SEEN_WITHIN_SECONDS: Final = 30.0
LATE_SECONDS: Final = 60.0
# A lease that has ended is taken over within a relay's poll. So long after it, and after work came due, nobody does.
UNHELD_SECONDS: Final = 15.0
# A window that closes within the hour is somebody's work before it does.
CLOSING_SECONDS: Final = 3_600.0
# An outage of minutes passes by itself; of a longer one somebody should know. What waits for a person stands until one
# comes: a quarter of an hour is what the one who is on call has for it.
LEFT_ALONE_SECONDS: Final = 300.0
WAITING_SECONDS: Final = 900.0
# The name under which relays pause a receiver (relay/loop.py): nobody but a person lets it go on.
_RELAY: Final = "relay"
SHOWN_MAX: Final = 100
COUNTED_MAX: Final = 1_000
# A look through all intents takes a second per million; the newest are looked through by default.
NEWEST: Final = 1_000_000

# What keeps attempts from leaving until somebody does something.
_STAYS: Final = frozenset(
    {
        *(Cause.SECRET_MISSING, Cause.UNSAFE_TARGET, Cause.TLS_FAILED, Cause.CONTRACT_UNREADABLE),
        Cause.RECEIVER_FAULT,
    }
)

Row = Mapping[str, Any]


async def daemons(patient: Patient) -> list[Finding]:
    """Whether a relay and a reconciler live for every receiver."""
    members = await patient.store.dicts("doctor_daemons", seen_within_seconds=SEEN_WITHIN_SECONDS, limit=COUNTED_MAX)
    return judge_daemons(members, await patient.store.dicts("doctor_receivers"))


def judge_daemons(members: Sequence[Row], receivers: Sequence[Row]) -> list[Finding]:
    """Judge the daemons that were heard of lately by the receivers that there are."""
    found = []
    for kind in ("relay", "reconciler"):
        served = [member["receivers"] for member in members if member["kind"] == kind]
        for receiver in receivers:
            if any(names is None or receiver["name"] in names for names in served):
                continue
            judge = problem if receiver["has_work"] else warning
            what = f"no {kind} that serves {receiver['name']} lives"
            found.append(judge("daemons", what, f"outbox {kind}"))
    versions = sorted({member["version"] for member in members})
    if len(versions) > 1:
        what = f"daemons of several versions live: {', '.join(versions)}"
        found.append(warning("daemons", what, "restart the older ones, when the new one has proven itself"))
    kinds = Counter(member["kind"] for member in members)
    return found or ok("daemons", f"{kinds['relay']} relays and {kinds['reconciler']} reconcilers live")


async def lanes(patient: Patient) -> list[Finding]:
    """Whether work is due in a lane that nobody holds."""
    rows = await patient.store.dicts(
        "stuck_lanes", tool=None, receiver=None, late_seconds=UNHELD_SECONDS, limit=SHOWN_MAX
    )
    found = [
        problem("lanes", f"work of {row['receiver']} is due, and nobody holds {lanes_of(row['lanes'])}", "outbox relay")
        for row in rows
    ]
    return found or ok("lanes", f"nowhere has work been due for {span(UNHELD_SECONDS)} in a lane whose lease has ended")


async def sending(patient: Patient) -> list[Finding]:
    """Whether attempts leave the relays' machines, and are not refused for our credential."""
    rows = await patient.store.dicts(
        "stuck_unsent",
        **dict.fromkeys(("tenant_id", "tool", "receiver", "cause")),
        unsent=sorted(WITHOUT_EFFECT),
        late_seconds=LATE_SECONDS,
        looked_at_max=COUNTED_MAX,
        limit=SHOWN_MAX,
    )
    return [judge_unsent(row) for row in rows] or ok(
        "sending", "what begins leaves its relay, and our credentials are accepted"
    )


def judge_unsent(row: Row) -> Finding:
    """Judge operations of one tool that do not leave for one cause: some causes pass by themselves."""
    cause = Cause(row["cause"])
    judge = problem if cause in _STAYS else warning
    what = f"{row['operations']} operations of {row['tool']} wait: {why_unsent(cause, row)}"
    return judge("sending", what, remedy(cause, row))


async def receivers(patient: Patient) -> list[Finding]:
    """Whether anything is paused, or left alone."""
    found = []
    for row in await patient.store.dicts("doctor_receivers"):
        found += judge_receiver(row)
    for row in await patient.store.dicts("doctor_pauses", limit=SHOWN_MAX):
        found.append(_pause(row["kind"], row["name"], row))
    return found or ok("pauses", "nothing is paused, and every receiver answers")


def judge_receiver(row: Row) -> list[Finding]:
    """Judge one receiver: what a relay has paused stands still until somebody acts, and so may an outage."""
    name, found = row["name"], []
    if row["paused_at"] is not None:
        found.append(_pause("receiver", name, row))
    if row["circuit_opened_at"] is not None:
        judge = problem if row["circuit_seconds"] > LEFT_ALONE_SECONDS else warning
        what = f"receiver {name} is left alone since {clock(row['circuit_opened_at'])}: {row['circuit_reason']}"
        advice = f"it is tried every minute at least; at once: outbox resume receiver {name} --reason ..."
        found.append(judge("circuits", what, advice))
    return found


def _pause(kind: str, name: str, row: Row) -> Finding:
    judge = problem if row["paused_by"] == _RELAY else warning
    what = f"{kind} {name} is paused since {clock(row['paused_at'])} by {row['paused_by']}: {row['pause_reason']}"
    return judge("pauses", what, f"outbox resume {kind} {name} --reason ...")


async def doubts(patient: Patient) -> list[Finding]:
    """Whether anybody waits for a person or for a daemon that is late, and whether windows close."""
    (row,) = await patient.store.dicts("doctor_doubt", late_seconds=LATE_SECONDS, within_seconds=CLOSING_SECONDS)
    (against,) = await patient.store.dicts("doctor_contradictions", limit=COUNTED_MAX)
    return judge_doubts(row, against["found"])


def judge_doubts(row: Row, contradictions: int) -> list[Finding]:
    """Judge what is in doubt, and what speaks against a state."""
    found = []
    if contradictions:
        what = f"{contradictions} pieces of evidence speak against a state"
        found.append(problem("contradictions", what, "outbox stuck names them; somebody must look at the receiver"))
    if row["late"]:
        what = f"{row['late']} doubts are more than {span(LATE_SECONDS)} late"
        found.append(problem("doubts", what, "does a reconciler live, and does it reach the receivers? its log says"))
    if row["needs_person"]:
        judge = problem if row["waiting_seconds"] > WAITING_SECONDS else warning
        what = f"{row['needs_person']} operations wait for a person, the oldest for {span(row['waiting_seconds'])}"
        found.append(judge("doubts", what, "outbox stuck"))
    if row["closing"]:
        until = clock(row["closes_at"])
        what = f"{row['closing']} operations can be sent again for less than an hour, the first until {until}"
        found.append(warning("windows", what, "outbox list --state unknown; what holds them back is above"))
    return found or ok("doubts", f"{row['open']} operations are in doubt, and none is late or waits for a person")


async def placement(patient: Patient) -> list[Finding]:
    """Whether there is an intent that no trigger has placed."""
    newest = None if patient.everything else NEWEST
    rows = await patient.store.dicts("doctor_unplaced", newest=newest)
    if rows:
        which = f"operation {rows[0]['operation_id']} of tenant {rows[0]['tenant_id']}"
        what = f"{which} was never placed: nobody will attempt it"
        return [problem("placement", what, "outbox repair --dry-run; then: outbox repair")]
    which = "every intent" if newest is None else f"each of the newest {newest} intents"
    return ok("placement", f"{which} is placed")
