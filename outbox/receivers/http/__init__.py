"""HTTP: one attempt is one request on the wire, whatever the server and the client library would like better.

client       connections, credentials and headers of one exchange
exchange     the last check, the first byte, the last byte; how far an attempt came
connections  aiohttp, without everything in it that sends or fetches by itself
guard        which addresses may be connected to
body         what can be read of an answer, within bounds
errors       what an exception says about the attempt
receiver     `deliver` and `lookup`
"""

from outbox.contract import ReceiverConfig
from outbox.receivers.http.receiver import HttpReader, HttpReceiver

__all__ = ["HttpReader", "HttpReceiver", "open_http"]


def open_http(name: str, config: ReceiverConfig, *, reads_only: bool) -> HttpReader:
    """The factory of the transport `http`."""
    return HttpReader(name, config) if reads_only else HttpReceiver(name, config)
