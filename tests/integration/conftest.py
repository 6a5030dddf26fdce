"""For tests of the schema: one database per module, emptied before each test."""

from collections.abc import Iterator

import pytest

from tests.support.postgres import Cluster, Database
from tests.support.stage import Stage, empty


@pytest.fixture(scope="module")
def module_database(postgres: Cluster, template: Database) -> Iterator[Database]:
    """A migrated database that the tests of one module use one after the other."""
    with postgres.database(template) as made:
        yield made


@pytest.fixture
def stage(module_database: Database) -> Iterator[Stage]:
    """A stage on which nothing has happened yet."""
    empty(module_database)
    with Stage(module_database) as made:
        yield made
