"""Work that takes long: a progress bar for people, and an end in order when somebody presses Ctrl-C."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

EXIT_INTERRUPTED: Final = 130


@contextmanager
def interruptible() -> Iterator[asyncio.Event]:
    """
    Take Ctrl-C over, in the running loop: the event says that somebody wants to stop.

    Whoever works in batches looks at it between them, so nothing is broken off in the middle. The second Ctrl-C is the
    ordinary one.
    """
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        asked.set()
        loop.remove_signal_handler(signal.SIGINT)

    try:
        loop.add_signal_handler(signal.SIGINT, stop)
    except (NotImplementedError, RuntimeError, ValueError):
        # Not the main thread: there is no Ctrl-C to take over.
        yield asked
        return
    try:
        yield asked
    finally:
        with contextlib.suppress(ValueError):
            loop.remove_signal_handler(signal.SIGINT)


@contextmanager
def progress(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal's standard error; call it with how far the work is."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.update(task, completed=done)
