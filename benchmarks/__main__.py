"""Run measurements, print a table, and keep the figures in benchmarks/results/."""

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import calls, drain, enqueue, fairness
from benchmarks.house import House, house
from benchmarks.measure import Result, Scale, machine

RESULTS = Path(__file__).parent / "results"

Measure = Callable[[House, Scale], Iterator[Result]]

# Name, whether the disk is waited for, and what it does.
MEASURES: dict[str, tuple[bool, Measure]] = {
    "costs": (False, drain.costs),
    "enqueue": (False, enqueue.one_connection),
    "enqueue_python": (False, enqueue.python),
    "enqueue_fsync": (True, enqueue.many_connections),
    "checks": (False, drain.checks),
    "peers": (False, drain.against_peers),
    "backlog": (False, drain.backlog),
    "snapshot": (False, drain.snapshot),
    "http": (False, calls.http),
    "http_two": (False, calls.two_processes),
    "latency": (True, calls.latency),
    "reconciler": (False, calls.reconciler),
    "fairness": (False, fairness.fairness),
}


def main(argv: list[str] | None = None) -> int:
    """0, also where a goal is missed: a figure is no defect. docs/performance.md says what is known about each."""
    arguments = _parser().parse_args(argv)
    scale = Scale(factor=0.1, rounds=1) if arguments.quick else Scale(full=arguments.full, rounds=arguments.rounds)
    console = Console()
    about = machine()
    console.print(f"On {about['cores']} x {about['cpu']}, {about['memory_gb']} GB, load {about['load_before']:.1f}")
    found: list[Result] = []
    with contextlib.ExitStack() as stack:
        houses: dict[bool, House] = {}
        for name in arguments.only or MEASURES:
            durable, measure = MEASURES[name]
            if durable not in houses:
                houses[durable] = stack.enter_context(house(durable=durable))
            results = []
            for result in measure(houses[durable], scale):
                results.append(result)
                console.print(_line(result))
            _keep(name, results, about, scale)
            found += results
    console.print(_table(found))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", choices=MEASURES, help="may be given several times")
    parser.add_argument("--rounds", type=int, default=3, help="how often each thing is done, in turns (default: 3)")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="a tenth of each, once: to see that it works")
    size.add_argument("--full", action="store_true", help="backlogs of millions: hours")
    return parser


def _keep(name: str, results: list[Result], about: dict[str, object], scale: Scale) -> None:
    RESULTS.mkdir(exist_ok=True)
    document = {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": about,
        "scale": {"factor": scale.factor, "full": scale.full, "rounds": scale.rounds},
        "results": [result.document() for result in results],
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")


def _line(result: Result) -> str:
    return f"  {result.measure} / {result.against}: {_value(result)}"


def _value(result: Result) -> str:
    return f"{result.value:,.2f} {result.value_unit}"


def _table(results: list[Result]) -> Table:
    table = Table(title="Medians of runs in turns")
    for heading in ("measure", "against", "ours", "theirs", "value", "goal", ""):
        table.add_column(heading, justify="left" if heading in {"measure", "against", ""} else "right")
    for one in results:
        verdict = {None: "", True: "[green]met[/]", False: "[red]missed[/]"}[one.met]
        table.add_row(
            one.measure,
            one.against,
            f"{one.ours:,.1f} {one.unit}",
            "" if one.theirs is None else f"{one.theirs:,.1f}",
            _value(one),
            "" if one.goal is None else f"{one.sense} {one.goal:g}",
            f"{verdict} {one.note}".strip(),
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
