"""`perdure login`: keys are stored out of sight, found by the routes, listed and removed without being shown."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from perdure.app.runtime import route_of
from perdure.cli.chat.controller import keys_found
from perdure.cli.main import cli
from perdure.cli.style import runnable
from perdure.config.api_keys import FILE, Keyring, StoredKeys, api_key_for, origin_of
from perdure.config.load import load
from perdure.core.errors import ConfigError
from perdure.providers.routes import endpoint_for
from perdure.testing.simulator import Simulator
from perdure.tools.credential_paths import CREDENTIAL_PATTERN
from support.terminal import perdure_in_terminal

KEY = "sk-ant-not-a-real-key-0123456789"


class MemoryKeyring:
    """A keyring in memory; `is_locked` makes it refuse."""

    def __init__(self, *, is_locked: bool = False) -> None:
        self.entries: dict[tuple[str, str], str] = {}
        self.is_locked = is_locked

    def get_password(self, service: str, username: str) -> str | None:
        self._check()
        return self.entries.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self._check()
        self.entries[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        self._check()
        del self.entries[service, username]

    def _check(self) -> None:
        if self.is_locked:
            raise RuntimeError("the keyring is locked")


def no_keyring() -> Keyring | None:
    return None


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    monkeypatch.setenv("PERDURE_HOME", str(home))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return home


def run(*arguments: str, typed: str = "") -> Result:
    """Log in without asking the service, which is not there in a test."""
    return CliRunner().invoke(cli, ["login", "--no-check", *arguments], input=typed, catch_exceptions=False)


# -- the command -----------------------------------------------------------------------------------------------------


def test_a_stored_key_is_used_listed_and_removed_and_never_shown(home: Path) -> None:
    stored = run("anthropic", typed=f"{KEY}\n")
    assert stored.exit_code == 0
    assert stored.output.splitlines()[:3] == [
        "Stored:  the key for anthropic",
        f"Where:   {home / FILE} (as plain text, readable by you alone)",
        runnable("Remove:  perdure login --remove anthropic"),
    ]
    assert api_key_for("ANTHROPIC_API_KEY") == KEY
    listed = run("--list")
    assert "anthropic" in listed.output
    assert runnable("Remove one with `perdure login --remove PROVIDER`.") in listed.output
    assert str(home / FILE) in listed.output
    removed = run("--remove", "anthropic")
    assert removed.exit_code == 0
    assert api_key_for("ANTHROPIC_API_KEY") is None
    assert KEY not in stored.output + listed.output + removed.output
    assert run("--remove", "anthropic").exit_code == 2
    assert "No keys yet" in run("--list").output


@pytest.mark.parametrize("pasted", [f'"{KEY}"', f'{KEY}"', f" '{KEY}',", f"“{KEY}”", f"`{KEY}`"])
def test_quotation_marks_around_a_key_are_left_out(home: Path, pasted: str) -> None:
    assert run("anthropic", typed=f"{pasted}\n").exit_code == 0
    assert api_key_for("ANTHROPIC_API_KEY") == KEY


def test_the_file_is_its_owners_alone_and_no_tool_reads_it_unasked(home: Path) -> None:
    run("openai", typed=KEY)
    path = home / FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert CREDENTIAL_PATTERN.search(path.as_posix())


def test_the_environment_goes_before_a_stored_key(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-from-the-environment")
    assert "is used instead of it" in run("openai", typed=KEY).output
    assert api_key_for("OPENAI_API_KEY") == "sk-from-the-environment"
    assert "environment, then" in run("--list").output
    assert "OPENAI_API_KEY is still set in the environment" in run("--remove", "openai").output


@pytest.mark.parametrize(
    ("arguments", "typed", "message"),
    [
        (["antropic"], KEY, "Did you mean 'anthropic'?"),
        (["ollama"], KEY, "needs no key"),
        ([], KEY, "name a provider"),
        (["openai"], "  \n", "no key was given"),
        (["openai"], "two words", "that is no key"),
        (["openai"], "x" * 5_000, "that is no key"),
    ],
)
def test_what_is_no_key_or_no_provider_stores_nothing(
    home: Path, arguments: list[str], typed: str, message: str
) -> None:
    result = run(*arguments, typed=typed)
    assert (result.exit_code, message in result.output) == (2, True), result.output
    assert ("Usage:" in result.output) == ("key was given" not in message and "is no key" not in message)
    assert not (home / FILE).exists()


def test_the_hints_leave_out_an_address_that_is_not_the_providers(home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("model: {base_url: 'http://127.0.0.1:18089/v1', name: mine}\n")
    shown = run("openai", typed=KEY).output
    assert "model.base_url is http://127.0.0.1:18089/v1" in shown
    assert "the commands below take it out" in " ".join(shown.split())
    _run_commands(shown.partition("From now on")[2])
    assert (home / "config.yaml").read_text().strip() == "model: {provider: openai}"
    assert "model.base_url" not in run("openai", typed=KEY).output


def test_the_hints_for_an_address_are_commands_that_use_it(home: Path) -> None:
    shown = run("http://ann:secret@127.0.0.1:18089/v1/", typed=KEY).output
    address = "http://127.0.0.1:18089/v1"
    assert f"--set model.base_url={address}\n" in shown
    assert "secret" not in shown
    _run_commands(shown.partition("From now on")[2])
    model = load().settings.model
    assert (model.base_url, model.provider) == (address, None)
    assert endpoint_for("custom", model="m", base_url=model.base_url, lookup=api_key_for).api_key == KEY


def _run_commands(hints: str) -> None:
    commands = [line.split() for line in hints.splitlines() if " config " in line]
    assert commands
    for words in commands:
        arguments = words[words.index("config") :]
        assert CliRunner().invoke(cli, arguments, catch_exceptions=False).exit_code == 0


def test_the_hints_for_a_server_go_past_another_provider_in_the_settings(home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("model: {provider: anthropic}\n")
    shown = run("custom", "http://127.0.0.1:18089/v1", typed=KEY).output
    _run_commands(shown.partition("From now on")[2])
    model = load().settings.model
    assert (model.base_url, model.provider) == ("http://127.0.0.1:18089/v1", "custom")
    assert "From now on" not in run("http://127.0.0.1:18089/v1", typed=KEY).output


def test_the_hint_is_a_bare_call_where_that_uses_the_key(home: Path) -> None:
    shown = run("openai", typed=KEY).output
    assert "config set" not in shown
    assert shown.rstrip().endswith("chat")
    # The key of another provider goes before it, so that a bare call would not use it.
    other = run("groq", typed=KEY).output
    assert "config set model.provider groq" in other


@pytest.mark.parametrize("arguments", [["custom", "{}"], ["{}"], ["vllm", "{}"]])
def test_a_wrong_key_of_a_server_is_refused_and_leaves_the_stored_one(home: Path, arguments: list[str]) -> None:
    with Simulator(api_key="right", models=("m-1",)) as sim:
        login = ["login", *(word.format(sim.base_url) for word in arguments)]
        first = CliRunner().invoke(cli, login, input="wrong", catch_exceptions=False)
        assert (first.exit_code, "refuses it (401)" in first.output, (home / FILE).exists()) == (1, True, False)
        right = CliRunner().invoke(cli, login, input="right", catch_exceptions=False)
        assert (right.exit_code, "accepts it" in right.output) == (0, True), right.output
        again = CliRunner().invoke(cli, login, input="wrong", catch_exceptions=False)
        assert (again.exit_code, "The one that is stored stays." in again.output) == (1, True)
        assert endpoint_for("custom", model="m", base_url=sim.base_url, lookup=api_key_for).api_key == "right"
        unchecked = CliRunner().invoke(cli, [*login, "--no-check"], input="wrong", catch_exceptions=False)
        assert unchecked.exit_code == 0
    assert api_key_for(origin_of(sim.base_url) or "") == "wrong"


def test_a_wrong_key_of_a_provider_is_refused(home: Path) -> None:
    with Simulator(api_key="right", models=("m-1",)) as sim:
        login = ["--set", f"model.base_url={sim.base_url}", "--set", "model.provider=openai", "login", "openai"]
        assert CliRunner().invoke(cli, login, input="wrong", catch_exceptions=False).exit_code == 1
        assert api_key_for("OPENAI_API_KEY") is None
        assert CliRunner().invoke(cli, login, input="right", catch_exceptions=False).exit_code == 0
        assert api_key_for("OPENAI_API_KEY") == "right"


def test_a_key_that_nobody_checks_is_stored_and_called_so(home: Path) -> None:
    with Simulator(models=("m-1",)) as sim:  # takes any key
        shown = CliRunner().invoke(cli, ["login", sim.base_url], input=KEY, catch_exceptions=False).output
        assert "not checked" in shown
        assert "to any key" in shown
    shown = CliRunner().invoke(cli, ["login", sim.base_url], input=KEY, catch_exceptions=False).output
    assert "not checked" in shown
    assert "cannot be reached" in shown


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["example.org:8000/v1"], "did you mean https://example.org:8000/v1?"),
        (["openai", "http://127.0.0.1:9/v1"], "openai takes no address"),
        (["antropic", "http://127.0.0.1:9/v1"], "login http://127.0.0.1:9/v1"),
        (["custom", "ftp://127.0.0.1/"], "is no address"),
    ],
)
def test_a_mistyped_address_is_answered_with_what_may_be_meant(home: Path, arguments: list[str], hint: str) -> None:
    result = run(*arguments, typed=KEY)
    assert (result.exit_code, hint in " ".join(result.output.split())) == (2, True), result.output


def test_a_server_without_a_key_needs_none(home: Path) -> None:
    with Simulator(models=("m-1",)) as sim:
        answer = ("from now on?", "n\n")
        shown = perdure_in_terminal(home, "login", sim.base_url, typed="\n", prompt="Enter for none", then=answer)
        assert (shown.status, "is called without one" in shown.out) == (0, True), shown.out
    assert not (home / FILE).exists()
    assert "config set model.base_url" in shown.out
    assert load().settings.model.base_url is None


def test_a_server_is_used_from_now_on_where_the_user_wants_it(home: Path) -> None:
    with Simulator(api_key=KEY, models=("m-1",)) as sim:
        answer = ("from now on?", "\n")
        login = ("login", sim.base_url)
        shown = perdure_in_terminal(home, *login, typed=f"{KEY}\n", prompt="Enter for none", then=answer)
        assert (shown.status, "config unset model.base_url" in shown.out) == (0, True), shown.out
        main = route_of(load().settings).main
        assert (main.base_url, main.model, main.api_key) == (sim.base_url, "m-1", KEY)


def test_a_server_that_does_not_answer_is_not_used_from_now_on_by_a_bare_enter(home: Path) -> None:
    with Simulator(models=("m-1",)) as sim:
        url = sim.base_url
    answer = ("from now on? [y/N]", "\n")
    shown = perdure_in_terminal(home, "login", url, typed=f"{KEY}\n", prompt="Enter for none", then=answer)
    assert (shown.status, "Is the address right?" in shown.out) == (0, True), shown.out
    assert load().settings.model.base_url is None


def test_an_address_without_its_api_path_is_completed(home: Path) -> None:
    with Simulator(api_key=KEY, models=("m-1",)) as sim:
        root = sim.base_url.removesuffix("/v1")
        wrong = CliRunner().invoke(cli, ["login", root], input="wrong", catch_exceptions=False)
        assert (wrong.exit_code, "this key is wrong" in wrong.output) == (1, True), wrong.output
        answer = ("from now on?", "\n")
        shown = perdure_in_terminal(home, "login", root, typed=f"{KEY}\n", prompt="Enter for none", then=answer)
        assert (shown.status, f"Server:  {sim.base_url}" in shown.out) == (0, True), shown.out
        assert route_of(load().settings).main.base_url == sim.base_url


def test_a_server_of_this_machine_needs_no_scheme(home: Path) -> None:
    with Simulator(api_key=KEY, models=("m-1",)) as sim:
        place = sim.base_url.removeprefix("http://")
        result = CliRunner().invoke(cli, ["login", place], input=KEY, catch_exceptions=False)
    assert (result.exit_code, f"for {sim.root_url}" in result.output) == (0, True), result.output


def test_the_api_of_a_server_that_is_down_is_assumed_where_most_have_it(home: Path) -> None:
    with Simulator(models=("m-1",)) as sim:
        root = sim.root_url
    shown = CliRunner().invoke(cli, ["login", root], input=KEY, catch_exceptions=False).output
    assert f"{root} does not answer now; its API is assumed at {root}/v1" in shown
    assert f"config set model.base_url {root}/v1" in shown


def test_another_path_of_the_configured_server_is_offered(home: Path) -> None:
    home.mkdir()
    with Simulator(api_key=KEY, models=("m-1",)) as sim:
        (home / "config.yaml").write_text(f"model: {{base_url: {sim.base_url.removesuffix('/v1')}}}\n")
        answer = ("from now on?", "\n")
        login = ("login", sim.base_url)
        shown = perdure_in_terminal(home, *login, typed=f"{KEY}\n", prompt="Enter for none", then=answer)
        assert shown.status == 0, shown.out
        assert load().settings.model.base_url == sim.base_url


def test_a_server_is_not_offered_where_a_model_is_configured(home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("model: {name: mine}\n")
    with Simulator(models=("m-1",)) as sim:
        shown = perdure_in_terminal(home, "login", sim.base_url, typed="\n", prompt="Enter for none")
    assert (shown.status, "config set model.base_url" in shown.out) == (0, True), shown.out


def test_the_key_of_the_one_server_is_removed_as_it_is_listed(home: Path) -> None:
    run("http://127.0.0.1:18089/v1", typed=KEY)
    assert runnable("Remove one with `perdure login --remove ADDRESS`.") in run("--list").output
    assert "name one of the stored keys: http://127.0.0.1:18089." in run("--remove").output
    assert "Removed the key for http://127.0.0.1:18089." in run("--remove", "custom").output
    assert "no key is stored" in run("--remove").output
    for port in (1, 2):
        run(f"http://127.0.0.1:{port}/v1", typed=KEY)
    assert "name the address: http://127.0.0.1:1, http://127.0.0.1:2." in run("--remove", "custom").output


def test_a_key_for_a_custom_address_is_sent_there_and_nowhere_else(home: Path) -> None:
    address = "http://127.0.0.1:18089/v1"
    set_address = ["--set", f"model.base_url={address}"]
    stored = CliRunner().invoke(cli, [*set_address, "login", "--no-check", "custom"], input=KEY, catch_exceptions=False)
    assert (stored.exit_code, "Stored:  the key for http://127.0.0.1:18089\n" in stored.output) == (0, True)
    for provider in ("custom", "acme", "vllm"):
        assert endpoint_for(provider, model="m", base_url=address, lookup=api_key_for).api_key == KEY
        elsewhere = endpoint_for(provider, model="m", base_url="http://127.0.0.1:18090/v1", lookup=api_key_for)
        assert elsewhere.api_key is None
    assert endpoint_for("openai", model="m", base_url=address, lookup=api_key_for).api_key is None
    listed = run("--list").output
    assert "http://127.0.0.1:18089" in listed
    assert KEY not in listed + stored.output
    assert run("--remove", address).exit_code == 0
    assert endpoint_for("custom", model="m", base_url=address, lookup=api_key_for).api_key is None


def test_login_custom_names_what_is_missing_and_follows_the_configured_provider(home: Path) -> None:
    assert "login http://127.0.0.1:8000/v1" in run("custom", typed=KEY).output
    at_a_proxy = ["--set", "model.base_url=http://127.0.0.1:9/v1", "--set", "model.provider=openai"]
    stored = CliRunner().invoke(cli, [*at_a_proxy, "login", "--no-check", "custom"], input=KEY, catch_exceptions=False)
    assert "Stored:  the key for openai" in stored.output
    assert api_key_for("OPENAI_API_KEY") == KEY


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("HTTPS://User:Secret@Example.COM:443/v1/", "https://example.com"),
        ("http://[::1]:8000/v1", "http://[::1]:8000"),
        ("http://host:80", "http://host"),
        ("https://host:80", "https://host:80"),
        ("http://host:port/v1", None),
        ("ftp://host/", None),
        ("host:8000/v1", None),
    ],
)
def test_a_key_belongs_to_scheme_host_and_port(url: str, origin: str | None) -> None:
    assert origin_of(url) == origin


# -- where keys are --------------------------------------------------------------------------------------------------


def test_with_a_keyring_the_file_holds_names_alone(tmp_path: Path) -> None:
    keyring = MemoryKeyring()
    keys = StoredKeys(tmp_path, open_keyring=lambda: keyring)
    assert keys.put("OPENAI_API_KEY", KEY) == "keyring"
    assert KEY not in keys.path.read_text()
    assert (keys.get("OPENAI_API_KEY"), keys.locations()) == (KEY, {"OPENAI_API_KEY": "keyring"})
    assert keys.remove("OPENAI_API_KEY")
    assert (keyring.entries, keys.get("OPENAI_API_KEY")) == ({}, None)


def test_a_keyring_that_refuses_leaves_the_file(tmp_path: Path) -> None:
    keys = StoredKeys(tmp_path, open_keyring=lambda: MemoryKeyring(is_locked=True))
    assert keys.put("OPENAI_API_KEY", KEY) == "file"
    assert keys.get("OPENAI_API_KEY") == KEY


def test_a_keyring_that_is_gone_says_what_to_do(tmp_path: Path) -> None:
    keyring = MemoryKeyring()
    StoredKeys(tmp_path, open_keyring=lambda: keyring).put("OPENAI_API_KEY", KEY)
    with pytest.raises(ConfigError, match="set the variable"):
        StoredKeys(tmp_path, open_keyring=no_keyring).get("OPENAI_API_KEY")
    keyring.is_locked = True
    with pytest.raises(ConfigError, match="RuntimeError; set the variable"):
        StoredKeys(tmp_path, open_keyring=lambda: keyring).get("OPENAI_API_KEY")


def test_without_stored_keys_no_keyring_is_opened(tmp_path: Path) -> None:
    def never() -> Keyring | None:
        raise AssertionError("a keyring was opened")

    keys = StoredKeys(tmp_path, open_keyring=never)
    assert (keys.get("OPENAI_API_KEY"), keys.locations(), keys.remove("OPENAI_API_KEY")) == (None, {}, False)


def test_a_damaged_file_is_named_and_replaced_by_the_next_login(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{", encoding="utf-8")
    keys = StoredKeys(tmp_path, open_keyring=no_keyring)
    with pytest.raises(ConfigError, match="cannot read the stored keys"):
        keys.get("OPENAI_API_KEY")
    keys.put("OPENAI_API_KEY", KEY)
    assert keys.get("OPENAI_API_KEY") == KEY


def test_the_first_screen_lists_servers_with_a_stored_key(home: Path) -> None:
    assert keys_found() == []
    run("http://127.0.0.1:18089/v1", typed=KEY)
    assert keys_found() == ["http://127.0.0.1:18089 (stored)"]
