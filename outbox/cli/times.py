"""Dates and spans of time, as people write them in options."""

import math
from datetime import UTC, datetime, timedelta

import click

from outbox.duration import parse_duration


def span_of(text: str, option: str) -> timedelta:
    """A span such as "90d". BadParameter, naming the option, for anything else."""
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from None
    if math.isinf(seconds):
        raise click.BadParameter('write a span that ends, such as "90d"', param_hint=option)
    return timedelta(seconds=seconds)


def date_of(text: str, option: str, now: datetime | None = None) -> datetime:
    """A date (RFC 3339; UTC, if it does not say). With `now`, a span is so long before it. BadParameter otherwise."""
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        if now is not None:
            try:
                return now - span_of(text, option)
            except click.BadParameter:
                pass
        span = ' or a span ("24h")' if now is not None else ""
        raise click.BadParameter(f"write a date (2026-11-30T08:00:00Z){span}", param_hint=option) from None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
