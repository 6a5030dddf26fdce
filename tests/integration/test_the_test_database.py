"""The ground that the other tests stand on."""

from typing import get_args

import psycopg
import pytest

from tests.support.postgres import Cluster, Database, Role, url


def test_each_role_logs_in_with_its_own_rights_only(database: Database) -> None:
    for role in get_args(Role):
        with database.connect(role) as connection:
            (superuser, rights) = connection.execute(
                "select rolsuper, pg_has_role(current_user, %s, 'usage') from pg_roles where rolname = current_user",
                [f"outbox_{role}"],
            ).fetchone() or (None, None)
            assert not superuser
            assert rights
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("truncate outbox.intent")


def test_a_copied_database_keeps_the_settings_that_the_daemons_rest_on(database: Database, template: Database) -> None:
    query = (
        "select unnest(setconfig) from pg_db_role_setting join pg_database d on d.oid = setdatabase where datname = %s"
    )
    settings = database.rows(query, template.name)
    assert settings
    assert settings == database.rows(query, database.name)


def test_two_databases_of_one_template_share_nothing(postgres: Cluster, template: Database) -> None:
    with postgres.database(template) as one, postgres.database(template) as other:
        one.rows("create table public.mine ()")
        assert other.value("select to_regclass('public.mine')") is None


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://me:a%40b@/x%20y?host=%2Ftmp%2Fdir&port=5433",
        "user=me password=a@b dbname='x y' host=/tmp/dir port=5433",
    ],
)
def test_a_dsn_of_either_form_becomes_the_same_url(dsn: str) -> None:
    assert url(dsn) == "postgresql://me:a%40b@/x%20y?host=%2Ftmp%2Fdir&port=5433"
