"""What the kernel says of processes: that one is stopped, and that whoever ends leaves nobody behind."""

import contextlib
from collections import defaultdict
from pathlib import Path


def _stat(pid: int) -> tuple[str, int] | None:
    """State and parent of a process; None if there is none."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[0], int(fields[1])
    return None


def lives(pid: int) -> bool:
    """There is such a process, and it has not ended. One that nobody has reaped has ended."""
    found = _stat(pid)
    return found is not None and found[0] not in "ZX"


def is_stopped(pid: int) -> bool:
    """Whether it was stopped by a signal, and waits to be continued."""
    found = _stat(pid)
    return found is not None and found[0] == "T"


def descendants(pid: int) -> set[int]:
    """Every process that was started by this one, or by those that it has started."""
    children: defaultdict[int, set[int]] = defaultdict(set)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (found := _stat(int(entry.name))) is not None:
            children[found[1]].add(int(entry.name))
    seen: set[int] = set()
    following = {pid}
    while following := {child for one in following for child in children[one]} - seen:
        seen |= following
    return seen
