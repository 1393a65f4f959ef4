"""`/undo turn` and `/undo files`: a turn taken back together with the files it changed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure.cli.chat.command_context import ChatCommandContext
from perdure.cli.style import fit_lines
from perdure.commands.command import CommandResult
from perdure.commands.registry import all_commands
from perdure.core.errors import NotFound
from perdure.store import open_store
from perdure.testing.simulator import Call, Say, ScriptRequest, Simulator

ALL = all_commands()


def _write(path: str, content: str) -> Call:
    return Call("write_file", {"path": path, "content": content})


class Project:
    """A chat in a folder of files."""

    def __init__(self, surface: ChatCommandContext, folder: Path) -> None:
        self.surface = surface
        self.folder = folder

    def ask(self, text: str) -> None:
        self.surface.agent.run_conversation(text)

    def do(self, text: str) -> CommandResult:
        result = ALL.dispatch(self.surface, text)
        assert result is not None
        return result

    def read(self, name: str) -> str | None:
        path = self.folder / name
        return path.read_text() if path.exists() else None

    @property
    def questions(self) -> list[str]:
        session_id = self.surface.session_id
        entries = self.surface.store.log.originals(session_id) if session_id is not None else []
        return [e.message.text for e in entries if e.message.is_real_user]


Open = Callable[..., Any]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    folder = tmp_path / "app"
    folder.mkdir()
    monkeypatch.chdir(folder)

    @contextmanager
    def opened(*script: Any) -> Iterator[Project]:
        with Simulator(script=script[0] if callable(script[0]) else script) as sim:
            surface = ChatCommandContext({"model.base_url": sim.base_url, "model.name": "m-1"})
            yield Project(surface, folder)
            surface.close()
            surface.store.close()

    return opened


def test_a_turn_is_taken_back_with_every_file_it_changed(project: Open) -> None:
    patch = Call("patch", {"path": "old.py", "old": "two", "new": "three"})
    script = [
        Say(calls=(_write("old.py", "two\n"),)),
        "One.",
        Say(calls=(_write("new/file.py", "x\n"), patch)),
        Say(calls=(_write("old.py", "four\n"), Call("terminal", {"command": "true"}))),
        "Two.",
    ]
    with project(*script) as chat:
        (chat.folder / "old.py").write_bytes(b"one\r\n\xff")
        chat.ask("first")
        chat.ask("second")
        assert (chat.read("old.py"), chat.read("new/file.py")) == ("four\n", "x\n")
        done = chat.do("/undo")
        assert "Back to before “second”" in done.text
        assert f"restored  {chat.folder / 'old.py'}" in done.text
        assert "deleted   " in done.text
        assert "What the shell command of the last turn created" in done.text
        assert (chat.read("old.py"), chat.read("new/file.py")) == ("two\n", None)
        assert chat.questions == ["first"]

        assert "Back to before “first”" in chat.do("/undo turn").text
        assert (chat.folder / "old.py").read_bytes() == b"one\r\n\xff", "byte for byte"
        assert chat.questions == []


def test_only_the_files_can_be_put_back_and_twice_does_nothing(project: Open) -> None:
    with project(Say(calls=(_write("a.py", "1"),)), "Done.") as chat:
        chat.ask("write it")
        assert "deleted" in chat.do("/undo files").text
        assert chat.read("a.py") is None
        assert chat.questions == ["write it"]
        assert "No file had to be put back: what the last turn changed" in chat.do("/undo files").text


@pytest.mark.parametrize("command", ["/branch 1", "/retry"])
def test_a_branch_says_which_files_keep_their_changes(project: Open, command: str) -> None:
    with project(Say(calls=(_write("a.py", "1"),)), "Done.") as chat:
        chat.ask("write it")
        assert f"Files keep their later changes: {chat.folder / 'a.py'}." in chat.do(command).text
    with project("Done.") as chat:
        chat.ask("only talk")
        assert "Files" not in chat.do(command).text


def test_every_undo_says_what_can_be_undone_next(project: Open) -> None:
    script = [
        Say(calls=(_write("a.py", "1"),)),
        "One.",
        "Two.",
        Say(calls=(_write("b.py", "2"),)),
        "Three.",
    ]
    with project(*script) as chat:
        for question in ("write a", "only talk", "write b"):
            chat.ask(question)
        first = chat.do("/undo files").text
        assert "“write a” changed" in first
        assert "`/undo files 3` puts that back, too." in first
        again = chat.do("/undo files").text
        assert "/undo files 3" in again, "repeated, it points at the turn before"
        last = chat.do("/undo files 3").text
        assert chat.read("a.py") is None
        assert "/undo files" not in last
        assert "No file was changed" not in last
        back = chat.do("/undo turn").text
        assert "/undo again goes back to before “only talk”." in back
        assert "No file was changed in the last turn." in chat.do("/undo files").text


def test_a_file_changed_since_by_something_else_is_not_overwritten_without_asking(project: Open) -> None:
    script = [Say(calls=(_write("a.py", "theirs"), _write("b.py", "b"))), "Done."]
    with project(*script) as chat:
        (chat.folder / "a.py").write_text("mine")
        chat.ask("write it")
        (chat.folder / "a.py").write_text("mine again")
        refused = chat.do("/undo turn")
        assert refused.level == "warning"
        assert "Nothing was undone" in refused.text
        assert str(chat.folder / "a.py") in refused.text
        assert (chat.read("a.py"), chat.read("b.py")) == ("mine again", "b")
        assert chat.questions == ["write it"]

        partly = chat.do("/undo files").text
        assert "left      " in partly
        assert (chat.read("a.py"), chat.read("b.py")) == ("mine again", None)
        assert "/undo files 1 overwrite" in partly
        chat.do("/undo turn overwrite")
        assert chat.read("a.py") == "mine"


def test_the_files_of_a_delegated_agent_belong_to_the_turn(project: Open) -> None:
    def reply(asked: ScriptRequest) -> Say | str:
        texts = [str(m.get("content")) for m in asked.body["messages"]]
        if "helper task" in texts[1]:
            return "Report." if len(texts) > 2 else Say(calls=(_write("helped.py", "x"),))
        return "Done." if len(texts) > 2 else Say(calls=(Call("delegate_task", {"tasks": ["helper task"]}),))

    with project(reply) as chat:
        chat.ask("have it written")
        assert chat.read("helped.py") == "x"
        chat.do("/undo turn")
        assert chat.read("helped.py") is None


def test_a_refused_or_failed_write_leaves_no_checkpoint(project: Open) -> None:
    patch = Call("patch", {"path": "a.py", "old": "nothing like it", "new": "x"})
    with project(Say(calls=(patch,)), "Done.") as chat:
        (chat.folder / "a.py").write_text("a")
        chat.ask("try")
        assert chat.surface.store.checkpoints.changes(chat.surface.session_id or "") == []
        assert "No file was changed in the last turn." in chat.do("/undo").text


@pytest.mark.parametrize("words", ["2", "m:1", "2 overwrite"])
def test_a_number_alone_is_one_of_turns(project: Open, words: str) -> None:
    with project(Say(calls=(_write("a.py", "1"),)), "Done.", "Yes.") as chat:
        chat.ask("write it")
        chat.ask("well?")
        assert chat.do(f"/undo {words}").text.startswith("Back to before “write it”.")
        assert (chat.questions, chat.read("a.py")) == ([], None)


def test_overwrite_alone_is_about_the_last_turn(project: Open) -> None:
    with project(Say(calls=(_write("a.py", "theirs"),)), "Done.") as chat:
        chat.ask("write it")
        (chat.folder / "a.py").write_text("mine")
        assert chat.do("/undo overwrite").text.startswith("Back to before “write it”.")
        assert chat.read("a.py") is None


@pytest.mark.parametrize("text", ["/undo everything", "/undo turn 1 2", "/undo turn 9", "/undo files x"])
def test_wrong_words_are_answered_and_change_nothing(project: Open, text: str) -> None:
    with project(Say(calls=(_write("a.py", "1"),)), "Done.") as chat:
        chat.ask("write it")
        assert chat.do(text).level == "error"
        assert chat.read("a.py") == "1"


def test_copies_are_shared_by_content_and_go_when_the_conversation_is_scrubbed(tmp_path: Path) -> None:
    with open_store(tmp_path / "perdure.db") as store:
        session = store.create()
        for after in (b"b", b"c"):
            store.checkpoints.save(session.conversation_id, "/x/a.py", before=b"a", after=after)
        first, second = store.checkpoints.changes(session.id)
        assert first.copy == second.copy
        assert store.checkpoints.content(first) == b"a"
        store.scrub(session.id, lambda text: text)
        with pytest.raises(NotFound, match="no longer there"):
            store.checkpoints.content(first)


def test_a_file_too_large_to_copy_says_so_instead_of_being_lost(tmp_path: Path) -> None:
    with open_store(tmp_path / "perdure.db") as store:
        session = store.create()
        store.checkpoints.save(session.conversation_id, "/x/a.bin", before=b"a" * 9_000_000, after=b"b")
        (change,) = store.checkpoints.changes(session.id)
        with pytest.raises(NotFound, match="too large"):
            store.checkpoints.content(change)


def _shell(command: str) -> Say:
    return Say(calls=(Call("terminal", {"command": command}),))


def test_files_that_shell_commands_deleted_or_overwrote_come_back(project: Open) -> None:
    script = [
        _shell("git init -q . && git add kept.py && git -c user.name=a -c user.email=a@b commit -qm one"),
        "Ready.",
        _shell("rm notes.txt && rm -r deep && echo gone > kept.py && mv draft.txt moved.txt && echo new > made.txt"),
        _shell("git checkout -q -- kept.py"),
        "Done.",
    ]
    with project(*script) as chat:
        (chat.folder / "deep" / "er").mkdir(parents=True)
        (chat.folder / "kept.py").write_text("committed\n")
        chat.surface.choose_mode("all")
        chat.ask("begin")
        uncommitted = {"notes.txt": "precious\n", "draft.txt": "mine\n", "deep/er/bytes": "x", "kept.py": "edited\n"}
        for name, text in uncommitted.items():
            (chat.folder / name).write_text(text)
        chat.ask("clean up")
        assert [chat.read(name) for name in uncommitted] == [None, None, None, "committed\n"]
        done = chat.do("/undo files")
        assert {name: chat.read(name) for name in uncommitted} == uncommitted
        assert f"restored  {chat.folder / 'notes.txt'}" in done.text
        assert "2 shell commands of the last turn created" in done.text
        assert chat.read("made.txt") == "new\n"


def test_commands_that_change_nothing_leave_nothing_to_undo(project: Open) -> None:
    with project(_shell("cat notes.txt; ls"), "Read.") as chat:
        (chat.folder / "notes.txt").write_text("precious\n")
        chat.ask("look")
        assert not list(chat.surface.store.checkpoints.changes(chat.surface.session_id))
        assert "No file was changed in the last turn." in chat.do("/undo").text


def test_undo_names_the_earlier_turn_that_changed_files_as_it_was_typed(project: Open) -> None:
    with project(Say(calls=(_write("a.py", "1"),)), "One.", "Two.") as chat:
        shell = "<user-shell>\nThe user ran this command in their own shell.\n$ ls\n[exit 0]\n</user-shell>"
        parts = [{"type": "text", "text": "write a"}, {"type": "text", "text": shell}]
        chat.surface.agent.run_conversation({"role": "user", "content": parts})
        chat.ask("only talk")
        text = chat.do("/undo files").text
        assert text.startswith("No file was changed in the last turn.\n“write a” changed ")
        assert text.endswith("a.py: `/undo files 2` puts that back.")


def test_a_command_of_the_users_shell_is_no_part_of_what_a_question_is_named_by(project: Open) -> None:
    with project("One.", "Two.") as chat:
        shell = "<user-shell>\nThe user ran this command in their own shell.\n$ ls\n[exit 0]\n</user-shell>"
        # No question and no request in the words of a request.
        parts = [{"type": "text", "text": "change the farewell as well"}, {"type": "text", "text": shell}]
        chat.surface.agent.run_conversation({"role": "user", "content": parts})
        assert "“change the farewell as well”" in chat.do("/undo").text
        assert "user-shell" not in chat.do("/sessions").text


def test_a_command_in_a_message_stays_whole_in_a_narrow_window(project: Open) -> None:
    with project("One.", "Two.") as chat:
        chat.ask("write a greeting and a farewell")
        rows = list(fit_lines(chat.do("/retry").text.split("\n"), 60))
        assert any(re.search(r"`/resume c_\w+`", row) for row in rows)


def test_the_hint_to_the_conversation_before_has_a_row_of_its_own(project: Open) -> None:
    with project("One.") as chat:
        chat.ask("hello")
        assert "\n  /resume c_" in chat.do("/new").text


def test_refused_commands_are_not_counted_and_turns_are_named_by_their_number(project: Open) -> None:
    script = [_shell("mkdir -p a && touch a/b"), "One.", _shell("rm -rf a"), "Two.", _shell("true"), "Three."]
    with project(*script) as chat:
        for question in ("make", "remove", "nothing"):
            chat.ask(question)
        assert (chat.folder / "a").exists(), "nobody was there to approve it"
        text = chat.do("/undo files m:1").text
        assert "What the 2 shell commands of the last 3 turns created" in text
        assert "No file was changed in the last 3 turns." in text


def test_files_that_are_back_already_are_not_offered_again(project: Open) -> None:
    script = [Say(calls=(_write("a.py", "1"),)), "One.", "Two.", Say(calls=(_write("b.py", "2"),)), "Three."]
    with project(*script) as chat:
        for question in ("write a", "only talk", "write b"):
            chat.ask(question)
        chat.do("/undo files 3")
        assert (chat.read("a.py"), chat.read("b.py")) == (None, None)
        again = chat.do("/undo files").text
        assert "puts that back" not in again
        (chat.folder / "a.py").write_text("1")
        assert "`/undo files 3` puts that back." in chat.do("/undo files").text


def test_the_model_reads_which_files_were_put_back(project: Open) -> None:
    asked: list[str] = []

    def reply(request: ScriptRequest) -> Say | str:
        asked.append(str(request.body["messages"]))
        return Say(calls=(_write("a.py", "1"),)) if len(asked) == 1 else "Done."

    with project(reply) as chat:
        chat.ask("write it")
        chat.do("/undo files")
        chat.ask("go on")
        assert "The user took back file changes with /undo files" in asked[-1]
        assert f"deleted {chat.folder / 'a.py'}" in asked[-1]
        assert chat.questions == ["write it", "go on"], "the note is no question"
        chat.do("/undo files 2")
        chat.ask("and now")
        assert asked[-1].count("took back file changes") == 1, "nothing was put back the second time"


def test_a_compaction_keeps_that_changes_were_taken_back(project: Open) -> None:
    summarized: list[str] = []

    def reply(request: ScriptRequest) -> Say | str:
        messages = request.body["messages"]
        last = str(messages[-1].get("content"))
        if not request.body.get("tools"):
            summarized.append(last)
            return "## Goal\nThe shop."
        if last == "set the tax to 20 percent":
            return Say(calls=(Call("patch", {"path": "shop.py", "old": "0.19", "new": "0.20"}),))
        return "The tax is 0.20 now." if messages[-1]["role"] == "tool" else "A long answer about the shop. " * 400

    with project(reply) as chat:
        (chat.folder / "shop.py").write_text("TAX = 0.19\n")
        chat.ask("set the tax to 20 percent")
        assert "files changed:     1" in chat.do("/context").text
        chat.do("/undo files")
        assert "files changed:" not in chat.do("/context").text
        assert "taken back:        1" in chat.do("/context").text
        for question in ("explain the shop", "explain it again", "and once more", "and at last?"):
            chat.ask(question)
        chat.do("/compact")
        handoff = chat.do("/handoff").text
        assert "Changed" not in handoff
        assert "“set the tax to 20 percent” — taken back by the user with /undo files: shop.py" in handoff
        assert "The user took back: " in handoff.partition("## Record")[2]
        assert summarized
        assert all("The user took back" in prompt for prompt in summarized)


def test_a_turn_that_was_taken_back_with_its_files_says_so_where_it_is_kept(project: Open) -> None:
    asked: list[str] = []

    def reply(request: ScriptRequest) -> Say | str:
        asked.append(str(request.body["messages"]))
        return Say(calls=(_write("a.py", "1"),)) if len(asked) == 1 else "Done."

    with project(reply) as chat:
        chat.ask("write it")
        kept = chat.surface.session_id
        chat.do("/undo turn")
        chat.ask("something else")
        assert "took back" not in asked[-1]
        assert chat.questions == ["something else"]
        chat.do(f"/resume {kept}")
        chat.ask("go on")
        assert "The user took back file changes" in asked[-1]


def test_files_are_listed_as_restored_where_another_process_keeps_the_model_from_being_told(project: Open) -> None:
    with project(Say(calls=(_write("new.py", "x\n"),)), "One.") as chat:
        chat.ask("Write it.")
        store = chat.surface.store
        lease = store.leases.acquire(chat.surface.session_id, "other:1")
        done = chat.do("/undo files")
        store.leases.release(lease)
        assert chat.read("new.py") is None
        assert "deleted" in done.text
        assert "is being written by other" in done.text
        assert done.level == "warning"
