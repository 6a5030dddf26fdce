"""
JSON that arrives as it was given, or is refused by name; there is no third outcome.

The form is RFC 8785 (JCS), written by the `rfc8785` package: one text for one value, so that equal actions have equal
digests. Here stands what must hold before: I-JSON (RFC 7493), and bounds. What I-JSON cannot carry is refused and
never repaired; a `Decimal`, a date or a large integer is the caller's to write as a string.

An integer beyond 2**53 - 1 is refused in every spelling, also where a double happens to hold it: of two neighbouring
ids one would pass and the other not. Other numbers are doubles, also in JSON text: one with more than 17 digits says
more than any double holds, and is refused.
"""

import json
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum, auto
from typing import Any, NoReturn

import rfc8785

from outbox.errors import JsonRefused

SIZE_MAX_BYTES = 256 * 1024
DEPTH_MAX_LEVELS = 32
KEYS_MAX = 10_000
INTEGER_MAX = 2**53 - 1

_EXPONENT_FROM = 1e21  # from here on JCS writes an exponent; below, a float without a fraction looks like an integer
_DIGITS_MAX = 17  # as many as tell any two doubles apart
_PLACE_MAX_CHARS = 200
_SURROGATE = re.compile("[\ud800-\udfff]")
# The closing quote is optional, so that every opening quote matches and hostile text is passed over once.
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_BRACKET = re.compile(r"[][{}]")


class JsonReason(StrEnum):
    """Why a JSON value is refused."""

    not_json = auto()
    not_object = auto()
    unsupported_type = auto()
    duplicate_key = auto()
    key_not_text = auto()
    lone_surrogate = auto()
    nul = auto()
    not_finite = auto()
    integer_too_large = auto()
    number_not_exact = auto()
    too_deep = auto()
    too_many_keys = auto()
    too_large = auto()


def canonical(value: object) -> str:
    """Write a value of Python as RFC 8785 JSON. JsonRefused names what cannot arrive, and where (a JSON pointer)."""
    text = dumps(_Reader().read(value, 1))
    if len(text) > SIZE_MAX_BYTES:
        _refuse(JsonReason.too_large, "", f"more than {SIZE_MAX_BYTES} bytes")
    return text.decode()


def canonical_object(given: Mapping[str, Any] | str) -> str:
    """Write an object, given as a mapping or as JSON text, as RFC 8785 JSON. JsonRefused as for `canonical`."""
    value = parse(given) if isinstance(given, str) else given
    if not isinstance(value, Mapping):
        _refuse(JsonReason.not_object, "", "not an object")
    return canonical(value)


def parse(text: str) -> Any:
    """Read JSON text strictly: duplicate keys, NaN and numbers that would change are refused, depth is bounded."""
    if len(text) > SIZE_MAX_BYTES:
        _refuse(JsonReason.too_large, "", f"more than {SIZE_MAX_BYTES} bytes")
    _check_depth(text)
    try:
        return json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_number,
            parse_constant=_constant,
        )
    except json.JSONDecodeError as error:
        raise JsonRefused(JsonReason.not_json, "", f"not JSON: {error}") from None


def dumps(value: Any) -> bytes:
    """
    Write what JSON can say as RFC 8785 JSON. ValueError, or RecursionError, for what that cannot be written of.

    The standard library writes the same text, and ten times as fast, where all numbers are small integers and all text
    is ASCII: only other numbers are written in another way, and only other keys sorted.
    """
    if _is_plain(value):
        text = _ENCODER.encode(value)
        if text.isascii():
            return text.encode()
    return rfc8785.dumps(value)


_ENCODER = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":"), sort_keys=True)


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if value is None or kind is str or kind is bool:
        return True
    if kind is int:
        return bool(-INTEGER_MAX <= value <= INTEGER_MAX)
    if kind is dict:
        return all(map(_is_plain, value.values()))
    return kind is list and all(map(_is_plain, value))


def _refuse(reason: JsonReason, place: str, message: str) -> NoReturn:
    # A key is foreign text: it must not break the terminal or the log that the message ends in.
    readable = place.encode("ascii", "backslashreplace").decode().translate(_CONTROL)[:_PLACE_MAX_CHARS]
    raise JsonRefused(reason, readable, message)


_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), 127)}


