"""Row-level security by tenant: a transaction reaches the rows of the tenant that it acts for, and no others."""

from collections.abc import AsyncIterator, Iterator
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql as composing

from outbox import Intent, Outbox, State, migrate
from outbox.errors import NotPermitted
from tests.support.callers import CALLERS, Caller
from tests.support.postgres import Cluster, Database, Role
from tests.support.stage import Stage
from tests.support.tools import end, register

ACME = Outbox("acme", "checkout")
GLOBEX = Outbox("globex", "checkout")

# Nothing of a tenant is in these: who is there, what is configured, and what the schema is.
OF_NO_TENANT = {"alembic_version", "cause", "chore", "contract", "instance", "lane", "member", "receiver", "tool"}

Connection = psycopg.Connection[Any]


@pytest.fixture(scope="module")
def secured(postgres: Cluster, template: Database) -> Iterator[Database]:
    """A template with row-level security on."""
    with postgres.database(template) as made:
        assert migrate.upgrade(made.dsn, rls=True).rls
        register(made, "mail.send")
        register(made, "mail.publish", requires_approval=True)
        yield made


@pytest.fixture
def database(postgres: Cluster, secured: Database) -> Iterator[Database]:
    with postgres.database(secured) as copied:
        yield copied


@pytest.fixture(params=CALLERS)
async def caller(request: pytest.FixtureRequest, database: Database) -> AsyncIterator[Caller]:
    async with CALLERS[request.param](database.dsn_for("writer")) as opened:
        yield opened


def put(database: Database, box: Outbox, name: str, tool: str = "mail.send") -> int:
    with database.connect("writer") as connection:
        return box.put(connection, Intent(tool=tool, operation_id=name)).seq


def act_for(connection: Connection, tenant: str) -> None:
    """What a service does in its own transaction, for SQL of its own."""
    connection.execute("select set_config('outbox.tenant', %s, true)", [tenant])


PLAIN: LiteralString = """
insert into outbox.intent (tenant_id, operation_id, tool, arguments, principal_id, digest)
select tenant, id, 'mail.send', '{}', 'p', outbox.intent_digest(tenant, id, 'mail.send', null, null, '{}')
from unnest(%s::text[], %s::text[]) as given (tenant, id)
"""


# ------------------------------------------------------------------------------------------------------------ coverage


def test_every_table_that_holds_something_of_a_tenant_has_its_policies_and_binds_its_owner(database: Database) -> None:
    tables = database.rows(
        """
        select c.relname::text, c.relrowsecurity and c.relforcerowsecurity,
               (select array_agg(p.polname::text order by p.polname) from pg_policy p where p.polrelid = c.oid)
        from pg_class c where c.relnamespace = 'outbox'::regnamespace and c.relkind in ('r', 'p')
        """
    )
    covered = {name for name, bound, policies in tables if bound and policies == ["every_tenant", "own_tenant"]}
    assert {name for name, _, _ in tables} - covered == OF_NO_TENANT, (
        "a new table needs a policy in rls.sql, or a line here"
    )


def test_whoever_runs_as_the_definer_is_nobody_who_can_log_in_or_bypass(database: Database) -> None:
    facts = "rolcanlogin, rolsuper, rolbypassrls, rolcreaterole"
    query = composing.SQL("select {} from pg_roles where rolname = 'outbox_definer'").format(composing.SQL(facts))
    with database.connect() as connection:
        assert connection.execute(query).fetchall() == [(False, False, False, False)]
    strangers = database.rows(
        """
        select p.proname from pg_proc p where p.pronamespace = 'outbox'::regnamespace and p.prosecdef
          and p.proowner <> 'outbox_definer'::regrole
        union all
        select c.relname from pg_class c where c.relnamespace = 'outbox'::regnamespace and c.relkind = 'v'
          and c.relowner <> 'outbox_definer'::regrole
        """
    )
    assert strangers == []


# ------------------------------------------------------------------------------------------------------------- writers


async def test_the_library_acts_for_its_tenant_by_itself_on_every_connection(
    database: Database, caller: Caller
) -> None:
    intent = Intent(tool="mail.send", operation_id="o-1")
    first = await caller.put(ACME, intent)
    assert not (await caller.put_many(ACME, [intent, Intent(tool="mail.send")]))[0].created
    await caller.commit()
    seen = await caller.get(ACME, "o-1")
    assert seen is not None
    await caller.commit()
    end(database, first.seq)
    assert (await caller.wait(ACME, "o-1", 10)).state is State.SUCCEEDED
    await caller.commit()
    assert [ended.operation_id for ended in await caller.feed(ACME)] == ["o-1"]
    await caller.commit()
    assert await caller.feed(GLOBEX) == []
    await caller.commit()
    assert await caller.get(GLOBEX, "o-1") is None


