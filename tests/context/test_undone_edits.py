"""Record and sections agree on the edits that git took back: only its own commands count, in the file's folder."""

from __future__ import annotations

import json

import pytest

from perdure.context.record.record import call_lines, draw_record
from perdure.context.task_state.reader import read_state
from perdure.context.task_state.sections import write_sections
from perdure.context.tool_calls.work_tree import read_work_tree_commands
from perdure.core.messages import Entry, Message, ToolCall, assistant, tool_result, user

_UPDATED = "Updated 1 path from the index"


class Session:
    def __init__(self, path: str = "src/depth.py") -> None:
        self.messages: list[Message] = [user("Please fix the depth of Brest.")]
        self.edit(path)

    def edit(self, path: str, old: str = "depth = low + rise", new: str = "depth = low - rise") -> Session:
        return self.call("edit_file", "Replaced 1 occurrence.", path=path, old_string=old, new_string=new)

    def run(self, command: str, output: str = "", **arguments: str) -> Session:
        return self.call("terminal", output, command=command, **arguments)

    def call(self, name: str, result: str, **arguments: str) -> Session:
        number = f"c{len(self.messages)}"
        call = ToolCall(number, name, json.dumps(arguments))
        self.messages += [assistant("", (call,)), tool_result(number, result)]
        return self

    def sections(self) -> dict[str, str]:
        entries = self._entries()
        return write_sections(read_state(entries, call_lines(entries)))

    def is_undone(self) -> bool:
        in_record = "(later undone)" in draw_record(self._entries(), budget=6_000)
        sections = self.sections()
        in_files = "Changed and undone again: " in sections.get("Relevant Files", "")
        assert in_record == in_files, "record and sections disagree"
        assert in_files != ("depth.py" in sections.get("Completed Actions", "")), "what is gone is told as done"
        return in_files

    def _entries(self) -> list[Entry]:
        return [Entry(n, m) for n, m in enumerate([*self.messages, assistant("Done."), user("And the port?")])]


@pytest.mark.spec("E1c", "E2")
@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("git checkout -- src/depth.py", ""),
        ("git restore src/depth.py", ""),
        ("git restore --source=HEAD -SW src", ""),
        ("git checkout src/depth.py", _UPDATED),
        ("git checkout HEAD src/depth.py", "Updated 1 path from 1a2b3c4"),
        ("git checkout .", ""),
        ("git reset --hard", "HEAD is now at abc1234 Init"),
        ("git -C src checkout -- depth.py", ""),
        ("cd src && git checkout -- depth.py; git status --short", ""),
        ("git add -A && git reset --hard HEAD", "HEAD is now at abc1234 Init"),
    ],
)
def test_what_git_restored_is_undone_in_record_and_sections(command: str, output: str) -> None:
    assert Session().run(command, output).is_undone()


@pytest.mark.spec("E1c", "E2")
@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("git -C /other/repo reset --hard", "HEAD is now at 1234567 Other"),
        ("git -C /other/repo checkout .", ""),
        ("cd /other/repo && git checkout -- src/depth.py", ""),
        ("git --git-dir /other/.git reset --hard", "HEAD is now at 1234567 Other"),
        ('cd "$OTHER" && git checkout -- src/depth.py', ""),
        ('git commit -qam "Script: git checkout -- src/depth.py is no longer needed"', ""),
        ('git commit -qam "Script \\\ngit checkout -- src/depth.py; it is no longer needed"', ""),
        ("git commit -qF - <<EOF\ngit checkout -- src/depth.py\nEOF", ""),
        ("echo 'git reset --hard'", "git reset --hard"),
        ("git checkout src/depth.py", "error: pathspec 'src/depth.py' did not match any file(s) known to git"),
        ("git checkout -- src/depth.py || true", ""),
        ("test -f gone || git checkout -- src/depth.py", ""),
        ("if test -f gone; then git checkout -- src/depth.py; fi", ""),
        ("git checkout HEAD", ""),
        ("git checkout main", "Switched to branch 'main'"),
        ("git checkout -p src/depth.py", _UPDATED),
        ("git restore --staged src/depth.py", ""),
        ("git add -A; git checkout -- src/depth.py", ""),
        ("git stash && git checkout -- src/depth.py && git stash pop", ""),
        ("git reset --soft HEAD", ""),
        ("git checkout -- depth.pyi", ""),
    ],
)
def test_an_edit_stands_where_git_did_not_certainly_restore_it(command: str, output: str) -> None:
    assert not Session().run(command, output).is_undone()


@pytest.mark.spec("E1c", "E2")
def test_a_quiet_commit_ends_what_git_can_take_back() -> None:
    assert not Session().run('git commit -qam "Depth"').run("git reset --hard", "HEAD is now at abc1234 D").is_undone()


@pytest.mark.spec("E1c", "E2")
def test_a_command_counts_in_the_folder_of_the_file() -> None:
    path = "/w/src/depth.py"
    assert Session(path).run("git -C /w checkout -- src/depth.py").is_undone()
    assert Session(path).run("cd /w && make").run("git checkout -- src/depth.py").is_undone()
    assert Session(path).run("git checkout -- src/depth.py").is_undone(), "the shell began in the folder of the work"
    assert not Session(path).run("cd /other && make").run("git checkout -- src/depth.py").is_undone()
    assert not Session(path).run("git checkout -- src/depth.py", workdir="/other").is_undone()
    assert not Session(path).run("git -C /w checkout -- depth.py").is_undone(), "another file of that name"
    both = Session(path).edit("/w/lib/src/depth.py")
    assert not both.run("git checkout -- src/depth.py").is_undone(), "one of the two"


@pytest.mark.spec("E1c", "E2")
def test_an_edit_stands_again_when_git_drops_the_one_that_undid_it() -> None:
    session = Session().run('git commit -qam "Depth"').edit("src/depth.py", "depth = low - rise", "depth = low + rise")
    assert session.is_undone()
    session.run("git checkout -- src/depth.py")
    assert "changed depth.py" in session.sections()["Completed Actions"]


def test_what_cannot_be_read_whole_restores_nothing() -> None:
    long = f"git commit -qm '{'x' * 7_000} && git checkout -- depth.py'"
    assert [c.kind for c in read_work_tree_commands(long, "").changes if c.kind == "restore"] == []
    assert read_work_tree_commands('echo "open && git checkout -- depth.py', "").changes == []
    assert read_work_tree_commands("cd a && cd ../b && git add .", "").folder == "b"
