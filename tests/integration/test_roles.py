# ruff: noqa: E501 - a matrix of statements is read line by line
"""What each role may do, as data: every column of every table and every function tried, and each role at its job.

What is not in the table below is forbidden, and tried: PostgreSQL must answer with SQLSTATE 42501.
"""

import itertools
from collections.abc import Iterator
from typing import Any, LiteralString, get_args

import psycopg
import pytest
from psycopg import sql as composing

from tests.support.postgres import Cluster, Database, Role
from tests.support.stage import BLIND, KEYED, LOOKED_UP, RELAY, Clock, Connection, Stage

ROLES: tuple[Role, ...] = get_args(Role)
ALL = "*"

Rights = dict[str, str]

# Everybody who reads anything at all: who is there, what is configured, what is open. No payload in any of them.
SURROUNDINGS = dict.fromkeys(
    ["instance", "receiver", "contract", "tool", "pause", "pending", "doubt", "lane", "member", "landing"], ALL
)
HISTORY = dict.fromkeys(["intent", "outcome", "attempt", "evidence", "approval"], ALL)
FOR_PEOPLE = dict.fromkeys(
    ["operation", "attempt_log", "contradiction", "stuck", "tombstone", "cause", "chore", "audit", "alembic_version"],
    ALL,
)

SELECT: dict[Role, Rights] = {
    "writer": {},
    "relay": SURROUNDINGS | HISTORY,
    "reconciler": SURROUNDINGS | HISTORY | {"contradiction": ALL},
    "approver": SURROUNDINGS | HISTORY | FOR_PEOPLE,
    "operator": SURROUNDINGS | HISTORY | FOR_PEOPLE,
    "viewer": SURROUNDINGS
    | {
        "contradiction": ALL,
        "stuck": ALL,
        "audit": ALL,
        "alembic_version": ALL,
        "tombstone": "tenant_id operation_id seq tool state cause external_id ended_at purged_at",
        # No arguments, no receipt, no excerpt.
        "operation": "seq tenant_id operation_id state cause tool resource ordering_key principal_id created_at not_before"
        " expires_at receiver receiver_id lane attempt fence sent_key first_sent_at resend_until unresolved_at begun_at step"
        " next_at throttled not_sent ended_at status request_id external_id decided_by evidence_id digest",
        "attempt_log": "seq attempt fence cause started_at ended_at status request_id peer",
    },
}
INSERT: dict[Role, Rights] = {
    "writer": {
        "intent": "tenant_id operation_id tool resource arguments content_type body expected_version ordering_key principal_id"
        " expires_at not_before compensates revision_of on_behalf_of traceparent digest"
    },
    "relay": {"outcome": ALL, "attempt": ALL, "landing": ALL, "doubt": ALL, "member": ALL},
    "reconciler": {"member": ALL},
    "approver": {},
    "operator": {"tool": ALL, "receiver": ALL, "contract": ALL, "lane": ALL},
    "viewer": {},
}
UPDATE: dict[Role, Rights] = {
    "writer": {},
    "relay": {
        # Not its place, its permission or its approval; nothing of an intent, an outcome or evidence.
        "pending": "state step attempt fence begun_at first_sent_at resend_until unresolved_at next_at contract_id throttled"
        " not_sent sent_key wire_digest cause",
        # Not the fence: only a takeover changes it.
        "lane": "expires_at renewed_at idle bell crowd owner member_id receiver_fence",
        "doubt": ALL,
        "member": ALL,
        "receiver": "circuit_opened_at circuit_reason circuit_retry_at circuit_probes",
    },
    "reconciler": {
        "doubt": "step next_at reads last_read_at needs_person reason claimed_by claimed_until",
        "member": ALL,
    },
    "approver": {},
    "operator": {"tool": ALL, "receiver": ALL},
    "viewer": {},
}
DELETE: dict[Role, str] = {
    "writer": "",
    "relay": "pending doubt member",
    "reconciler": "landing member",
    "approver": "",
    "operator": "tool",
    "viewer": "",
}
PURE = (
    "now lp digest_of intent_digest identity_fault option_fault payload_fault intent_is_sound pending_fault"
    " pending_is_sound is_cause ordering_hash lane_of against"
)
DAEMONS = "enter_era sweep_era timeline database_oid claim_chore chore_took expire redecide witness"
EXECUTE: dict[Role, str] = {
    "writer": f"{PURE} as_tenant put get_operation feed",
    "relay": f"{PURE} {DAEMONS} feed_xid take doubt_upsert pause_add",
    "reconciler": f"{PURE} {DAEMONS} settle settle_all allow_resend seize sweep_orphans place_of unplaced forget",
    "approver": f"{PURE} get_operation place_of approve revoke",
    "operator": f"{PURE} as_tenant get_operation put feed feed_of_all approve revoke resolve retry cancel settled place_of fence_of redecide hold_writers"
    " pause_add pause_end unblock expedite seq_at purgeable purge forget redact unplaced repair",
    "viewer": PURE,
}


