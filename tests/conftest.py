"""What every test may use: a real PostgreSQL database of its own. Settings of the surroundings never reach a test."""

import os
import socket
from collections.abc import Iterator
from typing import cast

import hypothesis
import pytest

pytest.register_assert_rewrite("tests.support")

from tests.support.postgres import Choice, Cluster, Database, cluster, describe  # noqa: E402 - after the line above

# No property has a time limit of its own (pytest-timeout bounds the test). CI tries the same examples each time, so
# that a change is judged by what it changes; a developer's machine explores.
hypothesis.settings.register_profile(
    "outbox",
    deadline=None,
    derandomize="CI" in os.environ,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("outbox")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--pg",
        choices=("auto", "embedded", "installed"),
        default="auto",
        help="the PostgreSQL to test on; auto: OUTBOX_TEST_DSN (of a superuser) > embedded > installed",
    )
    parser.addoption(
        "--write-schema", action="store_true", help="write tests/migration/schema.sql instead of comparing"
    )


def pytest_configure() -> None:
    """Forget what could lead a test to somebody's real outbox: our own settings, and libpq's."""
    for name in list(os.environ):
        if name.startswith(("OUTBOX_", "PG")) and not name.startswith("OUTBOX_TEST_"):
            del os.environ[name]


def pytest_report_header(config: pytest.Config) -> str:
    return describe(_choice(config))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Repeat on an installed PostgreSQL what meets PostgreSQL; the other tests would only say the same again."""
    if _choice(config) == "installed":
        meeting = {item for item in items if "postgres" in getattr(item, "fixturenames", ())}
        config.hook.pytest_deselected(items=[item for item in items if item not in meeting])
        items[:] = [item for item in items if item in meeting]


def _choice(config: pytest.Config) -> Choice:
    return cast("Choice", config.getoption("--pg"))


@pytest.fixture(scope="session")
def postgres(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """The server of this session."""
    with cluster(_choice(pytestconfig)) as started:
        yield started


@pytest.fixture(scope="session")
def template(postgres: Cluster) -> Iterator[Database]:
    """A migrated database that is copied and never connected to."""
    with postgres.template() as migrated:
        yield migrated


@pytest.fixture
def database(postgres: Cluster, template: Database) -> Iterator[Database]:
    """A migrated database of this test's own."""
    with postgres.database(template) as copied:
        yield copied


@pytest.fixture
def empty_database(postgres: Cluster) -> Iterator[Database]:
    """A database of this test's own, without the schema."""
    with postgres.database() as made:
        yield made


@pytest.fixture
def free_port() -> int:
    """A TCP port of the loopback address that nobody listens on. For programs that cannot be given port 0."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port
