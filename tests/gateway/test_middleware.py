"""What stands before every route: no foreign host or page, no endless body, no stranger, no flood."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from perdure.config.settings import GatewaySettings
from perdure.core.addresses import is_loopback_host
from perdure.core.errors import ConfigError, LeaseLost, NotFound, StoreUnavailable
from perdure.core.visibility import User
from perdure.gateway.api.middleware import CONTENT_SECURITY_POLICY, is_public
from perdure.gateway.auth.hosts import HostNames
from perdure.gateway.auth.limits import RateLimit
from perdure.gateway.auth.middleware import RECHECK_S
from perdure.gateway.auth.principal import Principal
from perdure.gateway.errors import GatewayStopping, to_api_error
from perdure.gateway.server import check_bind_address
from perdure.store.inbox import InboxFull
from support.auth_app import FixedTokens, everything, make_app, raw, served
from support.store import FakeClock

ALICE = {"authorization": "Bearer alice-token"}


class Client:
    """A gateway's guards, asked in-process; time stands still."""

    def __init__(self, **settings: Any) -> None:
        self.clock = FakeClock()
        self.authenticator = FixedTokens(**{"alice-token": everything("alice"), "bob-token": everything("bob")})
        self.app = make_app(self.authenticator, clock=self.clock, **settings)

    def __call__(self, method: str, path: str, **kwargs: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8420") as client:
                return await client.request(method, path, **kwargs)

        return asyncio.run(ask())


@pytest.fixture(scope="module")
def ask() -> Client:
    return Client(requests_per_minute=None)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    app = make_app(
        FixedTokens(**{"alice-token": everything("alice")}),
        max_body_bytes=2_048,
        body_timeout_s=0.6,
        requests_per_minute=None,
    )
    with served(app) as found:
        yield found


# -- tokens ----------------------------------------------------------------------------------------------------------


def test_a_token_authenticates_its_user(ask: Client) -> None:
    assert ask("GET", "/who", headers=ALICE).json() == {"user": "alice"}
    assert ask("GET", "/who", headers={"authorization": "bearer bob-token"}).json() == {"user": "bob"}


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, "no_token"),
        ({"authorization": "Bearer wrong"}, "invalid_token"),
        ({"authorization": "Bearer"}, "invalid_token"),
        ({"authorization": "Bearer "}, "invalid_token"),
        ({"authorization": "Basic YWxpY2U6"}, "invalid_token"),
        ({"authorization": "alice-token"}, "invalid_token"),
        ({"cookie": "token=alice-token"}, "no_token"),
        ({"x-api-key": "alice-token"}, "no_token"),
    ],
)
def test_requests_without_a_valid_token_are_rejected(headers: dict[str, str], code: str, ask: Client) -> None:
    answer = ask("GET", "/who", headers=headers)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == code
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_token_in_the_query_string_is_ignored(ask: Client) -> None:
    for name in ("token", "access_token", "api_key"):
        assert ask("GET", f"/who?{name}=alice-token").status_code == 401


def test_two_authorization_headers_are_rejected(ask: Client) -> None:
    both = [("authorization", "Bearer alice-token"), ("authorization", "Bearer bob-token")]
    assert ask("GET", "/who", headers=both).status_code == 401


def test_unknown_paths_require_a_token_too(ask: Client) -> None:
    assert ask("GET", "/no/such/path").status_code == 401
    assert ask("GET", "/no/such/path", headers=ALICE).status_code == 404
    assert ask("GET", "/openapi.json").status_code == 401


def test_health_needs_no_token(ask: Client) -> None:
    assert ask("GET", "/healthz").json() == {"ok": True}


