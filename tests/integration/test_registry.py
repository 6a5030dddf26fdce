"""`outbox apply` and what daemons read of it, on a real database."""

import asyncio
import hashlib
import math
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import rfc8785

from outbox import crashpoints
from outbox.contract import Wiring
from outbox.errors import DatabaseError, NotFound, Refused, SchemaMismatch
from outbox.registry import Report, Wirings, apply, derived, read_registry
from outbox.settings import Configuration, load_configuration
from outbox.store import Store
from tests.support.eventually import eventually, eventually_async
from tests.support.postgres import Database

EXAMPLE = Path(__file__).parents[2] / "outbox.example.toml"
STOCK = "inventory.set_available"


def changed(configuration: Configuration, **tools: dict[str, Any]) -> Configuration:
    """The same file with other values in some tools (named by their last part)."""
    document = configuration.model_dump(mode="json", by_alias=True, exclude_none=True)
    document["database"], document["relay"], document["reconciler"] = {}, {}, {}
    for name, values in tools.items():
        full = next(full for full in document["tools"] if full.endswith(name))
        document["tools"][full] |= values
    return Configuration(**document)


@pytest.fixture
def example() -> Configuration:
    """The example, with both of its tools at one receiver."""
    loaded = load_configuration(EXAMPLE)
    alone = {"receivers": {"warehouse": loaded.receivers["warehouse"]}}
    return changed(loaded, send={"receiver": "warehouse"}).model_copy(update=alone)


@pytest.fixture
async def store(database: Database) -> AsyncIterator[Store]:
    async with Store(database.dsn, "apply", "registry") as opened:
        yield opened


def put(database: Database, operation_id: str, tool: str = STOCK) -> None:
    with database.connect() as connection:
        insert(connection, operation_id, tool)


def insert(connection: psycopg.Connection[Any], operation_id: str, tool: str = STOCK) -> None:
    connection.execute(
        "insert into outbox.intent (tenant_id, operation_id, tool, arguments, principal_id, digest)"
        " values ('t', %(id)s, %(tool)s, '{}', 'p', outbox.intent_digest('t', %(id)s, %(tool)s, null, null, '{}'))",
        {"id": operation_id, "tool": tool},
    )


def summary(report: Report) -> dict[str, str]:
    return {change.name: change.change for change in report.changes}


async def test_a_file_is_stored_and_read_back_as_it_was(store: Store, example: Configuration) -> None:
    report = await apply(store, example, "me")
    assert summary(report) == {"warehouse": "created", STOCK: "created", "mail.send": "created"}
    assert [change.version for change in report.changes if change.kind == "tool"] == [1, 1]
    registry = await read_registry(store)
    assert registry.receivers["warehouse"].config == example.receivers["warehouse"]
    assert registry.tools[STOCK].wiring == Wiring.of(STOCK, example.tools[STOCK], example.receivers["warehouse"])
    assert [tool.name for tool in registry.tools_of("warehouse")] == [STOCK, "mail.send"]


async def test_applying_the_same_file_again_changes_nothing(
    store: Store, database: Database, example: Configuration
) -> None:
    await apply(store, example, "me")
    before = database.rows("select xmin::text from outbox.tool union all select xmin::text from outbox.receiver")
    report = await apply(store, example, "somebody else")
    assert not report.changed
    assert set(summary(report).values()) == {"unchanged"}
    assert before == database.rows(
        "select xmin::text from outbox.tool union all select xmin::text from outbox.receiver"
    )


async def test_a_new_version_takes_effect_and_the_old_one_is_kept(store: Store, example: Configuration) -> None:
    await apply(store, example, "me")
    first = (await read_registry(store)).tools[STOCK]
    report = await apply(store, changed(example, set_available={"deadline": "4s"}), "me")
    (change,) = (change for change in report.changes if change.name == STOCK)
    assert (change.change, change.version, change.new_version) == ("changed", 2, True)
    assert change.fields == ("config.deadline",)
    registry = await read_registry(store)
    assert registry.tools[STOCK].wiring.deadline_seconds == 4
    assert (await registry.wiring(first.contract_id)).deadline_seconds == 5


async def test_an_old_version_that_comes_back_is_the_same_version(store: Store, example: Configuration) -> None:
    await apply(store, example, "me")
    await apply(store, changed(example, set_available={"deadline": "4s"}), "me")
    report = await apply(store, example, "me")
    (change,) = (change for change in report.changes if change.name == STOCK)
    assert (change.change, change.version, change.new_version) == ("changed", 1, False)


