"""Where the repository and the shell are, as the state of a task has them."""

from __future__ import annotations

import json

import pytest

from perdure.context.record.record import call_lines
from perdure.context.task_state.merging import merge_model_sections
from perdure.context.task_state.reader import read_state
from perdure.context.task_state.sections import write_sections
from perdure.context.task_state.state import TaskState
from perdure.core.messages import Entry, Message, ToolCall, tool_result

COMMIT = ("git commit -m 'Round the totals'", "[main 1a2b3c4] Round the totals\n 1 file changed, 1 insertion(+)")
REBASE = ("git rebase main", "Successfully rebased and updated refs/heads/totals.")


def _state(*runs: tuple[str, str]) -> TaskState:
    entries = [Entry(1, Message("user", "Bring the totals in order.", kind="user"))]
    for n, (command, output) in enumerate(runs, 1):
        call = ToolCall(f"c{n}", "bash", json.dumps({"command": command}))
        asked = Message("assistant", "", tool_calls=(call,), kind="assistant")
        entries += [Entry(2 * n, asked), Entry(2 * n + 1, tool_result(call.id, output, "bash"))]
    return read_state(entries, call_lines(entries))


def _head(*runs: tuple[str, str]) -> str:
    head = _state(*runs).head
    return head.value if head is not None else ""


@pytest.mark.spec("E1c")
@pytest.mark.parametrize(
    ("command", "output", "head"),
    [
        ("git pull --ff-only", "Updating 1a2b3c4..9f8e7d6\nFast-forward\n a.py | 2 +-\n 1 file changed", "9f8e7d6"),
        ("git reset --hard HEAD~1", "HEAD is now at 77aa88b Start", "77aa88b Start"),
        ("git reset --soft HEAD~1", "", "reset to HEAD~1"),
        (
            "git merge t && git log --oneline -1",
            "Merge made by the 'ort' strategy.\n5d5d5d5 Merge t",
            "5d5d5d5 Merge t",
        ),
        ("git merge t", "Merge made by the 'ort' strategy.\n a.py | 2 +-", "a merge commit; its hash was not printed"),
        (*REBASE, "rebased; its hash was not printed"),
    ],
)
def test_the_state_has_head_where_a_command_left_it(command: str, output: str, head: str) -> None:
    assert _head(COMMIT, (command, output)) == head
    assert f"- HEAD since then: {head}" in write_sections(_state(COMMIT, (command, output)))["Active State"]


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("git reset HEAD a.py", "Unstaged changes after reset:\nM\ta.py"),
        ("git merge t", "CONFLICT (content): Merge conflict in a.py\nAutomatic merge failed; fix conflicts"),
        ("git cherry-pick abcdef1", "[main 4444444] Round the taxes\n 1 file changed"),
        ("git log --oneline -2", "5d5d5d5 Another repository\n77aa88b Start"),
        ("cd /srv/other && git pull", "Updating aaaaaa1..bbbbbb2\nFast-forward\n a | 2 +-"),
    ],
)
def test_head_stays_at_the_newest_commit(command: str, output: str) -> None:
    assert _head(("cd /srv/app", ""), COMMIT, (command, output)) == ""


def test_a_log_tells_the_hash_that_a_rebase_did_not_print() -> None:
    assert _head(COMMIT, REBASE, ("git log --oneline -2", "5d5d5d5 Round\n77aa88b Start")) == "5d5d5d5 Round"
    assert (
        _head(COMMIT, REBASE, ("git log --oneline -2 -- a.py", "5d5d5d5 Round")) == "rebased; its hash was not printed"
    )
    assert _head(COMMIT, REBASE, COMMIT) == ""


def test_a_summary_that_names_the_head_of_a_pull_is_no_contradiction() -> None:
    state = _state(COMMIT, ("git pull", "Updating 1a2b3c4..9f8e7d6\nFast-forward\n a.py | 2 +-"))
    merged = merge_model_sections("## Active State\n- HEAD is 9f8e7d6\n- HEAD is 33aa33b", state)
    assert "HEAD is 9f8e7d6" in merged.sections["Active State"]
    assert "33aa33b" not in merged.sections["Active State"]


