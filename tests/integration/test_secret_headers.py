"""A credential of two secrets, as docs/receivers.md shows it: both are sent, and neither is anywhere else."""

import asyncio
import base64
import json
import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from outbox.receivers.http import HttpReceiver
from outbox.settings import Configuration
from tests.integration.test_docs_receivers import block
from tests.support.commands import CommandLine
from tests.support.doubts import reconciler_on
from tests.support.eventually import eventually_async
from tests.support.hostile import Connection, HostileServer
from tests.support.postgres import Database
from tests.support.relays import relay_on
from tests.support.stage import Clock, Stage

APP, API, READ_APP = "app/key+of=relay", "api/key+of=account", "app/key+of=reader"
STATUS = {"made": "201 Created", "refused": "422 Unprocessable", "forbidden": "401 Unauthorized", "lost": "500 Oops"}
TELLING = [
    *([command, name] for name in (*STATUS, "unsent") for command in ("show", "why")),
    *([command] for command in ("list", "stuck", "doctor", "report", "contracts", "audit", "feed")),
    ["apply", "--dry-run"],
]


async def repeat_what_was_sent(connection: Connection) -> None:
    """As a debug endpoint does, which also finds every key."""
    wire = await connection.request()
    lines = [line.partition(": ") for line in wire.head.decode().split("\r\n")[1:-2]]
    sent = {name: value for name, _, value in lines}
    status = STATUS[sent["Outbox-Operation"]] if wire.method == "POST" else "200 OK"
    key = wire.target.rpartition("/")[2]
    echo = [f"{name}: {value}" for name, value in sent.items() if name.startswith("X-")]
    await connection.answer(status, json.dumps({"key": key, "headers": sent}).encode(), *echo)


@pytest.fixture
def server() -> Iterator[HostileServer]:
    with HostileServer() as running:
        running.behave = repeat_what_was_sent
        yield running


@pytest.fixture
def run(database: Database, server: HostileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    for name, value in {"APP_KEY": APP, "API_KEY": API, "READ_APP_KEY": READ_APP}.items():
        monkeypatch.setenv(f"MONITOR_{name}", value)
    here = f'base_url = "{server.url}"\nallow_private_addresses = true'
    documented = block("toml", "receivers.monitor").replace('base_url = "https://api.monitor.example"', here)
    (tmp_path / "outbox.toml").write_text(f'[database]\ndsn = "{database.dsn}"\n{documented}')
    return CommandLine(tmp_path, tmp_path / "outbox.toml")


async def attempt_all(run: CommandLine, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a relay attempt one operation of each kind, the last one without its second secret."""
    config = Configuration.model_validate(tomllib.loads(run.config.read_text())).receivers["monitor"]
    receiver = HttpReceiver("monitor", config)
    async with relay_on(stage.database, receiver) as relay:

        async def attempted(name: str) -> bool:
            await relay.rounds(1)
            query = "select cause is not null or ended_at is not null from outbox.operation where operation_id = %s"
            return bool(stage.value(query, name))

        for name in (*STATUS, "unsent"):
            if name == "unsent":
                monkeypatch.delenv("MONITOR_API_KEY")
            stage.put(name, "monitor.mute")
            await eventually_async(partial(attempted, name))
    monkeypatch.setenv("MONITOR_API_KEY", API)
    await receiver.aclose()


async def look(database: Database) -> None:
    """Let a reconciler with the real receivers ask once what happened."""
    async with reconciler_on(database) as reconciler:
        await reconciler.sweep.run_once()


def test_both_secrets_are_sent_and_neither_is_stored_shown_or_logged(
    run: CommandLine,
    server: HostileServer,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    applied = run("apply")
    assert applied.code == 0, applied
    with Stage(database) as stage:
        asyncio.run(attempt_all(run, stage, monkeypatch))
        Clock(database).advance(120)
        asyncio.run(look(database))
        states = {row["operation_id"]: row["state"] for row in run.json("list")["items"]}
        stored = json.dumps(stage.everything(), default=str)
    assert states == {
        "made": "succeeded",
        "refused": "rejected",
        "forbidden": "authorized",
        "lost": "succeeded",
        "unsent": "authorized",
    }
    sent = {(wire.method, wire.header("X-App-Key"), wire.header("X-Api-Key")) for wire in server.seen.requests}
    assert sent == {("POST", APP, API), ("GET", READ_APP, API)}

    told = [run(*arguments, *flags) for arguments in TELLING for flags in ((), ("--json",))]
    assert "***" in stored, "what was sent came back"
    assert {result.code for result in told} == {0, 1}, "1 is of the doctor: something stands still"
    logged = [str(vars(record)) for record in caplog.records]
    assert any("attempt_failed" in line and "the environment variable MONITOR_API_KEY" in line for line in logged)
    everything = "\n".join([stored, *logged, applied.out, *(result.out + result.err for result in told)])
    for secret in (APP, API, READ_APP):
        assert secret not in everything
        assert secret.replace("/", "\\/") not in everything
        assert base64.b64encode(secret.encode()).decode().rstrip("=")[:-1] not in everything
    why = run("why", "unsent").out
    assert "env:MONITOR_APP_KEY and env:MONITOR_API_KEY (receivers.monitor.auth)" in why
    assert "outbox retry --receiver monitor --cause secret_missing" in why
