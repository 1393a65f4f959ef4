"""`perdure permissions`: what holds in a folder, and whose rules are trusted."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from perdure.cli.main import cli
from perdure.store import open_store


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "perdure-home"))
    folder = tmp_path / "app"
    (folder / ".perdure").mkdir(parents=True)
    (folder / ".perdure" / "permissions.yaml").write_text("allow: ['terminal(make *)']\ndeny: ['web_extract']\n")
    monkeypatch.chdir(folder)
    return folder


def _run(*arguments: str, answer: str = "") -> Result:
    return CliRunner().invoke(cli, ["permissions", *arguments], input=answer)


@pytest.mark.usefixtures("project")
def test_rules_that_allow_count_once_their_file_is_trusted() -> None:
    before = _run("show").output
    assert before.startswith("mode   edits: ")
    assert "deny   web_extract" in before
    assert "allow " not in before
    assert "not trusted" in before
    trusted = _run("trust", answer="y\n").output
    assert "terminal(make *)" in trusted
    after = _run("show").output
    assert "allow  terminal(make *)" in after
    assert "permissions.yaml: trusted" in after
    assert "no longer trusted" in _run("untrust").output
    assert "allow " not in _run("show").output


@pytest.mark.usefixtures("project")
def test_what_was_allowed_for_good_is_shown_with_the_command_that_revokes_it(tmp_path: Path) -> None:
    with open_store(tmp_path / "perdure-home" / "perdure.db") as store:
        store.state("approvals").set("", ["git-push", "command:touch zz"])
    shown = _run("show").output
    assert "always git-push: " in shown
    assert "perdure approvals revoke git-push` asks again)" in shown
    assert "perdure approvals revoke 'command:touch zz'` asks again)" in shown


def test_a_refused_question_or_a_broken_file_trusts_nothing(project: Path) -> None:
    assert _run("trust", answer="n\n").exit_code == 1
    assert "not trusted" in _run("show").output
    (project / ".perdure" / "permissions.yaml").write_text("allow: [\n")
    broken = _run("trust", "--yes")
    assert broken.exit_code == 1
    assert "cannot be read" in broken.output


def test_a_folder_without_rules_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    result = _run("trust")
    assert result.exit_code == 2
    assert "there is no .perdure/permissions.yaml" in result.output


@pytest.mark.usefixtures("project")
def test_the_flag_of_a_chat_is_one_of_the_modes() -> None:
    result = CliRunner().invoke(cli, ["chat", "--mode", "sometimes", "-q", "hi"])
    assert result.exit_code == 2
    assert "plan" in result.output
