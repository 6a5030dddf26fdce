"""Whatever JSON is tried: it arrives as it was given, or is refused by name."""

import json
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from outbox.canonical import INTEGER_MAX, JsonReason, canonical, canonical_object, dumps, parse
from outbox.errors import JsonRefused

text = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"))
numbers = st.integers(-INTEGER_MAX, INTEGER_MAX) | st.floats(allow_nan=False, allow_infinity=False).filter(
    lambda number: not INTEGER_MAX < abs(number) < 1e21
)
values = st.recursive(
    st.none() | st.booleans() | numbers | text,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(text, inner, max_size=5),
    max_leaves=20,
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters()) | st.integers(), inner),
    max_leaves=12,
)


def same(left: Any, right: Any) -> bool:
    """Equal as JSON: 1 and 1.0 are one number, True and 1 are not one value."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


@given(values)
def test_what_fits_arrives_as_the_same_value_in_one_form(value: Any) -> None:
    arrived = canonical(value)
    assert same(json.loads(arrived), value)
    assert canonical(parse(arrived)) == arrived
    assert canonical(parse(json.dumps(value, ensure_ascii=True, indent=1))) == arrived


simple = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(max_codepoint=0x7F)),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(st.characters(max_codepoint=0x7F)), inner),
    max_leaves=20,
)


@given(simple | values | st.floats() | st.text(st.characters()))
@example({"b": '"\\\b\f\n\r\t\0\x1f\x7f/', "a": [INTEGER_MAX, -INTEGER_MAX], "B": {}, "": []})
@example([INTEGER_MAX + 1])
@example([-INTEGER_MAX - 1])
@example({"\ufb33": 1, "\U0001f600": 2})
@example({"a": 1.0, "b": 1e21, "c": -0.0})
def test_the_quick_way_and_the_slow_one_write_the_same_text(value: Any) -> None:
    try:
        slow = rfc8785.dumps(value)
    except ValueError:
        with pytest.raises(ValueError, match=r"."):
            dumps(value)
    else:
        assert dumps(value) == slow


def attempt(form: Callable[[Any], str], value: Any) -> str | JsonRefused:
    try:
        return form(value)
    except JsonRefused as refused:
        return refused


@given(anything)
def test_anything_arrives_unchanged_or_is_refused_by_name(value: Any) -> None:
    arrived = attempt(canonical, value)
    if isinstance(arrived, str):
        assert same(json.loads(arrived), value)
    else:
        assert arrived.reason in list(JsonReason)
        assert str(arrived).isprintable()


@given(st.from_regex(r"\A-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?\Z"))
def test_a_number_in_text_arrives_as_the_nearest_double_or_is_refused(number: str) -> None:
    arrived = attempt(lambda text: canonical(parse(text)), number)
    if isinstance(arrived, str):
        assert float(arrived) == float(number)
        assert abs(Decimal(arrived) - Decimal(number)) <= abs(Decimal(number)) * Decimal(2) ** -52
    else:
        assert arrived.reason in {"integer_too_large", "not_finite", "number_not_exact"}


@given(st.text(st.characters()))
def test_any_text_is_an_object_in_canonical_form_or_refused_by_name(given_text: str) -> None:
    arrived = attempt(canonical_object, given_text)
    if isinstance(arrived, str):
        assert json.loads(arrived) == json.loads(given_text)
    else:
        assert arrived.reason in list(JsonReason)


@given(st.floats())
def test_every_double_reads_back_as_itself_or_is_refused(number: float) -> None:
    arrived = attempt(canonical, number)
    if isinstance(arrived, str):
        assert parse(arrived) == number
    else:
        assert arrived.reason == ("integer_too_large" if math.isfinite(number) else "not_finite")
