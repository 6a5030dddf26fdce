"""A receiver that answers with what it was sent: our credential gets into nothing that is kept, shown or logged."""

import base64
import json
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from outbox.outcome import Ambiguous, Answer, Outcome, Receipt, Refused
from outbox.receivers.http import HttpReceiver
from outbox.receivers.http.scrub import SECRET_CHARS_MIN, Scrub
from tests.support.attempts import attempt, question, receiver, tool
from tests.support.hostile import Connection, HostileServer

# What providers really give out: with characters that JSON, URLs and base64 write otherwise.
SECRET = 'sk_live_51H/x+Yz=="quoted"\\end'
OTHER = 'app/9"Zk+q=\\w8Lm/R3"t=Vx'
SECOND = {"X-App-Key": "file:{folder}/other"}
PAIR = f"outbox:{SECRET}"
BASIC = f"Basic {base64.b64encode(PAIR.encode()).decode()}"


@pytest.fixture
def server() -> Iterator[HostileServer]:
    with HostileServer() as running:
        yield running


def sent_headers(head: bytes) -> dict[str, str]:
    lines = head.decode().split("\r\n")[1:-2]
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def as_json(head: bytes) -> bytes:
    """As a debug endpoint does."""
    return json.dumps({"id": "w-1", "headers": sent_headers(head)}).encode()


def as_json_in_json(head: bytes) -> bytes:
    return json.dumps({"id": "w-1", "request": json.dumps({"headers": sent_headers(head)})}).encode()


def with_escaped_slashes(head: bytes) -> bytes:
    """As PHP writes JSON."""
    return as_json(head).replace(b"/", b"\\/")


def all_escaped(head: bytes) -> bytes:
    letters = "".join(f"\\u{ord(letter):04X}" for letter in head.decode())
    return f'{{"id": "w-1", "head": "{letters}"}}'.encode()


def as_text(head: bytes) -> bytes:
    return head


def as_a_url(head: bytes) -> bytes:
    return urllib.parse.urlencode(sent_headers(head)).encode()


def as_base64(head: bytes) -> bytes:
    return json.dumps({"id": "w-1", "raw": base64.b64encode(head).decode()}).encode()


def credentials_in(head: bytes) -> str:
    headers = sent_headers(head)
    return " ".join(headers[name] for name in ("Authorization", "X-Api-Key", "X-App-Key") if name in headers)


def as_the_id(head: bytes) -> bytes:
    return json.dumps({"id": credentials_in(head)}).encode()


ECHOES = [as_json, as_json_in_json, with_escaped_slashes, all_escaped, as_text, as_a_url, as_base64, as_the_id]


def echoing(status: str, echo: Callable[[bytes], bytes]) -> Callable[[Connection], Any]:
    async def behave(connection: Connection) -> None:
        wire = await connection.request()
        credential = credentials_in(wire.head)
        await connection.answer(status, echo(wire.head), f"Request-Id: {credential}", f"X-Echo: {credential}")

    return behave


def credentials() -> list[Any]:
    return [
        pytest.param({"kind": "bearer"}, SECRET, [SECRET], id="bearer"),
        pytest.param({"kind": "header", "header": "X-Api-Key"}, SECRET, [SECRET], id="a header of its own"),
        pytest.param(
            {"kind": "header", "header": "Authorization"}, BASIC, [BASIC.split()[1], SECRET, PAIR], id="basic"
        ),
        pytest.param({"kind": "bearer", "secret_headers": SECOND}, SECRET, [SECRET, OTHER], id="a second one"),
        pytest.param(
            {"kind": "bearer", "secret_headers": SECOND},
            OTHER[:12],
            [OTHER, OTHER[12:]],
            id="a beginning of the second",
        ),
        pytest.param(
            {"kind": "header", "header": "X-Api-Key", "secret_headers": SECOND},
            f"{SECRET}{OTHER[:12]}",
            [SECRET, OTHER, OTHER[12:]],
            id="two that overlap",
        ),
    ]


def with_other(folder: Path, auth: dict[str, Any]) -> dict[str, Any]:
    """The credential with its further secrets in a folder."""
    (folder / "other").write_text(OTHER)
    named = {name: reference.format(folder=folder) for name, reference in auth.get("secret_headers", {}).items()}
    return {**auth, "secret_headers": named}


def shown(said: object, caplog: pytest.LogCaptureFixture) -> str:
    """Everything that could be stored or logged, also as whoever reads JSON sees it."""
    text = f"{said!r} {said} {caplog.text}"
    receipt = said.receipt if isinstance(said, Receipt) else ""
    return f"{text} {receipt} {text.replace(chr(92) * 2, chr(92))} {urllib.parse.unquote_plus(text)}"


def hidden(secrets: list[str], text: str) -> bool:
    forms = [*secrets, *(json.dumps(secret)[1:-1] for secret in secrets)]
    packed = [base64.b64encode(secret.encode()).decode()[:20] for secret in secrets]
    return not any(form in text for form in [*forms, *packed])


