"""Which conversation `--continue`, `--resume last` and the lists of a chat lead to."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from perdure.cli.chat.command_context import ChatCommandContext
from perdure.cli.chat.continuation import find_resumption
from perdure.cli.chat.controller import ChatController
from perdure.cli.chat.editing import ChatCompleter
from perdure.cli.main import cli
from perdure.commands.format import measure_usage
from perdure.commands.registry import all_commands
from perdure.core.errors import InvalidFlag
from perdure.testing.simulator import Simulator
from support.typed import chatting


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Two projects, the working folder in the first."""
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("one", "two"):
        (tmp_path / name / "deep").mkdir(parents=True)
        subprocess.run(["git", "init", "-q", str(tmp_path / name)], check=True)
    monkeypatch.chdir(tmp_path / "one")
    return tmp_path / "one", tmp_path / "two"


def talk(flags: dict[str, str], words: str) -> str:
    """Say something in a chat of the working folder; the id of its conversation."""
    surface = ChatCommandContext(flags)
    desk = ChatController(surface, lambda text: None)
    stop = surface.agent.events.listen(desk.on_event)
    try:
        desk.answer(words, lambda what, seconds: None)
        return surface.store.conversations.get(surface.session_id or "").id
    finally:
        stop()
        desk.close()
        surface.store.close()


def ask(flags: dict[str, str], *arguments: str) -> Result:
    options = [f"--set={name}={value}" for name, value in flags.items()]
    return CliRunner().invoke(cli, [*options, "chat", *arguments])


def continued(**options: bool) -> str | None:
    return find_resumption({}, None, is_continued=True, **options).session_id


def test_continue_goes_on_with_the_chat_of_this_project_not_with_questions_or_other_projects(
    folders: tuple[Path, Path],
) -> None:
    one, two = folders
    with Simulator() as sim:
        flags = {"model.base_url": sim.base_url, "model.name": "m-1"}
        first = talk(flags, "the first project")
        os.chdir(two)
        second = talk(flags, "the second project")
        assert ask(flags, "-q", "a single question").exit_code == 0
        assert continued() == second
        os.chdir(one / "deep")
        assert continued() == first
        assert ask(flags, "-q", "and one more", "--continue").exit_code == 0
        assert next(m["content"] for m in sim.requests[-1].body["messages"] if m["role"] == "user").endswith(
            "the first project"
        )
        assert find_resumption({}, "last", is_continued=False).session_id == first


def test_a_resumed_chat_goes_on_at_the_address_it_was_begun_at_and_says_so(folders: tuple[Path, Path]) -> None:
    with Simulator(models=("m-1",), window=9_000) as sim, Simulator() as other:
        flags = {"model.base_url": sim.base_url, "model.name": "m-1"}
        begun = talk(flags, "hello")
        surface = ChatCommandContext({}, session_id=begun)
        try:
            assert (surface.agent.endpoint.base_url, surface.agent.endpoint.model) == (sim.base_url, "m-1")
            assert measure_usage(surface.agent).window == 9_000
            assert any(sim.base_url in note for note in surface.resume_notes)
            surface.open(None)
            assert surface.agent.endpoint.base_url != sim.base_url, "a new conversation is called as this run was"
        finally:
            surface.close()
            surface.store.close()
        elsewhere = ChatCommandContext({"model.base_url": other.base_url, "model.name": "m-2"}, session_id=begun)
        try:
            assert (elsewhere.agent.endpoint.base_url, elsewhere.resume_notes) == (other.base_url, ())
        finally:
            elsewhere.close()
            elsewhere.store.close()


def test_a_question_goes_on_at_the_address_of_the_one_before_it(folders: tuple[Path, Path]) -> None:
    with Simulator(script=["One.", "Two."]) as sim:
        assert ask({"model.base_url": sim.base_url, "model.name": "m-1"}, "-q", "first").output == "One.\n"
        again = ask({}, "-q", "second", "--resume", "last")
        assert again.stdout == "Two.\n"
        assert sim.base_url in again.stderr


def test_an_address_with_a_password_is_not_stored(folders: tuple[Path, Path]) -> None:
    with Simulator() as sim:
        begun = talk({"model.base_url": sim.base_url.replace("//", "//me:secret@"), "model.name": "m-1"}, "hello")
    surface = ChatCommandContext({}, session_id=begun)
    try:
        assert "secret" not in str(surface.store.conversation_state(begun).get("terminal.address"))
    finally:
        surface.close()
        surface.store.close()


