"""Dangerous calls ask; the answer is remembered by kind, per user; where nobody is there, nothing dangerous runs."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from perdure.core.clock import SystemClock
from perdure.core.messages import ToolCall, canonical_json
from perdure.core.ports import ApprovalAnswer, ApprovalRequest, KeyValue, Refusal
from perdure.store import open_store
from perdure.tools.approval import ApprovalGuard
from perdure.tools.builtin.files import FileEditor, FileReader
from perdure.tools.builtin.search import FileSearch
from perdure.tools.builtin.terminal import ShellState, Terminal
from perdure.tools.registry import ToolRegistry
from perdure.tools.runtime import ToolRuntime, ToolScope
from perdure.tools.tool import tool
from perdure.tools.workspace import Workspace


class Person:
    """Answers from a list, and notes what was asked."""

    def __init__(self, *answers: ApprovalAnswer | Refusal) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str]] = []
        self.requests: list[ApprovalRequest] = []

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer | Refusal:
        self.asked.append((request.action, request.reason))
        self.requests.append(request)
        await asyncio.sleep(0)
        return self.answers.pop(0)


@tool(is_dangerous=True)
def deploy(target: str) -> str:
    """Deploys."""
    return f"deployed to {target}"


class Desk:
    """A runtime with a terminal and an editor in a folder, guarded."""

    def __init__(self, folder: Path, person: Person | None, approvals: KeyValue | None = None) -> None:
        self.folder = folder / "work"
        self.folder.mkdir(exist_ok=True)
        workspace = Workspace(self.folder)
        terminal = Terminal(self.folder, {"PATH": "/usr/bin:/bin", "HOME": str(folder)})
        guard = ApprovalGuard(workspace, home=folder, approver=person, approvals=approvals, shell_state=terminal.state)
        reading = [FileReader(workspace).tool(), FileSearch(workspace).tool()]
        tools = [*terminal.tools(), *FileEditor(workspace).tools(), *reading, deploy]
        self._runtime = ToolRuntime(ToolRegistry(tools), clock=SystemClock(), guard=guard)

    def run(self, name: str, *, user: str = "u", **arguments: Any) -> str:
        return self.run_all(ToolCall("call_1", name, canonical_json(arguments)), user=user)[0]

    def run_all(self, *calls: ToolCall, user: str = "u") -> list[str]:
        batch = self._runtime.batch(calls, ToolScope(task_id="t", user_key=user))
        return [m.text for m in asyncio.run(batch.run())]


@pytest.mark.spec("J6")
def test_without_a_person_a_dangerous_command_is_denied_and_the_model_reads_why(tmp_path: Path) -> None:
    desk = Desk(tmp_path, None)
    (desk.folder / "src").mkdir()
    text = desk.run("terminal", command="r''m -rf src")
    assert text.startswith("Error: terminal was not run, no one is available to approve it: it deletes files")
    assert "rm -rf src" in text
    assert "Move it aside" in text
    assert (desk.folder / "src").is_dir()


@pytest.mark.spec("J6")
def test_an_ordinary_command_runs_without_a_question(tmp_path: Path) -> None:
    person = Person()
    desk = Desk(tmp_path, person)
    assert desk.run("terminal", command="mkdir build && rm -rf build && echo done") == "[exit 0]\ndone"
    assert person.asked == []


@pytest.mark.spec("J6")
def test_once_is_for_this_call_alone(tmp_path: Path) -> None:
    person = Person("once", "no")
    desk = Desk(tmp_path, person)
    (desk.folder / "src").mkdir()
    assert desk.run("terminal", command="rm -rf src").startswith("[exit 0]")
    assert "the user refused" in desk.run("terminal", command="rm -rf src")
    assert person.asked[0] == ("rm -rf src", "it deletes files that cannot be brought back: rm -rf src")


@pytest.mark.spec("J6")
def test_for_this_session_is_remembered_by_kind_and_by_user(tmp_path: Path) -> None:
    person = Person("session", "no", "no")
    desk = Desk(tmp_path, person)
    desk.run("terminal", command="rm -rf one")
    assert desk.run("terminal", command="rm -rf two").startswith("[exit 0]")
    assert "was not run" in desk.run("terminal", command="git push --force")
    assert "was not run" in desk.run("terminal", command="rm -rf two", user="someone else")
    assert len(person.asked) == 3


@pytest.mark.spec("J6")
def test_always_survives_a_restart_in_the_store(tmp_path: Path) -> None:
    with open_store(tmp_path / "perdure.db") as store:
        first = Person("always")
        Desk(tmp_path, first, store.state("approvals")).run("terminal", command="rm -rf one")
    with open_store(tmp_path / "perdure.db") as store:
        second = Person("no")
        desk = Desk(tmp_path, second, store.state("approvals"))
        assert desk.run("terminal", command="rm -rf two").startswith("[exit 0]")
        assert second.asked == []
        assert "was not run" in desk.run("terminal", command="rm -rf two", user="someone else")


@pytest.mark.spec("J6")
def test_the_worst_is_asked_every_time(tmp_path: Path) -> None:
    person = Person("always", "no")
    desk = Desk(tmp_path, person)
    desk.run("terminal", command="cat ~/.ssh/id_rsa")
    assert "was not run" in desk.run("terminal", command="cat ~/.ssh/id_rsa")


@pytest.mark.spec("J6")
def test_writing_outside_the_workspace_asks(tmp_path: Path) -> None:
    person = Person("no", "no", "no", "no")
    desk = Desk(tmp_path, person)
    (desk.folder / "link").symlink_to(tmp_path)
    (tmp_path / "there.txt").write_text("old")
    for path in ("../out.txt", str(tmp_path / "out.txt"), "link/out.txt"):
        assert "it writes outside the workspace" in desk.run("write_file", path=path, content="x")
    assert "it writes outside" in desk.run("patch", path="../there.txt", old="old", new="new")
    assert not (tmp_path / "out.txt").exists()
    assert (tmp_path / "there.txt").read_text() == "old"
    assert desk.run("write_file", path="in.txt", content="x").startswith("Created in.txt")


@pytest.mark.spec("J6")
def test_credentials_ask_whichever_tool_reads_them(tmp_path: Path) -> None:
    person = Person(*["no"] * 8)
    desk = Desk(tmp_path, person)
    for name in (".ssh", ".aws"):
        (tmp_path / name).mkdir()
    (tmp_path / ".ssh" / "id_rsa").write_text("PRIVATE KEY")
    (tmp_path / ".aws" / "credentials").write_text("aws_secret_access_key = PRIVATE")
    (desk.folder / "key").symlink_to(tmp_path / ".ssh" / "id_rsa")
    (desk.folder / "notes.txt").write_text("PRIVATE thoughts")
    for path in ("../.ssh/id_rsa", str(tmp_path / ".aws" / "credentials"), "key", "/proc/self/environ"):
        assert "it reads or sends away credentials" in desk.run("read_file", path=path)
    for path in ("../.ssh", str(tmp_path / ".aws"), "key"):
        assert "it reads or sends away credentials" in desk.run("search_files", pattern="PRIVATE", path=path)
    assert "credentials" in desk.run("terminal", command="cat key")
    assert len(person.asked) == 8
    assert "thoughts" in desk.run("read_file", path="notes.txt")
    assert desk.run("search_files", pattern="PRIVATE", path="..") == "notes.txt:1:PRIVATE thoughts"
    assert len(person.asked) == 8


@pytest.mark.spec("J6")
def test_a_shell_that_overwrites_outside_the_workspace_asks(tmp_path: Path) -> None:
    person = Person(*["no"] * 5)
    desk = Desk(tmp_path, person)
    thesis = tmp_path / "thesis.tex"
    thesis.write_text("years of work")
    (desk.folder / "x").write_text("x")
    (desk.folder / "link").symlink_to(tmp_path)
    for command in (
        "cat /dev/null > ~/thesis.tex",
        "mv -f x ../thesis.tex",
        "tee ~/thesis.tex < x",
        "cp x link/thesis.tex",
    ):
        assert "it writes outside the workspace" in desk.run("terminal", command=command)
    assert "it deletes files outside" in desk.run("terminal", command="rm ../thesis.tex")
    assert thesis.read_text() == "years of work"
    assert desk.run("terminal", command="cat x > y 2>/dev/null; cat y").startswith("[exit 0]")


@pytest.mark.spec("J6")
def test_writing_to_what_runs_at_login_or_into_git_is_a_kind_of_its_own(tmp_path: Path) -> None:
    person = Person("no", "no")
    desk = Desk(tmp_path, person)
    assert "at login" in desk.run("write_file", path="../.bashrc", content="x")
    assert "Git's own files" in desk.run("write_file", path=".git/hooks/pre-commit", content="x")


@pytest.mark.spec("J6")
def test_a_tool_that_claims_to_be_dangerous_always_asks(tmp_path: Path) -> None:
    person = Person("no", "session")
    desk = Desk(tmp_path, person)
    assert desk.run("deploy", target="prod").startswith("Error: deploy was not run, the user refused")
    assert desk.run("deploy", target="prod") == "deployed to prod"
    assert desk.run("deploy", target="prod") == "deployed to prod"
    assert person.asked[0] == ("deploy(target='prod')", "this tool always asks: deploy")


@pytest.mark.spec("J6")
def test_parallel_calls_ask_one_at_a_time_and_an_answer_settles_the_next(tmp_path: Path) -> None:
    person = Person("session")
    desk = Desk(tmp_path, person)
    calls = [ToolCall(f"call_{n}", "deploy", canonical_json({"target": str(n)})) for n in range(5)]
    assert desk.run_all(*calls) == [f"deployed to {n}" for n in range(5)]
    assert len(person.asked) == 1


@pytest.mark.spec("J6")
def test_the_guard_knows_where_the_last_command_left_the_shell(tmp_path: Path) -> None:
    desk = Desk(tmp_path, None)
    assert desk.run("terminal", command="cd / && export X=rm").startswith("[exit 0]")
    assert "was not run" in desk.run("terminal", command="rm -rf build")
    assert "was not run" in desk.run("terminal", command="$X -rf *")


@pytest.mark.spec("J6")
def test_commands_are_read_beside_the_event_loop(tmp_path: Path) -> None:
    read_in: list[int] = []

    def state(key: str) -> ShellState:
        read_in.append(threading.get_ident())
        return ShellState(tmp_path, {})

    guard = ApprovalGuard(Workspace(tmp_path), home=tmp_path, shell_state=state)
    terminal = next(t for t in Terminal(tmp_path, {}).tools() if t.name == "terminal")

    async def check() -> int:
        await guard.check(terminal, {"command": "echo hello"}, ToolScope())
        return threading.get_ident()

    assert asyncio.run(check()) not in read_in
    assert len(read_in) == 1


@pytest.mark.spec("J6")
def test_a_request_spells_out_what_cannot_be_seen(tmp_path: Path) -> None:
    person = Person("no")
    Desk(tmp_path, person).run("terminal", command="rm -rf src/\u202etxt.elif\u202c && echo \u200bzero \x1b[8m")
    (request,) = person.requests
    assert request.action == "rm -rf src/<U+202E>txt.elif<U+202C> && echo <U+200B>zero <U+001B>[8m"
    assert "\u202e" not in request.reason
    assert "<U+202E>" in request.reason


@pytest.mark.spec("J6")
def test_a_long_command_is_asked_about_whole(tmp_path: Path) -> None:
    person = Person("no", "no")
    desk = Desk(tmp_path, person)
    command = "\n".join([*(f"echo step {n}" for n in range(200)), "rm -rf data_of_mine"])
    desk.run("terminal", command=command)
    assert person.requests[0].action == command
    desk.run("terminal", command=f"echo {'x' * 60_000}; rm -rf data_of_mine")
    assert len(person.requests[1].action) < 25_000
    assert "characters are not shown" in person.requests[1].action
    assert person.requests[1].action.endswith("rm -rf data_of_mine")


@pytest.mark.spec("J6")
def test_a_request_says_what_always_would_allow(tmp_path: Path) -> None:
    person = Person("no", "no")
    desk = Desk(tmp_path, person)
    desk.run("terminal", command="rm -rf src")
    assert "everything of the kind delete-tree, in every folder" in person.requests[0].covers
    assert "until revoked" in person.requests[0].covers
    desk.run("terminal", command="cat ~/.ssh/id_rsa")
    assert "asked every time" in person.requests[1].covers


@pytest.mark.spec("J6")
def test_words_given_with_a_refusal_reach_the_model(tmp_path: Path) -> None:
    person = Person(Refusal("move it to old/ instead"))
    text = Desk(tmp_path, person).run("terminal", command="rm -rf src")
    assert "was not run, the user refused" in text
    assert "move it to old/ instead" in text
