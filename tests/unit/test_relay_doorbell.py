"""Anybody may write to a channel: what is no address of a lane rings nothing."""

from uuid import UUID

import pytest

from relay.doorbell import channel_of, parse


@pytest.mark.parametrize(
    ("payload", "address"),
    [
        ("1/2", ((1, 2), None)),
        ("1/2/3", ((1, 2), 3)),
        ("", None),
        ("1", None),
        ("1/", None),
        ("1/2/", None),
        ("-1/2", None),
        ("1/2/3/4", None),
        ("１/2", None),
        ("1/" + "9" * 40, None),
        ("1/2\n", None),
        ("'; drop table outbox.pending; --", None),
    ],
)
def test_a_payload_names_a_lane_and_perhaps_an_operation(payload: str, address: object) -> None:
    assert parse(payload) == address


def test_each_relay_has_a_channel_of_its_own_whose_name_is_an_identifier() -> None:
    one, other = channel_of(UUID(int=1)), channel_of(UUID(int=2))
    assert one != other
    assert one.isidentifier()
    assert len(one) < 64
