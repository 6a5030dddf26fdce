"""Everything that is known about one operation, read for people."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Final

from outbox.contract import Wiring
from outbox.decide import Decision, OperationFacts, next_step
from outbox.doubt import evidence_of, facts_of
from outbox.errors import NotFound
from outbox.evidence import Evidence
from outbox.guarantee import Guarantee, guarantee
from outbox.inspect.again import Again, judged
from outbox.inspect.find import Found
from outbox.registry import Wirings
from outbox.states import Cause, State
from outbox.store import Store

Row = Mapping[str, Any]

# What one operation can have of each, as far as it is shown.
ROWS_MAX: Final = 1_000
# Operations ahead and behind are counted up to here.
COUNT_MAX: Final = 1_000
# A daemon says that it lives every few seconds; one that has been silent for so long does not count.
SEEN_WITHIN_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Daemons:
    """The daemons of one kind: how many live, and when one was last seen."""

    living: int = 0
    seen_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Dossier:
    """
    One operation with its surroundings. `row` has the columns of `read_operation` (outbox/sql/inspect.sql).

    `wiring` is the contract version that it is pinned to, else the one in force; None if its tool is gone.
    `ahead` counts operations of its lane that are due before it, `behind` those of its ordering key that wait for it.
    """

    row: Row
    attempts: Sequence[Row]
    evidence: Sequence[Evidence]
    approvals: Sequence[Row]
    obstacles: Sequence[Row]
    contradictions: Sequence[Row]
    ahead: int
    behind: int
    relays: Daemons
    reconcilers: Daemons
    wiring: Wiring | None
    version: int | None
    in_force: Wiring | None

    @property
    def state(self) -> State:
        """Its state."""
        return State(self.row["state"])

    @property
    def cause(self) -> Cause | None:
        """Why it is there."""
        return Cause(self.row["cause"]) if self.row["cause"] else None

    @property
    def now(self) -> datetime:
        """The database's clock when this was read."""
        now: datetime = self.row["now"]
        return now

    @property
    def in_doubt_since(self) -> datetime:
        """When it became unknown: the one date that `why`, `show`, `stuck` and `report` tell (`since` of its doubt)."""
        since: datetime = self.row["since"]
        return since

    @property
    def is_unknown(self) -> bool:
        """It is in doubt: `facts` and `decision` exist."""
        return self.state is State.UNKNOWN

    @cached_property
    def guarantee(self) -> Guarantee | None:
        """What its contract lets us promise."""
        return guarantee(self.wiring) if self.wiring else None

    @cached_property
    def facts(self) -> OperationFacts:
        """What decisions are made from. ValueError unless the operation is unknown."""
        return facts_of(self.row)

    @cached_property
    def again(self) -> Again | None:
        """Whether it may be sent again now; None unless it is in doubt and its contract is known."""
        if not self.is_unknown or self.wiring is None:
            return None
        return judged(self.facts, self.wiring, self.evidence, self.now, self.in_force)

    @cached_property
    def decision(self) -> Decision | None:
        """What follows from all of it, as the reconciler would decide now; None unless the operation is unknown."""
        if not self.is_unknown or self.wiring is None:
            return None
        return next_step(self.facts, self.wiring, self.evidence, self.now, in_force=self.in_force)


async def read_dossier(store: Store, found: Found) -> Dossier:
    """
    Read all of it. The store holds the statements of `outbox.inspect.STATEMENTS`.

    Several statements: what moves meanwhile may be seen half. Whoever acts on it compares the attempt. NotFound if the
    operation was purged meanwhile.
    """
    seq = found.seq
    rows = await store.dicts("read_operation", seq=seq)
    if not rows:
        raise NotFound(
            f"Operation {found.operation_id!r} of tenant {found.tenant_id} was purged just now.",
            hint=f"Its end is kept. See: outbox show {found.operation_id} --tenant {found.tenant_id}",
        )
    row = rows[0]
    place = {name: row[name] for name in ("seq", "receiver_id", "ord")}
    wirings = Wirings(store)
    pinned = row["contract_id"] or row["contract_in_force"]
    attempts, evidence, approvals, obstacles, contradictions, waiting, members = await asyncio.gather(
        store.dicts("read_attempts", seq=seq, limit=ROWS_MAX),
        store.dicts("read_all_evidence", seq=seq, limit=ROWS_MAX),
        store.dicts("read_approvals", seq=seq, limit=ROWS_MAX),
        store.dicts("read_obstacles", **place, tool=row["tool"], tenant_id=row["tenant_id"], receiver=row["receiver"]),
        store.dicts("read_contradictions", seq=seq, limit=ROWS_MAX),
        store.dicts("count_waiting", **place, lane=row["lane"], limit=COUNT_MAX),
        store.dicts("read_members", seen_within_seconds=SEEN_WITHIN_SECONDS, receiver=row["receiver"]),
    )
    versions = await store.dicts("read_contract", contract_id=pinned)
    daemons = {member["kind"]: Daemons(member["living"], member["seen_at"]) for member in members}
    return Dossier(
        row=row,
        attempts=attempts,
        evidence=[evidence_of(item) for item in evidence],
        approvals=approvals,
        obstacles=obstacles,
        contradictions=contradictions,
        ahead=waiting[0]["ahead"],
        behind=waiting[0]["behind"],
        relays=daemons.get("relay", Daemons()),
        reconcilers=daemons.get("reconciler", Daemons()),
        wiring=wirings.add(pinned, versions[0]) if versions else None,
        version=versions[0]["version"] if versions else None,
        in_force=await wirings.get(row["contract_in_force"]) if row["contract_in_force"] else None,
    )
