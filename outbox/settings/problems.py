"""
What is wrong with a configuration, in words: where it stands, and what was probably meant.

Values are never quoted: one of them may be a secret that stands in the wrong place.
"""

import difflib
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from outbox.contract.auth import SECRET_REFERENCE
from outbox.contract.base import HEADER_NAME, POINTER
from outbox.errors import Problem

Path = tuple[str | int, ...]

# What a pattern asks for, in words.
_PATTERNS: Final = {
    POINTER: 'a JSON pointer is needed, which begins with a slash: "/id"',
    SECRET_REFERENCE: 'a secret is named by a reference, "env:NAME" or "file:/path", and never stands in the file',
    HEADER_NAME: 'the name of a header is needed, such as "Idempotency-Key"',
}

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_HEADER: Final = re.compile(r"\s*(\[\[?)(.+?)\]\]?\s*(?:#.*)?")
_KEY: Final = re.compile(
    r"""\s*((?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*'))*)\s*="""
)


@dataclass(frozen=True, slots=True)
class Layers:
    """The file, the environment and the flags, each nested like the file; a later one wins."""

    file: str
    text: str
    document: Mapping[str, Any]
    environment: Mapping[str, Any]
    flags: Mapping[str, Any]
    env_prefix: str

    def merged(self) -> dict[str, Any]:
        """All layers in one. Tables are merged, everything else is replaced."""
        return _merge(self.document, _merge(self.environment, self.flags))

    def located(self, problems: Iterable[Problem]) -> list[Problem]:
        """The same problems, each with the line of the file, the variable or the flag that says it."""
        lines = dict(_lines(self.text))
        found = []
        for problem in problems:
            path = _place(problem.place)
            found.append(Problem(dotted(path) + self.origin(path, lines), problem.message, problem.code))
        return found

    def origin(self, path: Path, lines: Mapping[Path, int]) -> str:
        """Which layer says it, in brackets; empty where nobody does."""
        if _says(self.flags, path):
            return " (a flag)"
        if _says(self.environment, path):
            return f" ({self.env_prefix}{'__'.join(str(part).upper() for part in path)})"
        line = _line(lines, path)
        return f" ({self.file}, line {line})" if line else ""


