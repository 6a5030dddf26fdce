"""Every example runs as its reader would run it: against `outbox dev`, as a login that may only write intents."""

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from outbox import Intent, Outbox
from outbox.canonical import canonical_object
from outbox.demo.ledger import Ledger
from outbox.digest import intent_digest
from outbox.embedded import find_binaries
from tests.support.eventually import eventually
from tests.support.postgres import url

pytestmark = pytest.mark.xdist_group("examples")  # one `outbox dev` for all of them

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@dataclass(frozen=True, slots=True)
class Dev:
    """What `outbox dev` runs: a database, daemons, and a receiver whose ledger is the judge."""

    dsn: str
    ledger: Path

    def service_url(self, driver: str = "") -> str:
        """What a service connects with: a login that owns a schema of its own and may write intents."""
        return url(self.dsn, user="shop").replace("postgresql:", f"postgresql{driver}:", 1)

    def run(self, *command: str | Path, driver: str = "", cwd: Path = ROOT) -> str:
        environment = {**os.environ, "DATABASE_URL": self.service_url(driver), "PYTHONPATH": str(ROOT), "PSQL": psql()}
        done = subprocess.run(
            [str(word) for word in command],
            env=environment,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def rows(self, query: str) -> list[Any]:
        with psycopg.connect(self.dsn) as connection:
            return connection.execute(query.encode()).fetchall()

    def effects(self, operation_id: str) -> int:
        """How often the receiver says that it happened."""
        return sum(effect.operation == operation_id for effect in Ledger(self.ledger).effects())


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def psql() -> str:
    return str(find_binaries().path / "psql")


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    folder = tmp_path_factory.mktemp("dev")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    environment = {
        **os.environ,
        "OUTBOX_RECEIVERS__ECHO__BASE_URL": f"http://127.0.0.1:{port}",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-c", "from outbox.cli import main; raise SystemExit(main())"]
    program = subprocess.Popen(
        [*command, "--config", str(EXAMPLES / "outbox.toml"), "dev"],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
    )
    try:
        place = folder / ".outbox" / "dsn"
        eventually(lambda: place.exists() or program.poll() is not None, 45)
        assert program.poll() is None, "outbox dev has ended"
        made = Dev(place.read_text(), folder / ".outbox" / f"echo-{port}.sqlite")
        eventually(lambda: made.rows("select 1 from outbox.tool having count(*) = 2"), 45)
        eventually(lambda: listens(port), 45, claim="the receiver has opened its ledger")
        with psycopg.connect(made.dsn) as connection:
            connection.execute("create role shop login in role outbox_writer")
            connection.execute("create schema shop authorization shop")
        yield made
    finally:
        program.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(30)
        program.kill()


def test_sqlalchemy_asks_in_one_transaction_and_hears_the_end_in_another(dev: Dev) -> None:
    for number in (1, 2):
        out = dev.run(sys.executable, EXAMPLES / "sqlalchemy_service.py", driver="+psycopg")
        assert out == f"order {number}: refunded\n"
        assert dev.effects(f"order-{number}/refund") == 1


def test_django_asks_inside_of_atomic_and_hears_the_end(dev: Dev) -> None:
    project = EXAMPLES / "django_project"
    dev.run(sys.executable, "manage.py", "migrate", "--run-syncdb", cwd=project)
    assert dev.run(sys.executable, "manage.py", "refund", "1999", cwd=project) == "order 1: refunded\n"
    assert dev.effects("django-order-1") == 1


def test_an_agent_that_runs_again_repeats_no_effect(dev: Dev) -> None:
    first = dev.run(sys.executable, EXAMPLES / "agent_step.py", "run-1")
    again = dev.run(sys.executable, EXAMPLES / "agent_step.py", "run-1")
    assert again == first
    refund, same_refund, mail = (line.split()[1].rstrip(":") for line in first.splitlines())
    assert refund == same_refund
    assert all("done, receipt" in line for line in first.splitlines())
    assert (dev.effects(refund), dev.effects(mail)) == (1, 1)
    other = dev.run(sys.executable, EXAMPLES / "agent_step.py", "run-2")
    assert refund not in other


def test_psql_writes_reads_and_hears(dev: Dev) -> None:
    script = EXAMPLES / "plain_sql.sql"
    out = dev.run(psql(), "-XAt", "-v", "ON_ERROR_STOP=1", "-v", "order=17", "-f", script, dev.service_url())
    # The second put finds the operation of the first as it is by now: a relay is running.
    assert re.search(r"^f\|\{\}\|(authorized|executing|succeeded)$", out, re.MULTILINE)
    eventually(lambda: dev.effects("sql-order-17") == 1)


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
def test_node_makes_the_same_digest_by_itself(dev: Dev) -> None:
    script = EXAMPLES / "plain_sql.mjs"
    assert dev.run("node", script, "18") == "node-order-18: committed\n"
    eventually(lambda: dev.effects("node-order-18") == 1)
    ((arguments,),) = dev.rows("select arguments from outbox.intent where operation_id = 'node-order-18'")
    assert arguments == canonical_object(json.loads(arguments))
    fields = ["acme", "o", "mail.send", "Größe 😀", None, '{"a":"ä"}']
    digest = dev.run("node", script, "--digest", json.dumps(fields)).strip()
    assert bytes.fromhex(digest) == intent_digest("acme", "o", "mail.send", "Größe 😀", None, '{"a":"ä"}')


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # FastAPI looks annotations up there
    spec.loader.exec_module(module)
    return module


def test_fastapi_takes_who_asks_from_the_token_and_repeats_nothing(dev: Dev, monkeypatch: pytest.MonkeyPatch) -> None:
    from fastapi.testclient import TestClient

    monkeypatch.setenv("DATABASE_URL", dev.service_url())
    alice, bob = ({"Authorization": f"Bearer token-of-{name}"} for name in ("alice", "bob"))
    with TestClient(load(EXAMPLES / "fastapi_service.py").app) as client:
        refund = {"cents": 7, "tenant_id": "globex"}  # who a request says that he is changes nothing
        answers = [client.post("/orders/5/refund", json=refund, headers=alice) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [202, 202]
        assert client.post("/orders/5/refund", json={"cents": 8}, headers=alice).status_code == 409
        path = f"/operations/{answers[0].json()['operation_id']}"
        eventually(lambda: client.get(path, headers=alice).json()["ended"], claim="the refund ends")
        assert client.get(path, headers=alice).json()["operation_id"] == "order-5/refund"
        assert client.get(path, headers=bob).status_code == 404
        assert client.get(path, headers={"Authorization": "Bearer stolen"}).status_code == 401
    assert dev.rows("select order_id, asked_by from shop.refunds") == [(5, "alice")]
    assert dev.rows("select tenant_id, principal_id from outbox.intent where operation_id = 'order-5/refund'") == [
        ("acme", "alice")
    ]
    assert dev.effects("order-5/refund") == 1


def test_every_example_is_in_the_list_of_examples() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    missing = [path.name for path in EXAMPLES.iterdir() if path.name not in listed and path.name != "README.md"]
    assert [name for name in missing if not name.startswith((".", "__"))] == []


def test_the_login_of_the_examples_may_read_nothing(dev: Dev) -> None:
    assert conninfo_to_dict(dev.service_url())["user"] == "shop"
    with psycopg.connect(dev.service_url()) as connection:
        Outbox("acme", "p").put(connection, Intent(tool="mail.send"))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("select * from outbox.intent")
