"""
One run of an agent whose tools have real effects. Kill it anywhere and run it again: each effect happens once.

    DATABASE_URL=postgresql://shop@/app python examples/agent_step.py RUN_ID
"""

import os
import sys
from collections.abc import Iterator
from typing import Any

import psycopg

from outbox import Intent, Operation, Outbox, State

# From the context in which the agent runs. Nothing that the model writes can change whose data these are.
box = Outbox(tenant_id="acme", principal_id="agent/support", dsn=os.environ.get("DATABASE_URL"))


def model(run_id: str) -> Iterator[tuple[str, str | None, dict[str, Any]]]:
    """Stand for a language model: it answers a tool call with the next one, and may repeat itself."""
    order = f"order-{run_id}"
    yield "payment.refund", order, {"cents": 1999, "reason": "arrived broken"}
    yield "payment.refund", order, {"reason": "arrived broken", "cents": 1999}  # the same call, in other words
    yield "mail.send", None, {"to": "kim@example.com", "text": f"Your money for {order} is on its way."}


def step(run_id: str, tool: str, resource: str | None, arguments: dict[str, Any]) -> Operation:
    """
    Carry out one tool call.

    The id follows from the run, the tool and the arguments, whatever order these stand in: the same call is the same
    operation, in this process and in the next. A call that is meant to happen again needs a run id of its own, such as
    `run-17/step-4`.
    """
    intent = Intent(
        tool=tool, resource=resource, arguments=arguments, operation_id=box.operation_id(run_id, tool, arguments)
    )
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        box.put(connection, intent)
    # The put is committed. To die here loses nothing: the next run of this step finds the same operation.
    return box.wait(intent.operation_id, timeout_seconds=20)


def observation(operation: Operation) -> str:
    """Say to the model what is known, and what is not."""
    match operation.state:
        case State.SUCCEEDED:
            return f"done, receipt {operation.receipt}"
        case State.REJECTED:
            return f"not done ({operation.cause}); it will not be tried again"
        case State.PROPOSED:
            return "waits for somebody's approval"
        case State.AUTHORIZED | State.EXECUTING:
            return "under way; do not ask for it again"
        case State.UNKNOWN:
            return "it may have happened, and is being found out; do not ask for it again"


def main(run_id: str) -> None:
    for tool, resource, arguments in model(run_id):
        operation = step(run_id, tool, resource, arguments)
        print(f"{tool} {operation.operation_id}: {observation(operation)}")


if __name__ == "__main__":
    main(sys.argv[1])
