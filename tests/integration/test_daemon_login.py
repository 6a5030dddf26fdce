"""A daemon that has logged in as somebody else says as whom it should, where its address stands, and no more."""

from pathlib import Path

import pytest

from outbox.daemon import Kind, Life, Member, opened
from outbox.errors import DatabaseUnavailable, NotPermitted, OutboxError, RoleSettings
from outbox.settings import DatabaseSettings, load_settings
from tests.support.postgres import Database, url

KINDS: tuple[Kind, ...] = ("relay", "reconciler")
OTHERS: dict[Kind, str] = {"relay": "RECONCILER", "reconciler": "RELAY"}


async def refused(kind: Kind, dsn: str, *, shared_role: bool = False, address: str = "") -> OutboxError:
    with pytest.raises(OutboxError) as caught:
        async with opened(
            dsn, Member(kind), Life(), DatabaseSettings(shared_role=shared_role), connections_max=2, address=address
        ):
            pass
    return caught.value


@pytest.mark.parametrize("kind", KINDS)
async def test_the_owner_is_told_whose_login_is_missing_and_nothing_that_follows_from_it(
    database: Database, kind: Kind
) -> None:
    error = await refused(kind, database.dsn)
    assert isinstance(error, RoleSettings)
    for words in (f"not as outbox_{kind}", f"OUTBOX_{kind.upper()}__DSN=", f"alter role outbox_{kind} password"):
        assert words in str(error)
    for words in ("enable_", "statement_timeout", f"OUTBOX_{OTHERS[kind]}"):
        assert words not in str(error)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("role", ["writer", "viewer", "operator"])
async def test_no_role_of_a_service_or_a_person_is_told_to_take_more_rights(
    database: Database, kind: Kind, role: str
) -> None:
    error = await refused(kind, database.dsn_for(role))  # type: ignore[arg-type]
    assert isinstance(error, NotPermitted | RoleSettings)
    assert f"OUTBOX_{kind.upper()}__DSN=" in str(error)
    assert "grant" not in str(error)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_shared_role_without_rights_is_told_which_role_to_be_a_member_of(
    database: Database, kind: Kind
) -> None:
    error = await refused(kind, database.dsn_for("writer"), shared_role=True)
    assert isinstance(error, NotPermitted)
    assert f"grant outbox_{kind} to" in str(error)
    assert "operator" not in str(error)


@pytest.mark.parametrize("kind", KINDS)
async def test_an_address_that_leads_nowhere_is_named_by_the_setting_that_was_used(
    database: Database, kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = url(database.dsn, port="1")
    own, common = f"OUTBOX_{kind.upper()}__DSN", "OUTBOX_DATABASE__DSN"
    file = tmp_path / "outbox.toml"
    file.write_text(f'[{kind}]\ndsn = "{nowhere}"\n')

    async def hint(path: Path) -> str:
        settings = load_settings(path)
        dsn = getattr(settings, f"{kind}_dsn")
        error = await refused(kind, dsn, address=settings.address(kind))
        assert isinstance(error, DatabaseUnavailable)
        return str(error.hint)

    assert f"The address is [{kind}] dsn of the file." in await hint(file)
    monkeypatch.setenv(own, nowhere)
    told = await hint(file)
    assert f"The address is {own}." in told
    assert common not in told
    monkeypatch.setenv(own, "")
    monkeypatch.setenv(common, nowhere)
    file.write_text("")
    assert f"The address is {common}, since neither {own} nor [{kind}] dsn" in await hint(file)
    monkeypatch.delenv(common)
    file.write_text(f'[database]\ndsn = "{nowhere}"\n')
    assert "The address is [database] dsn of the file, since" in await hint(file)
