"""The HTTP receiver: ask once for the effect, or look at the records."""

import asyncio
import dataclasses
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import urlsplit

from outbox.classify import NeedsVerify, classify, verified
from outbox.contract import Auth, Fencing, Read, ReceiverConfig
from outbox.deadline import deadline
from outbox.errors import Refused as NotAllowed
from outbox.errors import SecretMissing
from outbox.evidence import Observation, Verdict
from outbox.judge import judge_read, next_cursor
from outbox.matching import Seen
from outbox.outcome import Ambiguous, Answer, NotSent, Outcome, Refused
from outbox.receivers import Attempt, Question
from outbox.receivers.credentials import Secrets
from outbox.receivers.http import auth
from outbox.receivers.http.client import Client, Reply
from outbox.receivers.http.errors import EXPECTED, describe, outcome_of
from outbox.receivers.http.retry_after import whole_seconds
from outbox.states import Cause
from outbox.wire import Unsendable, build_read, build_verify


class HttpReader:
    """The half that looks. It holds no code that could ask for an effect: every request it makes is a GET.

    Its credential is `read_auth`; `auth` only where the configuration says that the two are one.
    """

    def __init__(self, name: str, config: ReceiverConfig) -> None:
        self.name = name
        self._config = config
        self._client = Client(config)
        self._host = urlsplit(config.base_url).netloc
        self._secrets = Secrets()
        self._read_auth: Auth | None = config.read_auth or (config.auth if config.shared_credential else None)

    async def deliver(self, attempt: Attempt) -> Outcome:
        """Refuse: this receiver was opened for reading. Raises Refused."""
        raise NotAllowed(f"Receiver {self.name} was opened for reading; operation {attempt.operation_id} was not sent.")

    async def lookup(self, question: Question) -> Observation:
        """Read all pages of one look. What cannot be read, or not in time, is an unknown verdict and no error."""
        read = question.wiring.read
        if read is None or question.wiring.lookup is None:
            return Observation(verdict=Verdict.UNKNOWN, note="the tool has no look-up")
        raises_fence = _raises_fence(question)
        pages: list[Seen] = []
        problem = ""
        try:
            headers = self._read_headers(question, question.fence_token if raises_fence else None)
            async with asyncio.timeout(question.deadline_seconds):
                await self._read_pages(question, read, headers, pages)
        except EXPECTED as error:
            problem = describe(error)[0]
        if not pages:
            return Observation(verdict=Verdict.UNKNOWN, note=problem, answer=Answer(host=self._host))
        seen = judge_read(pages, wiring=question.wiring, sent_key=question.sent_key)
        if problem and seen.verdict is Verdict.UNKNOWN:
            seen = dataclasses.replace(seen, note=problem)
        return dataclasses.replace(seen, fence=question.fence if raises_fence else None)

    async def _read_pages(
        self, question: Question, read: Read, headers: list[tuple[str, str]], pages: list[Seen]
    ) -> None:
        """Append page after page, to the last or as many as the tool allows. An error leaves what was read."""
        cursor = None
        while len(pages) < read.pages_max:
            request = build_read(question.wiring, question, cursor)
            reply = await self._client.run(self._client.new_exchange(request), request, headers, keep_alive=True)
            pages.append(Seen(reply.status, reply.headers, reply.body, reply.problem is not None, request.host))
            cursor = next_cursor(pages[-1], read)
            if cursor is None:
                return

    async def aclose(self) -> None:
        """Close all connections. May be called twice."""
        await self._client.aclose()

    def _read_headers(self, asked: Attempt | Question, fence_token: str | None) -> list[tuple[str, str]]:
        ours = auth.identity(asked.operation_id, fence_token, asked.traceparent)
        return ours + auth.credential(self._read_auth, self._secrets, asked.tenant_id)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self._config.base_url!r})"


class HttpReceiver(HttpReader):
    """Both halves. What was seen is classified by the contract; nothing is decided here."""

    def __init__(self, name: str, config: ReceiverConfig) -> None:
        super().__init__(name, config)
        self._read_auth = config.read_auth or config.auth

    async def deliver(self, attempt: Attempt) -> Outcome:
        """Send the request of this attempt once. Cancelled, it resets the connection and lets nothing more leave."""
        wiring = attempt.wiring
        try:
            request = attempt.wire_request()
            headers = self._headers(attempt)
        except Unsendable as error:
            return Refused(answer=Answer(excerpt=error.message))
        except SecretMissing as error:
            return NotSent(reason=error.message, cause=Cause.SECRET_MISSING)
        exchange = self._client.new_exchange(request, attempt.gate)
        started = asyncio.get_running_loop().time()
        try:
            async with deadline(attempt.deadline_seconds):
                reply = await self._client.run(exchange, request, headers, keep_alive=wiring.resend_safe)
        except EXPECTED as error:
            return outcome_of(error, exchange.phase, request.host)
        outcome = classify(
            reply.status,
            _with_seconds(reply),
            reply.body,
            contract=wiring.contract,
            resend=attempt.resend,
            sent_key=attempt.sent_key,
            truncated=reply.problem is not None,
            host=request.host,
        )
        if not isinstance(outcome, NeedsVerify):
            return outcome
        left = attempt.deadline_seconds - (asyncio.get_running_loop().time() - started)
        return await self._verify(attempt, outcome, left)

    def _headers(self, attempt: Attempt) -> list[tuple[str, str]]:
        ours = auth.identity(attempt.operation_id, attempt.fence_token, attempt.traceparent)
        return ours + auth.credential(self._config.auth, self._secrets, attempt.tenant_id)

    async def _verify(self, attempt: Attempt, needs: NeedsVerify, seconds_left: float) -> Outcome:
        """Read what a success signal named, within the time of the same attempt. A read that fails proves nothing."""
        try:
            request = build_verify(attempt.wiring, needs.verify.path, attempt, needs.external_id)
            headers = self._read_headers(attempt, None)
            async with asyncio.timeout(seconds_left):
                reply = await self._client.run(self._client.new_exchange(request), request, headers, keep_alive=True)
        except EXPECTED as error:
            return Ambiguous(reason=f"a success that could not be verified: {describe(error)[0]}", answer=needs.answer)
        return verified(needs, reply.status, reply.body, truncated=reply.problem is not None)


def _raises_fence(question: Question) -> bool:
    """Whether the receiver raises its mark when it is asked with a fence, and a fence was given."""
    fencing = question.wiring.trusted.fencing
    return isinstance(fencing, Fencing) and fencing.raised_by_lookup and question.fence_token is not None


def _with_seconds(reply: Reply) -> Mapping[str, str]:
    """The headers, with Retry-After as a number of seconds whatever the form it came in; absent if it says nothing."""
    if "retry-after" not in reply.headers:
        return reply.headers
    headers = dict(reply.headers)
    seconds = whole_seconds(headers.pop("retry-after"), headers.get("date"), datetime.now(UTC))
    if seconds is not None:
        headers["retry-after"] = str(seconds)
    return headers
