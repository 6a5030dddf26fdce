"""Behind a transaction-mode pooler nothing rests on a session: each statement may run on another server connection."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from outbox.daemon import Life, Member, check_role
from outbox.outcome import Answer, NotSent, Outcome, Receipt
from outbox.receivers.scripted import ScriptedReceiver
from outbox.store import Store
from tests.support.doubts import register
from tests.support.eventually import eventually, eventually_async
from tests.support.postgres import Database, Role, url
from tests.support.relays import KEYED, put_many, registry, relay_on
from tests.support.stage import Stage

PGBOUNCER = os.environ.get("OUTBOX_TEST_PGBOUNCER") or shutil.which("pgbouncer")
# The oldest one in use (Debian 12): no prepared statements in transaction mode, no start-up options.
pytestmark = pytest.mark.skipif(PGBOUNCER is None, reason="no pgbouncer is installed")

RECEIPT = Receipt(answer=Answer(200), receipt="r")


@dataclass(frozen=True, slots=True)
class Pooled(Database):
    """The same database through the pooler, for the relay; around it, for everybody else."""

    pooler: str = ""

    def dsn_for(self, role: Role) -> str:
        direct = Database.dsn_for(self, role)
        return url(direct, host=self.pooler, port="6432") if role == "relay" else direct


@pytest.fixture
def pooled(database: Database, tmp_path: Path) -> Iterator[Pooled]:
    server = conninfo_to_dict(database.dsn)
    place = f"host={server['host']}" + (f" port={server['port']}" if "port" in server else "")
    (tmp_path / "users.txt").write_text('"outbox_relay" ""\n')
    (tmp_path / "pgbouncer.ini").write_text(
        f"""
        [databases]
        * = {place}
        [pgbouncer]
        unix_socket_dir = {tmp_path}
        listen_port = 6432
        auth_type = trust
        auth_file = {tmp_path / "users.txt"}
        pool_mode = transaction
        default_pool_size = 2
        """.replace("        ", "")
    )
    prefix = ["unshare", "--user", "--map-user=1000", "--map-group=1000"] if os.geteuid() == 0 else []
    process = subprocess.Popen(
        [*prefix, str(PGBOUNCER), str(tmp_path / "pgbouncer.ini")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        eventually((tmp_path / ".s.PGSQL.6432").exists)
        yield Pooled(database.dsn, str(tmp_path))
    finally:
        process.terminate()
        process.communicate()


async def test_a_relay_delivers_through_a_pooler_with_fewer_connections_than_it_has(pooled: Pooled) -> None:
    await register(pooled, registry(KEYED, lanes=4, concurrency=16, contract={"retry": {"first": "1ms", "max": "2ms"}}))

    def answer(attempt: Any) -> Outcome:
        return NotSent(reason="x") if attempt.attempt == 1 and attempt.seq % 3 == 0 else RECEIPT

    with Stage(pooled) as stage:
        put_many(stage, 200)
        receiver = ScriptedReceiver([answer])
        settings: dict[str, Any] = {"look_behind": "20ms", "poll": "20ms"}
        async with relay_on(pooled, receiver, pooler=True, **settings) as running, running.running():
            await eventually_async(lambda: stage.value("select count(*) from outbox.outcome") == 200)
        assert stage.value("select count(*) from pg_stat_activity where usename = 'outbox_relay'") <= 2
        assert max(receiver.effects.values()) == 1


async def test_the_settings_of_the_role_reach_a_session_behind_a_pooler(pooled: Pooled) -> None:
    life = Life()
    async with Store(pooled.dsn_for("relay"), "daemon", pooler=True, connected=life.look) as store:
        await check_role(store, Member("relay").kind, shared_role=False)
    assert life.instance_id is not None