@pytest.fixture(scope="module")
def shared(postgres: Cluster, template: Database) -> Iterator[Stage]:
    with postgres.database(template) as made, Stage(made) as stage:
        stage.register()
        yield stage


def catalog(stage: Stage) -> dict[str, list[str]]:
    """Every table and view of the schema, with its columns."""
    rows = stage.rows(
        """
        select c.relname::text as name, c.relkind::text as kind, array_agg(a.attname::text order by a.attnum) as columns
        from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
        where c.relnamespace = 'outbox'::regnamespace and c.relkind in ('r', 'v', 'p') group by 1, 2
        """
    )
    return {row["name"]: row["columns"] for row in rows}


def granted(rights: Rights, table: str, column: str) -> bool:
    columns = rights.get(table, "")
    return columns == ALL or column in columns.split()


def sqlstate(connection: Connection, statement: composing.Composed | bytes) -> str | None:
    """Try a statement that would change nothing, in a transaction that is rolled back."""
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(statement)
    except psycopg.Error as error:
        return error.sqlstate
    return None


SHAPES: dict[str, tuple[LiteralString, dict[Role, Rights]]] = {
    "select": ("select {column} from outbox.{table} where false", SELECT),
    "insert": ("insert into outbox.{table} ({column}) overriding system value select null where false", INSERT),
    "update": ("update outbox.{table} set {column} = null where false", UPDATE),
}


@pytest.mark.parametrize("verb", SHAPES)
@pytest.mark.parametrize("role", ROLES)
def test_a_role_touches_the_columns_that_it_needs_and_no_others(shared: Stage, role: Role, verb: str) -> None:
    shape, rights = SHAPES[verb]
    connection, wrong, tried = shared.as_role(role), [], 0
    views = {row["viewname"] for row in shared.rows("select viewname::text from pg_views where schemaname = 'outbox'")}
    for table, columns in catalog(shared).items():
        for column in columns:
            if verb != "select" and table in views:
                continue  # no view is updatable for anybody: they join
            if verb == "update" and column in {
                "receiver_id",
                "contract_id",
                "evidence_id",
                "approval_id",
                "audit_id",
                "seq",
            }:
                statement = composing.SQL("update outbox.{table} set {column} = default where false")
            else:
                statement = composing.SQL(shape)
            names = {"table": composing.Identifier(table), "column": composing.Identifier(column)}
            state = sqlstate(connection, statement.format(**names))
            tried += 1
            if (state != "42501") != granted(rights[role], table, column) or state not in {None, "42501"}:
                wrong.append((table, column, state))
    assert wrong == []
    assert tried > 200


@pytest.mark.parametrize("role", ROLES)
def test_a_role_deletes_what_it_ends_and_nothing_else_and_truncates_nothing(shared: Stage, role: Role) -> None:
    connection, tables = shared.as_role(role), catalog(shared)
    views = {row["viewname"] for row in shared.rows("select viewname::text from pg_views where schemaname = 'outbox'")}
    for table in sorted(tables.keys() - views):
        name = composing.Identifier(table)
        state = sqlstate(connection, composing.SQL("delete from outbox.{} where false").format(name))
        assert state == (None if table in DELETE[role].split() else "42501"), table
        assert sqlstate(connection, composing.SQL("truncate outbox.{}").format(name)) == "42501", table


