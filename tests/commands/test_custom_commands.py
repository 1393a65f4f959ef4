"""Commands of one's own: a Markdown file becomes a slash command."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.agent.prompt import read_context_files
from perdure.cli.chat.command_context import ChatCommandContext
from perdure.cli.chat.controller import chat_commands
from perdure.cli.chat.one_shot import ask_once
from perdure.commands.custom import read_commands
from perdure.commands.registry import all_commands, builtin_names
from perdure.testing.simulator import Simulator


def put(folder: Path, name: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")


def test_a_file_becomes_a_command_with_its_summary(tmp_path: Path) -> None:
    put(tmp_path / "a", "review.md", "---\ndescription: review a file\n---\nReview $ARGUMENTS with care.\n")
    put(tmp_path / "a", "plan.md", "# Plan the work\n\nWrite a plan.\n")
    put(tmp_path / "b", "plan.md", "The project's own plan.\n")
    commands, warnings = read_commands([tmp_path / "a", tmp_path / "b"], builtin_names())
    assert warnings == []
    by_name = {command.name: command for command in commands}
    assert (by_name["review"].usage, by_name["review"].summary) == ("/review [text]", "review a file")
    assert by_name["plan"].summary == "The project's own plan."


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("compress.md", "x", "/compress is built in"),
        ("compact.md", "x", "/compact is built in"),
        ("export.md", "x", "/export is built in"),
        ("mode.md", "x", "/mode is built in"),
        ("two words.md", "x", "letters and hyphens"),
        ("empty.md", "---\ndescription: d\n---\n", "it is empty"),
    ],
)
def test_what_is_no_command_is_named(tmp_path: Path, name: str, text: str, why: str) -> None:
    put(tmp_path, name, text)
    commands, (warning,) = read_commands([tmp_path], builtin_names())
    assert commands == []
    assert why in warning


def test_every_command_of_the_terminal_is_known_as_built_in() -> None:
    names = {command.name for command in chat_commands(None)}
    assert names <= set(builtin_names())


def test_a_command_of_ones_own_is_sent_as_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("PERDURE_HOME", str(home))
    monkeypatch.chdir(tmp_path)
    put(home / "commands", "review.md", "Review $ARGUMENTS with care.\n")
    put(home / "commands", "tidy.md", "Tidy up.\n")
    with Simulator(script=["Done."] * 3) as sim:
        flags = {"model.base_url": sim.base_url, "model.name": "m-1"}
        assert ask_once(flags, "/review main.py") == 0
        assert sim.requests[-1].body["messages"][-1]["content"] == "Review main.py with care."
        assert ask_once(flags, "/tidy only the tests") == 0
        assert sim.requests[-1].body["messages"][-1]["content"] == "Tidy up.\n\nonly the tests"


def test_the_context_names_every_file_that_applies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user, repo = tmp_path / "user", tmp_path / "user" / "repo"
    home = user / ".perdure"
    monkeypatch.setenv("HOME", str(user))
    monkeypatch.setenv("PERDURE_HOME", str(home))
    put(repo, "AGENTS.md", "Use tabs.")
    put(repo / "src", "AGENTS.md", "Use spaces here.")
    put(repo / ".perdure", "config.yaml", "agent:\n  max_turns: 5\n")
    put(repo / ".perdure" / "commands", "ship.md", "Ship it.")
    put(repo / ".perdure" / "skills" / "deploy", "SKILL.md", "How to deploy.")
    put(home / "skills" / "write", "SKILL.md", "How to write.")
    put(home / "memory", "MEMORY.md", "The port is 54321.")
    put(home, "config.yaml", "display:\n  tool_lines: 3\n")
    monkeypatch.chdir(repo / "src")
    with Simulator() as sim:
        surface = ChatCommandContext({"model.base_url": sim.base_url, "model.name": "m-1"})
        result = all_commands(surface.custom_commands).dispatch(surface, "/context")
        assert result is not None
        rows = dict(line.split(maxsplit=1) for line in result.text.splitlines() if line[:1].isalpha())
        assert rows["instructions"] == f"{repo / 'AGENTS.md'} (9 characters), AGENTS.md (16 characters)"
        assert rows["skills"] == "write, deploy"
        assert rows["memory"].endswith("%") or "MEMORY.md" in result.text
        assert rows["commands"] == "/ship"
        assert rows["settings"] == f"{home / 'config.yaml'}, {repo / '.perdure' / 'config.yaml'}"
        assert surface.settings.agent.max_turns == 5
        surface.close()
        surface.store.close()


def test_a_link_to_credentials_is_neither_an_instruction_nor_a_command(tmp_path: Path) -> None:
    put(tmp_path / ".ssh", "id_rsa", "BEGIN PRIVATE KEY")
    (tmp_path / "repo").mkdir()
    for name in ("AGENTS.md", "ship.md"):
        (tmp_path / "repo" / name).symlink_to(tmp_path / ".ssh" / "id_rsa")
    (file,) = read_context_files(tmp_path / "repo")
    assert (file.text, file.left_out) == ("", "it links to a file with credentials")
    commands, warnings = read_commands([tmp_path / "repo"], builtin_names())
    assert commands == []
    assert all("credentials" in warning for warning in warnings)
