"""The small parts of the HTTP receiver, each alone."""

import asyncio
import inspect
import pickle
import ssl
import typing
from datetime import UTC, datetime
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from aiohttp import client_exceptions, http_exceptions
from hypothesis import given
from hypothesis import strategies as st

from outbox.errors import SecretMissing, UnknownTransport, UnsafeTarget
from outbox.outcome import Ambiguous, NotSent
from outbox.receivers import TooLate, open_receiver, registry, transports
from outbox.receivers.credentials import SECRET_BYTES_MAX, Secret, Secrets
from outbox.receivers.http import HttpReader, HttpReceiver, guard, open_http
from outbox.receivers.http.auth import next_hop
from outbox.receivers.http.client import head
from outbox.receivers.http.errors import EXPECTED, TABLE, outcome_of
from outbox.receivers.http.exchange import Phase, Stale
from outbox.receivers.http.retry_after import SECONDS_MAX, whole_seconds
from outbox.receivers.scripted import ScriptedReceiver
from outbox.states import UNSENT, Cause
from outbox.wire import Unsendable, WireRequest
from tests.support.attempts import receiver

# ---------------------------------------------------------------------------------------------------------- addresses

NEVER = [
    *(
        "0.0.0.0",
        "0.1.2.3",
        "169.254.169.254",
        "169.254.0.1",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.1",
        "192.0.2.1",
    ),
    *("192.88.99.1", "198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.9", "224.0.0.1", "239.255.255.250"),
    *("240.0.0.1", "255.255.255.255", "::", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "64:ff9b::7f00:1"),
    *("64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "3fff::1", "5f00::1", "fe80::1"),
    *("fe80::1%eth0", "fec0::1", "ff02::1", "fd00:ec2::254"),
    *("localhost", "127.1", "2130706433", "0x7f000001", "1.2.3", "1.2.3.4.5", "01.02.03.04", ""),
]
PRIVATE = [
    *("10.0.0.1", "100.64.0.1", "127.0.0.1", "127.255.255.254", "172.16.0.1", "172.31.255.255", "192.168.1.1"),
    *("::1", "fc00::1", "fd12::1"),
]
PUBLIC = ["8.8.8.8", "172.15.255.255", "172.32.0.1", "100.63.255.255", "100.128.0.1", "2606:4700:4700::1111"]


@pytest.mark.parametrize("address", NEVER)
def test_some_addresses_are_nobodys_receiver_also_where_private_ones_are_allowed(address: str) -> None:
    assert guard.refusal(address, allow_private=True)
    assert guard.refusal(address, allow_private=False)


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_for_those_who_allow_them(address: str) -> None:
    assert guard.refusal(address, allow_private=True) is None
    assert guard.refusal(address, allow_private=False)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_allowed(address: str) -> None:
    assert guard.refusal(address, allow_private=False) is None


@given(st.ip_addresses(v=4) | st.ip_addresses(v=6))
def test_what_python_calls_not_global_is_never_public_here(address: Any) -> None:
    if not address.is_global or address.is_multicast:
        assert guard.refusal(str(address), allow_private=False)


def test_a_name_without_any_address_is_refused() -> None:
    with pytest.raises(UnsafeTarget):
        guard.check("nobody.test", [], allow_private=True)


# ---------------------------------------------------------------------------------------------------------- exceptions


CLIENT_EXCEPTIONS = {getattr(client_exceptions, name) for name in client_exceptions.__all__}
PARSER_EXCEPTIONS = {
    value
    for value in vars(http_exceptions).values()
    if isinstance(value, type) and issubclass(value, http_exceptions.HttpProcessingError)
}
# Of WebSockets, which nobody here speaks.
NEVER_RAISED = {client_exceptions.WSMessageTypeError}


@pytest.mark.parametrize("kind", sorted(CLIENT_EXCEPTIONS | PARSER_EXCEPTIONS, key=str), ids=lambda kind: kind.__name__)
def test_every_exception_that_aiohttp_exports_has_a_row(kind: type[Exception]) -> None:
    assert issubclass(kind, EXPECTED) or kind in NEVER_RAISED


@pytest.mark.parametrize("kind", [ssl.SSLError, ssl.CertificateError, OSError, TimeoutError, ConnectionResetError])
def test_so_have_those_of_the_standard_library(kind: type[Exception]) -> None:
    assert issubclass(kind, EXPECTED)


def instance(kind: type[Exception]) -> Exception:
    error = kind.__new__(kind)
    error.args = ("secret-token 10.0.0.7",)
    if isinstance(error, TooLate):
        error.reason = "late"
    return error


@pytest.mark.parametrize("kind", TABLE, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("phase", Phase)
def test_the_phase_and_nothing_else_decides_whether_something_may_have_happened(
    kind: type[Exception], phase: Phase
) -> None:
    outcome = outcome_of(instance(kind), phase, "api.example.com")
    assert isinstance(outcome, NotSent if phase is Phase.CONNECTING else Ambiguous)
    if isinstance(outcome, NotSent):
        assert outcome.cause in UNSENT
    assert outcome.answer.host == "api.example.com"
    if isinstance(outcome, Ambiguous):
        assert outcome.cause in {Cause.AMBIGUOUS, Cause.TIMEOUT, Cause.CONNECTION_LOST}
    if kind not in {SecretMissing, UnsafeTarget, Unsendable}:  # these are ours, and say no secrets
        assert "secret-token" not in outcome.reason


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        (TooLate, Cause.TOO_LATE),
        (SecretMissing, Cause.SECRET_MISSING),
        (UnsafeTarget, Cause.UNSAFE_TARGET),
        (client_exceptions.ClientConnectorDNSError, Cause.NAME_UNRESOLVED),
        (client_exceptions.ClientConnectorError, Cause.NO_CONNECTION),
        (TimeoutError, Cause.NO_CONNECTION),
        (ConnectionResetError, Cause.NO_CONNECTION),
        (client_exceptions.ClientConnectorCertificateError, Cause.TLS_FAILED),
        (client_exceptions.ClientConnectorSSLError, Cause.TLS_FAILED),
        (client_exceptions.ServerFingerprintMismatch, Cause.TLS_FAILED),
        (ssl.SSLError, Cause.TLS_FAILED),
        (ValueError, Cause.NOT_SENT),
    ],
)
def test_why_nothing_left_is_a_cause_that_an_operator_can_act_upon(kind: type[Exception], cause: Cause) -> None:
    assert outcome_of(instance(kind), Phase.CONNECTING, "api.example.com").cause is cause