@pytest.mark.parametrize("role", ROLES)
def test_a_role_calls_the_functions_of_its_work_and_no_others(shared: Stage, role: Role) -> None:
    functions = shared.rows(
        """
        select p.proname::text as name, (select string_agg('null::' || format_type(t, null), ', ' order by n)
          from unnest(p.proargtypes) with ordinality as x(t, n)) as arguments
        from pg_proc p where p.pronamespace = 'outbox'::regnamespace and p.prorettype <> 'trigger'::regtype
        """
    )
    wrong = []
    for function in functions:
        call = f"select outbox.{function['name']}({function['arguments'] or ''})".encode()
        forbidden = sqlstate(shared.as_role(role), call) == "42501"
        if forbidden == (function["name"] in EXECUTE[role].split()):
            wrong.append((function["name"], "forbidden" if forbidden else "allowed"))
    assert wrong == []
    assert len(functions) > 30
    assert set(EXECUTE[role].split()) <= {function["name"] for function in functions}


def test_the_public_has_no_rights_at_all(shared: Stage) -> None:
    rows = shared.rows(
        """
        select 'schema' as what from pg_namespace n, aclexplode(n.nspacl) a where n.nspname = 'outbox' and a.grantee = 0
        union all
        select c.relname from pg_class c, aclexplode(c.relacl) a where c.relnamespace = 'outbox'::regnamespace and a.grantee = 0
        union all
        select p.proname from pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
          where p.pronamespace = 'outbox'::regnamespace and a.grantee = 0
        """
    )
    assert rows == []


def test_functions_with_the_owners_rights_look_names_up_in_a_fixed_path(shared: Stage) -> None:
    rows = shared.rows(
        """
        select p.proname::text, p.proconfig from pg_proc p
        where p.pronamespace = 'outbox'::regnamespace and p.prosecdef
          and not coalesce(p.proconfig, '{}') @> array['search_path=pg_catalog, pg_temp']
        """
    )
    assert rows == []


# ------------------------------------------------------------------------------------------------- named prohibitions

