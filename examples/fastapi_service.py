"""
A service on FastAPI and asyncpg: tenant and principal come from who is logged in, never from what a request says.

    DATABASE_URL=postgresql://shop@/app uvicorn examples.fastapi_service:app
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import asyncpg
from fastapi import Depends, FastAPI, Header, HTTPException, Request
from pydantic import BaseModel

from outbox import Intent, IntentConflict, Operation, Outbox

# Stands for your real authentication.
TOKENS = {"token-of-alice": ("acme", "alice"), "token-of-bob": ("globex", "bob")}


class Refund(BaseModel):
    """What a client may say. There is no tenant in it, and no principal."""

    cents: int


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with asyncpg.create_pool(os.environ["DATABASE_URL"], min_size=1, max_size=4) as pool:
        await pool.execute("create table if not exists refunds (order_id int primary key, asked_by text not null)")
        app.state.pool = pool
        yield


app = FastAPI(lifespan=lifespan)


def caller(authorization: Annotated[str, Header()]) -> Outbox:
    """Whoever is logged in, bound once for this request."""
    known = TOKENS.get(authorization.removeprefix("Bearer "))
    if known is None:
        raise HTTPException(401)
    tenant_id, principal_id = known
    return Outbox(tenant_id, principal_id)


async def transaction(request: Request) -> AsyncIterator[Any]:
    """One transaction per request: committed if the handler returns, rolled back if it raises."""
    async with request.app.state.pool.acquire() as connection, connection.transaction():
        yield connection


Box = Annotated[Outbox, Depends(caller)]
# `function`: it ends before the answer is sent, so that nobody hears 202 of something that was not committed.
Connection = Annotated[Any, Depends(transaction, scope="function")]


@app.post("/orders/{order_id}/refund", status_code=202)
async def refund(order_id: int, body: Refund, box: Box, connection: Connection) -> dict[str, Any]:
    """Ask for a refund. A client that repeats the request gets the same operation, and no second refund."""
    intent = Intent(
        tool="payment.refund",
        operation_id=f"order-{order_id}/refund",
        resource=f"order-{order_id}",
        arguments={"cents": body.cents},
    )
    try:
        operation = await box.aput(connection, intent)
    except IntentConflict as conflict:
        # Another sum under the same order: the first one stands.
        raise HTTPException(409, detail=str(conflict)) from None
    if operation.created:
        await connection.execute("insert into refunds values ($1, $2)", order_id, box.principal_id)
    return told(operation)


@app.get("/operations/{operation_id:path}")
async def show(operation_id: str, box: Box, connection: Connection) -> dict[str, Any]:
    """Tell what is known. `executing` and `unknown` are answers too: the refund may have happened."""
    operation = await box.aget(connection, operation_id)
    if operation is None:
        raise HTTPException(404)
    return told(operation)


def told(operation: Operation) -> dict[str, Any]:
    return {
        "operation_id": operation.operation_id,
        "state": operation.state,
        "ended": operation.ended,
        "external_id": operation.external_id,
    }
