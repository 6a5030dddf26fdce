"""What a relay counts."""

from typing import Final

from outbox.observe import Metric

METRICS: Final = (
    Metric("attempts", "Attempts that ended, by what they said.", ("receiver", "outcome")),
    Metric("begun", "Operations whose exposure was committed.", ("receiver",)),
    Metric("recorded", "Attempts whose end was recorded, by the state that followed.", ("receiver", "state")),
    Metric("fenced_writes", "Answers that a lost lease kept from becoming a state.", ("receiver",)),
    Metric("late_answers", "Answers that were kept as evidence instead.", ("receiver",)),
    Metric("orphans", "Attempts of our own whose begin was never heard of, converted by the holder.", ("receiver",)),
    Metric("isolated_rows", "Answers that could only be recorded without their text.", ("receiver",)),
    Metric("lanes_taken", "Lanes taken.", ("receiver",)),
    Metric("leases_lost", "Lanes lost to somebody else.", ("receiver",)),
    Metric("made_unknown", "Attempts of an earlier holder that a takeover made unknown.", ("receiver",)),
    Metric("alarms", "Things that people must look at.", ("cause",)),
    Metric("receivers_paused", "Receivers that refused our credential several times in a row.", ("receiver",)),
    Metric("circuits_opened", "Receivers left alone, as several attempts in a row met nobody.", ("receiver",)),
    Metric("probes", "Single attempts at a receiver that is left alone.", ("receiver",)),
    Metric("rings", "Times that this relay was woken by a writer or by somebody's decision."),
    Metric("attempt_seconds", "From the begin of an attempt until its answer.", ("receiver",), kind="histogram"),
    Metric("lanes_held", "Lanes held.", ("receiver",), kind="gauge"),
    Metric("circuit_open", "1 while a receiver is left alone.", ("receiver",), kind="gauge"),
    Metric("in_flight", "Attempts that were begun and are not recorded yet.", ("receiver",), kind="gauge"),
)
