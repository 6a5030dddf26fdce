"""The main job on real parts, while it is being broken: `outbox demo`.

Writers commit orders with their intents; relays deliver them to a receiver that loses requests and answers, refuses,
throttles and is slow; one relay is killed, another stopped past its lease; a reconciler settles what is unknown. The
receiver's own ledger is the judge.
"""

import asyncio
import json
import signal
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from outbox.daemon import cancelled
from outbox.demo.breaking import Breakage, kill_in_flight, pause_in_flight, until
from outbox.demo.faults import FaultPlan
from outbox.demo.ledger import Effect, Ledger
from outbox.demo.programs import Program
from outbox.demo.verdict import judge, show
from outbox.demo.world import World, demo_config, store, world
from outbox.errors import OutboxError
from outbox.registry import apply
from outbox.settings import load_configuration
from outbox.store import Store

WRITERS = 2
# Not all at once: what breaks later must find work that is still to be done.
WRITING_PER_SECOND = 130
WRITING_SECONDS_MIN, WRITING_SECONDS_MAX = 10.0, 15.0
# A run that does not end by itself has failed; it takes about half a minute.
RUN_SECONDS_MAX = 240.0
PROGRESS_SECONDS = 0.2
# The work is broken in the middle: after this share of the intents has come.
PAUSE_AT, KILL_AT = 0.2, 0.45

RATES = {
    "refunds": {
        "lose_answer": 0.06,
        "lose_request": 0.03,
        "late_effect": 0.02,
        "fail_after": 0.02,
        "slow": 0.15,
        "refuse": 0.02,
        "throttle": 0.03,
    },
    "payments": {
        "lose_answer": 0.06,
        "lose_request": 0.03,
        "late_effect": 0.02,
        "fail_after": 0.02,
        "slow": 0.15,
        "refuse": 0.02,
        "throttle": 0.03,
    },
    "mail": {"lose_answer": 0.02, "lose_request": 0.01, "slow": 0.10, "refuse": 0.02, "throttle": 0.03},
}


def run(*, intents: int = 2_000, as_json: bool = False, keep: bool = False) -> int:
    """Run the demo; return the exit code: 1 if anything was duplicated or lost, or if a planned fault did not land."""
    # With --json the last line of stdout is the object; what people want to see goes to stderr.
    console = Console(stderr=as_json)
    with world(keep=keep) as here:
        console.print(f"{intents} orders with their intents, on {here.origin}; everything is in {here.folder}")
        failed = asyncio.run(_run(here, console, intents=intents, as_json=as_json))
        if keep:
            # They were stopped to be counted to the end.
            _relay(here, "relay-4")
            _reconciler(here, "reconciler-2")
            _explain_how_to_look_around(here, console)
    return 1 if failed else 0


async def _run(here: World, console: Console, *, intents: int, as_json: bool) -> bool:
    began = time.monotonic()
    plan = FaultPlan.model_validate(
        {
            "seed": 1,
            "rates": RATES,
            "slow_seconds": 0.5,
            "late_seconds": 1.0,
            "write_tokens": [here.programs.environment["DEMO_WRITE_TOKEN"]],
            "read_tokens": [here.programs.environment["DEMO_READ_TOKEN"]],
        }
    )
    here.start_receiver(plan.model_dump_json())
    here.write_config(demo_config(here.receiver_port))
    async with store(here) as database:
        await database.value("create_orders")
        await database.value("allow_service")
        await apply(database, load_configuration(here.config), "outbox demo")
        done = await _work(here, database, console, intents)
        verdict = judge(
            await database.dicts("operations"),
            _effects(here.ledger),
            faults=_faults(here.ledger),
            done=done,
            witnessed=(await database.dicts("witnessed"))[0],
            seconds=time.monotonic() - began,
        )
        if await database.value("orders_without_intent"):
            raise OutboxError("an order without its intent, or an intent without its order")
    show(verdict, done, console)
    if as_json:
        sys.stdout.write(json.dumps(verdict.as_dict()) + "\n")
    return bool(verdict.failures())


