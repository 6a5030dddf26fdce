"""Settings: file < environment < flags; every problem at once, each with its place and what was probably meant."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from outbox.errors import ConfigError
from outbox.settings import Configuration, Settings, config_path, load_configuration, load_settings

ROOT = Path(__file__).parents[2]
EXAMPLE = (ROOT / "outbox.example.toml").read_text()


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def to_file(text: str) -> Path:
        path = tmp_path / "outbox.toml"
        path.write_text(text)
        return path

    return to_file


def problems(call: Any) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        call()
    return {problem.place: problem.message for problem in caught.value.problems}


def test_the_example_file_is_right(write: Any) -> None:
    loaded = load_configuration(write(EXAMPLE))
    assert loaded.dsn == "postgresql://outbox@localhost/app"
    assert loaded.receivers["warehouse"].concurrency == 16
    assert set(loaded.tools) == {"inventory.set_available", "mail.send"}


def test_a_flag_wins_over_the_environment_which_wins_over_the_file(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write('[relay]\npoll = "1s"\ngrace = "1s"\nheartbeat = "1s"\n')
    monkeypatch.setenv("OUTBOX_RELAY__GRACE", "2s")
    monkeypatch.setenv("OUTBOX_RELAY__HEARTBEAT", "2s")
    loaded = load_settings(path, {"relay": {"heartbeat": "3s"}})
    assert (loaded.relay.poll_seconds, loaded.relay.grace_seconds, loaded.relay.heartbeat_seconds) == (1.0, 2.0, 3.0)


def test_the_environment_reaches_into_a_receiver_of_the_file(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_RECEIVERS__WAREHOUSE__BASE_URL", "https://warehouse.example")
    monkeypatch.setenv("OUTBOX_RECEIVERS__WAREHOUSE__CONCURRENCY", "32")
    loaded = load_configuration(write(EXAMPLE))
    assert loaded.receivers["warehouse"].base_url == "https://warehouse.example"
    assert loaded.receivers["warehouse"].concurrency == 32
    assert loaded.receivers["warehouse"].lanes == 4


def test_lists_come_from_the_environment_as_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OUTBOX_RELAY__RECEIVERS", '["warehouse"]')
    assert load_settings().relay.receivers == ("warehouse",)
    monkeypatch.setenv("OUTBOX_RELAY__RECEIVERS", "[")
    assert "a list is needed" in problems(load_settings)["relay.receivers (OUTBOX_RELAY__RECEIVERS)"]
    monkeypatch.setenv("OUTBOX_RELAY", "{")
    assert "environment" in problems(load_settings)


def test_no_file_is_needed_and_a_named_one_must_exist(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert config_path() == (Path("outbox.toml"), False)
    monkeypatch.setenv("OUTBOX_DATABASE__DSN", "postgresql:///from-the-environment")
    assert load_settings().relay_dsn == "postgresql:///from-the-environment"
    monkeypatch.setenv("OUTBOX_CONFIG", str(tmp_path / "other.toml"))
    assert problems(load_settings) == {str(tmp_path / "other.toml"): "there is no such file"}


def test_an_empty_variable_is_as_if_it_were_not_set(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As compose passes on what nobody has set."""
    path = write('[database]\ndsn = "postgresql:///all"\n[relay]\ngrace = "1s"\n')
    for name in ("OUTBOX_RELAY__DSN", "OUTBOX_RELAY__GRACE", "OUTBOX_RELAY__RECEIVERS", "OUTBOX_RELAY"):
        monkeypatch.setenv(name, "")
    loaded = load_settings(path)
    assert (loaded.relay_dsn, loaded.relay.grace_seconds) == ("postgresql:///all", 1.0)
    assert loaded.relay.receivers is None
    monkeypatch.setenv("OUTBOX_DATABASE__DSN", "")
    assert load_settings(path).dsn == "postgresql:///all"


def test_a_daemon_has_its_own_dsn_else_the_common_one(write: Any) -> None:
    loaded = load_settings(write('[database]\ndsn = "postgresql:///all"\n[relay]\ndsn = "postgresql:///relay"\n'))
    assert (loaded.relay_dsn, loaded.reconciler_dsn) == ("postgresql:///relay", "postgresql:///all")
    assert "database.dsn" in problems(lambda: load_settings(write("")).relay_dsn)


def test_behind_a_pooler_nobody_listens_unless_a_way_around_it_is_named(write: Any) -> None:
    settings = load_settings(write('[database]\ndsn = "postgresql:///a"\npooler = true\n'))
    assert settings.listening_dsn(settings.dsn) is None
    settings = load_settings(write('[database]\ndsn = "dbname=a"\npooler = true\nlisten_dsn = "dbname=b"\n'))
    assert settings.listening_dsn(settings.dsn) == "dbname=b"


