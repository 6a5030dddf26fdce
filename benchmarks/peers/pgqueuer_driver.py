"""PgQueuer: fill a queue, or work until it is empty. Runs in benchmarks/.peers."""

import asyncio
import json
import sys
import time
from datetime import timedelta
from typing import Any

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode


async def main(task: dict[str, Any]) -> None:
    dsn = task["dsn"]
    connection = await asyncpg.connect(
        host=dsn["host"], port=int(dsn["port"]), user=dsn["user"], database=dsn["dbname"]
    )
    driver = AsyncpgDriver(connection)
    if task["act"] == "fill":
        queries = Queries(driver)
        await queries.install()
        for _ in range(0, task["number"], 1000):
            await queries.enqueue(["act"] * 1000, [b"x" * 1000] * 1000, [0] * 1000)
        await connection.close()
        return
    times: list[float] = []
    worker = PgQueuer(driver)

    @worker.entrypoint("act")  # type: ignore[untyped-decorator] # installed for the driver only
    async def act(_: Job) -> None:
        times.append(time.time())

    await worker.run(batch_size=500, mode=QueueExecutionMode.drain, dequeue_timeout=timedelta(seconds=1))
    print(json.dumps({"done": len(times), "started": min(times, default=9e9), "ended": time.time()}))


asyncio.run(main(json.loads(sys.argv[1])))
