"""Defaults < file < environment < flags, and what a wrong value says."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.config import keys
from perdure.config.deprecated import RENAMED, DeprecatedSetting
from perdure.config.env import home_dir, make_home
from perdure.config.load import load, load_settings, read, validate_settings
from perdure.config.settings import McpServerSettings, ModelOverride, RouteSettings, Settings
from perdure.core.errors import ConfigError


def write(home: Path, text: str) -> Path:
    home.mkdir(exist_ok=True)
    path = home / "config.yaml"
    path.write_text(text)
    return path


def refused(home: Path, environ: dict[str, str] | None = None, flags: dict[str, Any] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(home=home, environ=environ or {}, flags=flags)
    return str(caught.value)


def test_without_anything_the_defaults_hold_and_nothing_is_made(tmp_path: Path) -> None:
    loaded = load(environ={"HOME": str(tmp_path)})
    assert loaded.settings == Settings()
    assert loaded.path == tmp_path / ".perdure" / "config.yaml"
    assert loaded.prompts == tmp_path / ".perdure" / "prompts"
    assert list(tmp_path.iterdir()) == []


def test_each_source_wins_over_the_one_before(tmp_path: Path) -> None:
    variable = {"PERDURE_COMPRESSION__THRESHOLD": "0.7"}
    flag = {"compression.threshold": "0.8"}
    assert load_settings(home=tmp_path, environ={}).compression.threshold == 0.5
    write(tmp_path, "compression:\n  threshold: 0.6\n  protect_last_n: 7\n")
    assert load_settings(home=tmp_path, environ={}).compression.threshold == 0.6
    assert load_settings(home=tmp_path, environ=variable).compression.threshold == 0.7
    settings = load_settings(home=tmp_path, environ=variable, flags=flag)
    assert settings.compression.threshold == 0.8
    assert settings.compression.protect_last_n == 7


def test_where_each_value_came_from_is_known(tmp_path: Path) -> None:
    path = write(tmp_path, "# mine\ncompression:\n  threshold: 0.6\nfallback_providers:\n  - groq\n")
    origins = load(home=tmp_path, environ={"PERDURE_AGENT__MAX_TURNS": "9"}, flags={"model.name": "m"}).origins
    assert origins["compression.threshold"] == f"{path}, line 3"
    assert origins["fallback_providers[0]"] == f"{path}, line 5"
    assert origins["agent.max_turns"] == "the variable PERDURE_AGENT__MAX_TURNS"
    assert origins["model.name"] == "the command line"


def test_a_bad_value_names_key_value_range_and_place(tmp_path: Path) -> None:
    path = write(tmp_path, "model:\n  name: x\ncompression:\n  threshold: 1.5\n")
    assert refused(tmp_path) == (
        f"compression.threshold = 1.5 is not allowed: a share: a number above 0, at most 1 (from {path}, line 4)"
    )
    assert refused(tmp_path / "no", {"PERDURE_COMPRESSION__TARGET_RATIO": "9"}) == (
        "compression.target_ratio = 9 is not allowed: a number from 0.1 to 0.8"
        " (from the variable PERDURE_COMPRESSION__TARGET_RATIO)"
    )
    assert refused(tmp_path / "no", flags={"agent.max_turns": "ten"}) == (
        "agent.max_turns = 'ten' is not allowed: a whole number, at least 1 (from the command line)"
    )


@pytest.mark.spec("L3")
@pytest.mark.parametrize("ttl", ["2h", "5", "", "1H", "null"])
def test_any_other_cache_ttl_is_a_config_error(ttl: str, tmp_path: Path) -> None:
    write(tmp_path, f"prompt_caching:\n  cache_ttl: {ttl}\n")
    assert "prompt_caching.cache_ttl = " in refused(tmp_path)
    assert "one of 5m, 1h" in refused(tmp_path)


def test_every_wrong_value_is_told_at_once(tmp_path: Path) -> None:
    write(tmp_path, "compression: {threshold: 7, enabled: perhaps}\nmodle: {name: x}\n")
    lines = refused(tmp_path).splitlines()
    assert len(lines) == 3
    assert any("unknown setting 'modle' (did you mean 'model'?)" in line for line in lines)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "compression:\n  treshold: 0.5\n",
            "unknown setting 'compression.treshold' (did you mean 'compression.threshold'?)",
        ),
        ("threshold: 0.5\n", "(did you mean 'compression.threshold'?)"),
        ("compression.threshold: 0.5\n", "write `threshold:` inside `compression:` instead"),
        ("model_overrides: [{model: x, price: 3}]\n", "(did you mean 'model_overrides[0].input_price_per_mtok'?)"),
        ("model_overrides: [{model: x, window: 3}]\n", "; it takes model, provider, context_length, input_price_per_"),
        ("fallback_providers: [{provider: x, modl: y}]\n", "(did you mean 'fallback_providers[0].model'?)"),
        ("fallback_providers: [{model: y}]\n", "fallback_providers[0].provider is missing"),
        ("fallback_providers: openrouter\n", "fallback_providers = 'openrouter' is not allowed: a list"),
        ("compression: true\n", "compression = true is not allowed: a section of settings"),
        ("compression: [1]\n", "compression = [1] is not allowed: a section of settings"),
        ("compression: {threshold: null}\n", "compression.threshold = null is not allowed"),
        ("compression: {threshold: true}\n", "compression.threshold = true is not allowed"),
        ("agent: {max_turns: .inf}\n", "agent.max_turns = Infinity is not allowed"),
        ("model: {name: 2020-01-01}\n", 'model.name = "2020-01-01" is not allowed: some text'),
        ("model: {name: ''}\n", "model.name = '' is not allowed"),
        ("1: 2\n", "unknown setting '1'"),
        (
            "store: {url: 'mysql://u:hunter2@h/d'}\n",
            "store.url = 'mysql://u:***@h/d' is not allowed: a URL like postgresql",
        ),
    ],
)
def test_what_people_get_wrong_in_the_file(text: str, said: str, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    message = refused(tmp_path)
    assert said in message
    assert f"(from {path}, line " in message
    assert "hunter2" not in message


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("compression:\n\tthreshold: 0.5\n", 2, "indented with a tab"),
        ("a: [1\nb: 2\n", 2, "expected"),
        ("model: {name: x}\nmodel: {name: y}\n", 2, "duplicate key"),
        ("model: 'open\n", 2, "while scanning a quoted scalar that begins on line 1"),
        ("a: *nothing\n", 1, "undefined alias"),
    ],
)
def test_broken_yaml_says_file_line_and_what_to_do(text: str, line: int, said: str, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    message = refused(tmp_path)
    assert message.startswith(f"{path}, line {line}: ")
    assert said in message
    assert message.endswith("mend it with `perdure config edit`")
    assert "\n" not in message


@pytest.mark.parametrize(
    "content", [b"\xff\xfe\x00", b"- 1\n", b"just words\n", b"a: 2001-99-99\n", b"a: &a\n  b: *a\n"]
)
def test_a_file_that_is_no_settings_at_all_is_told_in_one_line(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    message = refused(tmp_path)
    assert str(path) in message
    assert "\n" not in message


@given(
    content=st.text(max_size=60) | st.binary(max_size=60) | st.text("model:name \n-[]{}#&*!|>'\"%@,?\t0.", max_size=60)
)
def test_no_file_content_ever_raises_anything_but_a_config_error(
    content: str | bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("any") / "config.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode(errors="surrogatepass"))
    with suppress(ConfigError):
        read(path)
        load(home=path.parent, environ={})


def test_a_config_that_is_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").mkdir()
    assert "cannot read" in refused(tmp_path)


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "---\n", "compression:\n  # threshold: 0.6\nfallback_providers:\n", "{}"]
)
def test_empty_files_sections_and_lists_leave_the_defaults(text: str, tmp_path: Path) -> None:
    write(tmp_path, text)
    assert load_settings(home=tmp_path, environ={}) == Settings()


def test_a_byte_order_mark_and_windows_line_ends_are_read(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_bytes("\ufeffmodel:\r\n  name: x\r\n".encode())
    assert load_settings(home=tmp_path, environ={}).model.name == "x"


# Values for the keys whose kind alone does not say what is allowed.
OTHERS: dict[str, tuple[str, Any]] = {
    "credentials.codex_issuer": ("https://auth.example", "https://auth.example"),
    "gateway.public_url": ("https://agent.example.org", "https://agent.example.org"),
    "gateway.allowed_hosts": ("a.example.org, *.b.org", ("a.example.org", "*.b.org")),
    "gateway.trusted_proxies": ("10.0.0.0/8", ("10.0.0.0/8",)),
    "gateway.max_body_bytes": ("4096", 4096),
    "gateway.telegram.allowed_users": ("123, 456=alice", ("123", "456=alice")),
    "gateway.telegram.scopes": ("chat, shell", ("chat", "shell")),
    "gateway.telegram.base_url": ("http://127.0.0.1:8081", "http://127.0.0.1:8081"),
    "gateway.discord.allowed_users": ("123, 456=alice", ("123", "456=alice")),
    "gateway.discord.scopes": ("chat, shell", ("chat", "shell")),
    "gateway.discord.base_url": ("http://127.0.0.1:8081", "http://127.0.0.1:8081"),
}


def another(key: keys.Key) -> tuple[str, Any]:
    """A value that is allowed for a key and is not its default: as typed, and as it should arrive."""
    if key.name in OTHERS:
        return OTHERS[key.name]
    allowed = key.allowed.removesuffix(", or null")
    if key.name == "model_overrides":
        return "[{model: m}]", (ModelOverride(model="m"),)
    if key.name == "mcp_servers":
        return "[{name: files, command: serve}]", (McpServerSettings(name="files", command="serve"),)
    if key.is_list and key.name.startswith(("tools.", "permissions.")):
        return "10.0.0.1, 10.0.0.2", ("10.0.0.1", "10.0.0.2")
    if key.is_list:
        return "groq/llama", (RouteSettings(provider="groq", model="llama"),)
    if key.is_number:
        number = 7 if "at least" in allowed or ("at most" not in allowed and "from" not in allowed) else 1
        if least := re.search(r"at least (\d+)", allowed):
            number = max(number, int(least[1]))
        number = {"compression.target_ratio": 0.3, "compression.focus_ratio": 0.6}.get(key.name, number)
        return str(number), number
    if allowed == "true or false":
        return str(not key.default).lower(), not key.default
    if allowed.startswith("one of"):
        word = allowed.rpartition(", ")[2]
    else:
        word = "postgresql://h/d" if "URL" in allowed else "/word" if "path that begins with /" in allowed else "word"
    return word, word


@pytest.mark.parametrize("key", keys.all_keys().values(), ids=lambda key: key.name)
def test_every_key_can_be_set_by_its_variable(key: keys.Key, tmp_path: Path) -> None:
    text, value = another(key)
    assert value != key.default
    assert keys.value_of(load_settings(home=tmp_path, environ={key.variable: text}), key.name) == value


def test_lists_come_with_commas_or_as_yaml(tmp_path: Path) -> None:
    name = "PERDURE_FALLBACK_PROVIDERS"
    short = load_settings(home=tmp_path, environ={name: "groq/llama, openrouter"}).fallback_providers
    long = load_settings(
        home=tmp_path, environ={name: "[{provider: groq, model: llama}, openrouter]"}
    ).fallback_providers
    assert short == long
    assert [route.provider for route in short] == ["groq", "openrouter"]
    assert "is not allowed: a list" in refused(tmp_path, {name: "[unclosed"})


def test_null_in_a_variable_clears_what_the_file_sets(tmp_path: Path) -> None:
    write(tmp_path, "model: {name: x, reasoning_effort: none}\n")
    settings = load_settings(home=tmp_path, environ={"PERDURE_MODEL__NAME": "null"})
    assert settings.model.name is None
    assert settings.model.reasoning_effort == "none"


def test_an_empty_variable_counts_as_unset(tmp_path: Path) -> None:
    write(tmp_path, "model: {name: x}\n")
    assert load_settings(home=tmp_path, environ={"PERDURE_MODEL__NAME": " "}).model.name == "x"


def test_a_mistyped_variable_is_refused_and_a_strangers_is_left_alone(tmp_path: Path) -> None:
    assert refused(tmp_path, {"PERDURE_COMPRESSION_THRESHOLD": "1"}) == (
        "the variable PERDURE_COMPRESSION_THRESHOLD sets nothing; did you mean PERDURE_COMPRESSION__THRESHOLD?"
    )
    assert "did you mean 'compression.threshold'?" in refused(tmp_path, {"PERDURE_COMPRESSION__TRESHOLD": "1"})
    stranger = {"PERDURE_TEAM": "blue", "PERDURE_HOME": str(tmp_path), "COMPRESSION__THRESHOLD": "1"}
    assert load_settings(environ=stranger) == Settings()


def test_a_bad_section_in_the_file_is_not_hidden_by_a_variable(tmp_path: Path) -> None:
    write(tmp_path, "compression: true\n")
    assert "compression = true is not allowed" in refused(tmp_path, {"PERDURE_COMPRESSION__THRESHOLD": "0.5"})


def test_home_is_where_it_was_asked_for(tmp_path: Path) -> None:
    assert home_dir({"PERDURE_HOME": str(tmp_path), "HOME": "/x"}) == tmp_path
    assert home_dir({"PERDURE_HOME": " ", "HOME": "/x"}) == Path("/x/.perdure")
    assert home_dir({"PERDURE_HOME": "~/mine", "HOME": "/x"}) == Path("/x/mine")
    assert home_dir({"PERDURE_HOME": "relative"}).is_absolute()


def test_home_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    assert make_home(tmp_path / "deep" / "home").stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot make the folder .*set PERDURE_HOME"):
        make_home(tmp_path / "file" / "home")


OLD_BLOCK = "compression:\n  summary_model: gemini-flash\n  threshold: 0.6\nmodel:\n  cache_ttl: 1h\n"


def test_settings_by_their_old_names_are_taken_with_a_plain_word(tmp_path: Path) -> None:
    path = write(tmp_path, OLD_BLOCK)
    with pytest.warns(DeprecatedSetting) as warned:
        loaded = load(home=tmp_path, environ={})
    assert loaded.settings.auxiliary.compression.model == "gemini-flash"
    assert loaded.settings.prompt_caching.cache_ttl == "1h"
    assert loaded.settings.compression.threshold == 0.6
    assert loaded.origins["prompt_caching.cache_ttl"] == f"{path}, line 5"
    said = [str(w.message) for w in warned]
    assert said == [
        "compression.summary_model is now called auxiliary.compression.model; it still works, but write the new name "
        f"(from {path}, line 2)",
        "model.cache_ttl is now called prompt_caching.cache_ttl; it still works, but write the new name "
        f"(from {path}, line 5)",
    ]


@pytest.mark.parametrize("name", ["compression.summary_model", "model.cache_ttl"])
def test_old_names_work_in_the_environment_on_the_command_line_and_in_code(tmp_path: Path, name: str) -> None:
    section, leaf = name.split(".")
    value = "1h" if leaf == "cache_ttl" else "m"
    with pytest.warns(DeprecatedSetting):
        by_variable = load_settings(home=tmp_path, environ={f"PERDURE_{section.upper()}__{leaf.upper()}": value})
    with pytest.warns(DeprecatedSetting):
        by_flag = load_settings(home=tmp_path, environ={}, flags={name: value})
    with pytest.warns(DeprecatedSetting):
        by_code = validate_settings({section: {leaf: value}})
    for settings in (by_variable, by_flag, by_code):
        assert keys.value_of(settings, RENAMED[name]) == value


def test_where_both_names_are_given_todays_holds(tmp_path: Path) -> None:
    write(tmp_path, OLD_BLOCK + "prompt_caching:\n  cache_ttl: 5m\nauxiliary:\n  compression:\n    model: new\n")
    with pytest.warns(DeprecatedSetting, match="which is set as well and holds"):
        settings = load_settings(home=tmp_path, environ={})
    assert (settings.prompt_caching.cache_ttl, settings.auxiliary.compression.model) == ("5m", "new")
    with pytest.warns(DeprecatedSetting):
        flagged = load_settings(home=tmp_path, environ={}, flags={"model.cache_ttl": "1h"})
    assert flagged.prompt_caching.cache_ttl == "1h"


def test_a_wrong_value_under_an_old_name_is_told_with_its_place(tmp_path: Path) -> None:
    path = write(tmp_path, "model:\n  cache_ttl: 2h\n")
    with pytest.warns(DeprecatedSetting):
        said = refused(tmp_path)
    assert said == f"prompt_caching.cache_ttl = '2h' is not allowed: one of 5m, 1h (from {path}, line 2)"
