"""A relay that is told to serve a receiver that nobody has applied says so, once, and what was probably meant."""

import logging
from typing import cast

import pytest

from outbox.contract import ReceiverConfig
from outbox.receivers import open_receiver
from outbox.registry import ReceiverEntry, Registry, Wirings
from relay.services import Services


def test_an_unknown_receiver_is_named_once_with_the_one_that_was_probably_meant(
    caplog: pytest.LogCaptureFixture,
) -> None:
    entry = ReceiverEntry(
        receiver_id=1, name="warehouse", lanes=1, doorbell=True, config=ReceiverConfig(transport="scripted")
    )
    registry = Registry({"warehouse": entry}, {}, cast("Wirings", None))
    services = Services(("warehous",), open_receiver, lambda *_: None)
    with caplog.at_level(logging.INFO, logger="outbox"):
        services.update(registry)
        services.update(registry)
    (record,) = (one for one in caplog.records if one.getMessage() == "registry_refused")
    assert record.__dict__["fields"] == {
        "receiver": "warehous",
        "reason": "no receiver of this name has been applied: did you mean 'warehouse'?",
    }
    assert services.by_name == {}