async def test_one_transaction_is_one_tenants_and_what_it_has_said_itself_is_kept(caller: Caller) -> None:
    await caller.execute("select set_config('outbox.tenant', 'acme', true)")
    for attempt in (
        caller.put(GLOBEX, Intent(tool="mail.send")),
        caller.put_many(GLOBEX, [Intent(tool="mail.send")]),
        caller.get(GLOBEX, "o-1"),
        caller.feed(GLOBEX),
    ):
        await caller.execute("savepoint before_mistake")
        with pytest.raises(NotPermitted, match=r"acts for tenant acme, not for globex\. One transaction"):
            await attempt
        await caller.execute("rollback to savepoint before_mistake")
    assert (await caller.put(ACME, Intent(tool="mail.send"))).created


@pytest.mark.parametrize(
    "call",
    [
        "select outbox.put('acme', 'o', 'mail.send', 'p', '{}', '')",
        "select outbox.get_operation('acme', 'o')",
        "select outbox.feed('acme')",
    ],
)
def test_a_function_refuses_who_does_not_say_whom_it_acts_for(database: Database, call: LiteralString) -> None:
    with database.connect("writer") as connection, pytest.raises(psycopg.errors.InsufficientPrivilege) as refused:
        connection.execute(call)
    assert "does not say whom it acts for" in str(refused.value)
    assert "set_config" in (refused.value.diag.message_hint or "")


def test_a_plain_insert_writes_the_own_tenants_rows_or_none(database: Database) -> None:
    with database.connect("writer", autocommit=False) as connection:
        act_for(connection, "acme")
        connection.execute(PLAIN, [["acme", "acme"], ["a", "b"]])
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"), connection.transaction():
            connection.execute(PLAIN, [["acme", "globex"], ["c", "c"]])
    assert database.rows("select tenant_id, operation_id from outbox.operation order by seq") == [
        ("acme", "a"),
        ("acme", "b"),
    ]
    assert database.value("select count(*) from outbox.pending") == 2


def test_after_the_commit_nobody_is_acted_for_though_the_setting_is_an_empty_text_then(database: Database) -> None:
    with database.connect("writer") as connection:
        with connection.transaction():
            act_for(connection, "acme")
            connection.execute(PLAIN, [["acme"], ["a"]])
        assert connection.execute("select current_setting('outbox.tenant', true)").fetchone() == ("",)
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
            connection.execute(PLAIN, [["acme"], ["b"]])
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="does not say"):
            connection.execute("select outbox.feed('')")


def test_copy_is_refused_by_postgresql_and_changes_nothing(database: Database) -> None:
    with database.connect("writer", autocommit=False) as connection:
        act_for(connection, "acme")
        with (
            pytest.raises(psycopg.errors.FeatureNotSupported, match="COPY FROM not supported with row-level security"),
            connection.cursor().copy("copy outbox.intent (tenant_id, operation_id) from stdin"),
        ):
            pass
        connection.rollback()
    assert database.value("select count(*) from outbox.intent") == 0


# -------------------------------------------------------------------------------------------------------------- people


@pytest.fixture
def busy(database: Database) -> Database:
    """Something of both tenants in every table that has tenants."""
    for box in (ACME, GLOBEX):
        put(database, box, "proposed", "mail.publish")
        ended = put(database, box, "ended")
        end(database, ended)
        tenant = box.tenant_id
        gone = put(database, box, "gone")
        end(database, gone, hours_ago=48)
        assert (
            database.value("select purged from outbox.purge(0, 1000, outbox.now() - interval '24 hours', 10, 'a test')")
            == 1
        )
        database.rows("insert into outbox.attempt (seq, attempt, fence, cause) values (%s, 1, 1, 'timeout')", ended)
        database.rows(
            "insert into outbox.evidence (seq, kind, source, duplicates) values (%s, 'lookup', 'test', 1)", ended
        )
        database.rows(
            "insert into outbox.approval (seq, digest, decision, policy_version, decided_by)"
            " values (%s, '', 'approved', 1, 'eve')",
            ended,
        )
        database.rows("insert into outbox.landing select 1, 1, %s, outbox.now() + interval '1 day'", ended)
        database.rows(
            "insert into outbox.doubt (seq, receiver_id, lane, tenant_id, tool, attempt, next_at)"
            " values (%s, 1, 0, %s, 'mail.send', 1, outbox.now())",
            ended,
            tenant,
        )
        database.rows("select outbox.pause_add('tenant', %s, 'eve', 'a test')", tenant)
    return database


