"""The relay as a program: the only place where its parts are put together."""

import argparse
import asyncio
import functools
import sys
from collections.abc import Sequence
from pathlib import Path

from outbox.daemon import ClockWatch, Heart, Life, Member, Stopping, collect_rarely, opened
from outbox.errors import ConfigError, DatabaseError, OutboxError
from outbox.lease import DeadMan
from outbox.observe import Meters, configure, emit
from outbox.receivers import open_receiver
from outbox.registry import Wirings
from outbox.settings import Settings, load_settings
from relay.doorbell import Doorbell, channel_of
from relay.loop import Relay
from relay.metrics import METRICS
from relay.shared import Shared

EXIT_OK, EXIT_UNRECORDED, EXIT_USAGE, EXIT_DATABASE = 0, 1, 2, 5


def main(argv: Sequence[str] | None = None) -> int:
    """Run a relay until SIGTERM or SIGINT.

    0: stopped in order. 1: stopped before every answer was recorded (they are unknown, and looked up). 2: the
    configuration is wrong. 5: the database cannot be used.
    """
    arguments = _parser().parse_args(argv)
    stopping = Stopping()
    try:
        settings = load_settings(arguments.config, _overrides(arguments))
        configure(settings.relay.log)
        return EXIT_OK if asyncio.run(_run(settings, stopping)) else EXIT_UNRECORDED
    except OutboxError as error:
        print(f"outbox relay: {error}", file=sys.stderr)  # noqa: T201 - a program that does not start says why
        return EXIT_DATABASE if isinstance(error, DatabaseError) else EXIT_USAGE
    finally:
        stopping.over()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="outbox relay", description="Deliver intents to receivers.")
    parser.add_argument("--config", type=Path, metavar="FILE", help="default: outbox.toml, or OUTBOX_CONFIG")
    parser.add_argument(
        "--receiver", action="append", metavar="NAME", help="serve this receiver only; may be given several times"
    )
    parser.add_argument("--log", choices=("auto", "json", "console"), help="how to write events to standard error")
    return parser


def _overrides(arguments: argparse.Namespace) -> dict[str, dict[str, object]]:
    given = {"receivers": arguments.receiver, "log": arguments.log}
    return {"relay": {name: value for name, value in given.items() if value is not None}}


async def _run(settings: Settings, stopping: Stopping) -> bool:
    stopping.install(settings.relay.grace_seconds)
    collect_rarely()
    relay, dsn = settings.relay, settings.relay_dsn
    member, life, clock, meters = Member("relay", relay.receivers), Life(), ClockWatch(), Meters(*METRICS)
    if relay.metrics_port is not None:
        _serve_metrics(meters, relay.metrics_port, relay.metrics_host)
    listening_dsn = settings.listening_dsn(dsn)
    opening = functools.partial(
        opened, dsn, member, life, settings.database, groups=("relay",), address=settings.address("relay")
    )
    async with (
        opening(connections_max=relay.connections_max - 1) as store,
        opening(connections_max=1) as lease_store,
    ):
        assert life.instance_id is not None  # noqa: S101 - every connection was looked at
        shared = Shared(
            store=store,
            instance_id=life.instance_id,
            settings=relay,
            meters=meters,
            clock=clock,
            wirings=Wirings(store),
            dead_man=DeadMan(),
            channel=None if listening_dsn is None else channel_of(member.member_id),
        )
        heart = Heart(lease_store, member, meters, clock, life if settings.database.pooler else None)
        running = Relay(shared, lease_store, member, heart, open_receiver)
        doorbell = None
        if shared.channel is not None and listening_dsn is not None:
            doorbell = Doorbell(store, shared.channel, listening_dsn, lambda: running.lanes, meters)
        emit("daemon_started", kind="relay", pid=member.pid, host=member.host, version=member.version)
        try:
            clean = await running.run(stopping, doorbell)
        finally:
            stopping.end_within()
        emit("daemon_stopped", kind="relay", pid=member.pid)
        return clean


def _serve_metrics(meters: Meters, port: int, host: str) -> None:
    try:
        meters.serve(port, host)
    except OSError as error:
        raise ConfigError.at("relay.metrics_port", f"metrics cannot be served there ({error.strerror})") from None


if __name__ == "__main__":
    sys.exit(main())