def test_every_problem_is_reported_at_once_with_its_line_and_what_was_meant(write: Any) -> None:
    text = EXAMPLE.replace("key_retention", "key_retentoin").replace("transport", "transprot", 1)
    text = text.replace('deadline = "5s"  ', "deadline = 5  ").replace("[database]", "[databse]")
    found = problems(lambda: load_configuration(write(text)))
    shown = "\n".join(f"{place}: {message}" for place, message in found.items())
    line = next(number for number, line in enumerate(text.splitlines(), 1) if "key_retentoin" in line)
    assert f"""tools."inventory.set_available".contract.key_retentoin ({write(text)}, line {line})""" in found
    assert "did you mean 'key_retention'?" in shown
    assert "did you mean 'transport'?" in shown
    assert "did you mean 'database'?" in shown
    assert 'such as "5s"' in shown
    assert len(found) == 5  # transport is also missing


DOTTED = """
[receivers.pay]
transport = "http"
base_url = "https://pay.example"
[tools.payment.refund]
receiver = "pay"
request = { path = "/refunds" }
[tools.payment.refund.contract]
key = "none"
[tools.payment.card.capture]
receiver = "pay"
request = { path = "/captures" }
[tools."mail.send"]
receiver = "pay"
request = { path = "/mail" }
"""


def test_a_name_with_a_dot_and_without_quotes_is_one_problem_that_says_how_to_write_it(write: Any) -> None:
    assert problems(lambda: load_configuration(write(DOTTED))) == {
        f"tools.payment.refund ({write(DOTTED)}, line 5)": (
            'a name with a dot in it stands in quotes: [tools."payment.refund"]'
        ),
        f"tools.payment.card.capture ({write(DOTTED)}, line 10)": (
            'a name with a dot in it stands in quotes: [tools."payment.card.capture"]'
        ),
    }
    right = DOTTED.replace("payment.refund", '"payment.refund"').replace(
        "payment.card.capture", '"payment.card.capture"'
    )
    assert set(load_configuration(write(right)).tools) == {"payment.refund", "payment.card.capture", "mail.send"}


def test_a_tool_that_only_lacks_its_receiver_is_not_taken_for_a_name_without_quotes(write: Any) -> None:
    found = problems(lambda: load_configuration(write('[tools.pay]\nrequest = { path = "/x" }\n')))
    assert [message for place, message in found.items() if "receiver" in place] == ["it is needed"]


def test_what_a_pattern_asks_for_is_said_in_words(write: Any) -> None:
    answers = """[[tools."mail.send".contract.answers]]\nstatus = [200]\nmeans = "receipt"\nexternal_id = "id"\n"""
    key = """[tools."mail.send".contract]\nrequest_id_header = "request id"\n"""
    found = "\n".join(problems(lambda: load_configuration(write(key + answers))).values())
    assert 'a JSON pointer is needed, which begins with a slash: "/id"' in found
    assert "the name of a header is needed" in found
    assert "pattern" not in found


def test_a_contract_that_was_verified_in_the_future_is_refused(write: Any) -> None:
    text = EXAMPLE.replace("verified_at = 2026", "verified_at = 9026")
    assert text != EXAMPLE
    found = problems(lambda: load_configuration(write(text)))
    assert all("verified_at" in place and "in the future" in message for place, message in found.items())
    assert found
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).date()
    load_configuration(write(re.sub(r"verified_at = [0-9-]+", f"verified_at = {tomorrow}", EXAMPLE)))


@pytest.mark.parametrize(
    ("host", "private"),
    [("127.0.0.1", True), ("[::1]", True), ("10.0.0.7", True), ("1.1.1.1", False), ("localhost", False)],
)
def test_a_private_address_that_nothing_would_be_sent_to_is_refused_before_it_is_applied(
    write: Any, host: str, private: bool
) -> None:
    text = f'[receivers.pay]\ntransport = "http"\nbase_url = "http://{host}:9000"\n'
    load_configuration(write(f"{text}allow_private_addresses = true\n"))
    if not private:
        load_configuration(write(text))
        return
    ((place, message),) = problems(lambda: load_configuration(write(text))).items()
    assert place.startswith("receivers.pay.base_url")
    assert "allow_private_addresses = true" in message


def test_the_hint_checks_the_file_that_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OUTBOX_CONFIG", raising=False)
    wrong = "[database]\nnonsense = 1\n"
    for name, command in (
        ("outbox.toml", "outbox contracts --file"),
        ("a bad.toml", "outbox --config 'a bad.toml' contracts --file"),
    ):
        Path(name).write_text(wrong)
        with pytest.raises(ConfigError) as caught:
            load_configuration(Path(name))
        assert str(caught.value.hint).endswith(f"To check it again: {command}")


def test_the_place_of_a_value_in_an_inline_table_and_in_a_list_of_tables_is_its_line(write: Any) -> None:
    text = EXAMPLE.replace('means = "receipt"', 'means = "reciept"').replace('form = "bare"', 'form = "bear"')
    found = problems(lambda: load_configuration(write(text)))
    lines = text.splitlines()
    for place, content in [
        ("contract.key.form", "key = {"),
        ("contract.answers[0].means", 'means = "reciept"  '),
        ('tools."mail.send".contract.answers[0].means', 'means = "reciept"'),
    ]:
        number = max(index for index, line in enumerate(lines, 1) if line.startswith(content))
        assert any(place in where and f"line {number})" in where for where in found), (place, found)


