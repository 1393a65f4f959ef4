"""Processes that sign in to Codex or refresh its tokens, killed at random moments: no login is torn or lost."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from perdure.config.api_keys import FILE, StoredKeys
from perdure.providers.codex_login import VARIABLE, CodexLogin
from perdure.testing.simulator import ScriptRequest, Simulator
from support.codex_child import call
from support.forked import ForkedProcess, fork
from support.simulator import http

pytestmark = pytest.mark.slow
CHILD = Path(__file__).parents[1] / "support" / "codex_child.py"
WAIT_S = 60.0
# The longest that a token request takes: kills fall before, into and after it.
GRANT_DELAY_S = 0.2


class StoredLogin:
    """The keys file under test, next to a key that must survive."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._keys = StoredKeys(home, open_keyring=lambda: None)
        self._keys.put("OPENAI_API_KEY", "another-key")

    @property
    def login(self) -> CodexLogin | None:
        """The stored login, whole; the key beside it is checked."""
        assert self._keys.get("OPENAI_API_KEY") == "another-key"
        text = self._keys.get(VARIABLE)
        return CodexLogin.from_json(text) if text is not None else None

    @property
    def text(self) -> str:
        return (self._home / FILE).read_text()


@contextmanager
def _process(action: str, home: Path, sim: Simulator) -> Iterator[ForkedProcess]:
    """A process that is killed when the block ends."""
    command = [str(CHILD), action, str(home), sim.root_url]
    child = fork(command, stdout=subprocess.PIPE, env=dict(os.environ), cwd=home)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        yield child
    finally:
        child.kill()
        child.wait()


def _browse(url: str) -> None:
    """A browser that follows the redirect; the process that waits for it may be gone."""
    location = http().get(url).headers["location"].replace("localhost", "127.0.0.1")
    with suppress(httpx.HTTPError):
        http().get(location)


def _sign_in(home: Path, sim: Simulator, *, until_killed_s: float | None, is_browsed: bool) -> None:
    """Sign in, and be killed so long after the address was shown; None: to the end."""
    with _process("sign-in", home, sim) as child:
        assert child.stdout is not None
        url = child.stdout.readline().strip()
        if is_browsed:
            browser = threading.Thread(target=_browse, args=(url,), daemon=True)
            browser.start()
        if until_killed_s is None:
            assert child.stdout.readline() == "done\n"
        else:
            time.sleep(until_killed_s)
    if is_browsed:
        browser.join(WAIT_S)


def _kill_sign_ins(home: Path, kills: int) -> None:
    dice, stored = random.Random(kills), StoredLogin(home)
    with Simulator(script=lambda asked: "Ok.") as sim:
        sim.oauth.grant_delay_s = GRANT_DELAY_S
        _sign_in(home, sim, until_killed_s=None, is_browsed=True)
        for number in range(kills):
            before = stored.login
            # While waiting for the browser, then while the code is exchanged and the login is stored.
            is_browsed = number % 2 == 1
            _sign_in(home, sim, until_killed_s=dice.uniform(0, 2 * GRANT_DELAY_S), is_browsed=is_browsed)
            after = stored.login
            assert after is not None
            assert is_browsed or after == before
            asyncio.run(call(home, sim.root_url))
            assert sim.requests[-1].headers["authorization"].endswith(after.access_token)
        assert "refresh_token" not in sim.oauth.grants


def _kill_refreshes(home: Path, kills: int) -> None:
    dice, stored = random.Random(kills), StoredLogin(home)
    unstored: list[str] = []

    def script(asked: ScriptRequest) -> str:
        token = sim.requests[-1].headers["authorization"].removeprefix("Bearer ")
        if token not in stored.text:
            unstored.append(token)
        return "Ok."

    with Simulator(script=script) as sim:
        sim.oauth.accepts_retries = True
        _sign_in(home, sim, until_killed_s=None, is_browsed=True)
        sim.oauth.grant_delay_s = GRANT_DELAY_S
        for _ in range(kills):
            sim.oauth.revoke_access()
            with _process("call", home, sim):
                time.sleep(dice.uniform(0, 3 * GRANT_DELAY_S))
            assert stored.login is not None
            assert not stored.login.is_refused
            asyncio.run(call(home, sim.root_url))
        assert sim.oauth.grants.count("authorization_code") == 1
        assert unstored == [], "a token was used before it was stored"


@pytest.mark.spec("P3", "I1")
def test_a_killed_sign_in_leaves_the_login_before_it_or_a_whole_new_one(tmp_path: Path) -> None:
    _kill_sign_ins(tmp_path, kills=4)


@pytest.mark.spec("P3", "I1")
def test_a_killed_refresh_leaves_a_login_that_works(tmp_path: Path) -> None:
    _kill_refreshes(tmp_path, kills=3)


@pytest.mark.spec("P3", "I1")
def test_a_process_that_ends_during_a_refresh_stores_what_the_server_answers(tmp_path: Path) -> None:
    """The server takes every refresh token once: a lost answer would end the login."""
    stored = StoredLogin(tmp_path)
    with Simulator(script=lambda asked: "Ok.") as sim:
        _sign_in(tmp_path, sim, until_killed_s=None, is_browsed=True)
        sim.oauth.revoke_access()
        sim.oauth.grant_delay_s = 1.0
        with _process("leave", tmp_path, sim) as child:
            deadline = time.monotonic() + WAIT_S
            while sim.oauth.token_requests < 2:
                assert time.monotonic() < deadline, "no refresh was requested"
                time.sleep(0.01)
            (tmp_path / "leave").touch()
            child.wait(WAIT_S)
        sim.oauth.grant_delay_s = 0.0
        asyncio.run(call(tmp_path, sim.root_url))
    assert stored.login is not None
    assert not stored.login.is_refused


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@pytest.mark.spec("P3", "I1")
def test_twenty_kills_of_sign_ins_and_of_refreshes_tear_and_lose_nothing(tmp_path: Path) -> None:
    for name, kill in (("sign-in", _kill_sign_ins), ("refresh", _kill_refreshes)):
        home = tmp_path / name
        home.mkdir()
        kill(home, 20)