async def _work(here: World, database: Store, console: Console, intents: int) -> Breakage:
    """Everything runs, two relays are broken, until nothing is left that moves by itself."""
    done = Breakage()
    relays = [_relay(here, "relay-1"), _relay(here, "relay-2", "--receiver", "refunds")]
    _reconciler(here, "reconciler-1")
    each, rest = divmod(intents, WRITERS)
    seconds = min(WRITING_SECONDS_MAX, max(WRITING_SECONDS_MIN, intents / WRITING_PER_SECOND))
    for number in range(WRITERS):
        count = each + (rest if number == WRITERS - 1 else 0)
        arguments = ["--dsn", here.dsn_as("outbox_writer"), "--first", str(number * each), "--count", str(count)]
        here.programs.start(f"writer-{number + 1}", "outbox.demo.writer", [*arguments, "--seconds", str(seconds)])
    async with asyncio.timeout(RUN_SECONDS_MAX), asyncio.TaskGroup() as tasks:
        breaking = tasks.create_task(_break(here, database, relays, intents, done))
        await _watch(here, database, console, intents, done)
        # What has not landed by now cannot land any more, and the verdict says so.
        await cancelled(breaking)
    # The last heartbeat carries the counters of every daemon.
    here.programs.stop(
        [program for program in here.programs.started if program.name.startswith("re") and program.name != "receiver"]
    )
    return done


def _relay(here: World, name: str, *arguments: str) -> Program:
    return here.programs.start(name, "relay", ["--config", str(here.config), *arguments])


def _reconciler(here: World, name: str) -> Program:
    return here.programs.start(name, "reconciler", ["--config", str(here.config)])


async def _break(here: World, database: Store, relays: list[Program], intents: int, done: Breakage) -> None:
    await until(lambda: _has(database, int(intents * PAUSE_AT)))
    await pause_in_flight(database, relays[1], done)
    await until(lambda: _has(database, int(intents * KILL_AT)))
    await kill_in_flight(database, relays[0], done)
    _relay(here, "relay-3")


async def _has(database: Store, intents: int) -> bool:
    return bool((await database.dicts("progress"))[0]["intents"] >= intents)


async def _watch(here: World, database: Store, console: Console, intents: int, done: Breakage) -> None:
    """Show how far everything is, until it is done."""
    with Live(console=console, refresh_per_second=5, transient=True) as live:
        while True:
            progress = (await database.dicts("progress"))[0]
            live.update(_progress_table(progress, intents, done, here.programs.started))
            moving = progress["authorized"] + progress["executing"] + progress["uncertain"] - progress["needs_person"]
            if progress["intents"] >= intents and moving <= 0:
                return
            for program in here.programs.started:
                if program.process.poll() not in (None, 0) and not (program.name.startswith("relay") and done.kills):
                    _complain(program)
            await asyncio.sleep(PROGRESS_SECONDS)


def _complain(program: Program) -> None:
    # A relay that is being killed right now has not been counted yet.
    if program.name == "relay-1" and program.process.returncode == -signal.SIGKILL:
        return
    raise OutboxError(f"{program.name} ended with {program.process.returncode}:\n{program.tail()}")


def _progress_table(progress: dict[str, int], intents: int, done: Breakage, programs: list[Program]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_row("committed", f"{progress['intents']}/{intents}")
    for name in ("authorized", "executing", "uncertain", "needs_person", "succeeded", "rejected"):
        table.add_row(name.replace("_", " "), str(progress[name]))
    table.add_row("broken", f"{done.pauses} relay paused past its lease, {done.kills} killed")
    table.add_row("running", " ".join(program.name for program in programs if program.running))
    return table


def _effects(path: Path) -> list[Effect]:
    with Ledger(path) as ledger:
        return list(ledger.effects())


def _faults(path: Path) -> dict[str, int]:
    with Ledger(path) as ledger:
        return dict(ledger.faults())


def _explain_how_to_look_around(here: World, console: Console) -> None:
    options = f"--config {here.config}"
    console.print("Everything still runs. Look around:", highlight=False)
    for command in (
        f"outbox {options} stuck",
        f"outbox {options} list --state rejected",
        f"outbox {options} --tenant demo why order-7",
        f"psql '{here.dsn}'",
    ):
        console.print(f"    {command}", highlight=False, soft_wrap=True)
    console.print(f"Stop it: {here.ending()}", highlight=False, soft_wrap=True)