READABLE: dict[Role, str] = {
    "approver": "intent pending doubt outcome attempt evidence approval landing tombstone operation attempt_log"
    " contradiction stuck",
    "viewer": "pending doubt landing operation attempt_log contradiction stuck",
}


def count(connection: Connection, table: str) -> int:
    column = "seq"  # each of them has one, and a viewer may read it
    query = composing.SQL("select count({}) from outbox.{}").format(*map(composing.Identifier, (column, table)))
    (row,) = connection.execute(query).fetchall()
    return int(row[0])


@pytest.mark.parametrize(("role", "table"), [(r, t) for r, tables in READABLE.items() for t in tables.split()])
def test_people_read_the_tenant_that_they_act_for_and_nobody_without_one(
    busy: Database, role: Role, table: str
) -> None:
    with busy.connect("operator") as connection:
        all_rows = count(connection, table)
    seen = {}
    with busy.connect(role, autocommit=False) as connection:
        seen[""] = count(connection, table)
        for tenant in ("acme", "globex", "nobody"):
            act_for(connection, tenant)
            seen[tenant] = count(connection, table)
    assert seen["acme"] == seen["globex"] > 0
    assert seen["acme"] + seen["globex"] == all_rows
    assert seen[""] == seen["nobody"] == 0


def test_of_kill_switches_people_see_the_general_ones_and_their_own(busy: Database) -> None:
    busy.rows("select outbox.pause_add('tool', 'mail.send', 'eve', 'a test')")
    with busy.connect("viewer", autocommit=False) as connection:
        act_for(connection, "acme")
        paused = connection.execute("select kind, name from outbox.pause order by kind").fetchall()
        assert paused == [("tenant", "acme"), ("tool", "mail.send")]
        assert connection.execute("select count(*) from outbox.audit").fetchone() == (0,)


def test_a_condition_of_the_readers_own_sees_no_foreign_row(busy: Database) -> None:
    busy.rows(
        "create function public.peek(text) returns boolean language plpgsql cost 0.0001"
        " as $$ begin raise notice 'saw %%', $1; return true; end $$"
    )
    noticed: list[str] = []
    with busy.connect("viewer", autocommit=False) as connection:
        connection.add_notice_handler(lambda diag: noticed.append(diag.message_primary or ""))
        act_for(connection, "acme")
        connection.execute("select count(*) from outbox.operation where public.peek(tenant_id)")
    assert set(noticed) == {"saw acme"}


@pytest.mark.parametrize("role", ["writer", "approver", "viewer"])
def test_nobody_is_told_whose_another_operation_is(database: Database, role: Role) -> None:
    mine, theirs = put(database, ACME, "op"), put(database, GLOBEX, "op")
    with database.connect(role, autocommit=False) as connection:
        act_for(connection, "acme")
        rows = connection.execute("select outbox.tenant_of(s) from unnest(%s::bigint[]) s", [[mine, theirs]]).fetchall()
    assert rows == [("acme",), (None,)]


def test_an_approver_decides_for_the_tenant_that_he_acts_for(busy: Database) -> None:
    approve = (
        "select outbox.approve(tenant_id, operation_id, digest, 'eve', null, null)"
        " from (select %s as tenant_id, 'proposed' as operation_id, %s::bytea as digest) as given"
    )
    digests = {
        t: busy.value("select digest from outbox.intent where tenant_id = %s and operation_id = 'proposed'", t)
        for t in ("acme", "globex")
    }
    with busy.connect("approver", autocommit=False) as connection:
        act_for(connection, "acme")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="not for globex"), connection.transaction():
            connection.execute(approve, ["globex", digests["globex"]])
        connection.execute(approve, ["acme", digests["acme"]])
    states = busy.rows("select state from outbox.operation where operation_id = 'proposed' order by tenant_id")
    assert states == [("authorized",), ("proposed",)]


