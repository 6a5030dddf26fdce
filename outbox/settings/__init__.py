"""
What `outbox.toml` and the environment say: file < environment (`OUTBOX_SECTION__NAME`) < flags.

Daemons read their DSN and their own section here, and nothing else: receivers, tools and contracts come to them from
the database. `outbox apply` reads the whole file (`Configuration`) and stores it there. So a mistake in one tool of a
file stops no daemon, and a daemon on another host needs no copy of it.
"""

from outbox.settings.load import (
    FILE_NAME,
    FILE_VARIABLE,
    Configuration,
    Settings,
    config_path,
    load_configuration,
    load_settings,
)
from outbox.settings.sections import DatabaseSettings, ReconcilerSettings, RelaySettings

__all__ = [
    "FILE_NAME",
    "FILE_VARIABLE",
    "Configuration",
    "DatabaseSettings",
    "ReconcilerSettings",
    "RelaySettings",
    "Settings",
    "config_path",
    "load_configuration",
    "load_settings",
]
