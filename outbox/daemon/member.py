"""Who a daemon is, as others see it in `outbox.member`."""

import os
import socket
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Literal
from uuid import UUID, uuid4

Kind = Literal["relay", "reconciler"]


def program_version() -> str:
    """The version of this program, as installed."""
    try:
        return version("outbox-relay")
    except PackageNotFoundError:  # run from a checkout that was never installed
        return "0"


@dataclass(frozen=True, slots=True)
class Member:
    """One daemon process, as others see it in `outbox.member`. `receivers` None: it serves all."""

    kind: Kind
    receivers: tuple[str, ...] | None = None
    member_id: UUID = field(default_factory=uuid4)
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    version: str = field(default_factory=program_version)
