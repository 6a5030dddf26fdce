"""Which clause of which contract decides."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from outbox.contract import Wiring
from outbox.decide import Person, no_resend
from outbox.inspect.dossier import Dossier
from outbox.inspect.words import CLAUSES
from outbox.states import STARTS, TERMINAL

# A doubt rests on these also where nothing is said: then that is the reason.
_ALWAYS_SAID: Final = frozenset({"key", "lookup", "in_flight_bound"})


def contract_lines(dossier: Dossier) -> Iterator[str]:
    """Say what the contract promises, and which of its clauses decide what comes next."""
    guarantee, wiring = dossier.guarantee, dossier.wiring
    if guarantee is None or wiring is None:
        yield f"The tool {dossier.row['tool']} is no longer registered."
        return
    stated = wiring.contract.source or "nobody has stated a source"
    verified = f", verified {wiring.contract.verified_at}" if wiring.contract.verified_at else ""
    yield f"Contract version {dossier.version} of {wiring.tool} ({stated}{verified}) makes it: {guarantee.name}."
    if dossier.state in TERMINAL:
        return
    if dossier.in_force is not None and dossier.in_force != wiring:
        yield (
            "It is pinned to that version since its first attempt; another one is in force now, and counts for it only"
            " where its window is shorter."
        )
    for name in _deciding(dossier, wiring):
        yield f"Decided by {_clause(wiring, name)}."
    if dossier.state not in STARTS:
        yield from (f"Provided that {condition}." for condition in guarantee.conditions)


def _deciding(dossier: Dossier, wiring: Wiring) -> Iterator[str]:
    """The names of the clauses that the next step of an operation in doubt rests on."""
    if not dossier.is_unknown:
        return
    names: list[str] = []
    if isinstance(dossier.decision, Person):
        names += CLAUSES[dossier.decision.reason]
    refusal = no_resend(dossier.facts, wiring, dossier.evidence, dossier.now, in_force=dossier.in_force)
    names += CLAUSES[refusal] if refusal is not None else ("key_retention", "margin", "repeat_safe")
    if wiring.lookup is not None:
        # Behind a fence that a look raises, no bound is needed.
        names += ["lookup", "fencing" if wiring.look_excludes else "in_flight_bound"]
    stated = _stated(wiring)
    yield from dict.fromkeys(name for name in names if name in stated or name in _ALWAYS_SAID)


def _stated(wiring: Wiring) -> Mapping[str, Any]:
    """The clauses that are not what a contract says by saying nothing."""
    stated: Mapping[str, Any] = wiring.contract.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return stated


def _clause(wiring: Wiring, name: str) -> str:
    """A clause as it stands in the contract, or that it does not stand there."""
    value = _stated(wiring).get(name, getattr(wiring.contract, name))
    return f"{name}, which the contract does not state" if value is None else f"{name} = {_toml(value)}"


def _toml(value: Any) -> str:
    """A value as it would be written in the file."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {_toml(part)}" for name, part in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)
