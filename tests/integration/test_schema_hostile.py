"""Sessions that are configured to deceive, or just unusually: the schema means the same in all of them."""

from collections.abc import Iterator

import psycopg
import pytest

from tests.support.postgres import Cluster, Database
from tests.support.stage import Connection, Stage, insert_intent

# Functions that PostgreSQL would find first if a function of ours looked names up in the caller's path.
IMPOSTORS = """
create schema impostors;
grant usage on schema impostors to public;
create function impostors.sha256(bytea) returns bytea language sql as $$ select '\\x00'::bytea $$;
create function impostors.octet_length(bytea) returns int language sql as $$ select 0 $$;
create function impostors.convert_to(text, name) returns bytea language sql as $$ select ''::bytea $$;
create function impostors.int4send(int) returns bytea language sql as $$ select ''::bytea $$;
create function impostors.hashtextextended(text, bigint) returns bigint language sql as $$ select 0::bigint $$;
create function impostors.clock_timestamp() returns timestamptz language sql as $$ select '2000-01-01'::timestamptz $$;
create function impostors.pg_notify(text, text) returns void language plpgsql as $$ begin raise 'impostor'; end $$;
create function impostors.join_bytes(bytea, bytea) returns bytea language sql as $$ select ''::bytea $$;
create operator impostors.|| (function = impostors.join_bytes, leftarg = bytea, rightarg = bytea);
create function impostors.same(text, text) returns boolean language sql as $$ select true $$;
create operator impostors.= (function = impostors.same, leftarg = text, rightarg = text);
"""


@pytest.fixture(scope="module")
def deceived(postgres: Cluster, template: Database) -> Iterator[Stage]:
    with postgres.database(template) as made, Stage(made) as stage:
        stage.register(lanes=4)
        stage.register("other")
        stage.admin.execute(IMPOSTORS.encode())
        yield stage


def deceiving(connection: Connection) -> Connection:
    connection.execute("set search_path = impostors, pg_catalog")
    return connection


def intent(operation_id: str) -> dict[str, str | None]:
    return {
        "tenant_id": "acme",
        "operation_id": operation_id,
        "tool": "stock.set",
        "resource": None,
        "expected_version": None,
        "arguments": '{"amount":1}',
        "principal_id": "svc",
    }


def test_the_impostors_would_be_called_by_whoever_looks_them_up(deceived: Stage) -> None:
    connection = deceiving(deceived.session("writer"))
    assert connection.execute("select sha256('') as digest").fetchall() == [{"digest": b"\0"}]


def test_no_writer_can_lie_about_a_digest_by_bringing_its_own_functions(deceived: Stage) -> None:
    connection = deceiving(deceived.session("writer"))
    lie = {**intent("lie"), "digest": b"\0"}
    with pytest.raises(psycopg.errors.CheckViolation, match="digest is not that of this intent"):
        connection.execute(
            "insert into outbox.intent (tenant_id, operation_id, tool, arguments, principal_id, digest) values"
            " (%(tenant_id)s, %(operation_id)s, %(tool)s, %(arguments)s, %(principal_id)s, %(digest)s)",
            lie,
        )
    true = intent("true")
    connection.execute(insert_intent(dict(true)), true)
    (row,) = deceived.rows(
        "select i.created_at > '2020-01-01' as of_this_time, p.lane = outbox.lane_of(4, 'acme', 'true') as in_its_lane"
        " from outbox.intent i join outbox.pending p using (seq) where i.operation_id = 'true'"
    )
    assert row == {"of_this_time": True, "in_its_lane": True}


def test_a_put_of_another_action_is_a_conflict_whatever_equality_means_to_the_caller(deceived: Stage) -> None:
    connection = deceiving(deceived.session("writer"))
    for tool, expected in (("stock.set", []), ("other", ["tool"])):
        (row,) = connection.execute(
            "select differs from outbox.put('acme', 'put', %s, 'svc', '{}',"
            " outbox.intent_digest('acme', 'put', %s, null, null, '{}'))",
            [tool, tool],
        ).fetchall()
        assert row["differs"] == expected


@pytest.mark.parametrize(
    "setting",
    [
        "standard_conforming_strings = off",
        "bytea_output = escape",
        "datestyle = 'German, DMY'",
        "intervalstyle = sql_standard",
        "timezone = 'Pacific/Kiritimati'",
        "search_path = ''",
        "default_transaction_isolation = serializable",
        "extra_float_digits = 0",
        "row_security = off",
    ],
)
def test_an_unusual_session_writes_and_works_like_any_other(deceived: Stage, setting: str) -> None:
    writer = deceived.session("writer")
    version = deceived.value("select current_setting('server_version_num')::int")
    if setting.startswith("standard_conforming") and version >= 190000:
        pytest.skip("it cannot be switched off any more")
    writer.execute(f"set {setting}".encode())
    operation_id = setting.partition(" ")[0]
    writer.execute(insert_intent(dict(intent(operation_id))), intent(operation_id))
    (answer,) = writer.execute("select state from outbox.get_operation('acme', %s)", [operation_id]).fetchall()
    assert answer == {"state": "authorized"}
    lane = deceived.value(
        "select lane from outbox.pending join outbox.intent using (seq) where operation_id = %s", operation_id
    )
    relay = deceived.session("relay")
    if "datestyle" not in setting and "isolation" not in setting:
        relay.execute(f"set {setting}".encode())
    holder = deceived.holder(lane, connection=relay).taken()
    (begun,) = [row for row in holder.begin() or [] if row["operation_id"] == operation_id]
    assert holder.record_unknown(begun["seq"], 1) == [begun["seq"]]
    assert deceived.settle(begun["seq"], 1, "succeeded") == "applied"
    holder.give_back()
