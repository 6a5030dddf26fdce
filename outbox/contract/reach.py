"""
Which answer rules can never be reached, since what they match is caught by rules before them.

The first rule that matches wins, so such a rule never holds, whatever its author believes.
An answer is a status, headers and a body, or the error of a database; and the attempt is a first one or a resend. For
each status (and each kind of attempt) that a rule names, one earlier rule must match whatever this one matches.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from outbox.contract.answers import AnswerRule, Match

# A status that no answer has: it stands for "any" where a rule names none.
_ANY: Final = 0
# What stands for the sent key: no rule can hold it, so comparing the ends of texts does not cut it in two.
_KEY: Final = "\0"


def unreachable(rules: Sequence[AnswerRule]) -> Iterator[tuple[int, list[int]]]:
    """Each rule that is never reached, with the earlier ones that catch what it matches; by their places, from 0."""
    for place, rule in enumerate(rules):
        catchers: set[int] = set()
        for answer in _answers(rule):
            found = next((n for n, other in enumerate(rules[:place]) if _catches(other, rule, answer)), None)
            if found is None:
                break
            catchers.add(found)
        else:
            yield place, sorted(catchers)


def _answers(rule: AnswerRule) -> Iterator[tuple[int | str, str]]:
    """The kinds of answer that a rule is about: a status or an SQLSTATE, and which attempt was answered."""
    kinds: Iterable[int | str] = rule.sqlstate or [*_statuses(rule.status)] or [_ANY]
    attempts = ("first", "resend") if rule.attempt == "any" else (rule.attempt,)
    return ((kind, attempt) for kind in kinds for attempt in attempts)


def _statuses(words: Iterable[int | str]) -> Iterator[int]:
    for word in words:
        if isinstance(word, int):
            yield word
        else:
            yield from range(int(word[0]) * 100, int(word[0]) * 100 + 100)


def _catches(earlier: AnswerRule, rule: AnswerRule, answer: tuple[int | str, str]) -> bool:
    """Whether an earlier rule matches every answer of this kind that a later one matches."""
    kind, attempt = answer
    if earlier.attempt not in ("any", attempt) or (earlier.sqlstate is None) != (rule.sqlstate is None):
        return False
    if earlier.sqlstate is not None:
        return kind in earlier.sqlstate or str(kind)[:2] in earlier.sqlstate
    return (not earlier.status or kind in set(_statuses(earlier.status))) and _asks_less(earlier, rule)


def _asks_less(earlier: Match, rule: Match) -> bool:
    """Whether every condition of an earlier match follows from one of a later one; statuses apart."""
    headers = {name.lower(): value for name, value in rule.header.items()}
    return (
        all(_header_follows(wanted, headers.get(name.lower())) for name, wanted in earlier.header.items())
        and all(pointer in rule.body and _same(value, rule.body[pointer]) for pointer, value in earlier.body.items())
        and all(_suffix_follows(pointer, suffix, rule) for pointer, suffix in earlier.body_suffix.items())
        and all(_is_there(pointer, rule) for pointer in earlier.body_present)
    )


def _header_follows(wanted: str | bool, given: str | bool | None) -> bool:  # noqa: FBT001 - as in TOML
    if wanted is True:
        return given is not None and given is not False
    return given is not None and _same(wanted, given)


def _same(one: object, other: object) -> bool:
    # In JSON true is not 1, although Python thinks so.
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _suffix_follows(pointer: str, suffix: str, rule: Match) -> bool:
    given = rule.body_suffix.get(pointer, rule.body.get(pointer))
    return isinstance(given, str) and _with_key(given).endswith(_with_key(suffix))


def _with_key(text: str) -> str:
    return text.replace("{sent_key}", _KEY)


def _is_there(pointer: str, rule: Match) -> bool:
    """Whether a rule that asks for this value, or for something inside of it, finds something there."""
    asked: tuple[Mapping[str, object] | tuple[str, ...], ...] = (rule.body, rule.body_suffix, rule.body_present)
    return any(name == pointer or name.startswith(f"{pointer}/") for names in asked for name in names)