def test_a_missing_scope_is_named() -> None:
    ask = Client()
    ask.authenticator.persons["reader"] = Principal(User("carol"), frozenset({"read"}))
    answer = ask("GET", "/who", headers={"authorization": "Bearer reader"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "missing_scope")
    assert "chat" in answer.json()["error"]["message"]


def test_proxied_requests_are_rejected_while_no_token_exists() -> None:
    ask = Client()
    ask.authenticator.persons = {"": everything("")}
    assert ask("GET", "/who").status_code == 200
    for name in ("x-forwarded-for", "forwarded", "x-real-ip", "via"):
        assert ask("GET", "/who", headers={name: "203.0.113.9"}).status_code == 401, name


@pytest.mark.parametrize(
    "path", ["/static/../who", "/static/%2e%2e/who", "//who", "/static/..%2fwho", "/who/", "/healthz/../who", "/WHO"]
)
def test_no_path_spelling_bypasses_authentication(path: str, port: int) -> None:
    said = raw(port, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    assert said.split()[1] in (b"401", b"404")
    assert b"alice" not in said


def test_public_paths_are_read_only() -> None:
    assert is_public("GET", "/")
    assert is_public("HEAD", "/static/page.js")
    assert not any(is_public(method, "/") for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"))
    assert not any(is_public("GET", path) for path in ("/v1/models", "/api/page/usage", "/metrics", "/static/../x"))


# -- hosts and origins -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8420", "127.0.0.1.evil.example", "localhost.evil.example", "", "a b", "@x"]
)
def test_dns_rebinding_is_rejected(host: str, ask: Client) -> None:
    answer = ask("GET", "/who", headers={**ALICE, "host": host})
    assert answer.status_code in (400, 421)
    assert "alice" not in answer.text


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8420", "localhost:1", "LOCALHOST", "[::1]:8420", "10.1.2.3"])
def test_ip_addresses_and_localhost_are_accepted(host: str, ask: Client) -> None:
    assert ask("GET", "/who", headers={**ALICE, "host": host}).status_code == 200


def test_configured_host_names_are_accepted() -> None:
    names = HostNames("0.0.0.0", public_url="https://agent.example.org", allowed=["*.lan.example", "box"])
    assert all(
        names.is_known_host(h) for h in ("agent.example.org", "agent.example.org.:443", "a.lan.example:1", "BOX")
    )
    assert not any(
        names.is_known_host(h) for h in ("example.org", "lan.example", "evillan.example", "box.evil", "0.0.0.0x")
    )


def test_two_host_headers_are_rejected(port: int) -> None:
    said = raw(port, b"GET /who HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil\r\nAuthorization: Bearer alice-token\r\n\r\n")
    assert said.split()[1] == b"400"


def test_health_checks_are_subject_to_the_host_check(ask: Client) -> None:
    assert ask("GET", "/healthz", headers={"host": "evil.example"}).status_code == 421


FOREIGN = [
    "https://evil.example",
    "http://127.0.0.1:9999",
    "null",
    "http://localhost:8420.evil",
    "file://",
    "http://[",
    "",
]


@pytest.mark.parametrize("origin", FOREIGN)
def test_cross_site_writes_are_rejected(origin: str, ask: Client) -> None:
    answer = ask("POST", "/echo", headers={**ALICE, "origin": origin}, content=b"x")
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "wrong_origin")


def test_the_web_ui_may_post(ask: Client) -> None:
    assert ask("POST", "/echo", headers={**ALICE, "origin": "http://127.0.0.1:8420"}, content=b"x").status_code == 200


def test_the_public_url_is_same_origin_behind_a_tls_proxy() -> None:
    ask = Client(public_url="https://agent.example.org")
    page = {**ALICE, "host": "agent.example.org", "origin": "https://agent.example.org"}
    assert ask("POST", "/echo", headers=page).status_code == 200
    # The proxy passes its own address on as Host: the public origin is known by itself.
    assert ask("POST", "/echo", headers={**page, "host": "127.0.0.1:8420"}).status_code == 200
    assert ask("POST", "/echo", headers={**page, "origin": "http://agent.example.org:81"}).status_code == 403


def test_cross_site_embeds_are_rejected_and_links_allowed(ask: Client) -> None:
    embedded = {**ALICE, "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    assert ask("GET", "/who", headers=embedded).status_code == 403
    assert ask("GET", "/who", headers={**embedded, "sec-fetch-mode": "navigate"}).status_code == 200
    assert ask("GET", "/who", headers={**embedded, "sec-fetch-site": "same-origin"}).status_code == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1:8420"])
def test_no_response_has_cors_headers(origin: str, ask: Client) -> None:
    asked = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization",
    }
    preflight = ask("OPTIONS", "/echo", headers=asked)
    plain = ask("GET", "/who", headers={**ALICE, "origin": origin})
    assert preflight.status_code in (401, 403, 405)
    assert not [h for answer in (preflight, plain) for h in answer.headers if h.startswith("access-control")]


# -- headers and errors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [("/who", ALICE, 200), ("/who", {}, 401), ("/none", ALICE, 404), ("/who", {"host": "evil.example"}, 421)],
)
def test_every_response_has_security_headers(path: str, headers: dict[str, str], status: int, ask: Client) -> None:
    answer = ask("GET", path, headers=headers)
    assert answer.status_code == status
    assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-store"
    assert "unsafe" not in CONTENT_SECURITY_POLICY


