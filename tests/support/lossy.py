"""A wire to PostgreSQL that loses answers: the statement is committed, and the connection dies before anybody hears."""

import asyncio
import contextlib
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from psycopg.conninfo import conninfo_to_dict

from tests.support.postgres import url

# Words by which the statements of writers and daemons are known on the wire, whatever their parameters.
BEGIN: Final = "set state = 'executing'"
END: Final = "insert into outbox.outcome"
DOUBT: Final = "outbox.doubt_upsert("
TAKE: Final = "from outbox.take("
SETTLE: Final = "outbox.settle_all("
PUT: Final = "outbox.put("
COMMIT: Final = "COMMIT"

_STARTUP_SECONDS_MAX: Final = 10.0


class Wire:
    """Listens on a socket of its own and passes on what clients and server say. `lose` is read at any time."""

    def __init__(self, server: Path, folder: Path, port: str) -> None:
        self.lose: Counter[str] = Counter()
        """So many answers to statements that contain this text are still to be lost."""
        self.lost: Counter[str] = Counter()
        """So many were: committed, and not heard of."""
        self.folder = folder
        self._server = server / f".s.PGSQL.{port}"
        self._socket = folder / f".s.PGSQL.{port}"
        self._loop = asyncio.new_event_loop()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Listen, in a thread."""
        self._thread.start()
        assert self._listening.wait(_STARTUP_SECONDS_MAX)

    def stop(self) -> None:
        """Cut every connection."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def dsn(self, dsn: str) -> str:
        """The same database, through this wire."""
        return url(dsn, host=str(self.folder))

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_unix_server(self._pass_on, str(self._socket)))
        self._listening.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_unix_connection(str(self._server))
        except OSError:
            writer.close()
            return
        talk = _Talk(self, reader, writer, up_reader, up_writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await talk.run()
        for each in (writer, up_writer):
            each.close()


class _Talk:
    """One client and one server process."""

    def __init__(
        self,
        wire: Wire,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        up_reader: asyncio.StreamReader,
        up_writer: asyncio.StreamWriter,
    ) -> None:
        self._wire = wire
        self._client = reader, writer
        self._server = up_reader, up_writer
        self._prepared: dict[bytes, str] = {}
        self._bound = ""
        self._losing: str | None = None

    async def run(self) -> None:
        """Talk until either side, or we, hang up."""
        first = await self._client[0].readexactly(4)
        self._server[1].write(first + await self._client[0].readexactly(int.from_bytes(first) - 4))
        sides = {asyncio.create_task(self._up()), asyncio.create_task(self._down())}
        done, rest = await asyncio.wait(sides, return_when=asyncio.FIRST_COMPLETED)
        for task in rest:
            task.cancel()
        await asyncio.gather(*done, *rest, return_exceptions=True)

    async def _up(self) -> None:
        while True:
            kind, body = await _message(self._client[0])
            self._hear(kind, body)
            self._server[1].write(_bytes(kind, body))
            await self._server[1].drain()

    def _hear(self, kind: bytes, body: bytes) -> None:
        """Follow the extended protocol: which text does a client execute?"""
        if kind == b"P":
            name, text, _ = body.split(b"\0", 2)
            self._prepared[name] = text.decode()
        elif kind == b"B":
            self._bound = self._prepared.get(body.split(b"\0", 2)[1], "")
        executed = {b"E": self._bound, b"Q": body.rstrip(b"\0").decode(errors="replace")}.get(kind, "")
        for words in [words for words, left in self._wire.lose.items() if left > 0 and words in executed]:
            self._wire.lose[words] -= 1
            self._losing = words

    async def _down(self) -> None:
        kept: list[bytes] = []
        failed = False
        while True:
            kind, body = await _message(self._server[0])
            kept.append(_bytes(kind, body))
            failed = failed or kind == b"E"
            if self._losing is not None and kind != b"Z":
                continue
            if self._losing is not None and not failed:
                self._wire.lost[self._losing] += 1
                return
            self._losing, failed = None, False
            self._client[1].write(b"".join(kept))
            kept.clear()
            await self._client[1].drain()


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    return head[:1], await reader.readexactly(int.from_bytes(head[1:]) - 4)


def _bytes(kind: bytes, body: bytes) -> bytes:
    return kind + (len(body) + 4).to_bytes(4) + body


@contextmanager
def lossy_wire(dsn: str, lose: Mapping[str, int] | None = None) -> Iterator[Wire]:
    """A wire to the server of this DSN, which must be reached through a socket."""
    parts = conninfo_to_dict(dsn)
    with tempfile.TemporaryDirectory(prefix="outbox-wire-", dir="/tmp") as folder:
        wire = Wire(Path(str(parts["host"])), Path(folder), str(parts["port"]))
        wire.lose.update(lose or {})
        wire.start()
        try:
            yield wire
        finally:
            wire.stop()
