"""
The SQL of this project: one file per kind of caller, read once, handed out by name.

    -- fragment: open_row             text that statements of this file, or of every file if it stands in
    p.unresolved_at is null           fragments.sql, include as {{open_row}}

    -- name: put_one                  a statement: its name,
    -- Insert one intent.             one line of purpose,
    select ...                        and its text, with parameters as psycopg writes them: %(tenant_id)s

Whole-line comments inside a statement stay in the file and are not sent. Fragments may include fragments.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import LiteralString

_SHARED = "fragments"
_BLOCK = re.compile(r"^-- (name|fragment): (\w+)[ \t]*$", re.MULTILINE)
_INCLUDE = re.compile(r"\{\{(\w+)\}\}")
_PLACEHOLDER = re.compile(r"%\((\w+)\)s|%%|:")
_INCLUDES_DEPTH_MAX = 8


@dataclass(frozen=True, slots=True)
class SqlFile:
    """What stands in one file: statements, their purposes, and fragments; all still without includes resolved."""

    statements: dict[str, str]
    purposes: dict[str, str]
    fragments: dict[str, str]


def parse(text: str, place: str) -> SqlFile:
    """Take a file apart. ValueError for a duplicate name, a statement without a purpose, or one without text."""
    found = SqlFile({}, {}, {})
    heads = list(_BLOCK.finditer(text))
    for head, end in zip(heads, [*(next_.start() for next_ in heads[1:]), len(text)], strict=True):
        kind, name = head.groups()
        lines = text[head.end() : end].strip("\n").splitlines()
        if name in found.statements or name in found.fragments:
            raise ValueError(f"{place}: {name} is there twice")
        if kind == "name":
            found.purposes[name] = lines[0].removeprefix("-- ") if lines and lines[0].startswith("-- ") else ""
            if not found.purposes[name]:
                raise ValueError(f"{place}: {name} does not say what it is for")
        body = "\n".join(line for line in lines if not line.lstrip().startswith("--")).strip().removesuffix(";")
        if not body:
            raise ValueError(f"{place}: {name} is empty")
        (found.statements if kind == "name" else found.fragments)[name] = body
    return found


def expand(text: str, fragments: Mapping[str, str], place: str) -> str:
    """Put fragments where {{their names}} stand. ValueError for an unknown one, or for a circle."""

    def fragment(match: re.Match[str]) -> str:
        if match[1] not in fragments:
            raise ValueError(f"{place}: no fragment {match[1]}")
        return fragments[match[1]]

    for _ in range(_INCLUDES_DEPTH_MAX):
        if not _INCLUDE.search(text):
            return text
        text = _INCLUDE.sub(fragment, text)
    raise ValueError(f"{place}: fragments include each other, or too deep")


def groups() -> list[str]:
    """Names of the files that hold statements."""
    names = (entry.name.removesuffix(".sql") for entry in files(__name__).iterdir() if entry.name.endswith(".sql"))
    return sorted(name for name in names if name != _SHARED)


@cache
def _read(group: str) -> SqlFile:
    return parse((files(__name__) / f"{group}.sql").read_text(encoding="utf-8"), f"{group}.sql")


@cache
def load(group: str) -> Mapping[str, LiteralString]:
    """Statements of one file by name, ready to run."""
    own = _read(group)
    shared = _read(_SHARED).fragments if (files(__name__) / f"{_SHARED}.sql").is_file() else {}
    if both := own.fragments.keys() & shared.keys():
        raise ValueError(f"{group}.sql: {sorted(both)} are shared fragments too")
    fragments = shared | own.fragments
    # LiteralString is said without a cast, since mypy takes it for str. It is true: the text comes from files of this
    # package and from nowhere else.
    return MappingProxyType(
        {name: expand(text, fragments, f"{group}.sql, {name}") for name, text in own.statements.items()}
    )


@cache
def script(name: str) -> LiteralString:
    """The whole text of a file that is run as one, such as `inbox/schema`."""
    return (files(__name__) / f"{name}.sql").read_text(encoding="utf-8")


def purposes(group: str) -> Mapping[str, str]:
    """One line for each statement of a file: what it is for."""
    return MappingProxyType(_read(group).purposes)


def with_colons(sql: LiteralString) -> LiteralString:
    """Rewrite parameters for `sqlalchemy.text`: %(name)s becomes :name, %% becomes %, other colons are escaped."""

    def rewrite(match: re.Match[str]) -> str:
        if match[1]:
            return f":{match[1]}"
        return "%" if match[0] == "%%" else r"\:"

    return _PLACEHOLDER.sub(rewrite, sql)


def with_numbers(sql: LiteralString) -> tuple[LiteralString, tuple[str, ...]]:
    """Rewrite parameters for PostgreSQL itself: %(name)s becomes $1, $2, ...; also return the names in that order."""
    names: list[str] = []

    def rewrite(match: re.Match[str]) -> str:
        if match[1] and match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}" if match[1] else match[0][-1]

    return _PLACEHOLDER.sub(rewrite, sql), tuple(names)