@pytest.mark.parametrize(
    ("method", "path", "content", "status"),
    [
        ("GET", "/none", b"", 404),
        ("DELETE", "/who", b"", 405),
        ("POST", "/json", b"{", 422),
        ("POST", "/json", b"[]", 422),
        ("POST", "/json", b"\xff\xfe", 422),
        ("POST", "/json", b"[" * 2_000, 400),
        ("POST", "/json", b'{"a": 1e999}', 200),
    ],
)
def test_errors_have_one_shape(method: str, path: str, content: bytes, status: int, ask: Client) -> None:
    answer = ask(method, path, headers={**ALICE, "content-type": "application/json"}, content=content)
    assert answer.status_code == status
    if status != 200:
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_invalid_input_is_not_echoed(ask: Client) -> None:
    content = json.dumps(["my-password-is-hunter2"])
    answer = ask("POST", "/json", headers={**ALICE, "content-type": "application/json"}, content=content)
    assert answer.status_code == 422
    assert "hunter2" not in answer.text


# -- bodies ----------------------------------------------------------------------------------------------------------

HEAD = b"POST /echo HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer alice-token\r\n"


def test_a_body_at_the_limit_passes(port: int) -> None:
    said = raw(port, HEAD + b"Content-Length: 2048\r\n\r\n" + b"x" * 2048)
    assert said.endswith(b'{"bytes":2048}')


def test_a_declared_length_over_the_limit_is_rejected_at_once(port: int) -> None:
    said = raw(port, HEAD + b"Content-Length: 2049\r\n\r\n")
    assert said.split()[1] == b"413"
    assert raw(port, HEAD + b"Content-Length: 99999999999999999999999999\r\n\r\n").split()[1] in (b"400", b"413")


@pytest.mark.parametrize("path", [b"/echo", b"/json"])
def test_chunked_bodies_are_limited(path: bytes, port: int) -> None:
    head = HEAD.replace(b"/echo", path) + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    said = raw(port, head, *[b"400\r\n" + b"[" * 1024 + b"\r\n"] * 3, pause_s=0.02)
    assert said.split()[1] == b"413"
    assert b"too_large" in said


def test_a_slow_body_times_out(port: int) -> None:
    began = time.monotonic()
    said = raw(port, HEAD + b"Content-Length: 100\r\n\r\n", *[b"x"] * 4, pause_s=0.1)
    assert said.split()[1] == b"408"
    assert time.monotonic() - began < 4


