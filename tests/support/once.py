"""What takes long is made once for all tests that look at it: in one worker, whoever distributes them."""

import os

import pytest


def made_once(factory: pytest.TempPathFactory, name: str) -> None:
    """Fail in the second worker that makes the same: it says that the tests of one group were torn apart."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        (factory.getbasetemp().parent / f"{name}-is-made").touch(exist_ok=False)
