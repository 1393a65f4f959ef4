"""Classify network addresses: loopback, local network, public."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

Address = IPv4Address | IPv6Address

_LOCAL_SUFFIXES = (".local", ".internal", ".lan")
# IANA's registries of special-purpose addresses, and multicast: a table of our own, because what `ipaddress` calls
# global differs between Python versions.
_NOT_PUBLIC_4 = tuple(
    ip_network(n)
    for n in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carrier-grade NAT
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
        "168.63.129.16/32",  # routable, but a cloud's metadata service
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
# IPv6 ranges that carry an IPv4 address in their last four bytes.
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


def is_loopback_host(host: str) -> bool:
    """Whether only this machine can reach a server bound to `host`."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


@lru_cache(maxsize=256)  # the client asks for the same few URLs with every request
def is_loopback_url(url: str) -> bool:
    """Whether a URL points at this machine; False for an invalid URL."""
    return is_loopback_host(_host_of(url))


def is_local_url(url: str) -> bool:
    """Whether a URL points at this machine or the local network, by its address or the form of its host name."""
    host = _host_of(url)
    try:
        address = ip_address(host)
    except ValueError:
        return bool(host) and ("." not in host or host.endswith(_LOCAL_SUFFIXES))
    return address.is_loopback or address.is_private


def is_public_address(text: str) -> bool:
    """Whether an IP address is globally routable; an IPv4 address embedded in an IPv6 one is checked itself."""
    try:
        address = _embedded_ipv4(ip_address(text.split("%")[0]))
    except ValueError:
        return False
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    return address in _GLOBAL_6 and not any(address in network for network in _NOT_PUBLIC_6)


def is_in_networks(text: str, networks: Sequence[str]) -> bool:
    """Whether an IP address belongs to one of the networks ("10.0.0.0/8", "127.0.0.1")."""
    try:
        address = _embedded_ipv4(ip_address(text.split("%")[0]))
        return any(address in ip_network(n, strict=False) for n in networks)
    except ValueError:
        return False


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _embedded_ipv4(address: Address) -> Address:
    """Return the IPv4 address embedded in an IPv6 one, or else the address itself."""
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
