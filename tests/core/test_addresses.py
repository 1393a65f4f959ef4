"""Classification of hosts, URLs and IP addresses."""

from __future__ import annotations

import pytest

from perdure.core.addresses import is_in_networks, is_loopback_host, is_loopback_url, is_public_address


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
     "::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::",
     "168.63.129.16", "100.100.100.200", "255.255.255.255", "nonsense",
     "::127.0.0.1", "::10.0.0.1", "::ffff:0:127.0.0.1", "192.0.0.192", "192.0.0.8", "192.0.2.1", "198.18.0.1",
     "198.51.100.7", "203.0.113.9", "240.0.0.1", "64:ff9b:1::7f00:1", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1",
     "2001:0:4136:e378:8000:63bf:80ff:fffe", "::", "100::1", "2001:db8::1", "3fff::1", "ff02::1", "5f00::1", "fec0::1"],
)  # fmt: skip
def test_address_is_not_public(address: str) -> None:
    assert not is_public_address(address)


@pytest.mark.parametrize(
    "address",
    ["93.184.216.34", "1.1.1.1", "2606:4700::1111", "64:ff9b::101:101", "::1.1.1.1", "2002:101:101::1", "2a00:1450::1",
     "192.0.1.1", "100.128.0.1", "172.32.0.1", "223.255.255.1", "2001:4860:4860::8888"],
)  # fmt: skip
def test_address_is_public(address: str) -> None:
    assert is_public_address(address)


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("LOCALHOST", True),
        ("0.0.0.0", False),
        ("192.168.1.7", False),
        ("localhost.example.org", False),
        ("", False),
    ],
)
def test_loopback_host_is_reachable_from_this_machine_only(host: str, is_loopback: bool) -> None:
    assert is_loopback_host(host) is is_loopback


@pytest.mark.parametrize(
    ("url", "is_loopback"),
    [
        ("http://127.0.0.1:8080/v1", True),
        ("http://[::1]/v1", True),
        ("http://localhost", True),
        ("https://api.openai.com/v1", False),
        ("http://127.0.0.1.example.org", False),
        ("http://[::1/v1", False),
        ("", False),
    ],
)
def test_loopback_url_is_recognized_by_its_host(url: str, is_loopback: bool) -> None:
    assert is_loopback_url(url) is is_loopback


def test_addresses_match_networks_and_single_hosts_also_when_embedded_in_ipv6() -> None:
    assert is_in_networks("10.1.2.3", ["10.0.0.0/8"])
    assert is_in_networks("::ffff:127.0.0.1", ["127.0.0.1"])
    assert not is_in_networks("11.1.2.3", ["10.0.0.0/8"])
    assert not is_in_networks("10.1.2.3", [])
    assert not is_in_networks("nonsense", ["10.0.0.0/8"])
