"""The postgres receiver through a transaction-mode pooler: nothing of it rests on a session."""

import asyncio
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from outbox.evidence import Verdict
from outbox.outcome import Ambiguous, Receipt, ReceiverFault
from outbox.receivers.postgres import PostgresReceiver
from tests.support.eventually import eventually, eventually_async
from tests.support.inbox import Inbox, attempt, inbox_on, question, receiver_config
from tests.support.postgres import Cluster, url

PGBOUNCER = os.environ.get("OUTBOX_TEST_PGBOUNCER") or shutil.which("pgbouncer")
pytestmark = pytest.mark.skipif(PGBOUNCER is None, reason="no pgbouncer is installed")

CONFIG = """
[databases]
* = {place}
[pgbouncer]
unix_socket_dir = {folder}
listen_port = 6432
auth_type = trust
auth_file = {folder}/users.txt
pool_mode = transaction
default_pool_size = 2
"""


@pytest.fixture
def inbox(postgres: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Inbox]:
    with inbox_on(postgres) as made:
        server = conninfo_to_dict(made.database.dsn)
        place = f"host={server['host']}" + (f" port={server['port']}" if "port" in server else "")
        (tmp_path / "users.txt").write_text('"inbox_receiver" ""\n"inbox_looker" ""\n')
        (tmp_path / "pgbouncer.ini").write_text(CONFIG.format(place=place, folder=tmp_path))
        prefix = ["unshare", "--user", "--map-user=1000", "--map-group=1000"] if os.geteuid() == 0 else []
        command = [*prefix, str(PGBOUNCER), str(tmp_path / "pgbouncer.ini")]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            eventually((tmp_path / ".s.PGSQL.6432").exists)
            for name, dsn in (("SHOP_DSN", made.receiver_dsn), ("SHOP_LOOK_DSN", made.looker_dsn)):
                monkeypatch.setenv(name, url(dsn, host=str(tmp_path), port="6432"))
            yield made
        finally:
            process.terminate()
            process.communicate()


async def test_many_attempts_share_few_connections_and_each_hears_its_own_answer(inbox: Inbox) -> None:
    receiver = PostgresReceiver("shop", receiver_config())
    keys = [str(uuid.uuid4()) for _ in range(40)]
    asked = [attempt(sent_key=key, arguments=f'{{"receipt":{{"external_id":"{key}"}}}}') for key in keys]
    outcomes = await asyncio.gather(*(receiver.deliver(one) for one in asked))
    assert [outcome.external_id for outcome in outcomes if isinstance(outcome, Receipt)] == keys
    sessions = "select count(*) from pg_stat_activity where usename = 'inbox_receiver' and datname = current_database()"
    assert inbox.database.value(sessions) <= 2
    assert inbox.database.value("select count(*) from shop.movement") == 40
    looks = await asyncio.gather(*(receiver.lookup(question(sent_key=key)) for key in keys))
    assert [look.external_id for look in looks] == keys
    await receiver.aclose()


async def test_errors_and_tombstones_come_through_as_they_are(inbox: Inbox) -> None:
    receiver = PostgresReceiver("shop", receiver_config())
    assert isinstance(await receiver.deliver(attempt(arguments='{"raise":"P0001"}')), ReceiverFault)
    seen = await receiver.lookup(question(attempt=1))
    assert (seen.verdict, seen.fence) == (Verdict.NOT_FOUND, 1)
    assert isinstance(await receiver.deliver(attempt(attempt=2)), Receipt)
    await receiver.aclose()


async def test_a_server_connection_that_is_killed_behind_the_pooler_proves_nothing(inbox: Inbox) -> None:
    receiver = PostgresReceiver("shop", receiver_config())
    with inbox.holding(7) as admin:
        running = asyncio.create_task(receiver.deliver(attempt(arguments='{"wait_for":7}')))
        await eventually_async(lambda: inbox.waiting() == 1)
        admin.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'inbox_receiver'"
            " and datname = current_database() and wait_event_type = 'Lock'"
        )
        assert isinstance(await running, Ambiguous)
    assert (await receiver.lookup(question(attempt=1))).fence == 1
    await receiver.aclose()