def test_an_answer_rule_that_is_never_reached_is_refused_with_its_line(write: Any) -> None:
    rule = '[[tools."mail.send".contract.answers]]\nstatus = [202]\nmeans = "refused"\n'
    inline = '[{ status = ["2xx"], means = "receipt" }, { status = [202], means = "refused" }]'
    again = '[tools.again]\nreceiver = "warehouse"\nrequest = { path = "/x" }\n'
    text = f"{EXAMPLE}{rule}{again}contract.answers = {inline}\n"
    found = problems(lambda: load_configuration(write(text)))
    lines = len(text.splitlines())
    places = {where.partition(" (")[0]: where.rpartition(" ")[2] for where in found}
    assert places == {
        'tools."mail.send".contract.answers[1]': f"{lines - 6})",
        "tools.again.contract.answers[1]": f"{lines})",
    }
    assert all("answers[0] before it catches every answer" in message for message in found.values())


def test_a_problem_names_the_variable_or_the_flag_that_it_comes_from(
    write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTBOX_RELAY__POLL", "2h")
    found = problems(lambda: load_settings(write(""), {"reconciler": {"batch": 0}}))
    assert set(found) == {"relay.poll (OUTBOX_RELAY__POLL)", "reconciler.batch (a flag)"}


def test_a_variable_of_an_unknown_section_is_refused_and_others_of_our_prefix_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OUTBOX_CRASHPOINT", "mid_apply:kill:99")
    load_settings()
    monkeypatch.setenv("OUTBOX_DATBASE__DSN", "postgresql:///x")
    assert "did you mean 'database'?" in problems(load_settings)["OUTBOX_DATBASE__DSN"]


@pytest.mark.parametrize("field", ["callback", "status", "stuck_key", "first_sent"])
def test_a_field_of_the_model_that_is_not_supported_yet_is_refused_by_name(write: Any, field: str) -> None:
    text = EXAMPLE.replace('key = "none"', f'key = "none"\n{field} = "x"')
    ((place, message),) = problems(lambda: load_configuration(write(text))).items()
    assert f"contract.{field} " in place
    assert "not supported yet" in message


def test_contradictions_are_found_also_beside_other_problems(write: Any) -> None:
    text = EXAMPLE.replace('deadline = "5s"  ', 'deadline = "45s"').replace("[database]", "[databse]")
    found = problems(lambda: load_configuration(write(text)))
    assert any("the deadline is not below" in message for message in found.values())
    assert any(place.startswith("databse") for place in found)
    assert all("line" in place for place in found)


def test_a_tool_of_an_unknown_receiver_is_refused(write: Any) -> None:
    text = EXAMPLE.replace('receiver = "warehouse"', 'receiver = "warehose"', 1)
    ((place, message),) = problems(lambda: load_configuration(write(text))).items()
    assert place.startswith('tools."inventory.set_available".receiver')
    assert "did you mean 'warehouse'?" in message


@pytest.mark.parametrize(
    "wrong", ["hunter2-in-the-file", 'env:TOKEN", secret_headers = { X-App-Key = "hunter2" }, account = "a']
)
def test_a_secret_in_the_file_is_refused_and_not_repeated(write: Any, wrong: str) -> None:
    text = EXAMPLE.replace("env:WAREHOUSE_TOKEN", wrong)
    with pytest.raises(ConfigError) as caught:
        load_configuration(write(text))
    assert "by a reference" in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "dsn", ["postgresql+psycopg://u:hunter2@h/db", "host=h password=hunter2 nonsense", "postgresql://u:p@hunter2@h/db"]
)
def test_a_dsn_that_libpq_cannot_read_is_refused_and_not_repeated(write: Any, dsn: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(write(f'[database]\ndsn = "{dsn}"\n'))
    assert "database.dsn" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_password_is_in_no_representation(write: Any) -> None:
    text = '[database]\ndsn = "postgresql://u:hunter2@h/db"\n[relay]\ndsn = "postgresql://u:hunter2@h/db"\n'
    assert "hunter2" not in repr(load_settings(write(text)))


def test_a_daemon_is_not_stopped_by_a_mistake_in_a_tool(write: Any) -> None:
    path = write(EXAMPLE.replace("key_retention", "key_retentoin"))
    assert isinstance(load_settings(path), Settings)
    assert not isinstance(load_settings(path), Configuration)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"[database\n", "this is not TOML"),
        (b"\xff\xfe", "it is not UTF-8"),
        (b"#" * (4 * 1024 * 1024 + 1), "more than"),
    ],
)
def test_what_is_no_configuration_file_is_refused_in_words(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    ((place, message),) = problems(lambda: load_settings(path)).items()
    assert place == str(path)
    assert complaint in message


def test_a_directory_in_place_of_the_file_is_refused_in_words(tmp_path: Path) -> None:
    assert "cannot be read" in problems(lambda: load_settings(tmp_path))[str(tmp_path)]