FORBIDDEN: list[tuple[Role, LiteralString]] = [
    ("writer", "insert into outbox.intent (seq, tenant_id) overriding system value values (1, 'acme')"),
    ("writer", "insert into outbox.intent (tenant_id, written_by) values ('acme', 'somebody else')"),
    ("writer", "insert into outbox.intent (tenant_id, redacted_at) values ('acme', 'now')"),
    ("writer", "insert into outbox.intent (tenant_id, created_at) values ('acme', 'now')"),
    ("writer", "copy outbox.intent (seq, tenant_id) from stdin"),
    ("writer", "copy outbox.intent to stdout"),
    ("writer", "select arguments from outbox.intent"),
    ("writer", "insert into outbox.pending (receiver_id, lane, seq, state, next_at, policy_version) values (1, 0, 1, 'authorized', 'now', 1)"),
    ("writer", "select outbox.approve('acme', 'op', '', 'me', null, null)"),
    ("writer", "lock table outbox.intent"),
    ("relay", "update outbox.intent set arguments = '{}'"),
    ("relay", "update outbox.evidence set verdict = 'confirmed'"),
    ("relay", "insert into outbox.evidence (seq, kind, source) values (1, 'receipt', 'me')"),
    ("relay", "update outbox.outcome set state = 'rejected'"),
    ("relay", "delete from outbox.outcome"),
    ("relay", "update outbox.lane set fence = fence + 1"),
    ("relay", "update outbox.pending set expires_at = null"),
    ("relay", "update outbox.pending set approval_id = 1, policy_version = 2"),
    ("relay", "insert into outbox.pending (receiver_id, lane, seq, state, next_at, policy_version) values (1, 0, 1, 'authorized', 'now', 1)"),
    ("relay", "insert into outbox.approval (seq, digest, decision, policy_version, decided_by) values (1, '', 'approved', 1, 'me')"),
    ("relay", "update outbox.tool set resend_safe = true"),
    ("relay", "select outbox.settle(1, 1, 'authorized', 'proven_absent', 'me', null, null, null)"),
    ("relay", "select outbox.resolve('acme', 'op', 1, 'rejected', null, 'me', 'because')"),
    ("relay", "select outbox.cancel('acme', 'op', 'me')"),
    ("relay", "select outbox.approve('acme', 'op', '', 'me', null, null)"),
    ("reconciler", "update outbox.pending set state = 'executing'"),
    ("reconciler", "update outbox.pending set next_at = 'now'"),
    ("reconciler", "select from outbox.pending for update"),
    ("reconciler", "delete from outbox.pending"),
    ("reconciler", "insert into outbox.outcome (seq, from_state, state, attempt) values (1, 'unknown', 'succeeded', 1)"),
    ("reconciler", "insert into outbox.attempt (seq, attempt, fence, cause) values (1, 1, 1, 'ambiguous')"),
    ("reconciler", "update outbox.lane set owner = null"),
    ("reconciler", "select outbox.take(1, 0, gen_random_uuid(), gen_random_uuid(), '1 hour')"),
    ("reconciler", "update outbox.doubt set settle_at = 'now'"),
    ("reconciler", "update outbox.doubt set attempt = 1, last_exposed_at = null"),
    ("approver", "select outbox.cancel('acme', 'op', 'me')"),
    ("approver", "select outbox.resolve('acme', 'op', 1, 'rejected', null, 'me', 'because')"),
    ("approver", "insert into outbox.approval (seq, digest, decision, policy_version, decided_by) values (1, '', 'approved', 1, 'me')"),
    ("approver", "update outbox.pending set state = 'authorized'"),
    ("operator", "update outbox.pending set state = 'authorized'"),
    ("operator", "delete from outbox.pending"),
    ("operator", "delete from outbox.outcome"),
    ("operator", "update outbox.contract set body = '{}'"),
    ("operator", "insert into outbox.evidence (seq, kind, source) values (1, 'statement', 'me')"),
    ("operator", "delete from outbox.audit"),
    ("operator", "insert into outbox.approval (seq, digest, decision, policy_version, decided_by) values (1, '', 'approved', 1, 'me')"),
    ("viewer", "select arguments from outbox.operation"),
    ("viewer", "select * from outbox.operation"),
    ("viewer", "select receipt from outbox.operation"),
    ("viewer", "select excerpt from outbox.attempt_log"),
    ("viewer", "select receipt from outbox.evidence"),
    ("viewer", "select arguments from outbox.get_operation('acme', 'op')"),
    ("viewer", "select outbox.pause_add('tenant', 'acme', 'me', 'because')"),
]  # fmt: skip


@pytest.mark.parametrize(("role", "statement"), FORBIDDEN)
@pytest.mark.parametrize("pretence", ["", "purge", "redact"])
def test_a_forbidden_statement_is_refused_whatever_the_session_pretends_to_do(
    shared: Stage, role: Role, statement: LiteralString, pretence: str
) -> None:
    connection = shared.as_role(role)
    with connection.transaction(force_rollback=True):
        connection.execute("select set_config('outbox.act', %s, true)", [pretence])
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(statement)


# --------------------------------------------------------------------------------------------------- history stands