def test_no_row_of_the_table_is_hidden_by_an_earlier_one() -> None:
    rows = list(TABLE)
    hidden = [later for place, later in enumerate(rows) if any(issubclass(later, earlier) for earlier in rows[:place])]
    assert hidden == []


def test_what_nobody_expects_is_left_to_the_edge_of_the_attempt() -> None:
    assert not any(
        issubclass(kind, EXPECTED) for kind in (RuntimeError, KeyError, AssertionError, asyncio.CancelledError)
    )
    assert issubclass(Stale, EXPECTED)


# ------------------------------------------------------------------------------------------------------------- secrets


def test_a_secret_is_never_shown_and_never_stored() -> None:
    secret = Secret("hunter2")
    assert "hunter2" not in f"{secret} {secret!r} {[secret]}"
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    assert secret.reveal() == "hunter2"
    assert not hasattr(secret, "__dict__")


@pytest.mark.parametrize(
    "value", ["", " ", "a\nb", "a\r\nX-Evil: 1", "\x00", "é", " padded ", "x" * (SECRET_BYTES_MAX + 1)]
)
def test_what_cannot_travel_in_a_header_is_no_secret_and_is_not_quoted(value: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(value.encode())
    with pytest.raises(SecretMissing) as caught:
        Secrets().resolve(f"file:{tmp_path}/key", "acme")
    assert str(tmp_path) in caught.value.message
    assert not value.strip() or value not in caught.value.message


def test_a_secret_of_the_environment_or_a_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_acme", "of-acme")
    (tmp_path / "key").write_text("from-a-file\r\n")
    secrets = Secrets()
    assert secrets.resolve("env:KEY_{tenant}", "acme").reveal() == "of-acme"
    assert secrets.resolve(f"file:{tmp_path}/key", "acme").reveal() == "from-a-file"
    for missing in ("env:NOT_SET", f"file:{tmp_path}/none", f"file:{tmp_path}", "vault:x"):
        with pytest.raises(SecretMissing):
            secrets.resolve(missing, "acme")


def test_a_file_is_read_once_until_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("one")
    secrets = Secrets()
    first = secrets.resolve(f"file:{path}", "acme")
    assert secrets.resolve(f"file:{path}", "acme") is first
    (tmp_path / "next").write_text("two")
    (tmp_path / "next").replace(path)
    assert secrets.resolve(f"file:{path}", "acme").reveal() == "two"


@pytest.mark.parametrize("tenant", ["", "..", ".hidden", "a/b", "a\\b", "a\0b", "a b", "../../etc/passwd"])
def test_a_tenant_cannot_lead_out_of_its_folder(tenant: str, tmp_path: Path) -> None:
    with pytest.raises(SecretMissing, match="cannot stand"):
        Secrets().resolve(f"file:{tmp_path}/{{tenant}}/key", tenant)


# ---------------------------------------------------------------------------------------------------- headers, waiting


@pytest.mark.parametrize(
    "given_",
    [
        None,
        "",
        "junk",
        "00-" + "0" * 32 + "-b7ad6b7169203331-01",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    ],
)
def test_a_trace_that_is_none_is_restarted(given_: str | None) -> None:
    made = next_hop(given_)
    version, trace, parent, flags = made.split("-")
    assert (version, len(trace), len(parent), flags) == ("00", 32, 16, "00")
    assert set(trace) != {"0"}
    assert next_hop(given_) != made


@given(st.text(max_size=50))
def test_retry_after_is_a_bounded_number_or_nothing_whatever_it_says(value: str) -> None:
    seconds = whole_seconds(value, None, datetime(2026, 11, 30, tzinfo=UTC))
    assert seconds is None or 0 <= seconds <= SECONDS_MAX


def test_a_date_counts_from_our_clock_only_where_the_answer_has_none_of_its_own() -> None:
    now = datetime(2026, 11, 30, 8, 0, 0, tzinfo=UTC)
    assert whole_seconds("Mon, 30 Nov 2026 08:01:00 GMT", None, now) == 60
    assert whole_seconds("Mon, 30 Nov 2026 08:01:00 GMT", "Mon, 30 Nov 2026 08:00:50 GMT", now) == 10
    assert whole_seconds("Mon, 30 Nov 2026 08:01:00 GMT", "not a date", now) == 60


def sent_head(request: WireRequest, *ours: tuple[str, str], keep_alive: bool = True) -> list[str]:
    text = head(request, list(ours), keep_alive=keep_alive).decode()
    assert text.endswith("\r\n\r\n")
    return text.removesuffix("\r\n\r\n").split("\r\n")


def test_a_head_is_one_line_per_header_each_said_once_by_whom_it_belongs_to() -> None:
    request = WireRequest(
        "PUT", "https", "api.example.com:443", "/a%2Fb", "x=1", (("accept", "text/plain"), ("Outbox-Fence", "1")), b"{}"
    )
    first, *lines = sent_head(request, ("outbox-fence", "17"), ("Authorization", "Bearer s"))
    assert first == "PUT /a%2Fb?x=1 HTTP/1.1"
    assert lines[0] == "Host: api.example.com"
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    assert len(headers) == len(lines)
    assert (headers["accept"], headers["outbox-fence"], headers["content-length"]) == ("text/plain", "17", "2")
    assert "connection" not in headers
    assert sent_head(request, keep_alive=False)[-1] == "Connection: close"


def test_a_length_is_stated_wherever_a_body_could_be_expected() -> None:
    assert "Content-Length: 0" in sent_head(WireRequest("DELETE", "http", "h", "/"))
    assert not any(line.startswith("Content-Length") for line in sent_head(WireRequest("GET", "http", "h", "/")))


@pytest.mark.parametrize("text", ["a\rb", "a\nb", "a\r\nX-Evil: 1", "a\0b", "\n", "a\n"])
@pytest.mark.parametrize("place", ["method", "path", "query", "name", "value", "ours"])
def test_no_part_of_a_head_adds_a_line_to_it(place: str, text: str) -> None:
    parts = {"method": "PUT", "path": "/x", "query": "q", "name": "X-One", "value": "1", "ours": "2"} | {place: text}
    headers = ((parts["name"], parts["value"]),)
    request = WireRequest(parts["method"], "http", "h", parts["path"], parts["query"], headers)
    with pytest.raises(ValueError, match="line break"):
        sent_head(request, ("X-Ours", parts["ours"]))


# ------------------------------------------------------------------------------------------------------- the registry


def test_a_transport_is_opened_by_its_name() -> None:
    assert {"http", "scripted"} <= set(transports())
    assert isinstance(open_receiver("x", receiver("", transport="scripted")), ScriptedReceiver)
    opened = open_receiver("x", receiver("http://127.0.0.1:1"))
    assert type(opened) is HttpReceiver
    assert type(open_receiver("x", receiver("http://127.0.0.1:1"), reads_only=True)) is HttpReader
    assert "127.0.0.1" in repr(opened)


def test_an_unknown_transport_names_those_that_are_installed() -> None:
    with pytest.raises(UnknownTransport) as caught:
        open_receiver("x", receiver("", transport="carrier-pigeon"))
    assert "http" in (caught.value.hint or "")


def test_a_transport_whose_library_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_OURS", {"http": ("no_such_module", "f", "pip install it")})
    with pytest.raises(UnknownTransport) as caught:
        registry.factory("http")
    assert "no_such_module" in caught.value.message
    assert "pip install it" in (caught.value.hint or "")


def test_third_parties_add_transports_and_cannot_take_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = EntryPoint("pigeon", "outbox.receivers.scripted:open_scripted", registry.GROUP)
    thief = EntryPoint("http", "outbox.receivers.scripted:open_scripted", registry.GROUP)

    def found(*, group: str, name: str | None = None) -> list[EntryPoint]:
        assert group == "outbox.receivers"
        return [entry for entry in (theirs, thief) if name in (None, entry.name)]

    monkeypatch.setattr(registry, "entry_points", found)
    assert isinstance(open_receiver("x", receiver("", transport="pigeon")), ScriptedReceiver)
    assert registry.factory("http") is open_http
    assert "pigeon" in transports()


def test_a_reader_has_no_code_that_sends_an_effect() -> None:
    names = {name for name, _ in inspect.getmembers(HttpReader, inspect.isfunction)}
    assert "build(" not in "".join(inspect.getsource(getattr(HttpReader, name)) for name in names)
    assert typing.get_type_hints(HttpReader.lookup)["return"].__name__ == "Observation"