def test_a_folder_without_a_chat_begins_one_and_names_the_newest_of_the_others(folders: tuple[Path, Path]) -> None:
    one, two = folders
    with Simulator() as sim:
        flags = {"model.base_url": sim.base_url, "model.name": "m-1"}
        first = talk(flags, "the first project")
        os.chdir(two)
        resumed = find_resumption({}, None, is_continued=True)
        assert resumed.session_id is None
        note = (
            f"No chat was in this folder yet: this is a new one. `/resume {first}` goes on with the newest, of {one}."
        )
        assert resumed.notes == (note,)
        opened = ChatCommandContext(flags, session_id=resumed.session_id, notes=resumed.notes)
        assert note in list(ChatController(opened, lambda text: None).opening())
        opened.close()
        opened.store.close()
        sent = len(sim.requests)
        refused = ask(flags, "-q", "hello", "--continue")
        assert (refused.exit_code, len(sim.requests)) == (2, sent)
        assert f"chat --resume {first} -q" in refused.output
        # Gone on with here, it stays a chat of its folder.
        surface = ChatCommandContext(flags, session_id=first)
        _ = surface.agent
        assert surface.resume_notes[0] == f"This is a chat of {one}; tools work in {two}."
        surface.store_choices()
        surface.close()
        surface.store.close()
        os.chdir(one)
        assert continued() == first


def test_a_chat_whose_last_turn_was_taken_back_is_continued_without_it(folders: tuple[Path, Path]) -> None:
    with Simulator() as sim:
        flags = {"model.base_url": sim.base_url, "model.name": "m-1"}
        first = talk(flags, "keep this")
        surface = ChatCommandContext(flags, session_id=first)
        _ = surface.agent
        all_commands().dispatch(surface, "/undo turn")
        branch = surface.store.conversations.get(surface.session_id or "").id
        surface.close()
        surface.store.close()
        assert branch != first
        assert continued() == branch


def test_questions_alone_are_no_chat_to_go_on_with(folders: tuple[Path, Path]) -> None:
    with Simulator() as sim:
        flags = {"model.base_url": sim.base_url, "model.name": "m-1"}
        with pytest.raises(InvalidFlag, match="no conversation to go on with yet"):
            continued()
        assert ask(flags, "-q", "a single question").exit_code == 0
        with pytest.raises(InvalidFlag, match=r"only questions asked with -q.*chat --resume c_\w+"):
            continued()
        newest = find_resumption({}, "last", is_continued=False).session_id
        assert newest is not None
        # Gone on with in a chat, it is one.
        with chatting(folders[0].parent / "home", flags, session_id=newest) as chat:
            chat.see("a single question")
            chat.type("and now in a chat\r")
            chat.wait_for(lambda: len(sim.requests) >= 2 and chat.is_idle)
        assert continued() == newest


def test_lists_and_the_menu_begin_with_this_project(folders: tuple[Path, Path]) -> None:
    _, two = folders
    with Simulator() as sim:
        flags = {"model.base_url": sim.base_url, "model.name": "m-1"}
        first = talk(flags, "alpha in the first project")
        os.chdir(two)
        second = talk(flags, "beta in the second project")
        os.chdir(folders[0])
        surface = ChatCommandContext(flags)
        listed = all_commands().dispatch(surface, "/sessions")
        assert listed is not None
        heading, own, other_heading, other = listed.text.split("\n")[:4]
        assert (heading, other_heading) == ("In this folder", "Elsewhere, and questions asked with -q")
        assert first in own
        assert own.strip().startswith("1 ")
        assert second in other
        assert other.strip().startswith("2 ")
        resumed = all_commands().dispatch(surface, "/resume last")
        assert resumed is not None
        assert first in resumed.text
        again = all_commands().dispatch(surface, "/resume last")
        assert again is not None
        assert second in again.text
        surface.close()
        surface.store.close()
        assert ask(flags, "-q", "a single question").exit_code == 0
        with chatting(folders[0].parent / "home", flags) as chat:
            chat.see("m-1")
            chat.type("/resume\r")
            chat.wait_for(lambda: chat.line == f"/resume {first}")
            chat.see("in two · 2 messages", "-q · 2 messages")
            chat.type("\r")
            chat.see(f"Resumed {first}")


