"""Which schemas this program works on. Apart from `outbox.migrate`, since a daemon needs no migrations to start."""

from typing import Final

# The schema that this code was written for, and the oldest one that its daemons still run on: a daemon refuses only
# what is outside this range, so that versions N and N+1 run side by side during a rolling upgrade.
SCHEMA_VERSION: Final = 1
OLDEST_SCHEMA: Final = 1
# What this code calls itself when a migration says which daemons are too old (`instance.min_daemon`).
DAEMON_VERSION: Final = 1