@pytest.fixture
def history(shared: Stage) -> Iterator[Connection]:
    """A row in every table that is never changed, in a transaction of the owner's that is rolled back."""
    admin = shared.admin
    admin.execute("begin")
    admin.execute(
        """
        insert into outbox.intent (tenant_id, operation_id, tool, arguments, principal_id, digest)
          values ('acme', 'kept', 'stock.set', '{}', 'svc', outbox.intent_digest('acme', 'kept', 'stock.set', null, null, '{}'));
        insert into outbox.outcome (seq, from_state, state, attempt) values (1, 'executing', 'succeeded', 1);
        insert into outbox.attempt (seq, attempt, fence, cause) values (1, 1, 1, 'ambiguous');
        insert into outbox.evidence (seq, kind, source) values (1, 'receipt', 'test');
        insert into outbox.approval (seq, digest, decision, policy_version, decided_by) values (1, '', 'approved', 1, 'eve');
        insert into outbox.tombstone (tenant_id, operation_id, seq, tool, principal_id, digest, state, ended_at)
          values ('acme', 'gone', 1, 'stock.set', 'svc', '', 'succeeded', outbox.now());
        insert into outbox.audit (act, target, acted_by) values ('pause', 'tool x', 'eve')
        """
    )
    yield admin
    admin.execute("rollback")


KEPT = ["intent", "outcome", "attempt", "evidence", "approval", "contract", "tombstone", "audit"]
CHANGES: dict[str, LiteralString] = {
    "update": "update outbox.{table} set {column} = {column}",
    "delete": "delete from outbox.{table}",
    "truncate": "truncate outbox.{table} cascade",
}


@pytest.mark.parametrize(("table", "change"), list(itertools.product(KEPT, CHANGES)))
def test_history_is_not_changed_even_by_its_owner(history: Connection, shared: Stage, table: str, change: str) -> None:
    names = {"table": composing.Identifier(table), "column": composing.Identifier(catalog(shared)[table][-1])}
    (before,) = history.execute(composing.SQL("select count(*) as n from outbox.{table}").format(**names)).fetchall()
    assert before["n"] > 0
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="history"), history.transaction():
        history.execute(composing.SQL(CHANGES[change]).format(**names))
    assert history.execute(composing.SQL("select count(*) as n from outbox.{table}").format(**names)).fetchall() == [
        before
    ]


def test_open_operations_are_not_truncated_even_by_their_owner(shared: Stage) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="history"):
        shared.rows("truncate outbox.pending")


# -------------------------------------------------------------------------------- each role does its job, and no other


def test_every_role_can_do_its_job(database: Database) -> None:
    """The prohibitions above would hold in a schema where nobody may do anything."""
    with Stage(database) as stage:
        work(stage)


def work(stage: Stage) -> None:
    clock = Clock(stage.database)
    seqs = write_and_permit(stage)
    deliver(stage, *seqs)
    settle(stage, clock, *seqs[1:3])
    see_the_ends(stage)


def write_and_permit(stage: Stage) -> tuple[int, int, int, int]:
    # The operator applies a configuration.
    stage.register(**KEYED)
    stage.register("looked.up", **LOOKED_UP)
    stage.register("blind", **BLIND)
    stage.register("approved", **BLIND | {"requires_approval": True})
    # The writer writes, by plain INSERT and by the function, and asks.
    writer = stage.as_role("writer")
    good, doubtful, absent = stage.put("good"), stage.put("doubtful"), stage.put("absent", "looked.up")
    proposed, _ = stage.put("proposed", "approved"), stage.put("cancelled")
    (answer,) = writer.execute("select * from outbox.get_operation('acme', 'good')").fetchall()
    assert (answer["seq"], answer["state"]) == (good, "authorized")
    # The operator cancels, the approver approves exactly what is there.
    stage.as_role("operator").execute("select outbox.cancel('acme', 'cancelled', 'eve')")
    (seen,) = (
        stage.as_role("approver")
        .execute("select digest, arguments from outbox.operation where seq = %s", [proposed])
        .fetchall()
    )
    stage.as_role("approver").execute(
        "select outbox.approve('acme', 'proposed', %s, 'eve', null, 'fine')", [seen["digest"]]
    )
    return good, doubtful, absent, proposed