async def test_a_changed_receiver_is_a_new_version_of_its_tools(store: Store, example: Configuration) -> None:
    await apply(store, example, "me")
    moved = example.receivers["warehouse"].model_copy(update={"base_url": "https://elsewhere.example"})
    report = await apply(store, example.model_copy(update={"receivers": {"warehouse": moved}}), "me")
    assert summary(report) == {"warehouse": "changed", STOCK: "changed", "mail.send": "changed"}
    assert {change.fields for change in report.changes} == {("base_url",), ("receiver.base_url",)}


async def test_every_lane_exists_with_a_fence_of_this_era(
    store: Store, database: Database, example: Configuration
) -> None:
    database.rows("update outbox.instance set era = 3")
    await apply(store, example, "me")
    assert database.rows("select lane, fence from outbox.lane order by lane") == [(lane, 3 << 40) for lane in range(4)]


async def test_the_begin_statement_finds_the_numbers_of_the_contract(
    store: Store, database: Database, example: Configuration
) -> None:
    await apply(store, example, "me")
    (row,) = database.rows(
        "select extract(epoch from retention)::float8, key_forever, extract(epoch from margin)::float8,"
        " extract(epoch from reach)::float8, extract(epoch from deadline)::float8, extract(epoch from settle)::float8,"
        " extract(epoch from person_settle)::float8, identity_retention, repeat_safe, resend_safe from outbox.tool"
        " where name = %s",
        STOCK,
    )
    # pause_bound is the lease of 30 s; margin is twice what may be late; settle is deadline + pause + in flight.
    assert row == (86_400.0, False, 120.0, 30.0, 5.0, 65.0, 3600.0, None, False, True)


def test_a_key_for_ever_is_a_flag_and_not_an_infinite_interval(example: Configuration) -> None:
    tool = changed(example, set_available={}).tools[STOCK]
    assert tool.contract is not None
    forever = tool.model_copy(update={"contract": tool.contract.model_copy(update={"key_retention": math.inf})})
    numbers = derived(Wiring.of(STOCK, forever, example.receivers["warehouse"]))
    assert (numbers["retention"], numbers["key_forever"]) == (0.0, True)


