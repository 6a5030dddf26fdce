"""A rule that is refused as never reached is never the one that an answer meets; tried with many rules and answers."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from outbox.contract import AnswerRule
from outbox.contract.reach import unreachable
from outbox.matching import Seen, matches
from tests.support.contracts import SENT_KEY

# Few words, so that rules and answers meet.
POINTERS = st.sampled_from(["/a", "/a/b", "/c"])
TEXTS = st.sampled_from(["x", "yx", "{sent_key}", "y{sent_key}", "key}"])
SCALARS = TEXTS | st.sampled_from([True, 1, 1.0, False])
STATUSES = st.sampled_from([200, 201, 404])


@st.composite
def rules(draw: st.DrawFn) -> AnswerRule:
    headers = st.dictionaries(st.sampled_from(["X-A", "x-a"]), st.sampled_from([True, False, "x"]), max_size=1)
    found: dict[str, Any] = {
        "status": draw(st.lists(STATUSES | st.sampled_from(["2xx", "4xx"]), max_size=2)),
        "header": draw(headers),
        "body": draw(st.dictionaries(POINTERS, SCALARS, max_size=1)),
        "body_suffix": draw(st.dictionaries(POINTERS, TEXTS, max_size=1)),
        "body_present": draw(st.lists(POINTERS, max_size=1)),
        "attempt": draw(st.sampled_from(["first", "resend", "any"])),
        "means": "refused",
    }
    if not any(found[name] for name in ("status", "header", "body", "body_suffix", "body_present")):
        found["status"] = [200]
    return AnswerRule.model_validate(found)


@st.composite
def answers(draw: st.DrawFn) -> Seen:
    def said(value: Any) -> Any:
        return value.replace("{sent_key}", SENT_KEY) if isinstance(value, str) else value

    leaf = (SCALARS | st.none()).map(said)
    body = draw(st.fixed_dictionaries({}, optional={"a": leaf | st.fixed_dictionaries({"b": leaf}), "c": leaf}))
    headers = draw(st.dictionaries(st.just("x-a"), st.sampled_from(["x", "z"]), max_size=1))
    return Seen(draw(STATUSES), headers, json.dumps(body).encode())


@given(st.lists(rules(), min_size=2, max_size=4), answers(), st.booleans())
@settings(max_examples=1_000)
def test_no_answer_meets_a_rule_that_is_refused_as_never_reached(
    known: list[AnswerRule],
    seen: Seen,
    resend: bool,
) -> None:
    applying = {"any", "resend" if resend else "first"}
    met = [place for place, rule in enumerate(known) if rule.attempt in applying and matches(rule, seen, SENT_KEY)]
    assert met[:1] == [] or met[0] not in {place for place, _ in unreachable(known)}
