"""Which network addresses a fetch may go to: those of the public internet, judged after the name was resolved."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from perdure.core.errors import ToolError

Address = IPv4Address | IPv6Address
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

# IANA's registries of special-purpose addresses, and multicast: a table of our own, because what `ipaddress` calls
# global differs between Python versions.
_NOT_PUBLIC_4 = tuple(
    ip_network(n)
    for n in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by a provider's customers
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local, and the metadata of most clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments; 192.0.0.192 is the metadata of a cloud
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # AMT
        "192.88.99.0/24",  # 6to4 relays, deprecated
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
        "168.63.129.16/32",  # public by number, but it answers with a cloud's own secrets
    )
)
# Only these are handed out as global unicast; the rest is reserved, private, link-local or multicast.
_GLOBAL_6 = ip_network("2000::/3")
_NOT_PUBLIC_6 = tuple(
    ip_network(n)
    for n in (
        "2001::/23",  # protocol assignments: Teredo, benchmarks, ORCHID, …
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "2620:4f:8000::/48",  # AS112
        "3ffe::/16",  # the old 6bone
        "3fff::/20",  # documentation
        "5f00::/16",  # segment routing
    )
)
# An IPv4 address stands in the last four bytes of these.
_LAST_FOUR_BYTES = tuple(
    ip_network(n)
    for n in (
        "::/96",  # IPv4-compatible
        "::ffff:0:0/96",  # IPv4-mapped
        "::ffff:0:0:0/96",  # IPv4-translated
        "64:ff9b::/96",  # NAT64
    )
)
_SIX_TO_FOUR = ip_network("2002::/16")
_TEREDO = ip_network("2001::/32")


async def resolve(host: str, port: int) -> Sequence[str]:
    """Every address of a host, as the system knows them."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        raise ToolError(f"the host {host!r} cannot be found ({error})") from None
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def is_public(text: str) -> bool:
    """Whether an address is one anybody may reach; addresses wrapped in others are looked at themselves."""
    try:
        address = _unwrapped(ip_address(text.split("%")[0]))
    except ValueError:
        return False
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    return address in _GLOBAL_6 and not any(address in network for network in _NOT_PUBLIC_6)


def is_within(text: str, networks: Sequence[str]) -> bool:
    """Whether an address lies in one of these networks ("10.0.0.0/8", "127.0.0.1")."""
    try:
        address = _unwrapped(ip_address(text.split("%")[0]))
        return any(address in ip_network(n, strict=False) for n in networks)
    except ValueError:
        return False


async def allowed_address(host: str, port: int, *, resolve: Resolve, private_networks: Sequence[str]) -> str:
    """The address to connect to. Raises ToolError where any of the host's is neither public nor allowed."""
    found = await resolve(host, port)
    if not found:
        raise ToolError(f"the host {host!r} has no address")
    refused = [a for a in found if not is_public(a) and not is_within(a, private_networks)]
    # One private address among public ones is refused too: a name that mixes them is up to something.
    if refused:
        raise ToolError(
            f"{host} is {refused[0]}, an address of this machine or its network, which may not be fetched. "
            "The person can allow it with the setting `tools.private_networks`."
        )
    return found[0]


def _unwrapped(address: Address) -> Address:
    """The IPv4 address that an IPv6 one carries, if any; `::` and `::1` are themselves."""
    if isinstance(address, IPv4Address) or int(address) <= 1:
        return address
    number = int(address)
    if any(address in network for network in _LAST_FOUR_BYTES):
        return IPv4Address(number & 0xFFFFFFFF)
    if address in _SIX_TO_FOUR:
        return IPv4Address((number >> 80) & 0xFFFFFFFF)
    if address in _TEREDO:
        # The client's address is sent inverted.
        return IPv4Address(~number & 0xFFFFFFFF)
    return address