def _merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for name, value in over.items():
        below = merged.get(name)
        merged[name] = _merge(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


def problems_of(error: ValidationError, model: type[BaseModel], layers: Layers) -> list[Problem]:
    """Everything that a validation found, each place once, in the order of the file."""
    data = layers.merged()
    lines = dict(_lines(layers.text))
    messages: dict[Path, list[str]] = defaultdict(list)
    codes: dict[Path, str] = {}
    unquoted = list(_unquoted(data.get("tools")))
    for path in unquoted:
        name = ".".join(map(str, path[1:]))
        messages[path] = [f'a name with a dot in it stands in quotes: [tools."{name}"]']
        codes[path] = "unquoted_name"
    for detail in error.errors(include_url=False, include_input=False):
        path, value = _walk(detail, data)
        if detail["type"] == "literal_error" and isinstance(value, Mapping):
            continue  # the word of a union that was answered with a table: the table's own problems say more
        if any(path[:2] == name[:2] for name in unquoted):
            continue  # what is no tool has no other problems
        message = _message(detail, path, model)
        if message not in messages[path]:
            messages[path].append(message)
        codes.setdefault(path, detail["type"])
    return [
        Problem(dotted(path) + layers.origin(path, lines), "; or ".join(messages[path]), codes[path])
        for path in sorted(codes, key=lambda path: _line(lines, path) or 0)
    ]


def _unquoted(tools: Any) -> Iterator[Path]:
    """Tools whose names have a dot and no quotes: TOML then reads a table in a table. Each has a `receiver` in it."""
    tables: list[tuple[Path, Any]] = [(("tools",), tools)]
    while tables:
        path, table = tables.pop(0)
        if isinstance(table, Mapping) and "receiver" not in table:
            tables += [((*path, name), below) for name, below in table.items()]
        elif isinstance(table, Mapping) and path[2:]:
            yield path


def dotted(path: Path) -> str:
    """A path as it would be written in TOML: `tools."mail.send".contract.answers[0].means`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if _BARE_KEY.fullmatch(part) else f'"{part}"')
    return text


def unknown_variables(environ: Mapping[str, str], prefix: str, sections: Mapping[str, Any]) -> list[Problem]:
    """Variables that look like ours (`OUTBOX_SECTION__NAME`) and name no section: nobody would read them."""
    found = []
    for name in sorted(environ):
        section, nested, _ = name.removeprefix(prefix).partition("__")
        if name.startswith(prefix) and nested and section.lower() not in sections:
            meant = did_you_mean(section.lower(), sections)
            found.append(Problem(name, f"there is no section {section.lower()!r}{meant}", "extra_forbidden"))
    return found


def _walk(detail: ErrorDetails, data: Any) -> tuple[Path, Any]:
    """The path of an error in the data: pydantic's own has names of union members and validators in between."""
    path: list[str | int] = []
    loc = detail["loc"]
    for number, part in enumerate(loc):
        if _holds(data, part):
            data = data[part]
        elif number < len(loc) - 1 or detail["type"] != "missing":
            continue
        path.append(part)
    return tuple(path), data


def _holds(data: Any, part: str | int) -> bool:
    if isinstance(part, int):
        return isinstance(data, list | tuple) and part < len(data)
    return isinstance(data, Mapping) and part in data


def _message(detail: ErrorDetails, path: Path, model: type[BaseModel]) -> str:
    match detail["type"]:
        case "extra_forbidden":
            return f"unknown name{did_you_mean(str(path[-1]), _names(_models(model, path[:-1])))}"
        case "missing":
            return "it is needed"
        case "value_error":
            return str(detail["ctx"]["error"])
        case "tuple_type" | "list_type":
            return 'a list is needed, such as ["a", "b"]'
        case "model_type" | "model_attributes_type" | "dict_type" | "mapping_type":
            return "a table is needed"
        case "literal_error":
            return f"it is one of {detail['ctx']['expected']}"
        case "string_pattern_mismatch" if detail["ctx"]["pattern"] in _PATTERNS:
            return _PATTERNS[detail["ctx"]["pattern"]]
    return detail["msg"][:1].lower() + detail["msg"][1:]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the one that was probably meant, else those that are known."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f": did you mean {close[0]!r}?" if close else f"; known are {', '.join(known)}" if known else ""


def nobody_has(what: str, name: str, known: Iterable[str]) -> str:
    """A whole sentence about an unknown name."""
    meant = did_you_mean(name, known)
    return f"There is no {what} {name!r}{meant}{'' if meant.endswith('?') else '.'}"


def _names(models: Sequence[type[BaseModel]]) -> list[str]:
    return [field.alias or name for model in models for name, field in model.model_fields.items()]


def _models(model: type[BaseModel], path: Path) -> list[type[BaseModel]]:
    """The models that may stand at a path: a union has several."""
    here: list[Any] = [model]
    for part in path:
        found: list[Any] = []
        for one in _unwrapped(here):
            if isinstance(one, type) and issubclass(one, BaseModel):
                fields = one.model_fields
                found += [field.annotation for name, field in fields.items() if part in {name, field.alias}]
            elif get_args(one):
                found.append(get_args(one)[-1] if not isinstance(part, int) else get_args(one)[0])
        here = found
    return [one for one in _unwrapped(here) if isinstance(one, type) and issubclass(one, BaseModel)]


def _unwrapped(annotations: Sequence[Any]) -> Iterator[Any]:
    """Open unions and Annotated; leave containers closed."""
    for annotation in annotations:
        origin = getattr(annotation, "__origin__", None)
        if isinstance(origin, type) and issubclass(origin, Mapping | Sequence):
            yield annotation
        elif get_args(annotation):
            yield from _unwrapped(
                get_args(annotation)[:1] if hasattr(annotation, "__metadata__") else get_args(annotation)
            )
        else:
            yield annotation


def _says(layer: Any, path: Path) -> bool:
    for part in path:
        if not isinstance(layer, Mapping) or part not in layer:
            return False
        layer = layer[part]
    return bool(path)


def _line(lines: Mapping[Path, int], path: Path) -> int | None:
    """The line of the longest beginning of a path that has one: inside an inline table, the line of that table."""
    for length in range(len(path), 0, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return None


def _lines(text: str) -> Iterator[tuple[Path, int]]:
    """Each table and key that begins a line of a TOML text, with its line number. The text has been parsed before."""
    table: Path = ()
    counts: dict[Path, int] = defaultdict(int)
    for number, line in enumerate(text.splitlines(), 1):
        if (header := _HEADER.fullmatch(line)) and (names := _keys(header[2])):
            table = _indexed(names, counts)
            if header[1] == "[[":
                table = (*table, counts[table])
                counts[table[:-1]] += 1
            yield table, number
        elif (key := _KEY.match(line)) and (names := _keys(key[1])):
            yield (*table, *names), number


def _indexed(names: Path, counts: Mapping[Path, int]) -> Path:
    """Put the number of the latest entry behind each array of tables that a header passes through."""
    path: Path = ()
    for position, name in enumerate(names):
        path = (*path, name)
        if position < len(names) - 1 and counts.get(path):
            path = (*path, counts[path] - 1)
    return path


def _place(text: str) -> Path:
    """A place as `dotted` writes it, which may end in the number of an entry: `contract.answers[3]`."""
    keys, bracket, number = text.partition("[") if text.endswith("]") else (text, "", "")
    return (*_keys(keys), int(number[:-1])) if bracket and number[:-1].isdigit() else _keys(text)


def _keys(dotted_key: str) -> Path:
    """`a."b.c".d` as its parts, by TOML's own rules; empty where it is no key after all."""
    try:
        table: Any = tomllib.loads(f"{dotted_key} = 0")
    except tomllib.TOMLDecodeError:
        return ()
    parts: list[str] = []
    while isinstance(table, dict):
        ((name, table),) = table.items()
        parts.append(name)
    return tuple(parts)
