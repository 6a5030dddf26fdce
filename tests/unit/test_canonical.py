"""RFC 8785 by its own vectors; and every kind of JSON that cannot arrive as given is refused by its name."""

import json
import math
import struct
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any

import pytest
import rfc8785

from outbox.canonical import DEPTH_MAX_LEVELS, KEYS_MAX, SIZE_MAX_BYTES, canonical, canonical_object, parse
from outbox.errors import JsonRefused

# RFC 8785, appendix B: the bits of a double, and its text.
APPENDIX_B = [
    ("0000000000000000", "0"),
    ("8000000000000000", "0"),
    ("0000000000000001", "5e-324"),
    ("8000000000000001", "-5e-324"),
    ("7fefffffffffffff", "1.7976931348623157e+308"),
    ("ffefffffffffffff", "-1.7976931348623157e+308"),
    ("44b52d02c7e14af5", "9.999999999999997e+22"),
    ("44b52d02c7e14af6", "1e+23"),
    ("44b52d02c7e14af7", "1.0000000000000001e+23"),
    ("444b1ae4d6e2ef50", "1e+21"),
    ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
    ("3eb0c6f7a0b5ed8d", "0.000001"),
    ("41b3de4355555553", "333333333.3333332"),
    ("41b3de4355555554", "333333333.33333325"),
    ("41b3de4355555555", "333333333.3333333"),
    ("41b3de4355555556", "333333333.3333334"),
    ("41b3de4355555557", "333333333.33333343"),
    ("becbf647612f3696", "-0.0000033333333333333333"),
    ("43143ff3c1cb0959", "1424953923781206.2"),
]

# The rows of appendix B that look like integers beyond 2**53 - 1. I-JSON asks for strings there.
APPENDIX_B_TOO_LARGE = [
    ("4340000000000000", "9007199254740992"),
    ("c340000000000000", "-9007199254740992"),
    ("4430000000000000", "295147905179352830000"),
    ("444b1ae4d6e2ef4e", "999999999999999700000"),
    ("444b1ae4d6e2ef4f", "999999999999999900000"),
]

# The RFC's sample of section 3.2.2, and the reference implementation's test data.
DOCUMENTS = [
    (
        r"""{
          "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
          "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
          "literals": [null, true, false]
        }""",
        r"""{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}""",
    ),
    (
        r"""{"1": {"f": {"f": "hi","F": 5} ,"\n": 56.0}, "10": { }, "": "empty", "a": { },
             "111": [ {"e": "yes","E": "no" } ], "A": { }}""",
        r"""{"":"empty","1":{"\n":56,"f":{"F":5,"f":"hi"}},"10":{},"111":[{"E":"no","e":"yes"}],"A":{},"a":{}}""",
    ),
    (
        '{"sin": "ignore locale", "pêche": "canonicalization MUST", "péché": "order is wrong", "peach": "this"}',
        '{"peach":"this","péché":"order is wrong","pêche":"canonicalization MUST","sin":"ignore locale"}',
    ),
    (r'{"Unnormalized Unicode":"A\u030a"}', '{"Unnormalized Unicode":"A\u030a"}'),
    (
        r"""{"\u20ac": "Euro Sign", "\r": "Carriage Return", "1": "One", "\u0080": "Control\u007f",
             "\ud83d\ude02": "Smiley", "\u00f6": "O", "\ufb33": "Dalet", "</script>": "No"}""",
        (
            '{"\\r":"Carriage Return","1":"One","</script>":"No","\u0080":"Control\u007f","ö":"O","€":"Euro Sign",'
            '"😂":"Smiley","\ufb33":"Dalet"}'
        ),
    ),
]


class Colour(StrEnum):
    RED = "red"


class Number(IntEnum):
    ONE = 1


def double(bits: str) -> float:
    (value,) = struct.unpack(">d", bytes.fromhex(bits))
    assert isinstance(value, float)
    return value


def reason(value: object) -> str:
    with pytest.raises(JsonRefused) as refused:
        canonical(value)
    return refused.value.reason


def text_reason(text: str) -> str:
    with pytest.raises(JsonRefused) as refused:
        canonical_object(text)
    return refused.value.reason


@pytest.mark.parametrize(("bits", "text"), APPENDIX_B)
def test_numbers_have_the_form_of_appendix_b_and_read_back_as_themselves(bits: str, text: str) -> None:
    assert canonical(double(bits)) == text
    assert canonical(parse(text)) == text


@pytest.mark.parametrize(("bits", "text"), APPENDIX_B_TOO_LARGE)
def test_integers_beyond_i_json_are_refused_whether_given_as_float_int_or_text(bits: str, text: str) -> None:
    assert rfc8785.dumps(double(bits)) == text.encode()
    assert reason(double(bits)) == reason(int(text)) == text_reason(f'{{"a":{text}}}') == "integer_too_large"


@pytest.mark.parametrize("bits", ["7fffffffffffffff", "7ff0000000000000", "fff0000000000000"])
def test_what_is_not_finite_aborts_as_appendix_b_says(bits: str) -> None:
    assert reason(double(bits)) == "not_finite"


@pytest.mark.parametrize(("given", "expected"), DOCUMENTS)
def test_documents_have_the_form_of_the_reference_vectors(given: str, expected: str) -> None:
    assert canonical_object(given) == expected
    assert canonical_object(json.loads(given)) == expected
    assert canonical_object(expected) == expected


