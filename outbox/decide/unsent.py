"""What follows when this process itself refuses to send: nothing left, and trying again would change nothing."""

from typing import Final

from outbox.contract import Wiring
from outbox.decide.attempt import Transition
from outbox.decide.facts import Step
from outbox.states import Cause, State

# The operation is at fault (it is not what was permitted, or no request can be made of it): it ends where it hides
# nothing.
_ENDS: Final = frozenset({Cause.TAMPERED, Cause.NO_ROUTE})
# The configuration is not the one under which the operation was exposed: somebody must decide.
_WAITS: Final = frozenset({Cause.TARGET_CHANGED, Cause.SCOPE_CHANGED})
# Where no contract could be read there is no back-off to obey either. Another release, or the next minute, may read it.
_UNREADABLE_SECONDS: Final = 30.0


def after_refusal(cause: Cause, *, wiring: Wiring, earlier_unresolved: bool) -> Transition:
    """
    Decide what follows from a refusal of our own, before the first byte. Pure.

    The attempt is withdrawn in every case. An earlier one that is unresolved stays so: it is looked up or a person
    decides, and there is no resend, which would be refused again. Raises ValueError for another cause.
    """
    if cause not in _ENDS | _WAITS:
        raise ValueError(f"{cause} is no reason to refuse an attempt")
    alarm = cause is Cause.TAMPERED
    if earlier_unresolved:
        looks = wiring.lookup is not None
        return Transition(
            state=State.UNKNOWN,
            cause=cause,
            withdraw=True,
            step=Step.LOOK if looks else Step.PERSON,
            delay_seconds=0.0,
            no_more_resends=True,
            alarm=alarm,
        )
    if cause in _ENDS:
        return Transition(state=State.REJECTED, cause=cause, withdraw=True, alarm=alarm)
    return Transition(state=State.AUTHORIZED, cause=cause, withdraw=True, step=Step.PERSON, delay_seconds=0.0)


def after_unreadable(*, earlier_unresolved: bool) -> Transition:
    """Decide what follows where the contract version of an attempt could not be read or understood. Pure."""
    if earlier_unresolved:
        return Transition(
            state=State.UNKNOWN,
            cause=Cause.CONTRACT_UNREADABLE,
            withdraw=True,
            step=Step.LOOK,
            delay_seconds=_UNREADABLE_SECONDS,
        )
    return Transition(
        state=State.AUTHORIZED, cause=Cause.CONTRACT_UNREADABLE, withdraw=True, delay_seconds=_UNREADABLE_SECONDS
    )
