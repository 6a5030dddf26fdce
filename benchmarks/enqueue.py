"""
What an intent adds to the transaction that it is part of: by pgbench, whose share is the same for both, and by psycopg.

Both store the same bytes. A client computes the digest in its own process; here every script lets the server compute it
by the same expression, so that it cancels out. What `INSERT` and `put` add includes that the server computes it again.
"""

import contextlib
import hashlib
import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.house import TOOL, House, Place, parts
from benchmarks.measure import Result, Scale, figure, in_turns, ratio
from outbox import Intent, Outbox

# The business row, and beside it the same bytes in a plain table with a unique key, or an intent.
BUSINESS = "insert into public.orders (state) values ('paid');\n"
# An id that no other transaction of any run has.
NAME = "'o-' || :client_id || '-' || extract(epoch from clock_timestamp())"
PAYLOAD = '{"order":"17","pad":"' + "x" * 460 + '"}'  # pgbench would read :17 as a variable of its own
DIGEST = f"outbox.intent_digest('acme', n, '{TOOL}', null, null, '{PAYLOAD}')"
COLUMNS = "(tenant_id, operation_id, tool, principal_id, arguments, digest)"

PLAIN = f"""
begin;
{BUSINESS}
insert into public.plain {COLUMNS}
select 'acme', n, '{TOOL}', 'svc', '{PAYLOAD}', {DIGEST} from (select {NAME} as n) x;
commit;
"""
INTENT = f"""
begin;
{BUSINESS}
insert into outbox.intent {COLUMNS}
select 'acme', n, '{TOOL}', 'svc', '{PAYLOAD}', {DIGEST} from (select {NAME} as n) x;
commit;
"""
PUT = f"""
begin;
{BUSINESS}
select outbox.put('acme', n, '{TOOL}', 'svc', '{PAYLOAD}', {DIGEST}) from (select {NAME} as n) x;
commit;
"""


def _prepare(place: Place) -> None:
    place.apply()
    place.enqueue(20_000, payload_bytes=500)  # a table in use, with statistics
    place.admin.execute("create table public.orders (id bigint generated always as identity primary key, state text)")
    place.admin.execute(
        "create table public.plain (seq bigint generated always as identity primary key, tenant_id text, operation_id"
        " text, tool text, principal_id text, arguments text, created_at timestamptz default now(), digest bytea,"
        " unique (tenant_id, operation_id))"
    )


def _transactions_per_second(
    house: House, place: Place, script: str, *, clients: int, seconds: int, commit: str
) -> float:
    path = house.folder / "script.sql"
    path.write_text(script)
    dsn = parts(place.database.dsn)
    command = [str(house.server.binaries.path / "pgbench"), "-n", "-M", "prepared", "-f", str(path), "-c", str(clients)]
    command += ["-j", "2", "-T", str(seconds), "-h", dsn["host"], "-U", dsn["user"], dsn["dbname"]]
    environment = {"PGOPTIONS": f"-c synchronous_commit={commit}", "PATH": "/usr/bin:/bin", "PGPORT": dsn["port"]}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    found = re.search(r"tps = ([0-9.]+)", done.stdout)
    assert found, done.stdout + done.stderr
    return float(found[1])


@contextlib.contextmanager
def _one_core(place: Place) -> Iterator[None]:
    """
    Everything that is started meanwhile, on either side of a connection, runs on one core.

    Otherwise what is measured is how long this machine takes to wake an idle core: more than the statement, and another
    time in each run.
    """
    ours = os.sched_getaffinity(0)
    backend = place.value("select pg_backend_pid()")
    postmaster = int(Path(f"/proc/{backend}/stat").read_text().rsplit(")", 1)[1].split()[1])
    core = {min(ours)}
    os.sched_setaffinity(postmaster, core)
    os.sched_setaffinity(0, core)
    try:
        yield
    finally:
        os.sched_setaffinity(postmaster, ours)
        os.sched_setaffinity(0, ours)