def deliver(stage: Stage, good: int, doubtful: int, absent: int, proposed: int) -> None:
    # The relay takes, begins, records, renews and gives back.
    holder = stage.holder().taken()
    begun: list[dict[str, Any]] = holder.begin() or []
    assert [row["seq"] for row in begun] == [good, doubtful, absent, proposed]
    assert holder.renew()
    assert holder.end((good, 1)) == [good]
    for seq in (doubtful, absent):
        assert holder.record_unknown(seq, 1) == [seq]
    assert holder.withdraw(proposed, 1, delays=0.0) == [proposed]
    assert holder.begin()
    holder.give_back()
    assert stage.holder().take() == 1


def settle(stage: Stage, clock: Clock, doubtful: int, absent: int) -> None:
    # The reconciler looks, records what it saw, and settles.
    reconciler = stage.as_role("reconciler")
    claimed = reconciler.execute(
        "update outbox.doubt set claimed_by = gen_random_uuid(), reads = reads + 1 returning seq"
    ).fetchall()
    assert len(claimed) == 3
    evidence = stage.witness(doubtful, "lookup", role="reconciler", verdict="confirmed", attempt=1)
    (applied,) = reconciler.execute(
        "select outbox.settle(%s, 1, 'succeeded', 'confirmed', 'reconciler', %s, 'r-1', null) as answer",
        [doubtful, evidence],
    ).fetchall()
    assert applied["answer"] == "applied"
    assert stage.settle(absent, 1, "rejected") == "applied"
    # A person ends what nobody can look up, once no request can land any more.
    clock.advance(3601)
    resolved = (
        "select outbox.resolve('acme', 'proposed', 2, 'succeeded', 'x-7', 'eve', 'seen in their console') as answer"
    )
    assert stage.as_role("operator").execute(resolved).fetchall() == [{"answer": "applied"}]


def see_the_ends(stage: Stage) -> None:
    # The viewer sees how it ended.
    ends = (
        stage.as_role("viewer")
        .execute("select operation_id, state, cause, decided_by, external_id from outbox.operation")
        .fetchall()
    )
    assert {row["operation_id"]: (row["state"], row["cause"], row["decided_by"]) for row in ends} == {
        "good": ("succeeded", None, None),
        "doubtful": ("succeeded", "confirmed", "reconciler"),
        "absent": ("rejected", "no_effect", "reconciler"),
        "proposed": ("succeeded", "person", "eve"),
        "cancelled": ("rejected", "cancelled", "eve"),
    }
    assert stage.rows("select from outbox.pending union all select from outbox.doubt") == []
    assert stage.as_role("relay").execute(RELAY["expire"], {"limit": 10}).fetchall() == [{"ended": 0}]


def test_the_daemons_settings_are_in_force_whatever_the_database_defaults_to(database: Database) -> None:
    """They are the roles' own: members of a role would not inherit them, and a pooler would not pass them on."""
    for setting in (
        "synchronous_commit = off",
        "default_transaction_isolation = serializable",
        "statement_timeout = 0",
        "enable_hashjoin = on",
        "enable_seqscan = on",
        "datestyle = 'German, DMY'",
        "intervalstyle = sql_standard",
    ):
        database.rows(f"alter database {database.name} set {setting}")
    daemons: tuple[Role, ...] = ("relay", "reconciler")
    with Stage(database) as stage:
        for role in daemons:
            (settings,) = stage.connect(role).execute(RELAY["effective_settings"]).fetchall()
            assert settings["role"] == f"outbox_{role}"
            assert settings["synchronous_commit"] == "on"
            assert settings["isolation"] == "read committed"
            assert (settings["hashjoin"], settings["mergejoin"], settings["seqscan"]) == ("off", "off", "off")
            assert 0 < settings["idle_in_transaction_ms"] <= 1000
            assert 0 < settings["lock_timeout_ms"] <= settings["statement_timeout_ms"]
            (times,) = (
                stage.connect(role).execute("select outbox.now() as now, interval '-1 day 2 hours' as span").fetchall()
            )
            assert times["now"].year > 2000
            assert times["span"].total_seconds() == -86400 + 7200
