"""Files by which the programs of the demo and of `outbox dev` tell each other, and other commands, where they are."""

import os
from pathlib import Path


def write_at_once(path: Path, text: str) -> None:
    """Whoever waits for the file finds all of it."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
