"""What is written as an array is read back as the same values: by PostgreSQL in tests/integration/test_arrays.py."""

from uuid import UUID

import pytest

from outbox.arrays import literal, literals
from outbox.states import Cause


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([], "{}"),
        ([1, None, -3], "{1,NULL,-3}"),
        ([None, None], "{NULL,NULL}"),
        ([True, False], "{t,f}"),
        ([0.5, float("inf")], "{0.5,inf}"),
        (["", "NULL", "null", "a"], '{"","NULL","null",a}'),
        (['say "no"', "a\\b", "a,b", "{}"], '{"say \\"no\\"","a\\\\b","a,b","{}"}'),
        ([Cause.TIMEOUT, None], "{timeout,NULL}"),
        ([b"\x00\xff"], '{"\\\\x00ff"}'),
        ([UUID(int=1)], "{00000000-0000-0000-0000-000000000001}"),
    ],
)
def test_a_list_is_written_as_postgresql_writes_it(values: list[object], text: str) -> None:
    assert literal(values) == text


def test_only_lists_are_written_anew() -> None:
    assert literals({"seqs": [1], "tenants": "a", "nothing": None}) == {"seqs": "{1}", "tenants": "a", "nothing": None}


@pytest.mark.parametrize("first", [1, 0.5, UUID(int=1), b"a", "a"], ids=lambda value: type(value).__name__)
def test_a_value_of_another_type_than_the_first_is_a_mistake(first: object) -> None:
    """Written as it is, it would be read as several values, and move those of other rows."""
    with pytest.raises((TypeError, AttributeError)):
        literal([first, "a,b" if first != "a" else 1])


def test_numbers_may_be_of_either_kind() -> None:
    assert (literal([1, 0.5]), literal([0.5, 1, True])) == ("{1,0.5}", "{0.5,1,1}")


def test_a_type_that_no_statement_has_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        literal([object()])
