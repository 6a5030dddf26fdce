"""Killed at any named point, it loses nothing, repeats nothing and lies about nothing: the merchant's books say so.

Each run has a database of its own; all share one merchant, and several run at once. A test waits for its own run.
"""

import contextlib
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Queue

import pytest

from outbox.crashpoints import POINTS
from tests.support.arena import arena
from tests.support.crashes import CRASHES, operator_dies
from tests.support.merchant import Merchant, merchant
from tests.support.once import made_once
from tests.support.postgres import Cluster, Database
from tests.support.stage import empty

AT_ONCE = 4

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("killed"), pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def shared_merchant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Merchant]:
    with merchant(tmp_path_factory.mktemp("merchant")) as started:
        yield started


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest,
    postgres: Cluster,
    template: Database,
    shared_merchant: Merchant,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Mapping[str, "Future[list[str]]"]]:
    """What came of each run that was asked for; they run in the background."""
    made_once(tmp_path_factory, "killed")
    root = tmp_path_factory.mktemp("runs")
    wanted = [item.name[:-1].partition("[")[2] for item in request.session.items if item.path == request.path]
    with contextlib.ExitStack() as stack:
        free: Queue[Database] = Queue()
        for _ in range(AT_ONCE):
            free.put(stack.enter_context(postgres.database(template)))
        unmigrated = stack.enter_context(postgres.database())

        def run(point: str) -> list[str]:
            crash, times, _ = CRASHES[point]
            database = free.get()
            try:
                empty(database)
                with arena(database, shared_merchant, root / point, prefix=f"{point}.", empty=unmigrated) as made:
                    crash(made, point, times)
                    return made.violations()
            finally:
                free.put(database)

        threads = stack.enter_context(ThreadPoolExecutor(AT_ONCE))
        # The longest first.
        order = sorted(filter(None, wanted), key=lambda point: CRASHES[point][0] is not operator_dies)
        submitted = {point: threads.submit(run, point) for point in order}
        yield submitted
        for future in submitted.values():
            future.cancel()


@pytest.mark.parametrize("point", POINTS)
def test_killed_at(point: str, runs: Mapping[str, "Future[list[str]]"]) -> None:
    assert runs[point].result() == []


def test_every_point_has_its_run() -> None:
    assert set(CRASHES) == set(POINTS)
