"""One statement on one connection, byte by byte: what is certain before the first, and when it is over.

A call to an inbox is one statement and one transaction, which the server begins and ends: a process that is stopped
here holds nothing there. psycopg connects; sending and reading are ours, on its libpq connection, since both ends of a
call need care. Between the last check and the first byte no other task of this process runs, and nothing is prepared
first, which would put a round trip there. And a call is over only when the server says that it is ready for the next:
a row, even the word that the command is complete, comes *before* the commit, which may still fail.
"""

import asyncio
import contextlib
import enum
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, LiteralString

import psycopg
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, TransactionStatus

from outbox import crashpoints
from outbox.sql import with_numbers

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

    from outbox.receivers import Gate

_BYTEA_OID: Final = 17
_ANY_OID: Final = 0
_TEXT, _BINARY = 0, 1

# SO_LINGER on, for no time: closing discards what was not sent.
_RESET: Final = struct.pack("ii", 1, 0)

Value = str | bytes | int | None


class Phase(enum.IntEnum):
    """How far one call came."""

    CONNECTING = 0
    """No byte of the statement was given to the kernel."""
    SENDING = 1
    """The first write has begun. The effect may exist."""
    SENT = 2
    """The kernel has all of it."""
    OVER = 3
    """The server has said that the transaction is over, one way or the other."""


class Lost(Exception):
    """The connection ended before the server had said how the transaction ended."""


class NotReplicated(Exception):
    """It was committed, and nobody knows whether on more than this one server, as that server was told to make sure."""


@dataclass(frozen=True, slots=True)
class Fault:
    """
    An error that rolled the transaction back.

    `inside`: it was raised inside of the function that was called, or by the commit of what that has done; otherwise
    the call itself was refused.
    """

    sqlstate: str
    message: str
    inside: bool


@dataclass(frozen=True, slots=True)
class Reply:
    """What a call returned: one row by column, or a fault. The transaction is committed, or rolled back."""

    row: Mapping[str, str | None]
    fault: Fault | None = None


class Link:
    """A connection, and what is known about it."""

    def __init__(self, connection: psycopg.AsyncConnection[object]) -> None:
        self._connection = connection
        self.pgconn: PGconn = connection.pgconn
        self.warned_at_commit = False
        """
        The commit of the last call warned: its wait for a synchronous standby was broken off.

        Such a warning has no SQLSTATE of its own. But a call is one function, and what is said in there has a context.
        """
        connection.add_notice_handler(self._notice)

    @property
    def host(self) -> str:
        """Where it leads."""
        return f"{self.pgconn.host.decode(errors='replace')}:{self.pgconn.port.decode(errors='replace')}"

    @property
    def usable(self) -> bool:
        """It stands, and no transaction is open on it."""
        return self.pgconn.status == ConnStatus.OK and self.pgconn.transaction_status == TransactionStatus.IDLE

    def drop(self) -> None:
        """
        End it at once. May be called twice.

        libpq says good-bye in order, and would send what it still holds of a statement with it. So the socket is closed
        for writing first, and what the kernel holds is thrown away.
        """
        if self.pgconn.status != ConnStatus.BAD and not self.usable:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self.pgconn.socket)) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                sock.shutdown(socket.SHUT_WR)
        self.pgconn.finish()

    def _notice(self, notice: psycopg.errors.Diagnostic) -> None:
        self.warned_at_commit |= notice.severity_nonlocalized == "WARNING" and not notice.context


