"""What users install: the wheel, alone in an empty environment, with nothing of this checkout in reach."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT
from tests.support.postgres import Database

# One environment for all of them. pip downloads what is not in its cache.
pytestmark = [pytest.mark.xdist_group("wheel"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT], check=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that holds the wheel and what it depends on, without extras."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "install", wheel], check=True)
    return folder / "bin"


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command away from the checkout and return what it prints."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_holds_the_packages_their_types_and_the_migrations_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"outbox", "relay", "reconciler"}
    for expected in ("outbox/py.typed", "relay/py.typed", "reconciler/py.typed", "outbox/_migrations/env.py"):
        assert expected in names
    for kind, origin, place in (("*.sql", "outbox", "outbox"), ("*", "migrations", "outbox/_migrations")):
        files = [path.relative_to(ROOT / origin) for path in (ROOT / origin).rglob(kind) if path.is_file()]
        shipped = {f"{place}/{path.as_posix()}" for path in files if "__pycache__" not in path.parts}
        assert shipped <= set(names)


def test_importing_needs_no_extra(programs: Path, tmp_path: Path) -> None:
    place = run(programs / "python", "-c", "import outbox; print(outbox.__file__)", cwd=tmp_path)
    assert Path(place.strip()).is_relative_to(programs.parent)


def test_the_command_answers(programs: Path, tmp_path: Path) -> None:
    assert "migrate" in run(programs / "outbox", "--help", cwd=tmp_path)


@pytest.mark.parametrize("daemon", ["relay", "reconciler"])
def test_the_daemons_answer_as_modules(programs: Path, tmp_path: Path, daemon: str) -> None:
    assert "--help" in run(programs / "python", "-m", daemon, "--help", cwd=tmp_path)


def test_the_shipped_migrations_are_found_and_are_the_same(programs: Path, tmp_path: Path) -> None:
    shipped = run(programs / "outbox", "migrate", "--sql", cwd=tmp_path)
    here = run(Path(sys.executable).with_name("outbox"), "migrate", "--sql", cwd=tmp_path)
    assert "create table outbox.intent" in shipped.lower()
    assert shipped == here


def test_the_installed_command_migrates_a_database(programs: Path, tmp_path: Path, empty_database: Database) -> None:
    run(programs / "outbox", "migrate", cwd=tmp_path, OUTBOX_DATABASE__DSN=empty_database.dsn)
    assert empty_database.value("select count(*) from outbox.intent") == 0
