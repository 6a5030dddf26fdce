"""The end of the demo: what the receiver's ledger says, held against what the outbox believes."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from outbox.demo.breaking import Breakage
from outbox.demo.ledger import Effect
from outbox.states import State


@dataclass(frozen=True)
class Verdict:
    """The figures of one run. Effects, duplicates and what is lost are counted in the receiver's ledger."""

    intents: int
    effects: int
    duplicates: int
    lost: int
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
        zero = {"duplicates": self.duplicates, "lost": self.lost, "ghosts": self.ghosts, "lies": self.lies}
        found = [f"{count} {name}" for name, count in zero.items() if count]
        found += [f"no planned {name} landed" for name in ("kills", "pauses") if not getattr(self, name)]
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
    """Print the table."""
    table = Table(title="Read from the receiver's ledger, and held against the outbox", title_justify="left")
    table.add_column("what")
    table.add_column("count", justify="right")
    table.add_column("how", style="dim")
    faults = ", ".join(f"{count} {name}" for name, count in verdict.faults.items())
    for what, count, how in (
        ("intents committed", verdict.intents, "each with the service's own row, in one transaction"),
        ("effects", verdict.effects, f"while the receiver did this on purpose: {faults}"),
        ("duplicates", verdict.duplicates, "effects of one operation beyond the first"),
        ("lost", verdict.lost, "neither an end nor a visible doubt, or succeeded without an effect"),
        ("effects without an intent", verdict.ghosts, "the service rolled back one transaction in fifty"),
        ("states that the ledger contradicts", verdict.lies, "rejected, yet it happened; or a second effect"),
        ("rejected", verdict.rejected, "no effect, and none will be tried"),
        ("unknown, resolved by lookup", verdict.resolved_by_lookup, "the receiver was asked, by operation identity"),
        ("unknown, resolved by resend", verdict.resolved_by_resend, "the same key, inside its window"),
        ("unknown, only a person can decide", verdict.needs_person, "; ".join(verdict.persons_why) or "none"),
        ("relays killed", verdict.kills, f"SIGKILL with {done.killed_in_flight} requests in flight"),
        ("relays stopped past their lease", verdict.pauses, f"SIGSTOP with {done.paused_in_flight} requests in flight"),
        ("writes refused by a fence", verdict.fenced_writes, "of relays that no longer held the lane"),
        ("late answers kept", verdict.late_answers, "as evidence, never as a state"),
    ):
        table.add_row(what, str(count), how)
    console.print(table)
    if failures := verdict.failures():
        console.print(f"[bold red]FAILED[/]: {'; '.join(failures)}")
    else:
        console.print(f"[bold green]Nothing happened twice and nothing was lost[/], in {verdict.seconds:.0f} s.")
