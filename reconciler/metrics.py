"""What a reconciler counts."""

from typing import Final

from outbox.observe import Metric

METRICS: Final = (
    Metric("looks", "Reads of a receiver's records, by what they showed.", ("receiver", "verdict")),
    Metric("looks_skipped", "Looks not made: the receiver is left alone, or not open.", ("receiver",)),
    Metric(
        "settled",
        "Operations whose doubt has ended, by the state that followed and why.",
        ("receiver", "state", "cause"),
    ),
    Metric("resends_allowed", "Attempts inside a doubt that a relay was allowed to make.", ("receiver",)),
    Metric("persons_needed", "Operations that were handed to a person, by the reason.", ("receiver", "reason")),
    Metric("claims_overtaken", "Decisions that were not written: somebody else had acted on the operation first."),
    Metric(
        "operations_failed", "Operations that could not be judged, and are tried again after their claim has run out."
    ),
    Metric("orphans_converted", "Attempts that ran longer than any lease and were made unknown by the belt."),
    Metric("expired", "Operations whose permission lapsed before anything was sent."),
    Metric("redecided", "Operations whose permission was decided again after their policy changed."),
    Metric("look_seconds", "How long a read of a receiver's records takes.", ("receiver",), kind="histogram"),
    Metric("in_doubt", "Operations in doubt.", kind="gauge"),
    Metric("in_doubt_for_a_person", "Operations in doubt that wait for a person.", kind="gauge"),
    Metric("in_doubt_late", "Operations in doubt whose date has passed by more than a minute.", kind="gauge"),
    Metric("oldest_doubt_seconds", "Age of the oldest doubt.", kind="gauge"),
    Metric("contradictions", "Evidence against a terminal state, or of two effects; up to 20000.", kind="gauge"),
    Metric("lanes_unheld", "Lanes with open operations that no relay holds.", kind="gauge"),
    Metric("unplaced", "Intents that are neither open nor ended.", kind="gauge"),
)