@pytest.mark.spec("E1c")
@pytest.mark.parametrize(
    ("commands", "folder"),
    [
        (("cd /srv/app && ls", "cd /srv/app && make", "cd /srv/lib && ls"), "/srv/app"),
        (("cd /srv/app && ls", "cd /srv/lib && ls", "cd /srv/lib && make"), "/srv/lib"),
        (("cd /srv/app", "cd web && npm run build"), "/srv/app"),
        (("cd web && npm run build",), ""),
        (("cd /srv/app", "cd /srv/lib"), "/srv/lib"),
        (("cd /srv/app && ls", "cd /srv/app && make", "git -C /srv/lib status"), "/srv/app"),
    ],
)
def test_a_folder_for_one_command_is_not_the_working_folder(commands: tuple[str, ...], folder: str) -> None:
    found = _state(*((command, "ok") for command in commands)).folder
    assert (found.value if found is not None else "") == folder


STATUS = ("git status", "On branch totals\nnothing to commit, working tree clean")
OTHER_STATUS = "On branch tides\nnothing to commit, working tree clean"


@pytest.mark.spec("E1c")
@pytest.mark.parametrize(
    ("command", "branch"),
    [
        ("cd ../harbour && git status", "totals"),
        ("git -C /srv/harbour status", "totals"),
        ("cd /srv/app-web && git status", "totals"),
        ("cd web && git status", "tides"),
        ("cd /srv/app/web && git status", "tides"),
    ],
)
def test_the_branch_of_another_repository_is_not_that_of_the_folder(command: str, branch: str) -> None:
    found = _state(("cd /srv/app", ""), ("cd /srv/app", ""), STATUS, (command, OTHER_STATUS)).branch
    assert found is not None
    assert found.value == branch


@pytest.mark.spec("E1c")
def test_a_branch_is_left_with_its_repository() -> None:
    assert _state(("cd /srv/app", ""), STATUS, ("cd /srv/harbour", "")).branch is None


EDIT = json.dumps({"path": "/srv/app/totals.py", "old_string": "a = 1", "new_string": "a = 2"})


def _after_edit(*runs: tuple[str, str]) -> dict[str, str]:
    entries = [Entry(1, Message("user", "Bring the totals in order.", kind="user"))]
    calls = [ToolCall("e", "edit_file", EDIT), *(ToolCall("r", "bash", json.dumps({"command": c})) for c, _ in runs)]
    for n, (call, output) in enumerate(zip(calls, ["Replaced 1 occurrence.", *(o for _, o in runs)], strict=True), 1):
        asked = Message("assistant", "", tool_calls=(call,), kind="assistant")
        entries += [Entry(2 * n, asked), Entry(2 * n + 1, tool_result(call.id, output, call.name))]
    return write_sections(read_state(entries, call_lines(entries)))


@pytest.mark.spec("E1c")
def test_a_commit_in_a_later_log_is_told_beside_the_changes_that_it_may_hold() -> None:
    log = ("git log --oneline -3", "9f8e7d6 Round the totals\n1a2b3c4 Begin")
    assert "(no commit seen)" in _after_edit()["Active Task"]
    assert "the log then showed 9f8e7d6 Round the totals as the newest" in _after_edit(log)["Active Task"]
    elsewhere = ("cd /srv/app", ""), ("cd ../harbour && git log --oneline -3", log[1])
    assert "9f8e7d6" not in _after_edit(*elsewhere)["Active Task"]


@pytest.mark.spec("E1c")
@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("git log --oneline | grep -i tides", "1a2b3c4 Add the tides"),
        ("git log --oneline | tail -2", "1a2b3c4 Add the tides\n1a2b3c3 Begin"),
        ("git log --oneline -2 origin/main && git log --oneline -2", "1a2b3c4 Theirs\n9f8e7d6 Ours"),
        ("git show --oneline 1a2b3c4; git log --oneline -1", "1a2b3c4 Add the tides\n9f8e7d6 Ours"),
    ],
)
def test_a_commit_that_was_picked_out_of_a_log_is_not_the_newest(command: str, output: str) -> None:
    assert "(no commit seen)" in _after_edit((command, output))["Active Task"]


@pytest.mark.spec("E1c")
def test_the_first_lines_of_a_log_show_the_newest_commit() -> None:
    log = ("git log --oneline | head -3", "9f8e7d6 Round the totals\n1a2b3c4 Begin")
    assert "the log then showed 9f8e7d6 Round the totals as the newest" in _after_edit(log)["Active Task"]
