"""Approval of dangerous calls: answers are stored per kind and user; without an approver the call is denied."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from perdure.core.concurrency import SystemClock
from perdure.core.messages import ToolCall, canonical_json
from perdure.core.ports import ApprovalAnswer, ApprovalRequest, KeyValue, Refusal
from perdure.core.visibility import user_from_key
from perdure.store import open_store
from perdure.tools.approval import ApprovalGuard
from perdure.tools.builtin.files import FileEditor, FileReader
from perdure.tools.builtin.search import FileSearch
from perdure.tools.builtin.terminal import ShellState, Terminal
from perdure.tools.runtime import ToolRuntime, ToolScope
from perdure.tools.tool import ToolRegistry, tool
from perdure.tools.workspace import Workspace


class ScriptedApprover:
    """Answers from a list, and notes what was asked."""

    def __init__(self, *answers: ApprovalAnswer | Refusal) -> None:
        self.answers = list(answers)
        self.prompts: list[tuple[str, str]] = []
        self.requests: list[ApprovalRequest] = []

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer | Refusal:
        self.prompts.append((request.action, request.reason))
        self.requests.append(request)
        await asyncio.sleep(0)
        return self.answers.pop(0)


@tool(is_dangerous=True)
def deploy(target: str) -> str:
    """Deploys."""
    return f"deployed to {target}"


class GuardedRuntime:
    """A runtime with a terminal and an editor in a folder, guarded."""

    def __init__(self, folder: Path, approver: ScriptedApprover | None, approvals: KeyValue | None = None) -> None:
        self.folder = folder / "work"
        self.folder.mkdir(exist_ok=True)
        workspace = Workspace(self.folder)
        terminal = Terminal(self.folder, {"PATH": "/usr/bin:/bin", "HOME": str(folder)})
        guard = ApprovalGuard(
            workspace, home=folder, approver=approver, approvals=approvals, shell_state=terminal.state
        )
        reading = [FileReader(workspace).tool(), FileSearch(workspace).tool()]
        tools = [*terminal.tools(), *FileEditor(workspace).tools(), *reading, deploy]
        self._runtime = ToolRuntime(ToolRegistry(tools), clock=SystemClock(), guard=guard)

    def run(self, name: str, *, user: str = "u", **arguments: Any) -> str:
        return self.run_all(ToolCall("call_1", name, canonical_json(arguments)), user=user)[0]

    def run_all(self, *calls: ToolCall, user: str = "u") -> list[str]:
        batch = self._runtime.batch(calls, ToolScope(task_id="t", user=user_from_key(user)))
        return [m.text for m in asyncio.run(batch.run())]


@pytest.mark.spec("J6")
def test_dangerous_command_is_denied_with_a_reason_without_an_approver(tmp_path: Path) -> None:
    runtime = GuardedRuntime(tmp_path, None)
    (runtime.folder / "src").mkdir()
    text = runtime.run("terminal", command="r''m -rf src")
    assert text.startswith("Error: terminal was not run, no one is available to approve it: it deletes files")
    assert "rm -rf src" in text
    assert "Move it aside" in text
    assert (runtime.folder / "src").is_dir()


@pytest.mark.spec("J6")
def test_ordinary_command_needs_no_approval(tmp_path: Path) -> None:
    approver = ScriptedApprover()
    runtime = GuardedRuntime(tmp_path, approver)
    assert runtime.run("terminal", command="mkdir build && rm -rf build && echo done") == "[exit 0]\ndone"
    assert approver.prompts == []


@pytest.mark.spec("J6")
def test_once_allows_a_single_call(tmp_path: Path) -> None:
    approver = ScriptedApprover("once", "no")
    runtime = GuardedRuntime(tmp_path, approver)
    (runtime.folder / "src").mkdir()
    assert runtime.run("terminal", command="rm -rf src").startswith("[exit 0]")
    assert "the user refused" in runtime.run("terminal", command="rm -rf src")
    assert approver.prompts[0] == ("rm -rf src", "it deletes files, perhaps for good: rm -rf src")


def test_a_refusal_without_words_gives_the_model_no_reason_of_the_users(tmp_path: Path) -> None:
    text = GuardedRuntime(tmp_path, ScriptedApprover("no")).run("terminal", command="rm -rf src")
    assert text.startswith("Error: terminal was not run, the user refused. Approval was needed because: it deletes")


@pytest.mark.spec("J6")
def test_session_approval_applies_per_kind_and_user(tmp_path: Path) -> None:
    approver = ScriptedApprover("session", "no", "no")
    runtime = GuardedRuntime(tmp_path, approver)
    runtime.run("terminal", command="rm -rf one")
    assert runtime.run("terminal", command="rm -rf two").startswith("[exit 0]")
    assert "was not run" in runtime.run("terminal", command="git push --force")
    assert "was not run" in runtime.run("terminal", command="rm -rf two", user="someone else")
    assert len(approver.prompts) == 3


@pytest.mark.spec("J6")
def test_always_approval_survives_a_restart(tmp_path: Path) -> None:
    with open_store(tmp_path / "perdure.db") as store:
        first = ScriptedApprover("always")
        GuardedRuntime(tmp_path, first, store.state("approvals")).run("terminal", command="rm -rf one")
    with open_store(tmp_path / "perdure.db") as store:
        second = ScriptedApprover("no")
        runtime = GuardedRuntime(tmp_path, second, store.state("approvals"))
        assert runtime.run("terminal", command="rm -rf two").startswith("[exit 0]")
        assert second.prompts == []
        assert "was not run" in runtime.run("terminal", command="rm -rf two", user="someone else")


def test_a_revoked_approval_is_asked_about_again_in_the_same_session(tmp_path: Path) -> None:
    with open_store(tmp_path / "perdure.db") as store:
        approver = ScriptedApprover("always", "no")
        runtime = GuardedRuntime(tmp_path, approver, store.state("approvals"))
        runtime.run("terminal", command="rm -rf one")
        assert runtime.run("terminal", command="rm -rf two").startswith("[exit 0]")
        for key in store.state("approvals").items():
            store.state("approvals").set(key[0], None)
        assert "was not run" in runtime.run("terminal", command="rm -rf three")


@pytest.mark.spec("J6")
def test_far_reaching_kinds_need_approval_every_time(tmp_path: Path) -> None:
    approver = ScriptedApprover("always", "no")
    runtime = GuardedRuntime(tmp_path, approver)
    runtime.run("terminal", command="cat ~/.ssh/id_rsa")
    assert "was not run" in runtime.run("terminal", command="cat ~/.ssh/id_rsa")


@pytest.mark.spec("J6")
def test_writing_outside_the_workspace_needs_approval(tmp_path: Path) -> None:
    approver = ScriptedApprover("no", "no", "no", "no")
    runtime = GuardedRuntime(tmp_path, approver)
    (runtime.folder / "link").symlink_to(tmp_path)
    (tmp_path / "there.txt").write_text("old")
    for path in ("../out.txt", str(tmp_path / "out.txt"), "link/out.txt"):
        assert "it writes outside the workspace" in runtime.run("write_file", path=path, content="x")
    assert "it writes outside" in runtime.run("patch", path="../there.txt", old="old", new="new")
    assert not (tmp_path / "out.txt").exists()
    assert (tmp_path / "there.txt").read_text() == "old"
    assert runtime.run("write_file", path="in.txt", content="x").startswith("Created in.txt")


@pytest.mark.spec("J6")
def test_a_search_from_above_skips_credential_files(tmp_path: Path) -> None:
    runtime = GuardedRuntime(tmp_path, None)
    names = [
        ".ssh/id_rsa",
        ".ssh/work_key",
        ".aws/credentials",
        ".netrc",
        ".npmrc",
        ".kube/config",
        ".docker/config.json",
        ".config/gh/hosts.yml",
        ".config/rclone/rclone.conf",
        ".cargo/credentials.toml",
        ".claude/.credentials.json",
        ".codex/auth.json",
        ".gnupg/x.key",
        ".password-store/mail/x.gpg",
        ".git-credentials",
        ".config/gcloud/legacy/x.json",
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("PRIVATE\n")
    (tmp_path / ".config" / "plain.txt").write_text("PRIVATE but no credential\n")
    for name in names:
        assert "credentials" in runtime.run("read_file", path=f"../{name}"), name
        assert "credentials" in runtime.run("search_files", pattern="PRIVATE", path=f"../{name}"), name
    for start in ("..", "../.config"):
        matches = runtime.run("search_files", pattern="PRIVATE", path=start).splitlines()
        assert [line.rpartition("/")[2] for line in matches] == ["plain.txt:1:PRIVATE but no credential"]
    for command in ("grep -r PRIVATE ~/.config", "grep -rn PRIVATE ~/.docker"):
        assert "credentials" in runtime.run("terminal", command=command), command


@pytest.mark.spec("J6")
def test_reading_credentials_needs_approval_with_every_tool(tmp_path: Path) -> None:
    approver = ScriptedApprover(*["no"] * 8)
    runtime = GuardedRuntime(tmp_path, approver)
    for name in (".ssh", ".aws"):
        (tmp_path / name).mkdir()
    (tmp_path / ".ssh" / "id_rsa").write_text("PRIVATE KEY")
    (tmp_path / ".aws" / "credentials").write_text("aws_secret_access_key = PRIVATE")
    (runtime.folder / "key").symlink_to(tmp_path / ".ssh" / "id_rsa")
    (runtime.folder / "notes.txt").write_text("PRIVATE thoughts")
    for path in ("../.ssh/id_rsa", str(tmp_path / ".aws" / "credentials"), "key", "/proc/self/environ"):
        assert "it reads or sends credentials" in runtime.run("read_file", path=path)
    for path in ("../.ssh", str(tmp_path / ".aws"), "key"):
        assert "it reads or sends credentials" in runtime.run("search_files", pattern="PRIVATE", path=path)
    assert "credentials" in runtime.run("terminal", command="cat key")
    assert len(approver.prompts) == 8
    assert "thoughts" in runtime.run("read_file", path="notes.txt")
    assert runtime.run("search_files", pattern="PRIVATE", path="..") == "notes.txt:1:PRIVATE thoughts"
    assert len(approver.prompts) == 8


@pytest.mark.spec("J6")
def test_shell_writes_outside_the_workspace_need_approval(tmp_path: Path) -> None:
    approver = ScriptedApprover(*["no"] * 5)
    runtime = GuardedRuntime(tmp_path, approver)
    thesis = tmp_path / "thesis.tex"
    thesis.write_text("years of work")
    (runtime.folder / "x").write_text("x")
    (runtime.folder / "link").symlink_to(tmp_path)
    for command in (
        "cat /dev/null > ~/thesis.tex",
        "mv -f x ../thesis.tex",
        "tee ~/thesis.tex < x",
        "cp x link/thesis.tex",
    ):
        assert "it writes outside the workspace" in runtime.run("terminal", command=command)
    assert "it deletes files outside" in runtime.run("terminal", command="rm ../thesis.tex")
    assert thesis.read_text() == "years of work"
    assert runtime.run("terminal", command="cat x > y 2>/dev/null; cat y").startswith("[exit 0]")


@pytest.mark.spec("J6")
@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("notes.txt", None),
        ("../notes.txt", "it writes outside the workspace"),
        ("link/notes.txt", "it writes outside the workspace"),
        ("../.bashrc", "it changes what runs at login, keys, or scheduled jobs"),
        ("/etc/hosts", "it changes system files"),
        (".git/HEAD", "it changes Git's own files"),
    ],
)
def test_every_writing_tool_has_the_same_policy(tmp_path: Path, path: str, reason: str | None) -> None:
    approver = ScriptedApprover(*["no"] * 6)
    runtime = GuardedRuntime(tmp_path, approver)
    (runtime.folder / "link").symlink_to(tmp_path)
    (runtime.folder / "x").write_text("x")
    runtime.run("write_file", path=path, content="x")
    for command in (f"cat x > {path}", f"tee {path} < x", f"cp x {path}", f"ln -sf $PWD/x {path}", f"install x {path}"):
        runtime.run("terminal", command=command)
    reasons = [prompt.partition(": ")[0] for _, prompt in approver.prompts]
    assert reasons == [reason] * 6 if reason is not None else reasons == []


@pytest.mark.parametrize(
    ("path", "present", "shown"),
    [
        ("../a.md", b"# demo\nkeep\nlost\n", "@@ -1,3 +1,2 @@\n-# demo\n+# new\n keep\n-lost"),
        ("../a.md", None, "+# new\n+keep"),
        ("../a.md", b"\x00\x01", "@@ replaces a binary file, 2 bytes @@\n+# new\n+keep"),
        ("../a.md", b"x\n" * 300_000, "@@ replaces a large file, 600,000 bytes @@\n+# new\n+keep"),
        (
            "../.ssh/id_rsa",
            b"SECRET\n",
            "@@ replaces a file that may hold credentials, 7 bytes @@\n+# new\n+keep",
        ),
    ],
)
def test_the_question_about_a_file_shows_the_lines_that_are_lost(
    tmp_path: Path, path: str, present: bytes | None, shown: str
) -> None:
    approver = ScriptedApprover("no", "no")
    runtime = GuardedRuntime(tmp_path, approver)
    target = runtime.folder / path
    target.parent.mkdir(exist_ok=True)
    if present is not None:
        target.write_bytes(present)
    runtime.run("write_file", path=path, content="# new\nkeep\n")
    assert approver.requests[0].action == f"write_file(path={path!r})\n{shown}"
    if present is not None and path == "../a.md" and b"lost" in present:
        runtime.run("write_file", path=path, content="")
        assert approver.requests[1].action.endswith("-# demo\n-keep\n-lost")


def test_the_question_about_a_patch_shows_the_lines_of_the_file_around_it(tmp_path: Path) -> None:
    approver = ScriptedApprover("no", "no", "no")
    runtime = GuardedRuntime(tmp_path, approver)
    target = tmp_path / "a.py"
    target.write_text("".join(f"x{n} = {n}\n" for n in range(1, 60)))
    runtime.run("patch", path="../a.py", old="x40 = 40", new="x40 = 41")
    assert approver.requests[0].action == (
        "patch(path='../a.py')\n@@ -37,7 +37,7 @@\n x37 = 37\n x38 = 38\n x39 = 39\n"
        "-x40 = 40\n+x40 = 41\n x41 = 41\n x42 = 42\n x43 = 43"
    )
    # What cannot be applied is shown as the model sent it; so is a change of a credential file.
    runtime.run("patch", path="../a.py", old="nowhere", new="y")
    fails = "@@ this will fail: the text to replace is not in the file @@"
    assert approver.requests[1].action == f"patch(path='../a.py')\n{fails}\n-nowhere\n+y"
    (tmp_path / ".netrc").write_text("machine a\nlogin b\npassword c\n")
    runtime.run("patch", path="../.netrc", old="login b", new="login d")
    assert approver.requests[2].action == "patch(path='../.netrc')\n-login b\n+login d"


@pytest.mark.spec("J6")
def test_unreadable_command_is_asked_about_with_its_reason(tmp_path: Path) -> None:
    approver = ScriptedApprover("no", "no", "no")
    runtime = GuardedRuntime(tmp_path, approver)
    for command in ('eval "$PAYLOAD"', "x=$(cat list); $x --all", "echo 'unclosed"):
        assert "was not run" in runtime.run("terminal", command=command)
    assert [reason.partition(":")[0] for _, reason in approver.prompts] == [
        "it runs text that is only known at run time",
        "the name of the command is computed at run time",
        "its syntax cannot be read near “echo 'unclosed”",
    ]


@pytest.mark.spec("J6")
def test_startup_files_and_git_internals_have_their_own_kinds(tmp_path: Path) -> None:
    approver = ScriptedApprover("no", "no")
    runtime = GuardedRuntime(tmp_path, approver)
    assert "at login" in runtime.run("write_file", path="../.bashrc", content="x")
    assert "Git's own files" in runtime.run("write_file", path=".git/hooks/pre-commit", content="x")


@pytest.mark.spec("J6")
def test_tool_marked_dangerous_needs_approval(tmp_path: Path) -> None:
    approver = ScriptedApprover("no", "session")
    runtime = GuardedRuntime(tmp_path, approver)
    assert runtime.run("deploy", target="prod").startswith("Error: deploy was not run, the user refused")
    assert runtime.run("deploy", target="prod") == "deployed to prod"
    assert runtime.run("deploy", target="prod") == "deployed to prod"
    assert approver.prompts[0] == ("deploy(target='prod')", "this tool always needs approval: deploy")


@pytest.mark.spec("J6")
def test_parallel_calls_prompt_one_at_a_time_and_share_the_answer(tmp_path: Path) -> None:
    approver = ScriptedApprover("session")
    runtime = GuardedRuntime(tmp_path, approver)
    calls = [ToolCall(f"call_{n}", "deploy", canonical_json({"target": str(n)})) for n in range(5)]
    assert runtime.run_all(*calls) == [f"deployed to {n}" for n in range(5)]
    assert len(approver.prompts) == 1


@pytest.mark.spec("J6")
def test_guard_uses_the_shell_state_after_the_last_command(tmp_path: Path) -> None:
    runtime = GuardedRuntime(tmp_path, None)
    assert runtime.run("terminal", command="cd / && export X=rm").startswith("[exit 0]")
    assert "was not run" in runtime.run("terminal", command="rm -rf build")
    assert "was not run" in runtime.run("terminal", command="$X -rf *")


@pytest.mark.spec("J6")
def test_commands_are_analyzed_off_the_event_loop(tmp_path: Path) -> None:
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
def test_approval_request_escapes_invisible_characters(tmp_path: Path) -> None:
    approver = ScriptedApprover("no")
    GuardedRuntime(tmp_path, approver).run(
        "terminal", command="rm -rf src/\u202etxt.elif\u202c && echo \u200bzero \x1b[8m"
    )
    (request,) = approver.requests
    assert request.action == "rm -rf src/<U+202E>txt.elif<U+202C> && echo <U+200B>zero <U+001B>[8m"
    assert "\u202e" not in request.reason
    assert "<U+202E>" in request.reason


@pytest.mark.spec("J6")
def test_long_command_keeps_its_end_in_the_approval_request(tmp_path: Path) -> None:
    approver = ScriptedApprover("no", "no")
    runtime = GuardedRuntime(tmp_path, approver)
    command = "\n".join([*(f"echo step {n}" for n in range(200)), "rm -rf data_of_mine"])
    runtime.run("terminal", command=command)
    assert approver.requests[0].action == command
    runtime.run("terminal", command=f"echo {'x' * 60_000}; rm -rf data_of_mine")
    assert len(approver.requests[1].action) < 25_000
    assert "characters are not shown" in approver.requests[1].action
    assert approver.requests[1].action.endswith("rm -rf data_of_mine")


@pytest.mark.spec("J6")
def test_approval_request_describes_what_always_allows(tmp_path: Path) -> None:
    approver = ScriptedApprover("no", "no")
    runtime = GuardedRuntime(tmp_path, approver)
    runtime.run("terminal", command="rm -rf src")
    assert "everything of the kind delete-tree, in every folder" in approver.requests[0].covers
    assert "until revoked with `perdure approvals revoke delete-tree`" in approver.requests[0].covers
    runtime.run("terminal", command="cat ~/.ssh/id_rsa")
    assert "asked every time" in approver.requests[1].covers


@pytest.mark.spec("J6")
def test_refusal_message_reaches_the_model(tmp_path: Path) -> None:
    approver = ScriptedApprover(Refusal("move it to old/ instead"))
    text = GuardedRuntime(tmp_path, approver).run("terminal", command="rm -rf src")
    assert "was not run, the user refused" in text
    assert "move it to old/ instead" in text


@pytest.mark.spec("J6")
def test_the_dangerous_part_is_named_as_it_is_written(tmp_path: Path) -> None:
    for command, part in (
        ("ls && cat ~/.ssh/id_rsa", "cat ~/.ssh/id_rsa"),
        ('cd . ; touch "$HOME/my notes"', 'touch "$HOME/my notes'),
        ("echo x > ~/thesis.tex; ls", "echo x > ~/thesis.tex"),
        ('for d in a b; do rm -rf "data/$d/old"; done && ls', 'rm -rf "data/$d/old"'),
    ):
        approver = ScriptedApprover("no")
        GuardedRuntime(tmp_path, approver).run("terminal", command=command)
        (request,) = approver.requests
        assert request.action == command
        assert request.dangerous == (part,), command


@pytest.mark.spec("J6")
@pytest.mark.parametrize("names", [250, 2_500])
def test_link_to_a_credential_needs_approval_after_any_number_of_files(tmp_path: Path, names: int) -> None:
    approver = ScriptedApprover("no")
    runtime = GuardedRuntime(tmp_path, approver)
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id_rsa").write_text("key")
    (runtime.folder / "notes").symlink_to(tmp_path / ".ssh" / "id_rsa")
    runtime.run("terminal", command=f"cat {' '.join(f'f{n}' for n in range(names))} notes")
    assert len(approver.requests) == 1


@pytest.mark.spec("J6")
def test_many_plain_files_need_no_approval(tmp_path: Path) -> None:
    approver = ScriptedApprover("no")
    GuardedRuntime(tmp_path, approver).run("terminal", command=f"ls {' '.join(f'f{n}' for n in range(1_000))}")
    assert approver.requests == []


@pytest.mark.spec("J6")
def test_an_unknown_program_is_asked_about_once_and_allowed_by_itself(tmp_path: Path) -> None:
    approver = ScriptedApprover("session", "once")
    runtime = GuardedRuntime(tmp_path, approver)
    for command in ("widget thing", "widget other | head -1", "gadget thing"):
        runtime.run("terminal", command=command)
    assert [action for action, _ in approver.prompts] == ["widget thing", "gadget thing"]
    assert "it is not known what widget does" in approver.prompts[0][1]
    assert "terminal(widget *)" in approver.prompts[0][1]
    assert "every call of widget" in approver.requests[0].covers


@pytest.mark.spec("J6")
def test_programs_that_the_project_has_installed_need_not_be_known(tmp_path: Path) -> None:
    approver = ScriptedApprover("once")
    runtime = GuardedRuntime(tmp_path, approver)
    for folder, name in (("node_modules/.bin", "widget"), (".venv/bin", "gadget")):
        (runtime.folder / folder).mkdir(parents=True)
        (runtime.folder / folder / name).touch()
    (runtime.folder / "package.json").write_text('{"devDependencies": {"gizmo": "1"}}', encoding="utf-8")
    for command in ("widget a", "gadget b", "npx --no-install gizmo@1 c", "contraption d"):
        runtime.run("terminal", command=command)
    assert [action for action, _ in approver.prompts] == ["contraption d"]


@pytest.mark.parametrize("manifest", ["{", "[]", '{"dependencies": []}', '{"dependencies": null}'])
def test_a_broken_list_of_dependencies_allows_nothing(tmp_path: Path, manifest: str) -> None:
    approver = ScriptedApprover("once")
    runtime = GuardedRuntime(tmp_path, approver)
    (runtime.folder / "package.json").write_text(manifest, encoding="utf-8")
    runtime.run("terminal", command="widget thing")
    assert len(approver.prompts) == 1
