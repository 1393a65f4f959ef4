"""`perdure approvals`: what was allowed for good can be seen and taken back."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from perdure.cli.main import cli
from perdure.store import open_store


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    with open_store(tmp_path / "perdure.db") as store:
        store.state("approvals").set("", ["delete-tree", "git-push", "tool:deploy"])
    return tmp_path


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["approvals", *arguments])


def _allowed(home: Path) -> object:
    with open_store(home / "perdure.db") as store:
        return store.state("approvals").get("")


def test_the_list_names_each_kind_and_what_it_means(home: Path) -> None:
    *lines, hint = _run("list").output.splitlines()
    assert hint.startswith("Ask about one again: ")
    assert hint.endswith("perdure approvals revoke NAME")
    assert [line.split()[0] for line in lines] == ["delete-tree", "git-push", "tool:deploy"]
    assert "delete" in lines[0].removeprefix("delete-tree")
    assert "calls of this tool" in lines[2]


def test_a_revoked_kind_is_asked_about_again(home: Path) -> None:
    assert _run("revoke", "git-push").output == "Revoked: git-push\n"
    assert _allowed(home) == ["delete-tree", "tool:deploy"]
    assert _run("revoke", "--all").output == "Revoked: delete-tree, tool:deploy\n"
    assert _allowed(home) is None
    assert "every dangerous action is asked about" in _run("list").output
    assert "nothing to revoke" in _run("revoke", "--all").output


@pytest.mark.parametrize("arguments", [[], ["git-push", "--all"], ["git-pusch"]])
def test_what_cannot_be_revoked_is_said_and_changes_nothing(home: Path, arguments: list[str]) -> None:
    result = _run("revoke", *arguments)
    assert result.exit_code == 2
    assert "perdure approvals list" in result.output
    assert _allowed(home) == ["delete-tree", "git-push", "tool:deploy"]