@pytest.mark.parametrize("echo", ECHOES, ids=lambda echo: echo.__name__)
@pytest.mark.parametrize(("auth", "value", "secrets"), credentials())
@pytest.mark.parametrize(
    ("status", "outcome"),
    [("200 OK", Receipt), ("422 Unprocessable", Refused), ("500 Internal Server Error", Ambiguous)],
)
async def test_no_outcome_of_an_attempt_holds_the_credential_that_it_was_sent_with(
    server: HostileServer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    *,
    echo: Callable[[bytes], bytes],
    auth: dict[str, Any],
    value: str,
    secrets: list[str],
    status: str,
    outcome: type[Outcome],
) -> None:
    caplog.set_level("DEBUG")
    (tmp_path / "acme").write_text(value)
    config = receiver(
        server.url, auth={"secret": f"file:{tmp_path}/{{tenant}}", "id": "main", **with_other(tmp_path, auth)}
    )
    client = HttpReceiver("warehouse", config)
    server.behave = echoing(status, echo)
    said = await client.deliver(attempt(config))
    await client.aclose()
    assert isinstance(said, outcome)
    assert "***" in repr(said), "the echo came, and was seen"
    assert hidden(secrets, shown(said, caplog))


@pytest.mark.parametrize("echo", ECHOES, ids=lambda echo: echo.__name__)
async def test_no_look_holds_the_credential_that_it_was_made_with(
    server: HostileServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, echo: Callable[[bytes], bytes]
) -> None:
    (tmp_path / "read").write_text(SECRET)
    auth = {"kind": "bearer", "secret": f"file:{tmp_path}/read", "id": "read", "secret_headers": SECOND}
    config = receiver(server.url, read_auth=with_other(tmp_path, auth))
    client = HttpReceiver("warehouse", config)
    asks = tool(read={"path": "/operations/{sent_key}", "identity": "/id", "external_id": "/id"})
    for status in ("200 OK", "404 Not Found", "500 Internal Server Error"):
        server.behave = echoing(status, echo)
        assert hidden([SECRET, OTHER], shown(await client.lookup(question(config, asks)), caplog))
    assert server.seen.requests[-1].header("X-App-Key") == OTHER
    await client.aclose()


async def test_what_is_kept_is_not_cut_in_the_middle_of_a_credential(server: HostileServer, tmp_path: Path) -> None:
    """The bound of an excerpt lies anywhere; a beginning of a credential is too much already."""
    (tmp_path / "key").write_text(SECRET)
    config = receiver(server.url, auth={"kind": "bearer", "secret": f"file:{tmp_path}/key", "id": "main"})
    client = HttpReceiver("warehouse", config)
    for before in range(2_048 - len(SECRET) - 8, 2_049, 5):
        server.behave = echoing("500 Oops", lambda head, before=before: b"." * before + SECRET.encode())  # type: ignore[misc]
        said = await client.deliver(attempt(config))
        assert isinstance(said, Ambiguous)
        assert SECRET[:4] not in said.answer.excerpt
    await client.aclose()


async def test_what_is_no_credential_stays_as_it_was_answered(server: HostileServer, tmp_path: Path) -> None:
    """Also where the credential is so short that it stands in words that mean something else."""
    short = "receipt"[: SECRET_CHARS_MIN - 1]
    (tmp_path / "key").write_text(short)
    config = receiver(server.url, auth={"kind": "bearer", "secret": f"file:{tmp_path}/key", "id": "main"})
    client = HttpReceiver("warehouse", config)
    server.behave = echoing("200 OK", lambda _: b'{"receipt":"r-1","path":"a\\/b%2F"}')
    said = await client.deliver(attempt(config))
    await client.aclose()
    assert isinstance(said, Receipt)
    assert said.receipt == '{"path":"a/b%2F","receipt":"r-1"}'
    assert said.answer == Answer(200, '{"receipt":"r-1","path":"a\\/b%2F"}', "***", said.answer.host)


@pytest.mark.parametrize("offset", range(3))
def test_a_credential_inside_of_base64_is_found_wherever_it_begins(offset: int) -> None:
    scrub = Scrub.of([f"Bearer {SECRET}"])
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        packed = encode(b"." * offset + SECRET.encode() + b"...")
        assert b"***" in scrub.body(b"[" + packed + b"]")
        assert packed[4:16] not in scrub.body(packed)


OVERLAPPING = [(SECRET, f"{SECRET}-app"), (SECRET, f"the-{SECRET}"), (f"one/{SECRET}", f"{SECRET}/two")]


@pytest.mark.parametrize(("one", "two"), OVERLAPPING, ids=["a beginning", "an end", "an end that is a beginning"])
def test_of_two_credentials_that_overlap_nothing_is_left(one: str, two: str) -> None:
    """Whichever is found first: what is left of the other one is a part of a secret."""
    for scrub in (Scrub.of((one, two)), Scrub.of((two, one))):
        for text in (one, two, one.removesuffix(SECRET) + two):
            for written in (text, json.dumps(text)[1:-1], urllib.parse.quote(text, safe="")):
                assert scrub.body(written.encode()).strip(b"*") == b"", written
