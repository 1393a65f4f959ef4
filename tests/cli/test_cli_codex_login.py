"""`perdure login codex` and `perdure logout codex` against the simulated authorization server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from click.testing import CliRunner, Result

from perdure.cli.codex_login import CALLBACK_PATH, CallbackServer, sign_in, sign_in_by_device, sign_in_by_hand
from perdure.cli.main import cli
from perdure.config.api_keys import LOGIN_KEY, api_key_for
from perdure.core.concurrency import SystemClock
from perdure.core.errors import ConfigError, ProviderError
from perdure.providers.codex_login import AuthorizationRequest, CodexLogin, CodexLogins, DeviceAuthorization
from perdure.testing.simulator import Simulator
from support.simulator import http


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    monkeypatch.setenv("PERDURE_HOME", str(home))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    monkeypatch.delenv("OPENAI_CODEX_TOKEN", raising=False)
    return home


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator(script=lambda asked: "Signed and answered.") as service:
        yield service


def run(sim: Simulator, *arguments: str, typed: str = "") -> Result:
    flags = ["--set", f"credentials.codex_issuer={sim.root_url}"]
    return CliRunner().invoke(cli, [*flags, *arguments], input=typed, catch_exceptions=False)


def browse(url: str) -> None:
    """A browser: it follows the redirect to the callback."""
    location = http().get(url).headers["location"]
    http().get(location.replace("localhost", "127.0.0.1"))


def in_background(url: str) -> None:
    threading.Thread(target=browse, args=(url,), daemon=True).start()


def sign_in_here(sim: Simulator) -> CodexLogin:
    now_ms = SystemClock().now_ms
    return sign_in(sim.root_url, "client-1", open_browser=in_background, now_ms=now_ms, ports=(0,), timeout_s=30)


@pytest.mark.spec("P3")
def test_the_browser_brings_the_code_back(sim: Simulator) -> None:
    login = sign_in_here(sim)
    assert (login.account_id, login.client_id) == ("account-1", "client-1")
    assert sim.oauth.grants == ["authorization_code"]


def test_the_callback_ignores_answers_of_others(sim: Simulator) -> None:
    def attacked(url: str) -> None:
        query = dict(parse_qsl(urlsplit(url).query))
        address = query["redirect_uri"].replace("localhost", "127.0.0.1")
        statuses = [
            http().get(f"{address}?{urlencode({'code': 'x', 'state': 'guessed'})}").status_code,
            http().get(f"{address}?code=x").status_code,
            http().get(address.replace(CALLBACK_PATH, "/")).status_code,
        ]
        assert statuses == [400, 400, 404]
        in_background(url)

    reported: list[str] = []
    login = sign_in(
        sim.root_url,
        "client-1",
        open_browser=attacked,
        now_ms=lambda: 0,
        ports=(0,),
        timeout_s=30,
        on_foreign=lambda: reported.append("ignored"),
    )
    assert (login.account_id, reported) == ("account-1", ["ignored", "ignored"])


def test_a_login_that_the_server_refused_is_marked_in_the_list(home: Path, sim: Simulator) -> None:
    logins = CodexLogins(home, clock=SystemClock(), open_keyring=lambda: None)
    login = sign_in_here(sim)
    logins.save(login)
    assert "refused" not in run(sim, "login", "--list").output
    sim.oauth.revoke_all()
    with pytest.raises(ProviderError):
        logins.renew(login)
    assert "refused by the server: sign in again with `perdure login codex`" in run(sim, "login", "--list").output


def test_a_code_signs_in_on_another_device(home: Path, sim: Simulator) -> None:
    sim.oauth.device_interval_s = 0.01

    def show(device: DeviceAuthorization) -> None:
        http().get(device.complete_url)

    sign_in_by_device(sim.root_url, "client-1", "/oauth/device/code", show=show, clock=SystemClock())
    refused = run(sim, "--set", "credentials.codex_device_path=/none", "login", "codex", "--device")
    assert (refused.exit_code, "use --no-browser instead" in refused.output) == (1, True)
    assert run(sim, "login", "codex", "--device", "--no-browser").exit_code == 2


def test_a_refused_sign_in_ends_with_its_reason(sim: Simulator) -> None:
    def refuse(url: str) -> None:
        query = dict(parse_qsl(urlsplit(url).query))
        address = query["redirect_uri"].replace("localhost", "127.0.0.1")
        http().get(f"{address}?{urlencode({'error': 'access_denied', 'state': query['state']})}")

    with pytest.raises(ConfigError, match="access_denied"):
        sign_in(sim.root_url, "client-1", open_browser=refuse, now_ms=lambda: 0, ports=(0,), timeout_s=30)
    with pytest.raises(ConfigError, match="no sign-in within"):
        sign_in(sim.root_url, "c", open_browser=lambda url: None, now_ms=lambda: 0, ports=(0,), timeout_s=0.01)


def test_ports_in_use_are_named() -> None:
    with CallbackServer((0,)) as first:
        port = urlsplit(first.redirect_uri).port
        assert port is not None
        with pytest.raises(ConfigError, match=f"{port}.*--no-browser"):
            CallbackServer((port,))
        with CallbackServer((port, 0)) as second:
            assert urlsplit(second.redirect_uri).port != port


@pytest.mark.spec("P3")
def test_a_stored_login_is_used_listed_and_removed_and_never_shown(home: Path, sim: Simulator) -> None:
    flags = ["--set", f"model.base_url={sim.base_url}", "--set", "model.provider=openai-codex"]
    assert run(sim, "logout", "codex").exit_code == 2
    CodexLogins(home, clock=SystemClock(), open_keyring=lambda: None).save(sign_in_here(sim))
    assert api_key_for("OPENAI_CODEX_TOKEN") == LOGIN_KEY
    listed = run(sim, "login", "--list")
    answer = run(sim, *flags, "chat", "-q", "hello")
    assert "Signed and answered." in answer.output
    assert sim.requests[-1].headers["authorization"].startswith("Bearer sim-access-")
    removed = run(sim, "logout", "codex")
    assert removed.output.startswith("Removed the key")
    assert api_key_for("OPENAI_CODEX_TOKEN") is None
    shown = listed.output + answer.output + removed.output
    assert "openai-codex" in listed.output
    assert "sim-" not in shown


@pytest.mark.spec("P3")
def test_without_a_browser_the_address_is_pasted(home: Path, sim: Simulator) -> None:
    refused = run(sim, "login", "codex", "--no-browser", typed="http://localhost:1455/auth/callback?code=x&state=y\n")
    assert (refused.exit_code, "another sign-in" in refused.output) == (1, True)
    assert api_key_for("OPENAI_CODEX_TOKEN") is None

    def ask(url: str) -> str:
        return f"  {http().get(url).headers['location']}\n"

    login = sign_in_by_hand(sim.root_url, "client-1", ask=ask, now_ms=lambda: 0)
    assert login.account_id == "account-1"
    for pasted in ("", "http://[", "nonsense"):
        with pytest.raises(ConfigError, match="state"):
            sign_in_by_hand(sim.root_url, "c", ask=lambda url, pasted=pasted: pasted, now_ms=lambda: 0)


def test_a_key_can_be_stored_in_place_of_a_sign_in(home: Path, sim: Simulator) -> None:
    assert run(sim, "login", "codex", "--key", typed="a-token-of-mine\n").exit_code == 0
    assert api_key_for("OPENAI_CODEX_TOKEN") == "a-token-of-mine"
    assert sim.oauth.grants == []


@pytest.mark.parametrize(
    "issuer", ["http://auth.example", "ftp://x", "https://auth.example/path", "http://127.0.0.1.evil"]
)
def test_a_sign_in_server_is_reached_over_tls_or_on_loopback(home: Path, issuer: str) -> None:
    result = CliRunner().invoke(cli, ["--set", f"credentials.codex_issuer={issuer}", "login", "codex", "--no-browser"])
    assert result.exit_code == 2
    assert "codex_issuer" in result.output


def test_the_address_of_the_sign_in_names_perdure() -> None:
    request = AuthorizationRequest("https://auth.example", "client-1", "http://localhost:1455/auth/callback")
    assert ("originator", "perdure") in parse_qsl(urlsplit(request.url).query)
