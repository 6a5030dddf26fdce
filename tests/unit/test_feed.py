"""The reader of the feed, without a database: what it asks for, where it says that it is, and how long it pauses."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from outbox import Cause, State, WaitInsideTransaction
from outbox.errors import Misuse
from outbox.feed import BATCH_LIMIT, Ended, Feed, _Reader
from outbox.query import Query

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)


def row(cursor: str, **facts: Any) -> dict[str, Any]:
    return {
        "cursor": cursor,
        "more": True,
        "seq": 1,
        "tenant_id": "acme",
        "operation_id": "o-1",
        "tool": "mail.send",
        "resource": None,
        "principal_id": "checkout",
        "state": "rejected",
        "cause": "refused",
        "attempt": 1,
        "receipt": None,
        "external_id": None,
        "decided_by": None,
        "created_at": NOON,
        "ended_at": NOON,
        "began_at": NOON,
    } | facts


def bookmark(cursor: str, began_at: datetime = NOON, *, more: bool = False) -> dict[str, Any]:
    return row(cursor, more=more, seq=None, began_at=began_at)


def reader(*, after: str | None = None, follow: bool = False) -> _Reader:
    return _Reader("acme", after=after, follow=follow, batch_max=10)


def test_a_reader_is_behind_what_it_has_told_and_at_the_end_behind_what_it_has_looked_at() -> None:
    where = reader(after="c0")
    plan = where.steps()
    asked = next(plan)
    assert isinstance(asked, Query)
    assert asked.parameters == {"tenant_id": "acme", "after": "c0", "batch_max": 10}
    told = plan.send([row("c1"), row("c2"), bookmark("b1", more=True)])
    assert isinstance(told, Ended)
    assert (told.cursor, told.state, told.cause) == ("c1", State.REJECTED, Cause.REFUSED)
    assert where.cursor == "c1"
    next(plan)
    assert where.cursor == "c2"
    asked = next(plan)
    assert isinstance(asked, Query)
    assert (asked.parameters["after"], where.cursor) == ("b1", "b1")
    with pytest.raises(StopIteration):
        plan.send([bookmark("b2")])
    assert where.cursor == "b2"


def test_pauses_grow_while_nothing_ends_and_start_again_when_something_did() -> None:
    plan = reader(follow=True).steps()
    next(plan)
    pauses = []
    for number in range(12):
        pauses.append(plan.send([bookmark("b", NOON + timedelta(seconds=number))]))
        next(plan)
    assert pauses == sorted(pauses)  # type: ignore[type-var]
    assert pauses[-1] == 1.0
    assert isinstance(plan.send([row("c"), bookmark("b", NOON + timedelta(seconds=60))]), Ended)
    assert next(plan) == 0.05


def test_following_inside_of_one_transaction_is_refused_at_the_second_look() -> None:
    plan = reader(follow=True).steps()
    next(plan)
    plan.send([bookmark("b")])
    next(plan)
    with pytest.raises(WaitInsideTransaction, match="keeps that open for ever"):
        plan.send([bookmark("b")])


@pytest.mark.parametrize("batch_max", [0, -1, BATCH_LIMIT + 1])
def test_a_batch_has_a_bound(batch_max: int) -> None:
    nowhere: Any = None
    with pytest.raises(Misuse, match="from 1 to"):
        Feed("acme", nowhere, after=None, follow=False, batch_max=batch_max)


def test_a_receipt_stays_out_of_the_repr() -> None:
    assert "DE00" not in repr(Ended.from_row(row("c", receipt='{"iban":"DE00"}')))
