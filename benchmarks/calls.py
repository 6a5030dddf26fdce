"""Where something is waited for: HTTP, an idle relay, look-ups."""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator

import aiohttp

from benchmarks.house import ROOT, TOOL, House, Place
from benchmarks.measure import Result, Scale, in_turns, ratio

CONCURRENCY = 64
CONTRACT = """
lookup = { by = "key", consistency = "strong", absence_is_proof = true, not_found = { status = [404] } }
[[tools."bench.act".contract.answers]]
status = [200, 201]
means = "receipt"
external_id = "/id"
"""
REQUESTS = """
request = { method = "POST", path = "/act", encoding = "json" }
read = { path = "/act/{sent_key}", identity = "/key", external_id = "/id" }
"""


@contextlib.contextmanager
def _server() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.server", str(port)], cwd=ROOT)
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


def _receiver(base_url: str, extra: str = "") -> str:
    return (
        f'transport = "http"\nbase_url = "{base_url}"\nlanes = 4\nconcurrency = {CONCURRENCY}\n'
        f"allow_private_addresses = true\n{extra}"
    )


def _relays(house: House, number: int, relays: int) -> float:
    with _server() as base_url, house.database() as place:
        place.apply(_receiver(base_url), REQUESTS, CONTRACT)
        place.enqueue(number)
        return place.drain(number, relays).rate


async def _loop(number: int, call: Callable[[aiohttp.ClientSession], Awaitable[None]]) -> float:
    """As many callers as the relay has slots; calls per second."""
    left = iter(range(number))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=CONCURRENCY)) as session:

        async def caller() -> None:
            for _ in left:
                await call(session)

        started = time.monotonic()
        await asyncio.gather(*(caller() for _ in range(CONCURRENCY)))
        return number / (time.monotonic() - started)


def _bare(number: int) -> float:
    """The same requests from a loop that records nothing."""
    body = json.dumps({"n": 1, "pad": "x" * 976}).encode()

    async def call(session: aiohttp.ClientSession) -> None:
        headers = {"Idempotency-Key": str(uuid.uuid4()), "Content-Type": "application/json"}
        async with session.post(f"{base_url}/act", data=body, headers=headers) as answer:
            await answer.read()

    with _server() as base_url:
        return asyncio.run(_loop(number, call))


def http(house: House, scale: Scale) -> Iterator[Result]:
    """One relay process, keys honoured, against a loop without a database."""
    number = scale.of(10_000)
    ours, theirs = in_turns(scale.rounds, lambda: _relays(house, number, 1), lambda: _bare(number))
    yield ratio("HTTP, 1 relay process", "bare aiohttp loop", "operations/s", ours, theirs, 0.6)


def two_processes(house: House, scale: Scale) -> Iterator[Result]:
    """With the receiver and the server beside them, four processes: it needs as many cores."""
    number = scale.of(10_000)
    ours, theirs = in_turns(scale.rounds, lambda: _relays(house, number, 2), lambda: _relays(house, number, 1))
    yield ratio("HTTP, 2 relay processes", "1 process", "operations/s", ours, theirs, 1.7, "where cores allow")


def latency(house: House, scale: Scale) -> Iterator[Result]:
    """From the commit of an intent to its first byte, while nothing else happens."""
    number = max(20, scale.of(300))
    with house.database() as place:
        place.apply()
        found = sorted(_first_bytes(place, number))
    for name, part, goal in (("p50", 0.5, 5.0), ("p99", 0.99, 25.0)):
        value = found[int(part * (len(found) - 1))]
        yield Result(
            measure=f"commit to first byte, idle, {name}",
            against="-",
            ours=value,
            unit="ms",
            value=value,
            value_unit="ms",
            goal=goal,
            sense="<=",
            samples={"ours": [round(one, 3) for one in found]},
        )


def _first_bytes(place: Place, number: int) -> list[float]:
    committed: dict[str, float] = {}
    with place.daemons("relay"):
        for n in range(number + 1):
            name = f"quiet-{n}"
            time.sleep(0.15 if n else 5)  # idle again; the relay has started
            place.admin.execute(
                "insert into outbox.intent (tenant_id, operation_id, tool, principal_id, arguments, digest) values"
                " ('acme', %s, %s, 'svc', '{}', outbox.intent_digest('acme', %s, %s, null, null, '{}'))",
                (name, TOOL, name, TOOL),
            )
            committed[name] = time.time()
        time.sleep(2)
    rows = place.admin.execute(
        "select i.operation_id, (o.receipt::json ->> 'at')::float8 from outbox.outcome o join outbox.intent i"
        " on i.seq = o.seq where o.state = 'succeeded' and i.operation_id <> 'quiet-0'"
    ).fetchall()
    return [1000 * (at - committed[name]) for name, at in rows]


def reconciler(house: House, scale: Scale) -> Iterator[Result]:
    """So many operations in doubt, each looked up over HTTP, against a loop that looks and records nothing."""
    number = scale.of(3_000, full=100_000)
    ours, theirs = in_turns(scale.rounds, lambda: _reconciled(house, number), lambda: _looked(number))
    yield ratio("reconciler, look-ups over HTTP", "bare look-up loop", "operations/s", ours, theirs, 0.6)


def _looked(number: int) -> float:
    async def call(session: aiohttp.ClientSession) -> None:
        async with session.get(f"{base_url}/act/{uuid.uuid4()}") as answer:
            await answer.read()

    with _server() as base_url:
        return asyncio.run(_loop(number, call))


def _reconciled(house: House, number: int) -> float:
    with _server() as base_url, house.database() as place:
        place.apply(_receiver(base_url, "shared_credential = true"), REQUESTS, CONTRACT)
        place.enqueue(number)
        # As after the loss of a relay that had begun all of them.
        place.admin.execute(
            "update outbox.pending set state = 'executing', attempt = 1, fence = 0,"
            " begun_at = now() - interval '1 hour', first_sent_at = now() - interval '1 hour',"
            " resend_until = now() + interval '1 day', contract_id = 1"
        )
        place.admin.execute(
            "do $$ declare n int; begin for n in 0..3 loop"
            " perform outbox.take(1, n, gen_random_uuid(), gen_random_uuid(), interval '1 ms'); end loop; end $$"
        )
        # So long ago that every look is due, and proves what it shows.
        place.admin.execute(
            "update outbox.doubt set next_at = now(), gave_up_at = now() - interval '5 minutes',"
            " settle_at = now() - interval '1 minute'"
        )
        place.admin.execute("vacuum analyze")
        with place.daemons("reconciler"):
            while not place.ended():
                time.sleep(0.05)
            started, done = time.monotonic(), place.ended()
            while place.ended() < number:
                time.sleep(0.1)
            return float((number - done) / (time.monotonic() - started))
