"""procrastinate: fill a queue, or work until it is empty. Runs in benchmarks/.peers."""

import asyncio
import json
import sys
import time
from typing import Any

from procrastinate import App, PsycopgConnector


async def main(task: dict[str, Any]) -> None:
    app = App(connector=PsycopgConnector(kwargs={**task["dsn"]}))
    times: list[float] = []

    @app.task(name="act")  # type: ignore[untyped-decorator] # installed for the driver only
    async def act(payload: str) -> None:
        times.append(time.time() + 0 * len(payload))

    async with app.open_async():
        if task["act"] == "fill":
            await app.schema_manager.apply_schema_async()
            await act.batch_defer_async(*({"payload": "x" * 1000} for _ in range(task["number"])))
            return
        await app.run_worker_async(wait=False, concurrency=32, delete_jobs="always")
    print(json.dumps({"done": len(times), "started": min(times, default=9e9), "ended": max(times, default=0)}))


asyncio.run(main(json.loads(sys.argv[1])))