async def test_no_secret_reaches_the_database(
    store: Store, database: Database, example: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAREHOUSE_TOKEN", "hunter2")
    monkeypatch.setenv("APP_KEY", "hunter3")
    before = example.receivers["warehouse"]
    assert before.auth is not None
    second = before.auth.model_copy(update={"secret_headers": {"X-App-Key": "env:APP_KEY"}})
    await apply(store, example, "me")
    receivers = {"warehouse": before.model_copy(update={"auth": second})}
    report = await apply(store, example.model_copy(update={"receivers": receivers}), "me")
    changed_fields = {change.name: change.fields for change in report.changes if change.change == "changed"}
    assert changed_fields == {"warehouse": ("auth.secret_headers.X-App-Key",)}, "and no contract has another version"
    assert (await read_registry(store)).receivers["warehouse"].config.auth == second
    stored = str(
        database.rows("select config::text from outbox.receiver union all select body::text from outbox.contract")
    )
    assert "env:WAREHOUSE_TOKEN" in stored
    assert "env:APP_KEY" in stored
    assert "hunter" not in stored


async def test_the_number_of_lanes_is_fixed(store: Store, database: Database, example: Configuration) -> None:
    await apply(store, example, "me")
    more = example.receivers["warehouse"].model_copy(update={"lanes": 8})
    with pytest.raises(Refused, match="has 4 lanes, the file says 8"):
        await apply(store, example.model_copy(update={"receivers": {"warehouse": more}}), "me")
    assert database.value("select count(*) from outbox.lane") == 4


async def test_a_tool_with_open_operations_is_neither_moved_nor_removed_and_all_reasons_are_named(
    store: Store, database: Database, example: Configuration
) -> None:
    await apply(store, example, "me")
    put(database, "a")
    put(database, "b")
    put(database, "c", "mail.send")
    receivers = {**example.receivers, "other": example.receivers["warehouse"]}
    moved = changed(example.model_copy(update={"receivers": receivers}), set_available={"receiver": "other"})
    moved = moved.model_copy(update={"tools": {STOCK: moved.tools[STOCK]}})
    with pytest.raises(Refused) as caught:
        await apply(store, moved, "me", prune=True)
    assert f"tool {STOCK} cannot be moved from warehouse to other: 2 of its operations" in str(caught.value)
    assert "tool mail.send cannot be removed: 1 of its operations" in str(caught.value)
    assert database.value("select count(*) from outbox.receiver") == 1, "nothing has been changed"


async def test_a_tool_without_open_operations_is_moved(
    store: Store, database: Database, example: Configuration
) -> None:
    await apply(store, example, "me")
    receivers = {**example.receivers, "other": example.receivers["warehouse"]}
    await apply(store, changed(example.model_copy(update={"receivers": receivers}), send={"receiver": "other"}), "me")
    put(database, "a", "mail.send")
    (name,) = (
        name
        for (name,) in database.rows("select r.name from outbox.pending p join outbox.receiver r using (receiver_id)")
    )
    assert name == "other"


async def test_a_writer_who_has_not_committed_is_waited_for_before_a_tool_is_moved(
    store: Store, database: Database, example: Configuration
) -> None:
    """Otherwise its operation would lie in a lane where nobody looks for it."""
    await apply(store, example, "me")
    receivers = {**example.receivers, "other": example.receivers["warehouse"]}
    moved = changed(example.model_copy(update={"receivers": receivers}), set_available={"receiver": "other"})
    with database.connect(autocommit=False) as writer:
        insert(writer, "a")

        def commit_once_apply_waits() -> None:
            eventually(
                lambda: database.value("select count(*) from pg_locks where not granted and mode = 'ShareLock'") == 1
            )
            writer.commit()

        helper = threading.Thread(target=commit_once_apply_waits)
        helper.start()
        with pytest.raises(Refused, match="1 of its operations have not ended"):
            await apply(store, moved, "me")
        helper.join()


async def test_tools_of_other_files_are_kept_unless_they_are_to_be_pruned(
    store: Store, database: Database, example: Configuration
) -> None:
    await apply(store, example, "me")
    only = example.model_copy(update={"tools": {STOCK: example.tools[STOCK]}})
    assert summary(await apply(store, only, "me"))["mail.send"] == "kept"
    assert summary(await apply(store, only, "me", prune=True))["mail.send"] == "removed"
    assert database.value("select count(*) from outbox.contract where tool = 'mail.send'") == 1, "versions are kept"


def without_mail(example: Configuration, **receiver: Any) -> Configuration:
    """The file of another service, which has the same receiver otherwise."""
    document = example.model_dump(mode="json", by_alias=True, exclude_none=True)
    document["database"], document["relay"], document["reconciler"] = {}, {}, {}
    del document["tools"]["mail.send"]
    name = example.tools["mail.send"].receiver
    document["receivers"][name] |= receiver
    return Configuration(**document)


ELSEWHERE: dict[str, Any] = {
    "base_url": "https://elsewhere.example",
    "auth": {"kind": "bearer", "secret": "env:OTHER", "id": "other"},
    "read_auth": {"kind": "bearer", "secret": "env:OTHER_READ", "id": "other-read", "account": "other"},
}


async def test_a_receiver_that_another_file_changes_takes_its_kept_tools_along(
    store: Store, example: Configuration
) -> None:
    """Or else their requests would go to the old host, with the credential for the new one."""
    await apply(store, example, "me")
    other = without_mail(example, **ELSEWHERE)
    assert summary(await apply(store, other, "me"))["mail.send"] == "changed"
    registry = await read_registry(store)
    tool = registry.tools["mail.send"]
    assert tool.version == 2
    assert tool.wiring == Wiring.of("mail.send", example.tools["mail.send"], other.receivers[tool.receiver])
    assert summary(await apply(store, other, "me"))["mail.send"] == "kept"


async def test_a_receiver_cannot_change_so_that_a_kept_tool_contradicts_it(
    store: Store, database: Database, example: Configuration
) -> None:
    await apply(store, example, "me")
    deadline = example.tools["mail.send"].deadline
    short = without_mail(example, lease=f"{deadline}s")
    short = short.model_copy(update={"tools": {}})
    with pytest.raises(Refused, match=r'tools\."mail\.send"\.deadline'):
        await apply(store, short, "me")
    assert database.value("select count(*) from outbox.contract where version > 1") == 0


async def test_what_is_applied_between_two_statements_of_a_reader_is_read_together_or_not_at_all(
    store: Store, database: Database, example: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    await apply(store, example, "me")
    read = store.dicts

    async def interrupted(statement: str, /, **parameters: Any) -> Any:
        rows = await read(statement, **parameters)
        if statement == "read_receivers":
            monkeypatch.setattr(store, "dicts", read)
            async with Store(database.dsn, "apply") as another:
                await apply(another, without_mail(example, **ELSEWHERE), "me")
        return rows

    monkeypatch.setattr(store, "dicts", interrupted)
    for registry in (await read_registry(store), await read_registry(store)):
        for tool in registry.tools.values():
            config = registry.receivers[tool.receiver].config
            assert tool.wiring == Wiring.of(tool.name, tool.wiring.config, config)
    assert "mail.send" in registry.tools


async def test_a_dry_run_says_what_would_change_and_changes_nothing(
    store: Store, database: Database, example: Configuration
) -> None:
    report = await apply(store, example, "me", dry_run=True)
    assert summary(report)[STOCK] == "created"
    assert database.value("select count(*) from outbox.receiver") == 0


async def test_a_raised_policy_version_sends_permitted_operations_back_to_be_decided(
    store: Store, database: Database, example: Configuration
) -> None:
    await apply(store, example, "me")
    put(database, "a")
    stricter = changed(example, set_available={"requires_approval": True, "policy_version": 2})
    report = await apply(store, stricter, "me")
    assert report.redecided == 1
    assert database.rows("select state::text, cause, policy_version from outbox.pending") == [
        ("proposed", "policy_changed", 2)
    ]


async def test_a_policy_cannot_change_silently_nor_go_back(store: Store, example: Configuration) -> None:
    await apply(store, changed(example, set_available={"policy_version": 2}), "me")
    with pytest.raises(Refused, match="no version ever comes back"):
        await apply(store, example, "me")
    silent = changed(example, set_available={"policy_version": 2, "requires_approval": True})
    with pytest.raises(Refused, match="raise its policy_version above 2"):
        await apply(store, silent, "me")


async def test_an_apply_that_dies_between_two_tools_has_changed_nothing(
    store: Store, database: Database, example: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crashpoints, "_armed", crashpoints.parse("mid_apply:raise"))
    with pytest.raises(crashpoints.Reached):
        await apply(store, example, "me")
    assert database.value("select count(*) from outbox.receiver") == 0


async def test_two_applies_at_once_make_one_registry(database: Database, example: Configuration) -> None:
    async with Store(database.dsn, "apply", connections_max=2) as first, Store(database.dsn, "apply") as second:
        async with first.transaction() as holder:
            await holder.value("apply_lock")
            waiting = [asyncio.create_task(apply(store, example, "me")) for store in (first, second)]

            async def both_wait() -> bool:
                count: int = database.value("select count(*) from pg_locks where locktype = 'advisory' and not granted")
                return count == 2

            await eventually_async(both_wait)
        reports = await asyncio.gather(*waiting)
    assert sorted(report.changed for report in reports) == [False, True]
    assert database.value("select count(*) from outbox.contract") == 2


async def test_an_operator_may_apply_and_a_relay_may_only_read(database: Database, example: Configuration) -> None:
    async with Store(database.dsn_for("operator"), "apply", "registry") as store:
        await apply(store, example, "me")
        receivers = {**example.receivers, "other": example.receivers["warehouse"]}
        await apply(
            store, changed(example.model_copy(update={"receivers": receivers}), send={"receiver": "other"}), "me"
        )
    async with Store(database.dsn_for("relay"), "registry") as store:
        assert STOCK in (await read_registry(store)).tools
    async with Store(database.dsn_for("reconciler"), "registry") as store:
        assert STOCK in (await read_registry(store)).tools


async def test_a_registry_that_has_not_changed_is_equal_to_itself(store: Store, example: Configuration) -> None:
    await apply(store, example, "me")
    before = await read_registry(store)
    assert before == await read_registry(store, before.wirings)
    await apply(store, changed(example, set_available={"deadline": "4s"}), "me")
    assert before != await read_registry(store, before.wirings)


async def test_a_contract_that_was_tampered_with_or_is_of_another_release_is_refused(
    store: Store, database: Database, example: Configuration
) -> None:
    await apply(store, example, "me")
    contract_id = (await read_registry(store)).tools[STOCK].contract_id
    with pytest.raises(NotFound):
        await Wirings(store).get(999)
    database.rows("alter table outbox.contract disable trigger immutable")
    database.rows("update outbox.contract set body = jsonb_set(body, '{config,deadline}', '\"1s\"')")
    with pytest.raises(DatabaseError, match="does not match its digest"):
        await Wirings(store).get(contract_id)
    database.rows("update outbox.receiver set config = config || '{\"from_the_future\": 1}'")
    with pytest.raises(SchemaMismatch, match="does not understand receiver warehouse"):
        await read_registry(store)


async def test_a_contract_from_a_newer_release_is_refused_and_not_read_in_part(
    store: Store, database: Database, example: Configuration
) -> None:
    await apply(store, example, "me")
    entry = (await read_registry(store)).tools[STOCK]
    (body,) = database.rows("select body from outbox.contract where contract_id = %s", entry.contract_id)[0]
    newer = rfc8785.dumps(body | {"from_the_future": True})
    database.rows("alter table outbox.contract disable trigger immutable")
    database.rows(
        "update outbox.contract set body = %s::jsonb, digest = %s where contract_id = %s",
        newer.decode(),
        hashlib.sha256(newer).digest(),
        entry.contract_id,
    )
    with pytest.raises(SchemaMismatch, match="from_the_future"):
        await Wirings(store).get(entry.contract_id)
