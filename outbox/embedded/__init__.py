"""A PostgreSQL server of one's own, with nothing installed for it: for the demo, `outbox dev` and tests."""

from outbox.embedded.binaries import Binaries, Origin, find_binaries
from outbox.embedded.server import Server

__all__ = ["Binaries", "Origin", "Server", "find_binaries"]
