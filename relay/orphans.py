"""
The holder's own sweep: attempts that execute under its fence and that it does not know of.

They come from a begin whose commit was done and whose answer was lost. The holder never heard of them, so it never sent
them: NotSent, proven, and nobody need be asked. Only what it knew of and could not keep (`abandoned`) is unknown.
A takeover converts the rows of older fences only; without this sweep nobody would own these while the holder lives.
"""

from collections.abc import Set as AbstractSet
from typing import Any

from outbox import crashpoints
from outbox.decide.facts import Step
from outbox.observe import Meters, emit
from outbox.states import Cause
from outbox.store import Store
from relay.begun import Name
from relay.holding import Holding
from relay.position import Range
from relay.record import Columns

ROWS_MAX = 500


async def sweep(
    store: Store,
    holding: Holding,
    where: Range,
    *,
    known: AbstractSet[Name],
    abandoned: AbstractSet[int],
    meters: Meters,
) -> list[int] | None:
    """Convert the orphans of a lane in a range of it; their seqs, or None if the lease is lost.

    `known`: everything that was begun and is not recorded. Must run where no begin is under way.
    """
    crashpoints.reach("before_sweep")
    found: list[int] = []
    after = where.after
    while True:
        rows = await store.dicts(
            "own_executing", **holding.parameters, after=after, upto=where.upto, batch_max=ROWS_MAX
        )
        orphans = [row for row in rows if (row["seq"], row["attempt"]) not in known]
        for statement, part in (
            ("withdraw_attempts", [row for row in orphans if row["seq"] not in abandoned]),
            ("record_unknown", [row for row in orphans if row["seq"] in abandoned]),
        ):
            if part and not await store.dicts(statement, **holding.parameters, **_columns(statement, part)):
                return None
        found += [row["seq"] for row in orphans]
        if len(rows) < ROWS_MAX:
            break
        after = rows[-1]["seq"]
    crashpoints.reach("after_sweep")
    if found:
        meters.count("orphans", len(found), receiver=holding.receiver)
        emit("orphans_swept", receiver=holding.receiver, lane=holding.lane, fence=holding.fence, count=len(found))
    return found


def _columns(statement: str, rows: list[dict[str, Any]]) -> Columns:
    def every(value: object) -> list[Any]:
        return [value] * len(rows)

    columns: Columns = {
        "seqs": [row["seq"] for row in rows],
        "attempts": [row["attempt"] for row in rows],
        "steps": every(Step.LOOK.value),
        "delays": every(0.0),
        "patiences": every(0.0),
        "reasons": every(None),
        "no_resends": every(False),  # noqa: FBT003 - a column, not a switch
    }
    nothing = ("sent_keys", "wire_digests", "statuses", "excerpts", "request_ids", "peers")
    columns |= {name: every(None) for name in nothing}
    if statement == "withdraw_attempts":
        columns["causes"] = every(Cause.NOT_SENT.value)
        columns["not_sents"] = every(True)  # noqa: FBT003
        columns["throttleds"] = every(False)  # noqa: FBT003
        columns["firsts"] = [row["first"] for row in rows]
    else:
        columns["causes"] = every(Cause.ORPHANED.value)
        columns["accepteds"] = every(False)  # noqa: FBT003
    return columns
