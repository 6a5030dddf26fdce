"""A receiver with its own books, as a process of its own: for the demo, `outbox dev`, and tests that need a judge.

    python -m outbox.demo.receiver --port 0 --ledger PATH [--faults JSON] [--port-file FILE]

    PUT    /stock/{resource}    honours Idempotency-Key (inside its retention) and If-Match, in this order
    POST   /payments            ignores keys; `reference` in the body is what a list shows later
    POST   /mail                neither key nor look-up
    *      /any/other/path      anything with an Idempotency-Key is honoured, anything without one just happens
    GET    /operations/{key}    what happened under a key; 404 means nothing did (strong)
    GET    /payments            a list of payments, newest first: ?reference= ?limit= ?before= (may lag)
    GET    /stock/{resource}    version and last writer
    POST   /_control            a fault for the next request that it fits (`OneShot`); GET: those that still wait

It listens on the loopback address only. When it serves, it prints one line of JSON with its port and writes the port to
the port file. `outbox.demo.ledger` reads the books.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path

from aiohttp import web
from pydantic import ValidationError

from outbox.demo.faults import FaultPlan, Faults, OneShot
from outbox.demo.files import write_at_once
from outbox.demo.ledger import Books
from outbox.demo.shop import Shop

BODY_BYTES_MAX = 1_048_576
HOST = "127.0.0.1"

FAULTS: web.AppKey[Faults] = web.AppKey("faults", Faults)


def make_app(books: Books, plan: FaultPlan) -> web.Application:
    """The receiver as an application of aiohttp."""
    faults = Faults(plan)
    shop = Shop(books, faults)
    app = web.Application(client_max_size=BODY_BYTES_MAX)
    app[FAULTS] = faults
    app.router.add_post("/_control", _control)
    app.router.add_get("/_control", _waiting)
    app.router.add_get("/operations/{key}", shop.show_operation)
    app.router.add_get("/payments", shop.list_payments)
    app.router.add_get("/stock/{resource}", shop.show_stock)
    app.router.add_get("/{anything:.*}", shop.nothing_to_see)
    app.router.add_route("*", "/{anything:.*}", shop.cause_effect)

    async def stop(_: web.Application) -> None:
        await shop.stop()

    app.on_cleanup.append(stop)
    return app


async def _control(request: web.Request) -> web.Response:
    try:
        shot = OneShot.model_validate_json(await request.read())
    except ValidationError as error:
        return web.json_response({"error": {"code": "invalid", "message": str(error)}}, status=400)
    request.app[FAULTS].one_shots.append(shot)
    return web.json_response(shot.model_dump())


async def _waiting(request: web.Request) -> web.Response:
    return web.json_response([shot.model_dump() for shot in request.app[FAULTS].one_shots])


async def serve(*, port: int, ledger: Path, plan: FaultPlan, port_file: Path | None) -> None:
    """Serve until SIGTERM or SIGINT."""
    books = Books(ledger)
    runner = web.AppRunner(make_app(books, plan), access_log=None, handler_cancellation=False)
    await runner.setup()
    site = web.TCPSite(runner, HOST, port, shutdown_timeout=0.1)
    await site.start()
    bound = int(runner.addresses[0][1])
    if port_file is not None:
        write_at_once(port_file, f"{bound}\n")
    print(json.dumps({"event": "receiver_ready", "port": bound, "pid": os.getpid()}), flush=True)  # noqa: T201
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    try:
        await stopped.wait()
    finally:
        await runner.cleanup()
        books.close()


def main(arguments: list[str] | None = None) -> int:
    """Entry point of `python -m outbox.demo.receiver`."""
    parser = argparse.ArgumentParser(prog="python -m outbox.demo.receiver", description="A receiver, with its books.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--ledger", type=Path, required=True, help="SQLite file with its books; kept if it exists")
    parser.add_argument("--faults", default="{}", help="what goes wrong, as JSON (outbox.demo.faults.FaultPlan)")
    parser.add_argument("--port-file", type=Path, help="gets the port once it serves")
    given = parser.parse_args(arguments)
    try:
        plan = FaultPlan.model_validate_json(given.faults)
    except ValidationError as error:
        parser.error(f"--faults: {error}")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(port=given.port, ledger=given.ledger, plan=plan, port_file=given.port_file))
    return 0


if __name__ == "__main__":
    sys.exit(main())
