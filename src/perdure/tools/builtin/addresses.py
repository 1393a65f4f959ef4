"""Which network addresses a fetch may go to: those of the public internet, judged after the name was resolved."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from perdure.core.errors import ToolError

Address = IPv4Address | IPv6Address
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

# Public by number, but they answer with a cloud's own secrets.
_METADATA = frozenset({ip_address("168.63.129.16"), ip_address("169.254.169.254"), ip_address("100.100.100.200")})
_NAT64 = ip_network("64:ff9b::/96")


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
    return address.is_global and not address.is_multicast and address not in _METADATA


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
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if inner is not None:
            return inner
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address
