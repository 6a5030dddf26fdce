"""
What people can find out about one operation.

Who authorized what, on which version, how often it was tried, what evidence there is, and what may happen next:

- `find`: an id, of whichever tenant, becomes one operation (`find.py`).
- `read_dossier`: everything that is known about it (`dossier.py`).
- `next_of`: what happens next, when, and why (`ahead.py`).
- `may_it_happen_twice`: what a retry would risk (`twice.py`).
- `document`: all of it with stable names (`document.py`).
- `answers_on_record`: what the receiver has answered so far (`answered.py`).
- `explain`: all of it in sentences; `how_it_ended`: its end in one (`explain.py`).
- `tombstone`, `explain_tombstone`: what is left of a purged one (`tombstone.py`).

Nothing here decides: it asks `outbox.decide` and `outbox.guarantee`, as the daemons do.
"""

from outbox.inspect.ahead import NextStep, next_of
from outbox.inspect.answered import answers_on_record
from outbox.inspect.document import document
from outbox.inspect.dossier import Dossier, read_dossier
from outbox.inspect.explain import Explanation, explain, how_it_ended
from outbox.inspect.find import Found, find
from outbox.inspect.tombstone import explain_tombstone, tombstone
from outbox.inspect.twice import Twice, may_it_happen_twice

# The files of statements (outbox/sql) that a store needs for all of this.
STATEMENTS = ("inspect", "registry")

__all__ = [
    "STATEMENTS",
    "Dossier",
    "Explanation",
    "Found",
    "NextStep",
    "Twice",
    "answers_on_record",
    "document",
    "explain",
    "explain_tombstone",
    "find",
    "how_it_ended",
    "may_it_happen_twice",
    "next_of",
    "read_dossier",
    "tombstone",
]
