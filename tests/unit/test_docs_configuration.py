"""docs/configuration.md describes every name that a file may hold, and no other name of a section is forgotten."""

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from outbox.contract import (
    Auth,
    Contract,
    Fencing,
    Key,
    KeyGrammar,
    Lookup,
    Precondition,
    ReceiverConfig,
    Retry,
    ToolConfig,
)
from outbox.contract.answers import AnswerRule
from outbox.contract.tool import Read, Request
from outbox.settings import DatabaseSettings, ReconcilerSettings, RelaySettings

DOCUMENT = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
MODELS: list[Any] = [
    DatabaseSettings,
    RelaySettings,
    ReconcilerSettings,
    ReceiverConfig,
    ToolConfig,
    Contract,
    Auth,
    Read,
    Request,
    AnswerRule,
    Key,
    KeyGrammar,
    Lookup,
    Precondition,
    Fencing,
    Retry,
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_name_is_described(model: type[BaseModel]) -> None:
    names = [field.alias or name for name, field in model.model_fields.items()]
    assert [name for name in names if not re.search(rf"(`|\b){re.escape(name)}(`|\b)", DOCUMENT)] == []


@pytest.mark.parametrize("model", [ReceiverConfig, ToolConfig, Contract], ids=lambda model: model.__name__)
def test_every_name_of_a_section_has_a_row(model: type[BaseModel]) -> None:
    supported = [name for name, field in model.model_fields.items() if field.exclude is None]
    assert [name for name in supported if not re.search(rf"^\|[^|]*`{name}`[^|]*\|", DOCUMENT, re.MULTILINE)] == []


def test_what_is_not_supported_yet_is_said() -> None:
    later = [name for name, field in Contract.model_fields.items() if field.exclude]
    sentence = next(line for line in DOCUMENT.splitlines() if line.startswith("Not supported yet"))
    assert re.findall(r"`(\w+)`", sentence) == later