def _compare(house: House, scale: Scale, clients: int, commit: str) -> tuple[list[float], ...]:
    seconds = max(2, scale.of(8, full=60))
    with house.database() as place:
        _prepare(place)
        with _one_core(place) if clients == 1 else contextlib.nullcontext():
            return in_turns(
                scale.rounds + 2,
                *[
                    partial(
                        _transactions_per_second, house, place, script, clients=clients, seconds=seconds, commit=commit
                    )
                    for script in (INTENT, PLAIN, PUT)
                ],
            )


Write = Callable[["psycopg.Connection[Any]", str, dict[str, str]], object]
_BOX = Outbox("acme", "svc")


def _plain_by_psycopg(connection: "psycopg.Connection[Any]", operation_id: str, arguments: dict[str, str]) -> object:
    text = json.dumps(arguments, separators=(",", ":"), sort_keys=True)
    row = ("acme", operation_id, TOOL, "svc", text, hashlib.sha256(text.encode()).digest())
    return connection.execute(f"insert into public.plain {COLUMNS} values (%s, %s, %s, %s, %s, %s)", row)


def _put_by_psycopg(connection: "psycopg.Connection[Any]", operation_id: str, arguments: dict[str, str]) -> object:
    return _BOX.put(connection, Intent(tool=TOOL, operation_id=operation_id, arguments=arguments))


def _python_per_second(place: Place, write: Write, *, seconds: float) -> float:
    arguments = {"order": "17", "pad": "x" * 460}
    with psycopg.connect(place.database.dsn, options="-c synchronous_commit=off") as connection:
        began, number, salt = time.monotonic(), 0, time.monotonic_ns()
        while time.monotonic() < began + seconds:
            connection.execute("insert into public.orders (state) values ('paid')")
            write(connection, f"o-{salt}-{number}", arguments)
            connection.commit()
            number += 1
        return number / (time.monotonic() - began)


def one_connection(house: House, scale: Scale) -> Iterator[Result]:
    """CPU: the commit does not wait for the disk."""
    intent, plain, put = _compare(house, scale, 1, "off")
    for name, ours in (("INSERT INTO outbox.intent", intent), ("outbox.put", put)):
        measure = f"{name}, 1 connection, synchronous_commit off"
        yield ratio(measure, "plain insert", "transactions/s", ours, plain, 0.7)
        added = [1e6 / a - 1e6 / b for a, b in zip(ours, plain, strict=True)]
        yield figure(f"{name}, added time", "us", added, 60.0, against="plain insert")


def many_connections(house: House, scale: Scale) -> Iterator[Result]:
    """With the disk, as services write."""
    intent, plain, put = _compare(house, scale, 16, "on")
    yield ratio(
        "INSERT INTO outbox.intent, 16 connections, fsync", "plain insert", "transactions/s", intent, plain, 0.85
    )
    yield ratio("outbox.put, 16 connections, fsync", "plain insert", "transactions/s", put, plain, 0.85)


def python(house: House, scale: Scale) -> Iterator[Result]:
    """What a service in Python sees: the intent, its canonical JSON, the driver, and the operation that comes back."""
    seconds = max(2, scale.of(8, full=60))
    with house.database() as place:
        _prepare(place)
        ways = [
            partial(_python_per_second, place, write, seconds=seconds) for write in (_put_by_psycopg, _plain_by_psycopg)
        ]
        with _one_core(place):
            put, plain = in_turns(scale.rounds + 2, *ways)
    measure = "Outbox.put by psycopg, 1 connection, synchronous_commit off"
    yield ratio(measure, "plain insert by psycopg", "transactions/s", put, plain, 0.7)
    added = [1e6 / a - 1e6 / b for a, b in zip(put, plain, strict=True)]
    yield figure("Outbox.put by psycopg, added time", "us", added, against="plain insert by psycopg")
