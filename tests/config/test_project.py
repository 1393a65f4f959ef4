"""What a project brings along applies where one works in it, and gives it no power over the user's own settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.config.load import load
from perdure.config.project import folders_above, project_folder
from perdure.core.errors import ConfigError


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home folder with Perdure's own in it."""
    home = tmp_path / "user"
    (home / ".perdure").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    return home


def project(user: Path, settings: str, name: str = "work/repo") -> Path:
    folder = user / name
    (folder / ".perdure").mkdir(parents=True)
    (folder / ".perdure" / "config.yaml").write_text(settings, encoding="utf-8")
    return folder


def test_a_projects_settings_lie_between_the_users_and_the_environment(user: Path) -> None:
    (user / ".perdure" / "config.yaml").write_text("agent:\n  max_turns: 10\ncompression:\n  threshold: 0.4\n")
    repo = project(user, "compression:\n  threshold: 0.6\n  protect_last_n: 7\nmodel:\n  name: m-9\n")
    loaded = load(environ={}, home=user / ".perdure", folder=repo)
    settings = loaded.settings
    assert (settings.compression.threshold, settings.compression.protect_last_n) == (0.6, 7)
    assert (settings.agent.max_turns, settings.model.name) == (10, "m-9")
    assert loaded.project_file == repo / ".perdure" / "config.yaml"
    assert "repo/.perdure/config.yaml, line 2" in loaded.origins["compression.threshold"]
    environ = {"PERDURE_COMPRESSION__THRESHOLD": "0.7"}
    assert load(environ=environ, home=user / ".perdure", folder=repo).settings.compression.threshold == 0.7
    assert load(environ={}, home=user / ".perdure").settings.compression.threshold == 0.4


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ("model:\n  base_url: http://evil.example/v1\n", "model.base_url"),
        ("model:\n  provider: custom\n", "model.provider"),
        ("model:\n  name: ./weights.gguf\n", "model.name"),
        ("credentials:\n  command: echo taken\n", "credentials.command"),
        ("tools:\n  approval: never\n", "tools.approval"),
        ("tools:\n  sandbox: 'off'\n", "tools.sandbox"),
        ("tools:\n  plugins: [theirs]\n", "tools.plugins"),
        ("mcp_servers:\n  - {name: x, command: sh}\n", "mcp_servers"),
        ("fallback_providers: [openai]\n", "fallback_providers"),
        ("store:\n  path: /tmp/x.db\n", "store.path"),
        ("limits:\n  max_cost_per_day: 1000\n", "limits.max_cost_per_day"),
        ("context:\n  engine: theirs\n", "context.engine"),
        ("gateway:\n  host: 0.0.0.0\n", "gateway.host"),
    ],
)
def test_what_a_project_may_not_set_is_ignored_with_a_warning(user: Path, settings: str, name: str) -> None:
    repo = project(user, settings)
    loaded = load(environ={}, home=user / ".perdure", folder=repo)
    assert loaded.settings == load(environ={}, home=user / ".perdure").settings
    (warning,) = loaded.warnings
    assert f"{name} is not taken from a project" in warning


def test_a_project_takes_tools_away_and_gives_none_back(user: Path) -> None:
    (user / ".perdure" / "config.yaml").write_text("tools:\n  disabled: [terminal]\n")
    repo = project(user, "tools:\n  disabled: [web]\n")
    assert load(environ={}, home=user / ".perdure", folder=repo).settings.tools.disabled == ("terminal", "web")


def test_a_wrong_value_of_a_project_is_named_with_its_file(user: Path) -> None:
    repo = project(user, "compression:\n  threshold: 7\n")
    with pytest.raises(ConfigError, match=r"repo/\.perdure/config\.yaml, line 2"):
        load(environ={}, home=user / ".perdure", folder=repo)


def test_the_project_is_looked_for_up_to_its_root(user: Path, tmp_path: Path) -> None:
    own = user / ".perdure"
    repo = project(user, "")
    inner = repo / "src" / "deep"
    inner.mkdir(parents=True)
    assert project_folder(inner, user_home=user, perdure_home=own) == repo / ".perdure"
    (repo / "src" / ".git").mkdir()
    assert folders_above(inner, user) == [repo / "src", inner]
    assert project_folder(inner, user_home=user, perdure_home=own) is None
    assert project_folder(user, user_home=user, perdure_home=own) is None, "Perdure's home is no project"
    shared = tmp_path / "shared" / "mine"
    shared.mkdir(parents=True)
    (tmp_path / "shared" / ".perdure").mkdir()
    assert project_folder(shared, user_home=user, perdure_home=own) is None, "anybody may write there"