def test_unauthenticated_bodies_are_not_read(port: int) -> None:
    head = HEAD.replace(b"alice-token", b"nobody")
    assert raw(port, head + b"Content-Length: 2000\r\n\r\n").split()[1] == b"401"


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /who HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer alice-token\r\n X: folded\r\n\r\n",
        b"GET /who\r\nX: y HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"GET http://evil.example/who HTTP/1.1\r\nHost: evil.example\r\nAuthorization: Bearer alice-token\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"GET /who HTTP/1.1\r\n\r\n",
    ],
)
def test_malformed_requests_are_rejected(request_bytes: bytes, port: int) -> None:
    said = raw(port, request_bytes, timeout_s=0.5)
    assert not said or said.split()[1][:1] == b"4"
    assert raw(port, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").endswith(b'{"ok":true}')


def test_a_header_cannot_be_smuggled_into_an_answer(port: int) -> None:
    said = raw(port, b"GET /%0d%0aset-cookie:x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b"set-cookie" not in said.lower()


# -- pace ------------------------------------------------------------------------------------------------------------


def test_rate_limits_are_per_user() -> None:
    ask = Client(requests_per_minute=60, request_burst=3)
    statuses = [ask("GET", "/who", headers=ALICE).status_code for _ in range(4)]
    assert statuses == [200, 200, 200, 429]
    assert ask("GET", "/who", headers={"authorization": "Bearer bob-token"}).status_code == 200
    refused = ask("GET", "/who", headers=ALICE)
    assert refused.headers["retry-after"] == "1"
    assert refused.json()["error"]["type"] == "rate_limit_error"
    ask.clock.pass_ms(1_000)
    assert ask("GET", "/who", headers=ALICE).status_code == 200


def test_failed_logins_are_rate_limited_by_address() -> None:
    ask = Client(requests_per_minute=60, request_burst=3)
    guesses = [ask("GET", "/who", headers={"authorization": f"Bearer {n}"}).status_code for n in range(4)]
    assert guesses == [401, 401, 401, 429]
    assert ask("GET", "/who", headers=ALICE).status_code == 200


def test_health_checks_are_not_rate_limited() -> None:
    ask = Client(requests_per_minute=1, request_burst=1)
    assert {ask("GET", "/healthz").status_code for _ in range(5)} == {200}


@given(st.lists(st.integers(0, 5_000), max_size=60), st.integers(1, 600), st.integers(1, 20))
def test_no_more_pass_than_the_burst_and_the_time_allow(waits: list[int], per_minute: int, burst: int) -> None:
    clock = FakeClock()
    limit, passed = RateLimit(per_minute, burst, clock=clock), 0
    for wait_ms in waits:
        clock.pass_ms(wait_ms)
        passed += limit.take("x") == 0
    assert passed <= burst + sum(waits) / 60_000 * per_minute + 1e-6


@given(st.integers(1, 600), st.integers(1, 20))
def test_a_request_succeeds_after_retry_after(per_minute: int, burst: int) -> None:
    clock = FakeClock()
    limit = RateLimit(per_minute, burst, clock=clock)
    assert [limit.take("x") for _ in range(burst)] == [0] * burst
    wait_s = limit.take("x")
    clock.pass_ms(int(wait_s * 1000) + 1)
    assert wait_s > 0
    assert limit.take("x") == 0


def test_rate_limit_buckets_are_bounded() -> None:
    limit = RateLimit(1, 1, clock=FakeClock())
    for caller in range(25_000):
        limit.take(caller)
    assert len(limit._buckets) <= 20_000
    assert limit.take(24_999) > 0


# -- streams and sockets ---------------------------------------------------------------------------------------------


def test_a_stream_ends_when_its_token_does() -> None:
    clock, authenticator = FakeClock(), FixedTokens(**{"alice-token": everything("alice")})
    lines = 0
    with (
        served(make_app(authenticator, clock=clock)) as port,
        httpx.stream("GET", f"http://127.0.0.1:{port}/stream", headers=ALICE, trust_env=False) as answer,
    ):
        for _ in answer.iter_lines():
            lines += 1
            if lines == 4:
                authenticator.persons.clear()
                clock.pass_ms(int(RECHECK_S * 1000))
    assert 4 <= lines < 40


def test_a_socket_takes_its_token_as_a_subprotocol(port: int) -> None:
    with connect(f"ws://127.0.0.1:{port}/ws", subprotocols=["perdure", "bearer.alice-token"]) as ws:  # type: ignore[list-item]  # plain names are fine
        assert ws.subprotocol == "perdure"
        ws.send("hello")
        assert ws.recv() == "alice: hello"


def test_a_socket_takes_its_token_as_a_header(port: int) -> None:
    with connect(f"ws://127.0.0.1:{port}/ws", additional_headers=ALICE) as ws:
        ws.send("hello")
        assert ws.recv() == "alice: hello"


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({}, 401),
        ({"additional_headers": {"authorization": "Bearer wrong"}}, 401),
        ({"subprotocols": ["perdure", "bearer.wrong"]}, 401),
        ({"additional_headers": ALICE, "origin": "https://evil.example"}, 403),
        ({"additional_headers": ALICE, "origin": "null"}, 403),
    ],
)
def test_an_unauthorized_websocket_is_rejected_at_the_handshake(
    options: dict[str, Any], status: int, port: int
) -> None:
    with pytest.raises(InvalidStatus) as refused, connect(f"ws://127.0.0.1:{port}/ws", **options):
        pass
    assert refused.value.response.status_code == status


