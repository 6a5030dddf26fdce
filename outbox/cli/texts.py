"""Texts that are kept: refused before anything is connected where no column takes them."""

from typing import Final

import click

# What a note, a reason and an id of the receiver may have: the database's bounds, with room for what it adds.
NOTE_BYTES_MAX: Final = 4_000
EXTERNAL_ID_BYTES_MAX: Final = 500


class Kept(click.ParamType[str]):
    """A text of at most so many bytes of UTF-8, that says something."""

    name = "text"

    def __init__(self, bytes_max: int = NOTE_BYTES_MAX) -> None:
        self.bytes_max = bytes_max

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Take the text, or say what is wrong with it."""
        size = len(value.encode(errors="surrogateescape"))
        if size > self.bytes_max:
            self.fail(
                f"it has {size} bytes, and {self.bytes_max} are kept: say it in short, and name where it is", param, ctx
            )
        if not value.strip():
            self.fail("it is empty, and is kept for whoever asks later", param, ctx)
        return value
