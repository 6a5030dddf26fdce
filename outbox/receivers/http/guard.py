"""Which network addresses a receiver may have, checked where it counts: on the address that is connected to.

A name that resolved to a public address when it was configured can resolve to the cloud's metadata service when it is
used. So the check stands in two places that nothing can pass between: every address a name resolves to, for each new
connection (one bad address refuses the name: whoever mixes them means no good), and the peer of the connection itself,
before the first byte. The connection is made to the addresses that were checked, while Host and SNI keep the name.
"""

import asyncio
import functools
import socket
from ipaddress import IPv6Address, ip_address, ip_network

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from outbox.errors import UnsafeTarget

_NEVER = tuple(
    ip_network(network)
    for network in (
        "0.0.0.0/8",  # "this network": Linux connects 0.0.0.0 to itself
        "100.100.100.200/32",  # a cloud's metadata service, inside the carrier-grade NAT range
        "168.63.129.16/32",  # a cloud's host agent, which gives out credentials; a public address anywhere else
        "169.254.0.0/16",  # link-local; the metadata service of most clouds
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
        "2001::/23",  # protocol assignments: Teredo, ORCHID, benchmarks
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: any IPv4 address in disguise
        "3fff::/20",  # documentation
        "fd00:ec2::254/128",  # metadata services, inside the range of private addresses
        "fd20:ce::254/128",
    )
)

_PRIVATE = tuple(
    ip_network(network)
    for network in (
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT, and many an overlay network
        "127.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "::1/128",
        "fc00::/7",
    )
)

# Everything of IPv6 that is neither private nor in here is refused without being named: v4-mapped and v4-compatible
# addresses, NAT64, discard, link-local and site-local, SRv6, multicast, and whatever is assigned next.
_IPV6_UNICAST = ip_network("2000::/3")


@functools.lru_cache(maxsize=4_096)
def refusal(address: str, *, allow_private: bool) -> str | None:
    """Why this address must not be connected to, or None if it may be. What is no address is refused."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return "not an address"
    if any(parsed in network for network in _NEVER):
        return "an address that no receiver has"
    if any(parsed in network for network in _PRIVATE):
        return None if allow_private else "a private address, and allow_private_addresses is off"
    if isinstance(parsed, IPv6Address) and parsed not in _IPV6_UNICAST:
        return "an address that no receiver has"
    return None


def check(host: str, addresses: list[str], *, allow_private: bool) -> None:
    """Raise UnsafeTarget if any of the addresses is refused, or if there is none."""
    if not addresses:
        raise UnsafeTarget(f"{host} has no address")
    for address in addresses:
        reason = refusal(address, allow_private=allow_private)
        if reason is not None:
            raise UnsafeTarget(f"{host} is at {address}: {reason}")


def check_literal(host: str, *, allow_private: bool) -> None:
    """Raise UnsafeTarget for a host that is itself an address, and not an allowed one: it is resolved by nobody."""
    address = host.strip("[]")
    if _is_address(address):
        check(host, [address], allow_private=allow_private)


@functools.lru_cache(maxsize=4_096)
def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def check_peer(host: str, transport: asyncio.Transport, *, allow_private: bool) -> None:
    """Raise UnsafeTarget unless this connection leads to an address that is allowed."""
    peer = transport.get_extra_info("peername")
    address = str(peer[0]) if isinstance(peer, tuple) and peer else ""
    check(host, [address], allow_private=allow_private)


class GuardedResolver(AbstractResolver):
    """Resolves a name once per connection and gives out its addresses only if all of them are allowed."""

    def __init__(self, *, allow_private: bool, resolver: AbstractResolver | None = None) -> None:
        self._resolver = resolver or ThreadedResolver()
        self._allow_private = allow_private

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses of `host`. Raises OSError if it has none, UnsafeTarget if one of them is refused."""
        results = await self._resolver.resolve(host, port, family)
        check(host, [result["host"] for result in results], allow_private=self._allow_private)
        return results

    async def close(self) -> None:
        """Release the resolver underneath."""
        await self._resolver.close()