class Exchange:
    """How far one call came. Made per attempt, or (without a gate) per look, and used once."""

    def __init__(self, gate: "Gate | None" = None) -> None:
        self.phase = Phase.CONNECTING
        self.host: str | None = None
        self._gate = gate

    async def run(self, link: Link, statement: LiteralString, values: Mapping[str, Value]) -> Reply:
        """
        Check for the last time, send the statement once, and read until the server is ready for the next.

        Raises TooLate before the first byte; Lost or NotReplicated after it. The time is bounded by the caller. When
        this raises, or is cancelled, the connection is to be dropped: nothing more of the statement leaves then.
        """
        self.host = link.host
        link.warned_at_commit = False
        text, names = with_numbers(statement)
        arguments = [values[name] for name in names]
        if self._gate is None:
            self._send(link.pgconn, text, arguments)
            await self._flush(link.pgconn)
        else:
            try:
                self._gate.sending()
                self._gate.check()
                crashpoints.reach("before_send")
                self._send(link.pgconn, text, arguments)
                await self._flush(link.pgconn)
                crashpoints.reach("after_send")
            finally:
                self._gate.sent()
        results = await _results(link.pgconn)
        if not link.usable:
            raise Lost
        self.phase = Phase.OVER
        fault = _fault_in(results)
        if fault is None and link.warned_at_commit:
            raise NotReplicated
        return Reply({}, fault) if fault is not None else Reply(_row(results))

    def _send(self, pgconn: "PGconn", text: str, arguments: Sequence[Value]) -> None:
        self.phase = Phase.SENDING
        try:
            pgconn.send_query_params(
                text.encode(),
                [_encoded(value) for value in arguments],
                [_BYTEA_OID if isinstance(value, bytes) else _ANY_OID for value in arguments],
                [_BINARY if isinstance(value, bytes) else _TEXT for value in arguments],
            )
        except psycopg.OperationalError:
            raise Lost from None

    async def _flush(self, pgconn: "PGconn") -> None:
        """Wait for the kernel to take the rest of what it did not take at once."""
        try:
            while pgconn.flush():
                if self._gate is not None:
                    crashpoints.reach("mid_send")
                await _ready(pgconn.socket, write=True)
                # A server that is busy telling us something may not listen before it has been heard.
                pgconn.consume_input()
        except psycopg.OperationalError:
            raise Lost from None
        self.phase = Phase.SENT


async def _results(pgconn: "PGconn") -> "list[PGresult]":
    """Everything up to the word that the server is ready for the next statement."""
    results: list[PGresult] = []
    try:
        while True:
            while pgconn.is_busy():
                await _ready(pgconn.socket)
                pgconn.consume_input()
            result = pgconn.get_result()
            if result is None:
                return results
            results.append(result)
    except psycopg.OperationalError:
        raise Lost from None


async def _ready(fd: int, *, write: bool = False) -> None:
    """Return once there is something to read, or (`write`) room to write."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(fd, ready.set)
    if write:
        loop.add_writer(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)
        if write:
            loop.remove_writer(fd)


def _encoded(value: Value) -> bytes | None:
    return str(value).encode() if isinstance(value, str | int) else value


def _fault_in(results: "Sequence[PGresult]") -> Fault | None:
    failed = next((result for result in results if result.status == ExecStatus.FATAL_ERROR), None)
    if failed is None:
        return None

    def field(name: DiagnosticField) -> str:
        return (failed.error_field(name) or b"").decode(errors="replace")

    # Context is what a function adds on the way out; what comes after the row is said by the commit, about what the
    # function has done (deferred constraints). Detail is left out: it may quote rows.
    inside = bool(field(DiagnosticField.CONTEXT)) or failed is not results[0]
    return Fault(field(DiagnosticField.SQLSTATE), field(DiagnosticField.MESSAGE_PRIMARY), inside)


def _row(results: "Sequence[PGresult]") -> dict[str, str | None]:
    """The one row of the one result, by column; empty where that is not what came."""
    if len(results) != 1 or results[0].status != ExecStatus.TUPLES_OK or results[0].ntuples != 1:
        return {}
    (result,) = results
    row = {}
    for column in range(result.nfields):
        name, value = result.fname(column), result.get_value(0, column)
        row[(name or b"").decode()] = None if value is None else value.decode(errors="replace")
    return row
