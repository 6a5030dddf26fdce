"""The end of the demo: what the receiver's ledger says, held against what the outbox believes."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from outbox.decide import Reason
from outbox.demo.breaking import Breakage
from outbox.demo.faults import Fault
from outbox.demo.ledger import Effect
from outbox.inspect.words import REASONS
from outbox.states import State

# What the receiver did on purpose, as a newcomer reads it behind a number.
FAULTS: Final[Mapping[Fault, str]] = MappingProxyType(
    {
        Fault.LOSE_REQUEST: "requests lost before anything happened",
        Fault.LOSE_ANSWER: "answers lost after the effect",
        Fault.LATE_EFFECT: "effects that happened after the connection was closed",
        Fault.SLOW: "slow answers",
        Fault.HANG: "answers that never came, after the effect",
        Fault.FAIL_BEFORE: "errors (500) without the effect",
        Fault.FAIL_AFTER: "errors (500) although the effect happened",
        Fault.REFUSE: "refusals (422)",
        Fault.THROTTLE: "requests to come back later (429)",
        Fault.IN_FLIGHT: "claims that an earlier request still runs (409)",
        Fault.STALE_FENCE: "claims that a newer fence was seen (409)",
    }
)
# What must not be, by its name in --json.
MUST_NOT_BE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "duplicates": "effects beyond the first of their operation",
        "lost": "operations without an end, or said to have succeeded without an effect",
        "ghosts": "effects of operations that nobody committed",
        "lies": "ends that the ledger contradicts",
    }
)


@dataclass(frozen=True)
class Verdict:
    """The figures of one run. Effects, duplicates and what is lost are counted in the receiver's ledger."""

    intents: int
    effects: int
    duplicates: int
    lost: int
    succeeded: int
    resolved_by_lookup: int
    resolved_by_resend: int
    needs_person: int
    rejected: int
    fenced_writes: int
    late_answers: int
    kills: int
    pauses: int
    seconds: float
    ghosts: int
    lies: int
    """Operations whose terminal state the ledger contradicts."""
    faults: Mapping[str, int] = field(default_factory=dict)
    persons_why: Mapping[str, int] = field(default_factory=dict)

    def failures(self) -> list[str]:
        """Why the run is no success; nothing is what is wanted."""
        found = [f"{getattr(self, name)} {words}" for name, words in MUST_NOT_BE.items() if getattr(self, name)]
        broken = {"no relay was killed in flight": self.kills, "no relay was stopped past its lease": self.pauses}
        found += [words for words, count in broken.items() if not count]
        if not (self.faults.get("lose_answer") and self.faults.get("lose_request")):
            found.append("no answer or no request was lost: the run has shown nothing")
        return found

    def as_dict(self) -> dict[str, Any]:
        """For --json."""
        return {**asdict(self), "seconds": round(self.seconds, 1), "failures": self.failures()}


def judge(
    operations: Iterable[Mapping[str, Any]],
    effects: Iterable[Effect],
    *,
    faults: Mapping[str, int],
    done: Breakage,
    witnessed: Mapping[str, int],
    seconds: float,
) -> Verdict:
    """Compare, operation by operation."""
    rows = list(operations)
    happened = Counter(effect.operation for effect in effects)
    known = {row["operation_id"] for row in rows}
    open_ends = [row for row in rows if row["state"] not in {State.SUCCEEDED, State.REJECTED}]
    # An operation that waits for a person is visible and explained, hence not lost, whatever the ledger says.
    lost = [row for row in open_ends if not row["needs_person"]]
    lost += [row for row in rows if row["state"] == State.SUCCEEDED and not happened[row["operation_id"]]]
    settled_late = [row for row in rows if row["state"] == State.SUCCEEDED and row["was_unknown"]]
    return Verdict(
        intents=len(rows),
        effects=sum(happened.values()),
        duplicates=sum(count - 1 for count in happened.values() if count > 1),
        lost=len(lost),
        succeeded=sum(1 for row in rows if row["state"] == State.SUCCEEDED),
        resolved_by_lookup=sum(1 for row in rows if row["looked_up"] and row not in open_ends),
        resolved_by_resend=sum(
            1 for row in settled_late if row["from_state"] == State.EXECUTING and not row["looked_up"]
        ),
        needs_person=sum(1 for row in open_ends if row["needs_person"]),
        rejected=sum(1 for row in rows if row["state"] == State.REJECTED),
        fenced_writes=witnessed["fenced_writes"],
        late_answers=witnessed["late_answers"],
        kills=done.kills,
        pauses=done.pauses,
        seconds=seconds,
        ghosts=sum(1 for operation in happened if operation not in known),
        lies=sum(
            1
            for row in rows
            if row["contradicted"] or (row["state"] == State.REJECTED and happened[row["operation_id"]])
        ),
        faults=dict(sorted(faults.items())),
        persons_why=dict(Counter(row["reason"] or "" for row in open_ends if row["needs_person"])),
    )