@dataclass(slots=True)
class _Reader:
    """Takes a plain copy of a value, checking all of it. Holds where it stands and how much it has seen."""

    path: list[str] = field(default_factory=list)
    keys: int = 0
    bytes_at_least: int = 0

    def read(self, value: object, level: int) -> Any:
        match value:
            case None | bool():
                self._count(4)
                return value
            case str():
                return self._text(value)
            case int():
                self._count(1)
                return self._within(int(value))
            case float():
                self._count(1)
                return self._float(float(value))
            case Mapping():
                return self._object(value, level)
            case list() | tuple():
                self._enter(level)
                return [self._below(str(index), item, level) for index, item in enumerate(value)]
            case _:
                kind = type(value).__name__
                return self._fail(JsonReason.unsupported_type, f"a {kind} has no JSON form: give it as a string")

    def _object(self, value: Mapping[Any, object], level: int) -> dict[str, Any]:
        self._enter(level)
        copy: dict[str, Any] = {}
        self.keys += len(value)
        if self.keys > KEYS_MAX:
            self._fail(JsonReason.too_many_keys, f"more than {KEYS_MAX} keys")
        for key, item in value.items():
            if not isinstance(key, str):
                self._fail(JsonReason.key_not_text, f"a key of type {type(key).__name__}")
            name = self._text(key)
            if name in copy:
                self._fail(JsonReason.duplicate_key, "a key is there twice")
            copy[name] = self._below(name, item, level)
        return copy

    def _below(self, step: str, value: object, level: int) -> Any:
        self.path.append(step)
        copy = self.read(value, level + 1)
        self.path.pop()
        return copy

    def _enter(self, level: int) -> None:
        self._count(2)
        if level > DEPTH_MAX_LEVELS:
            self._fail(JsonReason.too_deep, f"deeper than {DEPTH_MAX_LEVELS} levels")

    def _text(self, value: str) -> str:
        text = str.__str__(value)  # the text itself, also of an enum member
        self._count(len(text) + 2)
        if "\0" in text:
            self._fail(JsonReason.nul, "a NUL character, which PostgreSQL cannot hold")
        if _SURROGATE.search(text):
            self._fail(JsonReason.lone_surrogate, "a lone surrogate, which is no character")
        return text

    def _within(self, value: int) -> int:
        if abs(value) > INTEGER_MAX:
            self._fail(JsonReason.integer_too_large, "an integer beyond 2**53 - 1: give it as a string")
        return value

    def _float(self, value: float) -> float:
        if not math.isfinite(value):
            self._fail(JsonReason.not_finite, "not a finite number")
        if INTEGER_MAX < abs(value) < _EXPONENT_FROM:
            self._fail(JsonReason.integer_too_large, "an integer beyond 2**53 - 1: give it as a string")
        return value

    def _count(self, size_bytes: int) -> None:
        # Stops early, before a value of many megabytes has been copied and written.
        self.bytes_at_least += size_bytes
        if self.bytes_at_least > SIZE_MAX_BYTES:
            self._fail(JsonReason.too_large, f"more than {SIZE_MAX_BYTES} bytes")

    def _fail(self, reason: JsonReason, message: str) -> NoReturn:
        _refuse(reason, "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in self.path), message)


def _check_depth(text: str) -> None:
    # Before the parser, whose recursion would answer with an error of its own.
    level = 0
    for bracket in _BRACKET.findall(_STRING.sub("", text)):
        level += 1 if bracket in "[{" else -1
        if level > DEPTH_MAX_LEVELS:
            _refuse(JsonReason.too_deep, "", f"deeper than {DEPTH_MAX_LEVELS} levels")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        _refuse(JsonReason.duplicate_key, next(n for n in names if names.count(n) > 1), "a key that is there twice")
    return value


def _integer(text: str) -> int:
    if len(text) > len(str(-INTEGER_MAX)):
        _refuse(JsonReason.integer_too_large, "", "an integer beyond 2**53 - 1: give it as a string")
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        _refuse(JsonReason.not_finite, "", "a number beyond the range of a double")
    if not _fits(text, value):
        _refuse(JsonReason.number_not_exact, "", "a number that a double cannot hold: give it as a string")
    return value


def _fits(text: str, value: float) -> bool:
    digits = text.lower().partition("e")[0].lstrip("-").replace(".", "").strip("0")
    if value == 0:
        return not digits
    if abs(value) < sys.float_info.min:  # so small that a double has fewer digits than it should
        return len(digits) <= _DIGITS_MAX and Decimal(text) == Decimal(repr(value))
    return len(digits) <= _DIGITS_MAX


def _constant(name: str) -> NoReturn:
    _refuse(JsonReason.not_finite, "", f"{name} is not JSON")
