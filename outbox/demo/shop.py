"""What the demo's receiver does with a request: who may, what is remembered, what happens, what is said."""

import asyncio
import json
import time
import uuid
from typing import Any

from aiohttp import web

from outbox.daemon import cancelled
from outbox.demo.call import Call, read_call
from outbox.demo.faults import Fault, Faults
from outbox.demo.ledger import Books

PAGE_SIZE_MAX = 100

# What is answered to each kind of request.
_STATUS = {"stock": 200, "payments": 201, "mail": 202}


class Shop:
    """Handlers. One process, one loop: what is not interrupted by an `await` happens at once."""

    def __init__(self, books: Books, faults: Faults) -> None:
        self._books = books
        self._faults = faults
        self._plan = faults.plan
        self._running: set[str] = set()
        self._later: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """Forget what was to happen later."""
        await cancelled(*self._later)

    # ------------------------------------------------------------------------------------------------------- effects

    async def cause_effect(self, request: web.Request) -> web.StreamResponse:
        """Any request that is not a read."""
        call = read_call(request, await request.read())
        allowed = self._may(request, self._plan.write_tokens)
        fault, seconds = None, None
        if allowed:
            fault, seconds = self._faults.choose(call.tool, call.operation or call.identity, call.resource)
        row = self._write_down(request, call.tool, call.identity, fault)
        if allowed:
            answer = await self._answer(call, row, fault, seconds)
        else:
            known = self._may(request, self._plan.read_tokens)
            answer = _error(403, "read_only") if known else _error(401, "unauthorized")
        if answer is None:
            return _hang_up(request)
        self._books.run("answer_request", id=row, status=answer.status)
        return answer

    def _write_down(self, request: web.Request, tool: str, identity: str, fault: Fault | None) -> int:
        """Every request that arrived, whatever becomes of it."""
        row = self._books.run(
            "add_request",
            at=time.time(),
            method=request.method,
            target=request.raw_path,
            tool=tool,
            identity=identity,
            operation=request.headers.get("Outbox-Operation"),
            fence=request.headers.get("Outbox-Fence"),
            fault=fault,
        ).lastrowid
        if row is None:
            raise AssertionError("SQLite numbers every row")
        return row

    async def _answer(self, call: Call, row: int, fault: Fault | None, seconds: float | None) -> web.Response | None:
        """What is answered; None: the connection is closed without a word."""
        if (early := self._instead(fault, seconds)) is not None:
            return early
        if fault is Fault.LOSE_REQUEST:
            return None
        if (refusal := self._refusal(call)) is not None:
            return refusal
        if fault is Fault.LATE_EFFECT:
            self._happen_later(call, row, self._plan.late_seconds if seconds is None else seconds)
            return None
        if fault is Fault.SLOW:
            await self._wait(call, self._plan.slow_seconds if seconds is None else seconds)
            if (refusal := self._refusal(call)) is not None:
                return refusal
        answer = self._happen(call, row)
        if fault is Fault.HANG:
            await asyncio.Event().wait()
        if fault is Fault.LOSE_ANSWER:
            return None
        return _error(500, "internal") if fault is Fault.FAIL_AFTER else answer

    def _instead(self, fault: Fault | None, seconds: float | None) -> web.Response | None:
        """An answer that is given without looking at the request."""
        match fault:
            case Fault.FAIL_BEFORE:
                return _error(500, "internal")
            case Fault.REFUSE:
                return _error(422, "refused")
            case Fault.IN_FLIGHT:
                return _error(409, "in_flight")
            case Fault.STALE_FENCE:
                return _error(409, "stale_fence")
            case Fault.THROTTLE:
                after = self._plan.retry_after_seconds if seconds is None else int(seconds)
                return _error(429, "throttled", {"Retry-After": str(after)})
            case _:
                return None

    def _refusal(self, call: Call) -> web.Response | None:
        """What a well-behaved receiver says to a request that must not, or need not, happen."""
        if call.fence is not None and self._plan.check_fences:
            lane, number = call.fence
            highest = self._books.one("raise_fence", lane=lane, number=number)
            if highest is not None and highest[0] > number:
                return _error(409, "stale_fence")
        if call.key is not None:
            if call.key in self._running:
                return _error(409, "in_flight")
            known = self._books.one("known_key", key=call.key, since=self._keys_since())
            if known is not None and known[0] != call.fingerprint:
                return _error(422, "key_reused")
            if known is not None:
                headers = {"Idempotent-Replayed": "true"}
                return web.Response(status=known[1], text=known[2], content_type="application/json", headers=headers)
        if call.if_match is not None:
            version = self._books.one("version_of", resource=call.resource)
            if call.if_match != f'"{version[0] if version else 0}"':
                return _error(412, "precondition_failed")
        return None

    def _keys_since(self) -> float:
        kept = self._plan.key_retention_seconds
        return 0.0 if kept is None else time.time() - kept

    def _happen(self, call: Call, row: int) -> web.Response:
        """The effect and, in the same transaction, the memory of its key."""
        now = time.time()
        receipt = uuid.uuid4().hex
        said: dict[str, Any] = {"receipt": receipt, "id": receipt, "key": call.key, "resource": call.resource}
        if call.tool == "payments":
            said["reference"] = call.identity
        answer, status = json.dumps(said), _STATUS.get(call.tool, 200)
        self._books.begin()
        self._books.run(
            "add_effect",
            at=now,
            request_id=row,
            tool=call.tool,
            identity=call.identity,
            operation=call.operation,
            resource=call.resource,
            body=call.body,
            receipt=receipt,
            visible_at=now + (self._plan.lag_seconds if call.tool == "payments" else 0.0),
        )
        if call.tool == "stock":
            self._books.run("raise_version", resource=call.resource)
        if call.key is not None:
            self._books.run(
                "remember_key", key=call.key, fingerprint=call.fingerprint, status=status, answer=answer, at=now
            )
        self._books.commit()
        return web.Response(status=status, text=answer, content_type="application/json")

    async def _wait(self, call: Call, seconds: float) -> None:
        """Meanwhile the key is in flight."""
        if call.key is not None:
            self._running.add(call.key)
        try:
            await asyncio.sleep(seconds)
        finally:
            self._running.discard(call.key or "")

    def _happen_later(self, call: Call, row: int, seconds: float) -> None:
        async def later() -> None:
            await self._wait(call, seconds)
            if self._refusal(call) is None:
                self._happen(call, row)

        task = asyncio.create_task(later())
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    # --------------------------------------------------------------------------------------------------------- reads

    async def show_operation(self, request: web.Request) -> web.Response:
        """What happened under a key."""
        key = request.match_info["key"]
        if not self._read(request, "operations", key):
            return _error(401, "unauthorized")
        found = self._books.one("effect_by_identity", tool=None, identity=key, now=time.time())
        if found is None:
            return _error(404, "not_found")
        receipt, resource, tool = found
        return web.json_response({"key": key, "receipt": receipt, "resource": resource, "tool": tool})

    async def list_payments(self, request: web.Request) -> web.Response:
        """A page of payments, of one reference or of all."""
        reference = request.query.get("reference")
        if not self._read(request, "payments", reference or ""):
            return _error(401, "unauthorized")
        try:
            size = min(PAGE_SIZE_MAX, int(request.query.get("limit", "10")))
            before = int(request.query["before"]) if "before" in request.query else None
        except ValueError:
            return _error(400, "invalid")
        rows = self._books.run(
            "effects_page", tool="payments", identity=reference, now=time.time(), before=before, page_size=size + 1
        ).fetchall()
        data = [
            {"id": receipt, "reference": identity, "resource": resource, "status": "succeeded"}
            for _, receipt, resource, identity in rows[:size]
        ]
        more = len(rows) > size
        return web.json_response({"data": data, "has_more": more, "next": str(rows[size - 1][0]) if more else None})

    async def show_stock(self, request: web.Request) -> web.Response:
        """The version of a resource and the key that wrote it."""
        resource = request.match_info["resource"]
        if not self._read(request, "stock", resource):
            return _error(401, "unauthorized")
        version = self._books.one("version_of", resource=resource)
        last = self._books.one("last_writer", tool="stock", resource=resource, now=time.time())
        if version is None or last is None:
            return _error(404, "not_found")
        said = {"resource": resource, "version": version[0], "last_operation": last[0], "receipt": last[1]}
        return web.json_response(said, headers={"ETag": f'"{version[0]}"'})

    async def nothing_to_see(self, request: web.Request) -> web.Response:
        """Any other read."""
        self._read(request, "other", "")
        return _error(404, "not_found")

    def _read(self, request: web.Request, tool: str, identity: str) -> bool:
        """Write the read down; whether it may happen."""
        self._write_down(request, tool, identity, None)
        return self._may(request, self._plan.read_tokens | self._plan.write_tokens)

    def _may(self, request: web.Request, tokens: frozenset[str]) -> bool:
        """Without any tokens in the plan, everybody may."""
        if not (self._plan.write_tokens or self._plan.read_tokens):
            return True
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        return kind == "Bearer" and token in tokens


def _error(status: int, code: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response({"error": {"code": code}}, status=status, headers=headers)


def _hang_up(request: web.Request) -> web.StreamResponse:
    """Close the connection without a byte; what is returned is never sent."""
    if request.transport is not None:
        request.transport.close()
    return web.Response(status=500)