# ------------------------------------------------------------------------------------------------ daemons and operators


def test_daemons_and_operators_work_for_every_tenant(database: Database) -> None:
    with Stage(database) as stage:
        operations = [put(database, box, name) for box in (ACME, GLOBEX) for name in ("delivered", "lost", "refused")]
        holders = [stage.holder(lane).taken() for lane in range(4)]
        begun = [(holder, row) for holder in holders for row in holder.begin() or []]
        assert sorted(row["seq"] for _, row in begun) == operations
        for holder, row in begun:
            seq, attempt = row["seq"], row["attempt"]
            name = stage.value("select operation_id from outbox.intent where seq = %s", seq)
            if name == "lost":
                assert holder.record_unknown(seq, attempt) == [seq]
                stage.witness(seq, "receipt")
                assert stage.settle(seq, attempt, "succeeded") == "applied"
            else:
                assert holder.end((seq, attempt), state="rejected" if name == "refused" else "succeeded") == [seq]
        assert [stage.state(seq) for seq in operations] == ["succeeded", "succeeded", "rejected"] * 2
        operator = stage.as_role("operator")
        told = operator.execute("select count(seq) as n from outbox.feed_of_all()").fetchall()
        assert told == [{"n": 6}]
        operator.execute("select outbox.redact('acme', 'lost', 'eve', 'asked for')")
        assert stage.value("select arguments from outbox.intent where seq = %s", operations[1]) is None


def test_another_life_of_the_database_begins_as_without_it(database: Database) -> None:
    end(database, put(database, ACME, "before"))
    database.rows("update outbox.instance set timeline = 0, feed_offset = 1000000")
    with database.connect("relay") as daemon:
        daemon.execute(
            "select outbox.enter_era((select system_identifier from pg_control_system()), outbox.timeline())"
        )
    end(database, put(database, ACME, "after"))
    with database.connect("writer") as connection:
        assert [ended.operation_id for ended in ACME.feed(connection)] == ["before", "after"]
    assert database.value(
        "select min(xid::text::bigint) < 1000000 and max(xid::text::bigint) > 1000000 from outbox.outcome"
    )


# --------------------------------------------------------------------------------------------------------- on, off, on

CATALOG: LiteralString = """
select 'function', p.oid::regprocedure::text, pg_get_userbyid(p.proowner), pg_get_functiondef(p.oid), p.proacl::text
from pg_proc p where p.pronamespace = 'outbox'::regnamespace
union all
select 'relation', c.oid::regclass::text, pg_get_userbyid(c.relowner), (c.relrowsecurity, c.relforcerowsecurity)::text,
       c.relacl::text
from pg_class c where c.relnamespace = 'outbox'::regnamespace and c.relkind in ('r', 'v', 'S')
union all
select 'policy', p.polname, p.polrelid::regclass::text, pg_get_expr(p.polqual, p.polrelid), null
from pg_policy p join pg_class c on c.oid = p.polrelid where c.relnamespace = 'outbox'::regnamespace
union all
select 'schema', n.nspname, null, null, n.nspacl::text from pg_namespace n where n.nspname = 'outbox'
order by 1, 2, 3
"""


def test_off_again_leaves_nothing_behind_and_on_again_is_the_same(postgres: Cluster, template: Database) -> None:
    with postgres.database(template) as made:
        without = made.rows(CATALOG)
        assert migrate.upgrade(made.dsn, rls=True).rls
        secured = made.rows(CATALOG)
        assert secured != without
        assert migrate.upgrade(made.dsn).rls, "a migration leaves it as it is"
        assert made.rows(CATALOG) == secured
        assert not migrate.upgrade(made.dsn, rls=False).rls
        assert made.rows(CATALOG) == without
        assert not migrate.upgrade(made.dsn).rls
        assert migrate.upgrade(made.dsn, rls=True).rls
        assert made.rows(CATALOG) == secured


def test_without_it_two_tenants_may_share_a_transaction(postgres: Cluster, template: Database) -> None:
    with postgres.database(template) as made:
        register(made, "mail.send")
        with made.connect("writer", autocommit=False) as connection:
            for box in (ACME, GLOBEX):
                assert box.put(connection, Intent(tool="mail.send")).created


def test_the_text_for_other_migration_tools_can_have_it_too() -> None:
    assert "force row level security" in migrate.sql_text(rls=True)
    assert "force row level security" not in migrate.sql_text()
