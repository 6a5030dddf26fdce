"""Retry-After in every form that servers send it, as whole seconds with bounds.

Seconds, with or without a fraction, and the three date formats of HTTP. A date is written by the receiver's clock, so
it counts from the receiver's own Date where there is one. Several values: the longest wait. What cannot be read is as
good as absent; what is in the past means now. How long is too long the contract says; a year is too long for any.
"""

import math
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

SECONDS_MAX = 7 * 86_400

_NUMBER = re.compile(r"\+?\d{1,18}(?:\.\d{0,18})?", re.ASCII)
_WEEKDAY_ONLY = re.compile(r"[A-Za-z]+", re.ASCII)


def whole_seconds(value: str, date: str | None, now: datetime) -> int | None:
    """How long to wait, from 0 to SECONDS_MAX; None if the header says nothing that can be read."""
    reference = (_read_date(date) if date else None) or now
    waits = [wait for part in _parts(value) if (wait := _wait(part, reference)) is not None]
    return max(waits) if waits else None


def _parts(value: str) -> list[str]:
    """The values of a header that may have been sent several times, with the comma of a date put back."""
    parts: list[str] = []
    for piece in (piece.strip() for piece in value[:1_000].split(",")):
        if parts and _WEEKDAY_ONLY.fullmatch(parts[-1]):
            parts[-1] = f"{parts[-1]}, {piece}"
        else:
            parts.append(piece)
    return parts


def _wait(text: str, reference: datetime) -> int | None:
    if _NUMBER.fullmatch(text):
        return min(SECONDS_MAX, math.ceil(float(text)))
    at = _read_date(text)
    return None if at is None else min(SECONDS_MAX, max(0, math.ceil((at - reference).total_seconds())))


def _read_date(text: str) -> datetime | None:
    """An HTTP date: IMF-fixdate, RFC 850 or asctime. The last one names no zone and means UTC."""
    try:
        at = parsedate_to_datetime(text.strip())
        return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
