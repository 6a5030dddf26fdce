"""The loader of SQL files: names are unique, purposes are written, includes resolve, parameters convert."""

import pytest

from outbox import sql

FILE = """\
-- This line belongs to no block.

-- fragment: open_row
p.unresolved_at is null

-- fragment: free_row
{{open_row}} and p.fence is null

-- name: one
-- Find one row.
select *
-- This remark is for readers of the file.
from outbox.pending p
where p.seq = %(seq)s and {{free_row}};

-- name: two
-- Find another.
select 2
"""


def test_statements_come_out_by_name_without_remarks_and_semicolon() -> None:
    found = sql.parse(FILE, "file")
    assert found.purposes == {"one": "Find one row.", "two": "Find another."}
    text = sql.expand(found.statements["one"], found.fragments, "file")
    assert text == (
        "select *\nfrom outbox.pending p\nwhere p.seq = %(seq)s and p.unresolved_at is null and p.fence is null"
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("-- name: a\n-- Do.\nselect 1\n-- name: a\n-- Do.\nselect 2", "a is there twice"),
        ("-- fragment: a\nx\n-- name: a\n-- Do.\nselect 2", "a is there twice"),
        ("-- name: a\nselect 1", "does not say what it is for"),
        ("-- name: a\n-- Do.\n", "a is empty"),
    ],
)
def test_a_file_that_breaks_the_form_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        sql.parse(text, "file")


def test_an_unknown_fragment_and_a_circle_are_refused() -> None:
    with pytest.raises(ValueError, match="no fragment b"):
        sql.expand("{{b}}", {"a": "x"}, "file")
    with pytest.raises(ValueError, match="include each other"):
        sql.expand("{{a}}", {"a": "{{b}}", "b": "{{a}}"}, "file")


def test_parameters_convert_to_colons_and_other_colons_are_escaped() -> None:
    assert sql.with_colons("select %(a)s, '1%%', b::text, %(a_2)s") == r"select :a, '1%', b\:\:text, :a_2"


@pytest.mark.parametrize("group", sql.groups())
def test_every_shipped_file_loads_and_every_statement_has_a_purpose(group: str) -> None:
    assert sql.load(group).keys() == sql.purposes(group).keys()
    for text in sql.load(group).values():
        assert "{{" not in text


def test_parameters_become_numbers_in_the_order_in_which_they_stand() -> None:
    text, names = sql.with_numbers("select %(b)s::text, %(a)s, 5 %% 2, %(b)s where x like '%%'")
    assert text == "select $1::text, $2, 5 % 2, $1 where x like '%'"
    assert names == ("b", "a")
