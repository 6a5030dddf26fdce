"""
One operation in doubt, from its claim to what is written about it: at most one look, and one decision.

The rules are `outbox.decide`; what is kept of a look is `keep.py`; what is written is `act.py`. Here is their order.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import urlsplit
from uuid import UUID

from outbox import digest
from outbox.contract import Wiring
from outbox.decide import Authorize, Decision, Look, Person, Reject, Resend, Step, Succeed, next_step
from outbox.errors import NotFound
from outbox.evidence import Evidence, Observation, Verdict
from outbox.observe import Meters, emit
from outbox.receivers import Question
from outbox.registry import Registry
from outbox.states import State
from reconciler.act import Acts, Claim, Done, name
from reconciler.doubt import Doubt
from reconciler.group import Group, Groups, Known
from reconciler.keep import is_worth_keeping
from reconciler.lookup import Readers

# New proof may come in while a decision is written. It does not do so for ever.
ROUNDS_MAX: Final = 3
# Where the database does not accept what was decided, over and over.
DISPUTED_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Rules:
    """The contract versions that an operation is judged by: the pinned one, and the one in force."""

    pinned: Wiring
    in_force: Wiring

    @property
    def asks_where_it_was_sent(self) -> bool:
        """
        Whether the credential of today belongs to the account and host that the attempts went to.

        In another account nothing of ours is found, which proves nothing; and no other host is shown our credential.
        """
        return self.pinned is self.in_force or _place(self.pinned) == _place(self.in_force)

    def decide(self, claim: Claim) -> Decision:
        doubt = claim.doubt
        return next_step(doubt.facts(), self.pinned, claim.evidence, doubt.now, in_force=self.in_force)


@dataclass(frozen=True, slots=True)
class _Seen:
    """
    An operation after a look at it, and what follows (None: it is not in doubt any more).

    `unkept`: the look, where the decision rests on it: it is kept together with that.
    """

    claim: Claim
    decision: Decision | None
    unkept: Evidence | None = None


class Settler:
    """Takes claimed operations as far as they get. Holds no state of its own."""

    def __init__(
        self,
        groups: Groups,
        readers: Readers,
        registry: Callable[[], Registry],
        meters: Meters,
        *,
        instance_id: UUID,
        look_seconds_max: float,
    ) -> None:
        self._groups = groups
        self._readers = readers
        self._registry = registry
        self._acts = Acts(groups, meters)
        self._instance_id = instance_id
        self._look_seconds_max = look_seconds_max

    async def settle(self, claim: Claim) -> Done:
        """
        Take one operation as far as it gets now.

        Raises DatabaseError, NotFound and SchemaMismatch; the claim then stands until it has run out.
        """
        rules = await self._rules(claim.doubt)
        looked = False
        for _ in range(ROUNDS_MAX):
            if not claim.doubt.is_unknown:
                return await self._leave_to_its_holder(claim, rules)
            decision, look = rules.decide(claim), None
            if not looked and _is_time_to_look(decision, claim.doubt, rules.pinned):
                looked = True
                if (seen := await self._look(claim, rules)) is None:
                    return self._acts.overtaken(claim)
                claim, look = seen.claim, seen.unkept
                if seen.decision is None:
                    return await self._leave_to_its_holder(claim, rules)
                decision = seen.decision
            if (done := await self._acts.act(claim, decision, look)) is not None:
                return done
            if (reread := await self._read_again(claim, self._groups.read_claimed)) is None:
                return self._acts.overtaken(claim)
            claim = reread
        # There is evidence that the rules do not take for proof and the database does not let us ignore.
        emit("alarm", reason="decision and evidence disagree", **name(claim.doubt))
        return await self._acts.reschedule(claim, Done.LATER, Step.LOOK, _later(claim.doubt, DISPUTED_SECONDS))

    async def aclose(self) -> None:
        """End what is on its way to the database. Whoever settles must have been cancelled before."""
        await self._groups.aclose()

    async def _look(self, claim: Claim, rules: _Rules) -> _Seen | None:
        """Ask once, keep what is worth keeping, and return everything as it is now. None: the claim was overtaken."""
        # The database's clock when this was claimed: the read leaves later than that, however long it takes to leave.
        sent_at = claim.doubt.now
        seen = claim.doubt.looked(await self._ask(claim, rules), sent_at)
        now = await self._read_again(claim, self._groups.count_read, sent_at=sent_at)
        claim = now or claim
        known = claim.evidence
        with_look = claim.knowing(claim.doubt, [*known, seen])
        decision = rules.decide(with_look) if now is not None and claim.doubt.is_unknown else None
        if _rests_on(decision, seen):
            return _Seen(with_look, decision, seen)
        if is_worth_keeping(seen, known):
            with_look = claim.knowing(claim.doubt, [*known, await self._acts.keep(claim, seen)])
            decision = None if decision is None else rules.decide(with_look)
        else:
            self._acts.looked(claim, seen, 0)
        return None if now is None else _Seen(with_look, decision)

    async def _ask(self, claim: Claim, rules: _Rules) -> Observation:
        doubt = claim.doubt
        if rules.asks_where_it_was_sent:
            observation = await self._readers.ask(claim.receiver, self._question(doubt, rules.pinned))
            claim.place.taken = False
        else:
            observation = Observation(
                verdict=Verdict.UNKNOWN, note="not asked: the receiver has another host or account now"
            )
        if observation.verdict is Verdict.UNKNOWN:
            emit("look_failed", reason=observation.note, status=observation.answer.status, **name(doubt))
        return observation

    async def _leave_to_its_holder(self, claim: Claim, rules: _Rules) -> Done:
        """An attempt runs: whoever made it says how it went, and else the belt does. Other states hide nothing."""
        doubt, step = claim.doubt, Step(claim.doubt.step)
        if doubt.state != State.EXECUTING:
            return await self._acts.reschedule(claim, Done.PARKED, step, None)
        over = _later(doubt, rules.pinned.receiver.lease + rules.pinned.deadline_seconds)
        return await self._acts.reschedule(claim, Done.EXECUTING, step, over)

    async def _read_again(self, claim: Claim, group: Group[Known], **given: datetime) -> Claim | None:
        known = await group.ask(seq=claim.doubt.seq, claim=claim.token, **given)
        return None if known is None else claim.knowing(*known)

    async def _rules(self, doubt: Doubt) -> _Rules:
        registry = self._registry()
        if (tool := registry.tools.get(doubt.tool)) is None:
            raise NotFound(f"The tool {doubt.tool!r} was applied after the registry was last read here.")
        pinned = tool.wiring if doubt.contract_id is None else await registry.wiring(doubt.contract_id)
        return _Rules(pinned, tool.wiring)

    def _question(self, doubt: Doubt, wiring: Wiring) -> Question:
        key = doubt.sent_key or digest.sent_key(self._instance_id, doubt.tenant_id, doubt.tool, doubt.operation_id)
        return Question(
            seq=doubt.seq,
            tenant_id=doubt.tenant_id,
            operation_id=doubt.operation_id,
            tool=doubt.tool,
            resource=doubt.resource,
            sent_key=str(key),
            wiring=wiring,
            deadline_seconds=min(wiring.deadline_seconds, self._look_seconds_max),
            expected_version=doubt.expected_version,
            attempt=doubt.attempt,
            traceparent=doubt.traceparent,
        )


def _place(wiring: Wiring) -> tuple[str | None, str, str]:
    base = urlsplit(wiring.receiver.base_url)
    return wiring.receiver.auth_account, base.scheme, base.netloc


def _later(doubt: Doubt, seconds: float) -> datetime:
    return doubt.now + timedelta(seconds=seconds)


def _is_time_to_look(decision: Decision, doubt: Doubt, wiring: Wiring) -> bool:
    """
    Whether a look is to be made now.

    A regular one, the slow one of an operation that waits for a person, or one instead of a resend that was allowed and
    that nobody has made: while no relay acts, the records may still tell.
    """
    match decision:
        case Look(at):
            return at <= doubt.now
        case Person(look_at=look_at):
            return look_at is not None and look_at <= doubt.now
        case Resend():
            return doubt.step == Step.RESEND and wiring.lookup is not None and not doubt.mismatch
        case _:
            return False


def _rests_on(decision: Decision | None, seen: Evidence) -> bool:
    """Whether this is decided because of this look: then it must be kept, and named as the proof."""
    return isinstance(decision, Succeed | Reject | Authorize) and decision.evidence is seen
