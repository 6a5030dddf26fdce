"""
Receivers, tools and contract versions as the database holds them: the only place from which daemons take them.

`apply` writes what a file says (`apply.py`), `read_registry` reads what is there (`read.py`).
"""

from outbox.registry.apply import Change, Report, apply, apply_file
from outbox.registry.derived import derived
from outbox.registry.read import ReceiverEntry, Registry, ToolEntry, Wirings, read_registry

# The files of statements (outbox/sql) that a store needs in order to read the registry, and to write it.
READING = "registry"
WRITING = "apply"

__all__ = [
    "READING",
    "WRITING",
    "Change",
    "ReceiverEntry",
    "Registry",
    "Report",
    "ToolEntry",
    "Wirings",
    "apply",
    "apply_file",
    "derived",
    "read_registry",
]
