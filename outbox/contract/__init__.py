"""
What users write about their receivers and tools, and what is stored of it.

`ReceiverConfig` says how to speak to something that produces effects, `ToolConfig` how one operation is asked for,
`Contract` what the receiver promises for it. `Wiring` is the immutable document made of all three that an attempt is
bound to. How these contradict each other is found by `outbox.contract.check.problems`.
"""

from outbox.contract.answers import AnswerRule, Match, NotFound, Verify
from outbox.contract.auth import Auth
from outbox.contract.check import problems
from outbox.contract.model import Contract
from outbox.contract.parts import (
    Fencing,
    Key,
    KeyGrammar,
    Lookup,
    Precondition,
    ReplayMarker,
    Retry,
)
from outbox.contract.tool import Read, ReceiverConfig, Request, ToolConfig
from outbox.contract.wiring import ReceiverFacts, Wiring

__all__ = [
    "AnswerRule",
    "Auth",
    "Contract",
    "Fencing",
    "Key",
    "KeyGrammar",
    "Lookup",
    "Match",
    "NotFound",
    "Precondition",
    "Read",
    "ReceiverConfig",
    "ReceiverFacts",
    "ReplayMarker",
    "Request",
    "Retry",
    "ToolConfig",
    "Verify",
    "Wiring",
    "problems",
]
