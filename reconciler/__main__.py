"""`python -m reconciler`: the composition root. Reads settings, installs signals, and exits with a code."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from outbox import observe
from outbox.daemon import Stopping, collect_rarely
from outbox.errors import ConfigError, DatabaseError, OutboxError, ReceiverError
from outbox.observe import emit
from outbox.settings import Settings, load_settings
from reconciler.service import reconciling

EXIT_FAULT, EXIT_USAGE, EXIT_DATABASE = 1, 2, 5


async def serve(settings: Settings, receivers: Sequence[str], stopping: Stopping) -> None:
    """Run a reconciler until SIGTERM or SIGINT."""
    own = settings.reconciler
    stopping.install(own.grace_seconds)
    collect_rarely()
    async with reconciling(settings, receivers) as reconciler:
        if own.metrics_port is not None:
            reconciler.meters.serve(own.metrics_port, own.metrics_host)
        emit("daemon_started", kind="reconciler")
        try:
            await reconciler.run(stopping)
        finally:
            stopping.end_within()
    emit("daemon_stopped", kind="reconciler")


def main(argv: Sequence[str] | None = None) -> int:
    """
    Run a reconciler; return its exit code.

    0: asked to stop, and stopped. 2: the configuration is wrong, or a receiver can only be asked with a credential that
    can cause effects. 5: the database, or the role. 1: a fault of this program.
    """
    parser = argparse.ArgumentParser(prog="outbox reconciler", description="Settle what is unknown.")
    parser.add_argument("--config", type=Path, help="default: OUTBOX_CONFIG, else outbox.toml")
    parser.add_argument("--receiver", action="append", default=[], metavar="NAME", help="ask this receiver only")
    given = parser.parse_args(argv)
    stopping = Stopping()
    try:
        settings = load_settings(given.config)
        observe.configure(settings.reconciler.log)
        asyncio.run(serve(settings, given.receiver, stopping))
    except OutboxError as error:
        print(f"outbox reconciler: {error}", file=sys.stderr)  # noqa: T201 - nothing else would say why it ended
        return _exit_code(error)
    finally:
        stopping.over()
    return 0


def _exit_code(error: OutboxError) -> int:
    if isinstance(error, ConfigError | ReceiverError):
        return EXIT_USAGE
    return EXIT_DATABASE if isinstance(error, DatabaseError) else EXIT_FAULT


if __name__ == "__main__":
    sys.exit(main())
