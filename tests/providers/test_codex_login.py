"""The Codex login: PKCE, tokens refreshed before they expire and when refused, once, and never shown."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest

from perdure.agent.model_call import Attempts, advice
from perdure.config.api_keys import FILE, LOGIN_KEY, Keyring, StoredKeys
from perdure.core.errors import ConfigError, ProviderError
from perdure.providers.codex_login import (
    ACCOUNT_HEADER,
    REFRESH_MARGIN_MS,
    VARIABLE,
    AuthorizationRequest,
    CodexLogin,
    CodexLogins,
    CodexSend,
    DeviceAuthorization,
    account_of,
)
from perdure.providers.transport import Transport
from perdure.providers.types import Endpoint, Reply
from perdure.testing.simulator import Simulator
from support.simulator import http, request
from support.store import FakeClock

REDIRECT = "http://localhost:1455/auth/callback"


def no_keyring() -> Keyring | None:
    return None


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def sim(clock: FakeClock) -> Iterator[Simulator]:
    with Simulator(now_s=lambda: clock.now_ms() / 1000) as service:
        yield service


def authorize(asked: AuthorizationRequest) -> dict[str, str]:
    """What the browser brings back."""
    return dict(parse_qsl(urlsplit(http().get(asked.url).headers["location"]).query))


def signed_in(sim: Simulator, clock: FakeClock) -> CodexLogin:
    asked = AuthorizationRequest(sim.root_url, "client-1", REDIRECT)
    return asked.redeem(asked.code_of(authorize(asked)), now_ms=clock.now_ms())


def logins_at(home: Path, clock: FakeClock) -> CodexLogins:
    return CodexLogins(home, clock=clock, open_keyring=no_keyring)


def call(sim: Simulator, logins: CodexLogins, *, api_key: str = LOGIN_KEY) -> Reply:
    async def send() -> Reply:
        transport = Transport()
        try:
            endpoint = Endpoint("openai-codex", sim.base_url, "codex_responses", "gpt-5.5", api_key)
            return await CodexSend(transport.send, logins)(endpoint, request("hi"))
        finally:
            await transport.aclose()

    return asyncio.run(send())


def used(sim: Simulator) -> list[tuple[str, str | None]]:
    return [(r.headers["authorization"].removeprefix("Bearer "), r.headers.get(ACCOUNT_HEADER)) for r in sim.requests]


# -- sign-in ---------------------------------------------------------------------------------------------------------


@pytest.mark.spec("P3")
def test_a_sign_in_uses_pkce_and_a_state_of_its_own(sim: Simulator) -> None:
    one, two = (AuthorizationRequest(sim.root_url, "client-1", REDIRECT) for _ in range(2))
    query = parse_qs(urlsplit(one.url).query)
    assert query["code_challenge_method"] == ["S256"]
    assert (query["redirect_uri"], query["client_id"], query["state"]) == ([REDIRECT], ["client-1"], [one.state])
    assert one.verifier not in one.url
    assert 43 <= len(one.verifier) <= 128
    assert (one.state, one.verifier) != (two.state, two.verifier)
    assert one.state not in repr(one)
    assert one.verifier not in repr(one)


@pytest.mark.spec("P3")
def test_a_code_becomes_a_login_with_the_account_of_the_id_token(sim: Simulator, clock: FakeClock) -> None:
    login = signed_in(sim, clock)
    assert (login.account_id, login.issuer, login.client_id) == ("account-1", sim.root_url, "client-1")
    assert login.expires_at_ms == clock.now_ms() + 3_600_000
    assert CodexLogin.from_json(login.to_json()) == login
    for secret in (login.access_token, login.refresh_token):
        assert secret not in repr(login)


def test_a_code_is_of_no_use_with_another_verifier_or_a_second_time(sim: Simulator, clock: FakeClock) -> None:
    asked, other = (AuthorizationRequest(sim.root_url, "client-1", REDIRECT) for _ in range(2))
    code = asked.code_of(authorize(asked))
    with pytest.raises(ConfigError, match="invalid_grant") as refused:
        other.redeem(code, now_ms=0)
    assert code not in str(refused.value)
    code = asked.code_of(authorize(asked))
    asked.redeem(code, now_ms=0)
    with pytest.raises(ConfigError, match="invalid_grant"):
        asked.redeem(code, now_ms=0)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"code": "c"}, "state"),
        ({"code": "c", "state": "ünknown"}, "state"),
        ({"state": "s"}, "no authorization code"),
        ({"state": "s", "error": "access_denied"}, "access_denied"),
        ({"state": "s", "error": "a secret text: sk-123"}, "no reason given"),
    ],
)
def test_an_answer_that_does_not_belong_to_the_sign_in_is_refused(answer: dict[str, str], reason: str) -> None:
    asked = AuthorizationRequest("https://auth.example", "client-1", REDIRECT, state="s")
    with pytest.raises(ConfigError, match=reason):
        asked.code_of(answer)


@pytest.mark.parametrize("claims", [{}, [], {"https://api.openai.com/auth": 3}, "x", None])
def test_an_id_token_without_an_account_names_none(claims: object) -> None:
    middle = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    for token in (f"a.{middle}.c", middle, "", "a.b", "a.\udc80.c", "a.!!!!!.c"):
        assert account_of(token) == ""


# -- use and refresh -------------------------------------------------------------------------------------------------


@pytest.mark.spec("P3")
def test_calls_carry_the_token_and_the_account(tmp_path: Path, sim: Simulator, clock: FakeClock) -> None:
    logins, login = logins_at(tmp_path, clock), signed_in(sim, clock)
    assert logins.save(login) == "file"
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    call(sim, logins)
    assert used(sim) == [(login.access_token, "account-1")]
    assert sim.oauth.grants == ["authorization_code"]


def test_a_key_of_the_users_own_is_sent_as_it_is(tmp_path: Path, sim: Simulator, clock: FakeClock) -> None:
    logins = logins_at(tmp_path, clock)
    call(sim, logins, api_key="key-of-my-own")
    assert used(sim) == [("key-of-my-own", None)]


@pytest.mark.spec("P3")
def test_a_token_is_refreshed_before_it_expires(tmp_path: Path, sim: Simulator, clock: FakeClock) -> None:
    logins, login = logins_at(tmp_path, clock), signed_in(sim, clock)
    logins.save(login)
    clock.pass_ms(3_600_000 - REFRESH_MARGIN_MS - 1)
    call(sim, logins)
    clock.pass_ms(1)
    call(sim, logins)
    call(sim, logins)
    (first, _), (second, _), (third, _) = used(sim)
    assert first == login.access_token
    assert second == third != first
    assert sim.oauth.grants == ["authorization_code", "refresh_token"]
    assert logins_at(tmp_path, clock).current().access_token == second, "it is stored"


@pytest.mark.spec("P3")
def test_a_refused_token_is_refreshed_once(tmp_path: Path, sim: Simulator, clock: FakeClock) -> None:
    logins = logins_at(tmp_path, clock)
    logins.save(signed_in(sim, clock))
    sim.oauth.revoke_access()
    call(sim, logins)
    assert sim.oauth.grants == ["authorization_code", "refresh_token"]
    # The account is another one by now: a fresh token does not help.
    sim.oauth.account_id = "account-2"
    logins.save(CodexLogin("sim-access-x", "r", "account-1", clock.now_ms() + 10**9, sim.root_url, "client-1"))
    with pytest.raises(ProviderError) as refused:
        call(sim, logins)
    assert refused.value.verdict.kind == "auth"
    assert sim.oauth.grants[2:] == ["refresh_token"]


def test_a_login_refused_also_after_a_refresh_asks_for_another_sign_in_and_nothing_else(
    tmp_path: Path, sim: Simulator, clock: FakeClock
) -> None:
    logins = logins_at(tmp_path, clock)
    logins.save(replace(signed_in(sim, clock), account_id="account-0"))
    sim.oauth.lifetime_s = 0
    with pytest.raises(ProviderError) as refused:
        call(sim, logins)
    text = advice(refused.value.verdict, Attempts())
    assert "also with a fresh token; sign in again with `perdure login codex`" in text
    assert ("credentials.command" in text, "stores another key" in text) == (False, False)
    assert sim.oauth.grants == ["authorization_code", "refresh_token"]


def test_a_token_that_has_expired_when_it_arrives_is_refreshed_before_the_first_call(
    tmp_path: Path, sim: Simulator, clock: FakeClock
) -> None:
    sim.oauth.lifetime_s = -5
    logins, login = logins_at(tmp_path, clock), signed_in(sim, clock)
    logins.save(login)
    sim.oauth.lifetime_s = 3_600
    call(sim, logins)
    assert [token != login.access_token for token, _ in used(sim)] == [True]


def test_a_web_page_in_place_of_tokens_is_named(clock: FakeClock) -> None:
    class LoginPage(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = b"<!doctype html><p>Welcome to the hotel network"
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name of the base class
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), LoginPage)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        asked = AuthorizationRequest(f"http://127.0.0.1:{server.server_address[1]}", "client-1", REDIRECT)
        with pytest.raises(ConfigError, match="answered with a web page instead of tokens"):
            asked.redeem("code", now_ms=0)
    finally:
        server.shutdown()
        server.server_close()


def test_without_a_login_a_custom_address_asks_for_a_sign_in_too(
    tmp_path: Path, sim: Simulator, clock: FakeClock
) -> None:
    with pytest.raises(ProviderError, match="perdure login codex") as refused:
        call(sim, logins_at(tmp_path, clock), api_key="")
    assert (refused.value.verdict.kind, sim.requests) == ("auth", [])


def test_a_refused_refresh_token_is_marked_until_a_refresh_succeeds(
    tmp_path: Path, sim: Simulator, clock: FakeClock
) -> None:
    logins, login = logins_at(tmp_path, clock), signed_in(sim, clock)
    logins.save(replace(login, refresh_token="another"))
    with pytest.raises(ProviderError):
        logins.renew(login)
    stored = CodexLogin.from_json(StoredKeys(tmp_path, open_keyring=no_keyring).get(VARIABLE) or "")
    assert stored == replace(login, refresh_token="another", is_refused=True)
    logins.save(replace(login, is_refused=True))
    assert not logins.renew(login).is_refused


# -- on another device -----------------------------------------------------------------------------------------------


class DeviceClock(FakeClock):
    """Time passes while something sleeps; `while_asleep` is what the user does meanwhile."""

    def __init__(self, *while_asleep: Callable[[], object]) -> None:
        super().__init__()
        self.slept_s: list[float] = []
        self._while_asleep = list(while_asleep)

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.pass_ms(round(seconds * 1_000))
        if self._while_asleep:
            self._while_asleep.pop(0)()


@pytest.mark.spec("P3")
def test_a_code_entered_on_another_device_signs_in(sim: Simulator) -> None:
    device = DeviceAuthorization.request(sim.root_url, "client-1", "/oauth/device/code")
    assert device.device_code not in repr(device)
    enter = DeviceClock(lambda: None, lambda: http().get(device.complete_url))
    login = device.poll(enter, sleep=enter.sleep)
    assert (login.account_id, login.issuer, len(enter.slept_s)) == ("account-1", sim.root_url, 2)


def test_a_device_code_that_nobody_enters_expires(sim: Simulator) -> None:
    device = DeviceAuthorization.request(sim.root_url, "client-1", "/oauth/device/code")
    clock = DeviceClock()
    with pytest.raises(ConfigError, match="not entered within 15 minutes"):
        replace(device, interval_s=300.0).poll(clock, sleep=clock.sleep)
    with pytest.raises(ConfigError, match=r"refused \(expired_token\)"):
        replace(device, device_code="other").poll(clock, sleep=clock.sleep)
    with pytest.raises(ConfigError, match="offers no sign-in by code"):
        DeviceAuthorization.request(sim.root_url, "client-1", "/oauth/nothing")


@pytest.mark.spec("P3")
def test_a_login_that_cannot_be_refreshed_asks_for_another_sign_in(
    tmp_path: Path, sim: Simulator, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    logins, login = logins_at(tmp_path, clock), signed_in(sim, clock)
    logins.save(login)
    sim.oauth.revoke_all()
    with caplog.at_level(logging.DEBUG), pytest.raises(ProviderError, match="perdure login codex") as refused:
        call(sim, logins)
    assert refused.value.verdict.kind == "auth"
    text = f"{refused.value} {refused.value!r} {caplog.text}"
    assert not [secret for secret in (login.access_token, login.refresh_token) if secret in text]


def test_processes_that_refresh_at_once_use_the_refresh_token_once(
    tmp_path: Path, sim: Simulator, clock: FakeClock
) -> None:
    login = signed_in(sim, clock)
    several = [logins_at(tmp_path, clock) for _ in range(4)]
    several[0].save(login)
    barrier, fresh = threading.Barrier(len(several)), []

    def renew(logins: CodexLogins) -> None:
        barrier.wait()
        fresh.append(logins.renew(login))

    threads = [threading.Thread(target=renew, args=(logins,)) for logins in several]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({f.access_token for f in fresh}) == 1
    assert len(fresh) == 4
    assert sim.oauth.grants == ["authorization_code", "refresh_token"]


def test_an_unreachable_server_ends_only_expired_logins(tmp_path: Path, clock: FakeClock) -> None:
    with Simulator(now_s=lambda: clock.now_ms() / 1000) as gone:
        login = signed_in(gone, clock)
    logins = logins_at(tmp_path, clock)
    logins.save(login)
    clock.pass_ms(3_600_000 - 1_000)
    assert logins.current() == login
    clock.pass_ms(1_000)
    with pytest.raises(ProviderError, match="cannot be reached") as failure:
        logins.current()
    assert failure.value.verdict.kind == "transport"


@pytest.mark.parametrize("stored", [None, "{}", '{"access_token": 1}', "{not json"])
def test_no_login_and_a_damaged_one_ask_for_a_sign_in(
    tmp_path: Path, sim: Simulator, clock: FakeClock, stored: str | None
) -> None:
    if stored is not None:
        StoredKeys(tmp_path, open_keyring=no_keyring).put(VARIABLE, stored)
    with pytest.raises(ProviderError, match="perdure login codex"):
        call(sim, logins_at(tmp_path, clock))
    assert sim.requests == []


def test_a_sign_in_as_another_user_is_noticed_by_a_running_process(
    tmp_path: Path, sim: Simulator, clock: FakeClock
) -> None:
    logins = logins_at(tmp_path, clock)
    logins.save(signed_in(sim, clock))
    call(sim, logins)
    sim.oauth.account_id = "account-2"
    logins_at(tmp_path, clock).save(signed_in(sim, clock))
    call(sim, logins)
    assert [account for _, account in used(sim)] == ["account-1", "account-2"]
