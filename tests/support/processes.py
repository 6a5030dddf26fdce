"""What the kernel says of a process."""

from pathlib import Path


def is_stopped(pid: int) -> bool:
    """Whether it was stopped by a signal, and waits to be continued."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