def show(verdict: Verdict, done: Breakage, console: Console) -> None:
    """Print the table: what was asked for and how it ended, what must be 0, and what was broken meanwhile."""
    table = Table(title="Read from the receiver's ledger, and held against the outbox", title_justify="left")
    table.add_column("what")
    table.add_column("count", justify="right")
    table.add_column("how", style="dim")
    for part in (_ends(verdict), _must_be_zero(verdict), _broken(verdict, done)):
        for what, count, how in part:
            table.add_row(what, str(count), how)
        table.add_section()
    console.print(table)
    if failures := verdict.failures():
        console.print(f"[bold red]FAILED[/]: {'; '.join(failures)}")
    else:
        console.print(f"[bold green]Nothing happened twice and nothing was lost[/], in {verdict.seconds:.0f} s.")


Row = tuple[str, int, str]


def _ends(verdict: Verdict) -> Iterator[Row]:
    yield "intents committed", verdict.intents, "each with the service's own row, in one transaction"
    yield "succeeded", verdict.succeeded, "there is proof of the effect"
    yield "rejected", verdict.rejected, "no effect, and none will be tried"
    why = "; ".join(f"{count} because {in_words(reason)}" for reason, count in verdict.persons_why.items())
    yield "unknown, waiting for a person", verdict.needs_person, why or "none"
    yield "effects in the ledger", verdict.effects, "of those that succeeded, and of some that wait for a person"
    yield "unknown for a while, settled by a look", verdict.resolved_by_lookup, "the receiver was asked what happened"
    yield "unknown for a while, settled by a resend", verdict.resolved_by_resend, "with the same key, inside its window"


def _must_be_zero(verdict: Verdict) -> Iterator[Row]:
    yield "duplicates", verdict.duplicates, MUST_NOT_BE["duplicates"]
    yield "lost", verdict.lost, MUST_NOT_BE["lost"]
    yield "effects without an intent", verdict.ghosts, "the service rolled back one transaction in fifty"
    yield "ends that the ledger contradicts", verdict.lies, "rejected, yet it happened; or a second effect"


def _broken(verdict: Verdict, done: Breakage) -> Iterator[Row]:
    """What was done on purpose, and what came of it."""
    faults = {FAULTS[Fault(name)]: count for name, count in verdict.faults.items()}
    how = ", ".join(f"{count} {words}" for words, count in faults.items())
    yield "faults of the receiver, on purpose", sum(faults.values()), how
    yield "relays killed", verdict.kills, f"SIGKILL with {done.killed_in_flight} requests in flight"
    yield "relays stopped past their lease", verdict.pauses, f"SIGSTOP with {done.paused_in_flight} requests in flight"
    yield "writes refused by a fence", verdict.fenced_writes, "of relays that no longer held the lane"
    yield "late answers kept", verdict.late_answers, "as evidence, never as a state"


def in_words(reason: str) -> str:
    """Why a person is asked."""
    return REASONS[Reason(reason)] if reason in set(Reason) else reason.replace("_", " ") or "nobody knows why"