def test_keys_are_sorted_by_utf16_code_units_not_by_code_points() -> None:
    in_order = ["\r", "1", "\u0080", "ö", "€", "😀", "\ufb33"]
    assert list(json.loads(canonical(dict.fromkeys(reversed(in_order), 0)))) == in_order
    assert sorted(in_order) != in_order


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2**53 - 1, "9007199254740991"),
        (-(2**53) + 1, "-9007199254740991"),
        (1e300, "1e+300"),
        (-0.0, "0"),
        (True, "true"),
        ((1, [2]), "[1,[2]]"),
        (Colour.RED, '"red"'),
        (Number.ONE, "1"),
    ],
)
def test_plain_values_and_their_subclasses_have_one_form(value: object, expected: str) -> None:
    assert canonical(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2**53, "integer_too_large"),
        (-(2**53), "integer_too_large"),
        (10**5000, "integer_too_large"),
        (math.nan, "not_finite"),
        (-math.inf, "not_finite"),
        ("\ud800", "lone_surrogate"),
        ({"\udfff": 1}, "lone_surrogate"),
        ("a\0b", "nul"),
        ({"\0": 1}, "nul"),
        ({1: 1}, "key_not_text"),
        ({None: 1}, "key_not_text"),
        (Decimal("1.10"), "unsupported_type"),
        (b"bytes", "unsupported_type"),
        ({1, 2}, "unsupported_type"),
        (object(), "unsupported_type"),
        ("x" * SIZE_MAX_BYTES, "too_large"),
        ("\x01" * (SIZE_MAX_BYTES // 4), "too_large"),
        ([0] * (SIZE_MAX_BYTES + 1), "too_large"),
        ([dict.fromkeys(map(str, range(KEYS_MAX // 2 + 1)))] * 2, "too_many_keys"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 20 else type(value).__name__,
)
def test_a_value_that_cannot_arrive_is_refused_by_name(value: object, expected: str) -> None:
    assert reason(value) == reason([value]) == expected


def test_depth_is_bounded_also_for_a_value_that_contains_itself_and_for_a_million_brackets() -> None:
    deepest: Any = []
    for _ in range(DEPTH_MAX_LEVELS - 1):
        deepest = [deepest]
    assert canonical(deepest) == "[" * DEPTH_MAX_LEVELS + "]" * DEPTH_MAX_LEVELS
    assert reason([deepest]) == "too_deep"
    circle: list[Any] = []
    circle.append(circle)
    assert reason(circle) == "too_deep"
    assert text_reason("[" * (SIZE_MAX_BYTES - 1)) == "too_deep"
    assert text_reason('{"a":' * 33 + "1" + "}" * 33) == "too_deep"


def test_brackets_inside_strings_are_not_depth() -> None:
    text = r'{"a":"' + "[" * 100 + r"\"" + "{" * 100 + '"}'
    assert canonical_object(text) == text


def test_a_text_of_escaped_quotes_is_passed_over_once_and_not_once_per_quote() -> None:
    assert text_reason('"' + r"\"" * (SIZE_MAX_BYTES // 2 - 1)) == "not_json"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a":1,"a":1}', "duplicate_key"),
        ('{"b":{"a":1,"\\u0061":2}}', "duplicate_key"),
        ('{"a":NaN}', "not_finite"),
        ('{"a":-Infinity}', "not_finite"),
        ('{"a":1e400}', "not_finite"),
        ('{"a":1e-400}', "number_not_exact"),
        ('{"a":0.10000000000000000555}', "number_not_exact"),
        ('{"a":1234567890123456.78}', "number_not_exact"),
        ('{"a":4.94e-324}', "number_not_exact"),
        ('{"a":9007199254740992.0}', "integer_too_large"),
        ('{"a":1e20}', "integer_too_large"),
        ('{"a":' + "1" * 5000 + "}", "integer_too_large"),
        ('{"a":0.' + "1" * 5000 + "}", "number_not_exact"),
        ('{"a":1e-99999999999999999999}', "number_not_exact"),
        (r'{"a":"\ud800"}', "lone_surrogate"),
        (r'{"a":"\u0000"}', "nul"),
        ('{"a":"line\nbreak"}', "not_json"),
        ("\ufeff{}", "not_json"),
        ("{'a':1}", "not_json"),
        ('{"a":01}', "not_json"),
        ('{"a":1}x', "not_json"),
        ("", "not_json"),
        ("[1]", "not_object"),
        ("null", "not_object"),
        (" " * SIZE_MAX_BYTES + "{}", "too_large"),
    ],
    ids=lambda text: text[:24],
)
def test_json_text_that_would_arrive_changed_is_refused_by_name(text: str, expected: str) -> None:
    assert text_reason(text) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("0e-99999999999999999999", "0"),
        ("-0", "0"),
        ("-0.0", "0"),
        ("1.50", "1.5"),
        ("333333333.33333329", "333333333.3333333"),
        ("0." + "0" * 323 + "5", "5e-324"),
    ],
)
def test_another_print_of_the_same_number_is_accepted(given: str, expected: str) -> None:
    assert canonical(parse(given)) == expected


def test_a_refusal_says_where_as_a_json_pointer_and_never_says_the_value() -> None:
    with pytest.raises(JsonRefused) as refused:
        canonical({"cards": [{"a/b~c": "4111111111111111\0"}]})
    assert refused.value.place == "/cards/0/a~1b~0c"
    assert "4111" not in str(refused.value)


def test_a_refusal_can_be_printed_whatever_the_key_is() -> None:
    with pytest.raises(JsonRefused) as refused:
        canonical({"\x1b[31m\n😀" + "x" * 1000: math.nan})
    assert refused.value.place.isascii()
    assert refused.value.place.isprintable()
    assert len(refused.value.place) <= 200
