"""Lists reach the database as they are, whatever stands in them."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outbox.arrays import literal
from tests.support.postgres import Database

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(texts=st.lists(st.none() | TEXT))
def test_any_text_comes_back(database: Database, texts: list[str | None]) -> None:
    assert database.value("select %s::text[]", literal(texts)) == texts


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("bigint", [1, None, -(2**63)]),
        ("boolean", [True, None, False]),
        ("float8", [0.1, None, 1e300]),
        ("bytea", [b"\\\x00\"'", None, b""]),
        ("uuid", [UUID(int=7), None]),
        ("timestamptz", [datetime(2026, 1, 2, 3, 4, 5, 6, UTC), None]),
    ],
)
def test_values_of_every_type_that_statements_have_come_back(database: Database, kind: Any, values: list[Any]) -> None:
    assert database.value(f"select %s::{kind}[]", literal(values)) == values
