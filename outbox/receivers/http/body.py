"""Reading the body of an answer: never more than a bound, packed or unpacked, and honest about what is missing.

We ask for no compression. A server that compresses all the same is answered by a decoder that stops at the bound: a
kilobyte that unpacks to a gigabyte costs a buffer of the bound's size, once.
"""

import zlib
from typing import NamedTuple, Protocol

from aiohttp import ClientError, StreamReader, hdrs
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDictProxy

# window bits for zlib: 32 + 15 detects gzip and zlib headers by itself
_AUTO_DETECT = 47
_RAW_DEFLATE = -15


class Body(NamedTuple):
    """What could be read. `problem` is None if that is all of it, else a word for why it is not."""

    data: bytes
    problem: str | None = None


class _Decoder(Protocol):
    def feed(self, data: bytes, room: int) -> bytes:
        """Up to `room` bytes of content. Raises zlib.error for bytes that are not what the header says."""

    @property
    def finished(self) -> bool:
        """Whether the content ended where the encoding says that it ends."""


class _Identity:
    finished = True

    def feed(self, data: bytes, room: int) -> bytes:
        return data[:room]


class _Zlib:
    """gzip, and both things that servers mean by deflate."""

    def __init__(self, encoding: str) -> None:
        self._raw_allowed = encoding == "deflate"
        self._unpack = zlib.decompressobj(_AUTO_DETECT)
        self._started = False

    @property
    def finished(self) -> bool:
        return self._unpack.eof

    def feed(self, data: bytes, room: int) -> bytes:
        try:
            content = self._unpack.decompress(data, room)
        except zlib.error:
            if self._started or not self._raw_allowed:
                raise
            self._unpack = zlib.decompressobj(_RAW_DEFLATE)
            content = self._unpack.decompress(data, room)
        self._started = True
        return content


def _decoder(headers: CIMultiDictProxy[str]) -> _Decoder | None:
    """The decoder for this answer, None where we have none: what we cannot read proves nothing."""
    codings = ",".join(headers.getall(hdrs.CONTENT_ENCODING, ())).lower()
    encoding = codings.strip(" ,")
    if encoding in ("", "identity"):
        return _Identity()
    if encoding in ("gzip", "x-gzip", "deflate"):
        return _Zlib(encoding)
    return None


async def read_body(headers: CIMultiDictProxy[str], stream: StreamReader, bytes_max: int) -> Body:
    """Read the body of an answer whose head has been read. Raises nothing for what a server can do to it.

    The time it takes is bounded by whoever calls; so is nothing else by them.
    """
    decoder = _decoder(headers)
    if decoder is None:
        return Body(b"", "undecodable")
    content = bytearray()
    packed = 0
    try:
        while not stream.at_eof() and (chunk := await stream.readany()):
            packed += len(chunk)
            # One byte more than allowed is how we see that there is more.
            content += decoder.feed(chunk, bytes_max + 1 - len(content))
            if len(content) > bytes_max or packed > bytes_max:
                return Body(bytes(content[:bytes_max]), "oversized")
    except zlib.error:
        return Body(bytes(content), "undecodable")
    except (ClientError, HttpProcessingError, OSError, ValueError):
        return Body(bytes(content), "truncated")
    if content and not decoder.finished:
        return Body(bytes(content), "truncated")
    return Body(bytes(content))