def test_a_turn_that_was_taken_back_does_not_come_back_from_another_folder(folders: tuple[Path, Path]) -> None:
    with Simulator() as sim:
        flags = {"model.base_url": sim.base_url, "model.name": "m-1"}
        first = talk(flags, "keep this")
        surface = ChatCommandContext(flags, session_id=first)
        _ = surface.agent
        all_commands().dispatch(surface, "/undo turn")
        branch = surface.store.conversations.get(surface.session_id or "").id
        surface.close()
        surface.store.close()
        os.chdir(folders[1])
        assert f"`/resume {branch}`" in find_resumption({}, None, is_continued=True).notes[0]


def test_undo_keeps_the_mode_and_the_model_that_were_chosen(folders: tuple[Path, Path]) -> None:
    with Simulator(models=("m-1", "m-2")) as sim:
        flags = {"model.base_url": sim.base_url, "model.name": "m-1"}
        home = Path(os.environ["PERDURE_HOME"])
        with chatting(home, flags) as chat:
            chat.see("m-1")
            chat.type("/mode plan\r")
            chat.type("/model m-2\r")
            chat.see("Going on with m-2")
            chat.type("keep this\r")
            chat.see("cost")
            chat.wait_for(lambda: chat.is_idle and len(sim.requests) > 0)
            chat.type("/undo\r")
            chat.see("Back to before")
        resumed = ChatCommandContext({"model.base_url": sim.base_url}, session_id=continued(), offers_models=True)
        assert resumed.agent.endpoint.model == "m-2"
        assert resumed.permissions.mode == "plan"
        resumed.close()
        resumed.store.close()


def test_branches_of_one_title_are_told_apart_by_what_they_leave_out(folders: tuple[Path, Path]) -> None:
    with Simulator() as sim:
        surface = ChatCommandContext({"model.base_url": sim.base_url, "model.name": "m-1"})
        surface.agent.chat("the first question")
        surface.agent.chat("create invoice.py")
        surface.store.conversations.set_title(surface.session_id or "", "the first question")
        all_commands().dispatch(surface, "/undo")
        listed = all_commands().dispatch(surface, "/sessions")
        assert listed is not None
        assert "the first question (before “create invoice.py”)" in listed.text
        completions = ChatCompleter(Path.cwd())
        completions.desk = ChatController(surface, lambda text: None)
        surface.open(None)
        rows = [c.display_text for c in completions.get_completions(Document("/resume "), CompleteEvent())]
        assert any("before “create invoice.py”: the first" in row for row in rows), rows
        surface.close()
        surface.store.close()


def test_a_narrow_menu_leaves_its_room_to_titles_and_addresses(folders: tuple[Path, Path]) -> None:
    with Simulator() as sim:
        surface = ChatCommandContext({"model.base_url": sim.base_url, "model.name": "m-1"})
        titles = [f"the nightly import: {what}" for what in ("dates", "names")]
        for title in titles:
            surface.agent.chat("hello")
            surface.store.conversations.set_title(surface.session_id or "", title)
            surface.open(None)
        completions = ChatCompleter(Path.cwd(), lambda: 60)
        completions.desk = ChatController(surface, lambda text: None)
        chats = list(completions.get_completions(Document("/resume "), CompleteEvent()))
        assert {c.display_text[13:] for c in chats} == set(titles)
        assert all(c.display_text.startswith("today ") for c in chats)
        assert all(len(c.display_text) + len(c.display_meta_text) <= 60 - 6 for c in chats)
        models = list(completions.get_completions(Document("/model "), CompleteEvent()))
        address = sim.base_url.split("/")[2]
        assert all(len(c.display_text) + len(c.display_meta_text) <= 60 - 6 for c in models)
        assert any(address in c.display_text + c.display_meta_text for c in models)
        surface.close()
        surface.store.close()


def test_a_chat_of_another_folder_says_so_where_it_is_resumed_in_a_chat(folders: tuple[Path, Path]) -> None:
    one, two = folders
    with Simulator() as sim:
        flags = {"model.base_url": sim.base_url, "model.name": "m-1"}
        first = talk(flags, "the first project")
        os.chdir(two)
        surface = ChatCommandContext(flags)
        desk = ChatController(surface, lambda text: None)
        answer = desk.answer(f"/resume {first}", lambda what, seconds: None)
        assert f"This is a chat of {one}; tools work in {two}." in answer.text
        desk.close()
        surface.store.close()
