"""What anybody who can connect may send before there is a request: bounded in bytes and in time."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from perdure.testing.simulator import Simulator
from support.gateway_process import obedient
from support.gateway_server import Running, running_gateway

LIMITS = {"max_header_bytes": 16_384, "header_timeout_s": 0.6}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    home: Path = tmp_path_factory.mktemp("limits")
    with Simulator(script=obedient) as sim, running_gateway(home, sim, users={"ann": ("chat",)}, gateway=LIMITS) as up:
        yield up


def connected(gateway: Running) -> socket.socket:
    where = urlsplit(gateway.url)
    return socket.create_connection((where.hostname, where.port), timeout=10)


def until_closed(connection: socket.socket) -> bytes:
    """Everything the server says until it hangs up."""
    heard = b""
    try:
        while piece := connection.recv(65_536):
            heard += piece
    except ConnectionResetError:
        pass
    return heard


def is_hung_up_on(connection: socket.socket, piece: bytes, *, pause_s: float, within_s: float) -> bool:
    """Whether the server closes the connection while `piece` is sent again and again."""
    give_up = time.monotonic() + within_s
    while time.monotonic() < give_up:
        try:
            connection.sendall(piece)
        except (ConnectionResetError, BrokenPipeError):
            return True
        time.sleep(pause_s)
    return False


def refusal(answer: bytes) -> tuple[int, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), str(json.loads(body)["error"]["code"])


@pytest.mark.parametrize("piece", [b"X-a: b\r\n", b"y"], ids=["many headers", "one long header"])
def test_endless_headers_are_rejected(gateway: Running, piece: bytes) -> None:
    with connected(gateway) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-first: ")
        assert is_hung_up_on(connection, piece * 4_096, pause_s=0.005, within_s=0.5)


def test_headers_just_over_the_limit_are_answered_with_431(gateway: Running) -> None:
    with connected(gateway) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-first: " + b"y" * 16_400)
        assert refusal(until_closed(connection)) == (431, "headers_too_large")


def test_endless_trailers_are_rejected(gateway: Running) -> None:
    with connected(gateway) as connection:
        head = b"POST /api/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head + b"1\r\n{\r\n0\r\n")
        assert is_hung_up_on(connection, b"X-a: b\r\n" * 512, pause_s=0.005, within_s=0.5)


@pytest.mark.parametrize("start", [b"", b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-a: ", b"\r\n"])
def test_connections_that_never_complete_their_headers_are_closed(gateway: Running, start: bytes) -> None:
    opened = [connected(gateway) for _ in range(20)]
    began = time.monotonic()
    for connection in opened:
        connection.sendall(start)
    for connection in opened:
        answer = until_closed(connection)
        assert not answer or refusal(answer) == (408, "too_slow")
        connection.close()
    assert time.monotonic() - began < 5


def test_a_trickle_of_header_bytes_does_not_move_the_deadline(gateway: Running) -> None:
    with connected(gateway) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-a: ")
        assert is_hung_up_on(connection, b"b", pause_s=0.05, within_s=3)


def test_a_rejected_request_cannot_keep_its_connection_open(gateway: Running) -> None:
    with connected(gateway) as connection:
        connection.sendall(b"POST /api/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\n")
        assert is_hung_up_on(connection, b" ", pause_s=0.05, within_s=3)


def test_requests_one_after_another_are_served_on_one_connection(gateway: Running) -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-a: " + b"y" * 8_000 + b"\r\n\r\n"
    with connected(gateway) as connection:
        for _ in range(4):
            connection.sendall(request)
            answer = b""
            while b'"ok"' not in answer:
                answer += connection.recv(65_536)
            assert answer.startswith(b"HTTP/1.1 200 OK")
            # Longer in all than the time for one request's headers.
            time.sleep(0.25)