def test_a_frame_that_is_too_large_ends_the_socket(port: int) -> None:
    with connect(f"ws://127.0.0.1:{port}/ws", additional_headers=ALICE) as ws:
        ws.send("x" * 3_000)
        with pytest.raises(ConnectionClosed):
            ws.recv(timeout=5)


def test_a_socket_ends_when_its_token_does() -> None:
    clock, authenticator = FakeClock(), FixedTokens(**{"alice-token": everything("alice")})
    with (
        served(make_app(authenticator, clock=clock)) as port,
        connect(f"ws://127.0.0.1:{port}/ws", additional_headers=ALICE) as ws,
    ):
        ws.send("one")
        assert ws.recv() == "alice: one"
        authenticator.persons.clear()
        clock.pass_ms(int(RECHECK_S * 1000))
        ws.send("two")
        with pytest.raises(ConnectionClosed) as ended:
            ws.recv(timeout=5)
    assert ended.value.rcvd is not None
    assert ended.value.rcvd.code == 1008


# -- where it may listen ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost"])
def test_loopback_needs_no_token(host: str) -> None:
    assert is_loopback_host(host)
    check_bind_address(GatewaySettings(host=host), has_tokens=False)


@pytest.mark.parametrize(
    "settings",
    [
        {"host": "0.0.0.0"},
        {"host": "::"},
        {"host": "192.168.1.5"},
        {"host": "box.lan"},
        {"public_url": "https://agent.example.org"},
        {"allowed_hosts": ("box",)},
        {"trusted_proxies": ("127.0.0.1",)},
    ],
)
def test_a_gateway_others_can_reach_needs_a_token(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="perdure gateway token add"):
        check_bind_address(GatewaySettings(**settings), has_tokens=False)
    check_bind_address(GatewaySettings(**settings), has_tokens=True)


def test_websocket_messages_are_rate_limited() -> None:
    authenticator = FixedTokens(**{"alice-token": everything("alice")})
    with (
        served(make_app(authenticator, requests_per_minute=600, request_burst=2)) as port,
        connect(f"ws://127.0.0.1:{port}/ws", additional_headers=ALICE) as ws,
    ):
        began = time.monotonic()
        for number in range(6):
            ws.send(str(number))
        assert [ws.recv(timeout=5) for _ in range(6)] == [f"alice: {n}" for n in range(6)]
    # Two at once with the handshake, then one every tenth of a second.
    assert time.monotonic() - began >= 0.4


def test_database_error_texts_are_not_returned() -> None:
    refusal = to_api_error(StoreUnavailable("no route to postgresql://db.internal:5432"))
    assert refusal.status == 503
    assert "internal" not in refusal.message
    assert to_api_error(LeaseLost("held by host-7:123")).status == 503
    assert to_api_error(NotFound("no conversation 'c_1'")).status == 404
    assert to_api_error(InboxFull("20 wait")).status == 429
    assert to_api_error(GatewayStopping("stopping")).status == 503


def test_a_stream_survives_a_database_outage() -> None:
    class Forgetful(FixedTokens):
        is_away = False

        def authenticate(self, token: str | None) -> Principal | None:
            if self.is_away:
                raise StoreUnavailable("gone")
            return super().authenticate(token)

    clock, authenticator = FakeClock(), Forgetful(**{"alice-token": everything("alice")})
    with (
        served(make_app(authenticator, clock=clock)) as port,
        connect(f"ws://127.0.0.1:{port}/ws", additional_headers=ALICE) as ws,
    ):
        authenticator.is_away = True
        clock.pass_ms(int(RECHECK_S * 1000))
        ws.send("still")
        assert ws.recv(timeout=5) == "alice: still"
        refused = httpx.get(f"http://127.0.0.1:{port}/who", headers=ALICE, trust_env=False)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")


def test_public_paths_ignore_invalid_tokens(ask: Client) -> None:
    for value in ("Basic YWxpY2U6", "Bearer", "Bearer wrong", "nonsense"):
        assert ask("GET", "/healthz", headers={"authorization": value}).status_code == 200
