"""One log of several programs: for people on a terminal, JSON lines elsewhere. Each line says whose it is."""

import json
import sys
import threading
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from outbox.outcome import storable

OURSELVES: Final = "dev"
NAME_CHARS: Final = 10
# A line of a log; longer ones are cut.
LINE_BYTES_MAX: Final = 8_192


class Lines:
    """Writes whole lines, from whichever thread."""

    def __init__(self, stream: TextIO | None = None, *, as_json: bool = False) -> None:
        self._stream = stream or sys.stdout
        self._people = not as_json and self._stream.isatty()
        self._lock = threading.Lock()

    def say(self, event: str, text: str, **facts: object) -> None:
        """Report what `outbox dev` itself did: `text` for people, all of it for programs."""
        if self._people:
            self._write(f"{OURSELVES:{NAME_CHARS}} {text}")
        else:
            at = datetime.now(UTC).isoformat(timespec="milliseconds")
            self._write_json({"at": at, "program": OURSELVES, "event": event, "message": text, **facts})

    def pass_on(self, program: str, line: bytes) -> None:
        """Pass on a line that a program wrote."""
        text = storable(line.decode(errors="replace").rstrip(), LINE_BYTES_MAX)
        if not text:
            return
        said = _event(text)
        if self._people:
            self._write(f"{program:{NAME_CHARS}} {text if said is None else _for_people(said)}")
        else:
            self._write_json({"program": program, **({"message": text} if said is None else said)})

    def _write_json(self, line: dict[str, Any]) -> None:
        self._write(json.dumps(line, ensure_ascii=False, default=str))

    def _write(self, line: str) -> None:
        with self._lock:
            self._stream.write(f"{line}\n")
            self._stream.flush()


def _event(text: str) -> dict[str, Any] | None:
    """What a program of ours reports; None: something else (a traceback, a library's warning)."""
    try:
        said = json.loads(text)
    except ValueError:
        return None
    return said if isinstance(said, dict) and "event" in said else None


def _for_people(said: dict[str, Any]) -> str:
    """As the daemons write it on a terminal."""
    facts = dict(said)
    at, level, event = facts.pop("at", None), facts.pop("level", "info"), facts.pop("event")
    time = datetime.fromisoformat(at).astimezone().strftime("%H:%M:%S") if isinstance(at, str) else " " * 8
    fields = " ".join(f"{name}={value}" for name, value in facts.items())
    return f"{time} {level:7} {event} {fields}".rstrip()
