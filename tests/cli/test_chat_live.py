"""The live chat: questions in mid-turn, what is typed meanwhile, what is shown of tools and thinking."""

from __future__ import annotations

import asyncio
import logging
import re
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from perdure.agent.runner import LoopThread
from perdure.app import Agent
from perdure.cli.chat.controller import EDIT
from perdure.cli.chat.prompt import PromptBox, PromptHandlers
from perdure.cli.chat.questions import PendingQuestion, TerminalQuestions, read_approval, typing_notice
from perdure.cli.chat.stored_messages import EXPORT
from perdure.cli.chat.transcript import ChatTranscript
from perdure.cli.style import Style, fit_lines
from perdure.commands.registry import all_commands
from perdure.config.load import load
from perdure.core.events import (
    CallStarted,
    CompactionFinished,
    CompactionStarted,
    Event,
    MissingAnswer,
    Notice,
    OutputSpilled,
    ReasoningDelta,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from perdure.core.messages import Message, ToolCall
from perdure.core.ports import ApprovalAnswer, ApprovalRequest, Refusal, StoredOutput
from perdure.testing.simulator import Call, Say, Simulator
from perdure.tools.output_limits import persisted_block
from support.typed import Chat, chatting


@pytest.fixture
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def flags(sim: Simulator) -> dict[str, str]:
    return {"model.base_url": sim.base_url, "model.name": "m-1"}


class Page:
    """A transcript and everything it wrote."""

    def __init__(self, **options: bool) -> None:
        self.text = ""
        self.transcript = ChatTranscript(self._write, width=lambda: 80, ink=Style(False), **options)

    def show(self, *events: Event) -> str:
        for event in events:
            self.transcript.show(event)
        return self.text

    def _write(self, text: str) -> None:
        self.text += text


CALL = ToolCall("c1", "terminal", '{"command": "pytest tests/"}')
RESULT = Message(role="tool", content="x" * 3_204, tool_call_id="c1", kind="tool")


def test_nothing_that_takes_long_is_imported_before_the_prompt() -> None:
    heavy = ("pydantic", "httpx", "rich", "genai_prices", "perdure.app", "perdure.redaction", "perdure.store.store")
    code = f"import perdure.cli.chat.tui, sys; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_tool_is_shown_as_it_runs_and_in_one_line_when_it_is_done() -> None:
    page = Page(tool_lines=0)
    page.show(ToolStarted(CALL))
    assert page.transcript.live(width=80, rows=10).startswith("● terminal pytest tests/ … 0 s")
    assert page.show(ToolFinished(CALL, RESULT, 0.84)) == "● terminal pytest tests/ · 0.8 s · 3,204 characters\n"
    assert page.transcript.live(width=80, rows=10) == ""


def test_a_spilled_output_says_where_it_is_kept_whenever_it_is_known() -> None:
    before, after = Page(tool_lines=0), Page(tool_lines=0)
    spilled = OutputSpilled(CALL, "output:o_1", 500_000)
    shown = before.show(ToolStarted(CALL), spilled, ToolFinished(CALL, RESULT, 1.0))
    assert shown == "● terminal pytest tests/ · 1.0 s · 500,000 characters · kept at output:o_1\n"
    shown = after.show(ToolStarted(CALL), ToolFinished(CALL, RESULT, 1.0, is_error=True), spilled)
    assert "✗ terminal pytest tests/ · failed" in shown
    assert shown.endswith("terminal: 500,000 characters kept at output:o_1\n")


def test_the_address_of_an_output_has_its_own_row_where_the_first_is_too_narrow() -> None:
    page = Page(tool_lines=0)
    spilled = OutputSpilled(CALL, "output:o_1m7p7a7ha8c3dsrhtke", 375_020)
    shown = page.show(ToolStarted(CALL), spilled, ToolFinished(CALL, RESULT, 1.0))
    assert shown == ("● terminal pytest tests/ · 1.0 s · 375,020 characters\n  kept at output:o_1m7p7a7ha8c3dsrhtke\n")


def test_wide_characters_of_an_output_fit_the_window() -> None:
    shown = Page().show(ToolStarted(CALL), ToolFinished(CALL, replace(RESULT, content="漢字" * 60), 1.0))
    assert shown.splitlines()[1] == f"  {'漢字' * 19}…"


def test_an_output_that_its_tool_kept_by_itself_is_known_by_its_block() -> None:
    stored = StoredOutput("o_7", "c_1", "c1", 340_000, "", "/somewhere")
    block = replace(RESULT, content="exit 0\n" + persisted_block(stored, "1", "60000"))
    shown = Page().show(ToolStarted(CALL), ToolFinished(CALL, block, 1.0))
    assert (
        shown
        == "● terminal pytest tests/ · 1.0 s · 340,000 characters · kept at output:o_7\n  … Ctrl-O shows all of it\n"
    )


def test_thinking_is_folded_or_shown_as_wanted() -> None:
    thoughts = (ReasoningDelta("Let me see.\nHm"), TextDelta("The answer."), TurnFinished("completed", "The answer."))
    assert "Let me see" not in (folded := Page().show(*thoughts))
    assert folded.startswith("thought for 0 s\nThe answer.")
    assert Page(shows_reasoning=True).show(*thoughts).startswith("Let me see.\nHm\nThe answer.")


def test_an_answer_is_written_once_block_by_block() -> None:
    page = Page()
    page.show(TextDelta("First par"))
    assert (page.text, page.transcript.live(width=80, rows=10)) == ("", "First par")
    page.show(TextDelta("agraph.\n\nSec\n"))
    assert page.text == "First paragraph.\n"
    assert page.show(TextDelta("ond."), TurnFinished("completed", "")) == "First paragraph.\n\nSec ond.\n\n"


def test_without_streaming_an_answer_is_shown_when_it_is_whole() -> None:
    page = Page(streams=False)
    page.show(TextDelta("One.\n\nTwo.\n\n"), TextDelta("Three."))
    assert (page.text, page.transcript.live(width=80, rows=9)) == ("", "")
    assert page.show(TurnFinished("completed", "")) == "One.\n\nTwo.\n\nThree.\n\n"


@pytest.mark.spec("C6", "E10")
def test_notices_are_shown_but_not_twice_to_who_asked_for_a_compaction() -> None:
    done = CompactionFinished("compacted", 900, 100, "s_1", "")
    notice = Notice("This conversation has now been compacted 2 times", "warning")
    shown = Page().show(CompactionStarted("threshold", 900), done, notice)
    assert "Compacted: about 900 → 100 tokens. /handoff shows it." in " ".join(shown.split())
    assert "compacted 2 times" in shown
    assert Page().show(CompactionStarted("user", 900), done, notice) == ""
    # The command may have answered, and what was going on ended, before its last events arrive.
    page = Page()
    page.show(CompactionStarted("user", 900))
    page.transcript.stop()
    assert page.show(done, notice) == ""
    assert "compacted 2 times" in page.show(TurnStarted("t", "s", "c"), notice)


def test_no_clock_of_thinking_runs_under_an_answer_that_streams() -> None:
    page = Page()
    page.show(CallStarted("m-1", 10, 100, 50))
    assert "thinking" in page.transcript.live(width=80, rows=9)
    page.show(TextDelta("First par"))
    assert page.transcript.live(width=80, rows=9) == "First par"


def test_a_stopped_and_a_failed_turn_keep_what_was_shown() -> None:
    assert Page().show(TextDelta("half an ans"), TurnFinished("interrupted", "")).startswith("half an ans\n■ stopped")
    assert "no network" in Page().show(TurnFinished("failed", "", error="no network"))


def test_a_huge_block_stays_cheap_to_draw() -> None:
    page = Page()
    page.show(TextDelta("endless " * 50_000))
    assert len(page.transcript.live(width=80, rows=10).split("\n")) == 10


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("y", "once"),
        ("Session", "session"),
        ("a", "always"),
        ("n", "no"),
        ("", "no"),
        ("what?", Refusal("what?")),
        ("no, because it is mine", Refusal("no, because it is mine")),
    ],
)
def test_only_a_clear_yes_approves(said: str, answer: ApprovalAnswer | Refusal) -> None:
    questions = TerminalQuestions(lambda q: q.reply(said), lambda q: None)
    assert asyncio.run(questions.approve(ApprovalRequest("rm -rf /tmp/x", "deletes files"))) == answer


def test_a_choice_is_answered_by_its_number_or_in_words() -> None:
    for said, answer in (("2", "green"), ("7", "7"), ("blue, please", "blue, please")):
        questions = TerminalQuestions(lambda q, said=said: q.reply(said), lambda q: None)
        assert asyncio.run(questions.ask("Which?", ("red", "green"))) == answer


def test_a_stopped_turn_takes_its_question_down() -> None:
    up: list[PendingQuestion] = []
    questions = TerminalQuestions(up.append, up.remove)

    async def stopped() -> None:
        asking = asyncio.create_task(questions.approve(ApprovalRequest("rm", "")))
        await asyncio.sleep(0.01)
        assert len(up) == 1
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(stopped())
    assert up == []


@pytest.mark.usefixtures("_home")
def test_an_approval_is_asked_inline_and_what_was_being_typed_comes_back(tmp_path: Path) -> None:
    with Simulator(script=["Hello."]) as sim, chatting(tmp_path / "home", flags(sim)) as chat:
        chat.see("/help lists")
        chat.type("half a mess")
        chat.see("half a mess")
        answers: list[ApprovalAnswer | Refusal] = []
        loop_thread = LoopThread()

        def ask() -> None:
            request = ApprovalRequest("rm -rf build", "deletes a folder")
            answers.append(loop_thread.run(chat.chat.questions.approve(request)))

        asking = threading.Thread(target=ask)
        asking.start()
        chat.see("May this run?  rm -rf build", "[y]es, once")
        chat.type("y\r")
        asking.join(10)
        assert answers == ["once"]
        chat.type("age\r")
        chat.see("› half a message", "Hello.")
        chat.type("\x04")
        assert chat.end() == 0


_NO_HANDLERS = PromptHandlers(
    on_line=lambda line: None,
    on_interrupt=lambda: None,
    on_leave=lambda: None,
    on_not_left=lambda: None,
    above=lambda width, rows: "",
    below=lambda width: "",
    mark=lambda: "› ",
    on_page=lambda pages: None,
    on_stop=lambda: None,
    on_unfold=lambda: None,
    on_mode=lambda: None,
    has_approval=lambda: False,
    on_yes=lambda: None,
    on_answer_typed=lambda text, settles: None,
    on_late_words=lambda: None,
)


def _asked(chat: Chat, answers: list[ApprovalAnswer | Refusal]) -> threading.Thread:
    def ask() -> None:
        answers.append(LoopThread().run(chat.chat.questions.approve(ApprovalRequest("rm -rf build", "deletes"))))

    asking = threading.Thread(target=ask)
    asking.start()
    return asking


@pytest.mark.usefixtures("_home")
@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        ("y", "once"),
        ("yes\r", "once"),
        ("s\r", "session"),
        ("\r", "no"),
        ("always\r", "always"),
        ("n\r", "no"),
        ("no, use mv\r", Refusal("no, use mv")),
        ("never do that\r", Refusal("never do that")),
        ("not today, thanks\r", Refusal("not today, thanks")),
        ("no way, keep it\r", Refusal("no way, keep it")),
        ("nicht jetzt\r", Refusal("nicht jetzt")),
        ("N. Miller owns it\r", Refusal("N. Miller owns it")),
        ("what does it do?\r", Refusal("what does it do?")),
        ("are you sure\r", Refusal("are you sure")),
        ("yet another folder?\r", Refusal("yet another folder?")),
    ],
)
def test_one_key_answers_an_approval_and_the_rest_of_its_word_is_dropped(
    tmp_path: Path, keys: str, answer: ApprovalAnswer | Refusal
) -> None:
    with Simulator(script=["Hello."]) as sim, chatting(tmp_path / "home", flags(sim)) as chat:
        chat.see("/help lists")
        answers: list[ApprovalAnswer | Refusal] = []
        asking = _asked(chat, answers)
        chat.see("[y]es, once")
        chat.type(keys)
        asking.join(30)
        assert answers == [answer]
        chat.type("\x04")
        assert chat.end() == 0
        assert sim.requests == [], "nothing of the answer was sent as a message"


@pytest.mark.usefixtures("_home")
def test_a_call_behind_the_question_about_another_one_is_shown_as_waiting(tmp_path: Path) -> None:
    calls = tuple(Call("terminal", {"command": f"rm -rf ~/precious/{name}"}) for name in ("one", "two"))
    with Simulator(script=[Say(calls=calls), "As you wish."]) as sim, chatting(tmp_path / "home", flags(sim)) as chat:
        chat.see("/help lists")
        chat.type("clean up\r")
        chat.see("waiting for you", "waiting for its approval")
        chat.type("\x1b")
        chat.wait_for(lambda: chat.shown.count("· refused") == 1)
        chat.type("\x1b")
        chat.see("As you wish.")


@pytest.mark.usefixtures("_home")
def test_a_command_at_an_approval_is_no_reason_of_a_refusal(tmp_path: Path) -> None:
    removes = Say(calls=(Call("terminal", {"command": "rm -rf precious"}),))
    with Simulator(script=[removes, "As you wish."]) as sim, chatting(tmp_path / "home", flags(sim)) as chat:
        chat.see("/help lists")
        chat.type("remove it\r")
        chat.see("[y]es, once", "In the folder ")
        chat.type("/undo files\r")
        chat.wait_for(lambda: "/undo is a command, and no reason" in getattr(chat.chat._panel, "notice", ""))
        chat.type("/context\r")
        chat.see("tool outputs")
        chat.type("/tmp is not yours\r")
        chat.see("As you wish.")
        assert "the user refused: “/tmp is not yours”" in str(sim.requests[-1].body)
        chat.type("\x04")
        assert chat.end() == 0


@pytest.mark.usefixtures("_home")
def test_the_name_of_a_command_answers_a_question_of_the_model(tmp_path: Path) -> None:
    asks = Say(calls=(Call("clarify", {"question": "Which route?", "choices": []}),))
    with Simulator(script=[asks, "As you wish."]) as sim, chatting(tmp_path / "home", flags(sim)) as chat:
        chat.see("/help lists")
        chat.type("add a page\r")
        chat.see("Which route?")
        chat.type("/search\r")
        chat.see("As you wish.")
        assert sim.requests[-1].body["messages"][-1]["content"] == "/search"
        chat.type("\x04")
        assert chat.end() == 0


@pytest.mark.usefixtures("_home")
def test_what_is_asked_every_time_offers_nothing_lasting(tmp_path: Path) -> None:
    with Simulator(script=["Hello."]) as sim, chatting(tmp_path / "home", flags(sim)) as chat:
        chat.see("/help lists")
        request = ApprovalRequest("cat ~/.ssh/id_rsa", "it reads credentials", is_lasting=False)
        answers: list[ApprovalAnswer | Refusal] = []
        asking = threading.Thread(target=lambda: answers.append(LoopThread().run(chat.chat.questions.approve(request))))
        asking.start()
        chat.see("[y]es, once · [n]o, or say why not, and Enter")
        assert "ession" not in chat.shown
        chat.type("so what\r")
        asking.join(30)
        assert answers == [Refusal("so what")]
        chat.type("\x04")
        assert chat.end() == 0


@pytest.mark.usefixtures("_home")
@pytest.mark.parametrize(("word", "seen"), [("help", "/compress [focus]"), ("?", "/compress [focus]"), ("exit", "")])
def test_a_bare_word_that_is_a_command_elsewhere_is_not_sent_to_the_model(tmp_path: Path, word: str, seen: str) -> None:
    with Simulator(script=["Hello."]) as sim, chatting(tmp_path / "home", flags(sim)) as chat:
        chat.see("/help lists")
        chat.type(f"{word}\r")
        chat.see(seen)
        if seen:
            chat.type("quit\r")
        assert chat.end() == 0
        assert sim.requests == []


@pytest.mark.usefixtures("_home")
def test_a_command_about_the_view_waits_for_the_compaction_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGER", "/no/such/pager")
    script = ["Yes. " * 900] * 4 + [Say("Slow. " * 20, chunk_delay_s=0.2)]
    with Simulator(script=script) as sim, chatting(tmp_path / "home", flags(sim)) as chat:
        for n in range(4):
            chat.type(f"question {n}\r")
            chat.wait_for(lambda n=n: len(sim.requests) > n and not chat.chat._is_working)
        chat.type("the last one\r")
        chat.see("Slow.")
        chat.type("/compact\r")
        chat.see("then: /compact")
        chat.type("/handoff\r")
        chat.see("then: /handoff")
        chat.type("/help\r")
        chat.see("/insights [days]")
        chat.see("END OF PERDURE HANDOFF")
        assert "Nothing was compacted" not in chat.shown


@pytest.mark.usefixtures("_home")
def test_a_sentence_typed_slowly_at_an_approval_grants_nothing(tmp_path: Path) -> None:
    with Simulator(script=["Hello."]) as sim, chatting(tmp_path / "home", flags(sim)) as chat:
        chat.see("/help lists")
        answers: list[ApprovalAnswer | Refusal] = []
        asking = _asked(chat, answers)
        chat.see("[y]es, once")
        for count, key in enumerate("what a", 1):
            chat.type(key)
            chat.wait_for(lambda count=count: len(chat.line) == count)
            time.sleep(0.5)  # longer than it takes a key to count as an answer
        assert not answers
        chat.type("\r")
        asking.join(30)
        assert answers == [Refusal("what a")]
        chat.type("\x04")
        assert chat.end() == 0


@pytest.mark.usefixtures("_home")
@pytest.mark.parametrize("keys", [("y", "q", "\x7f", "\x7f", "y"), ("y", "\x7f", "y"), ("q", "\x7f", "yes")])
def test_a_yes_typed_after_the_line_was_edited_needs_enter(tmp_path: Path, keys: tuple[str, ...]) -> None:
    with Simulator(script=["Hello."]) as sim, chatting(tmp_path / "home", flags(sim)) as chat:
        chat.see("/help lists")
        answers: list[ApprovalAnswer | Refusal] = []
        asking = _asked(chat, answers)
        chat.see("[y]es, once")
        for key in keys:
            chat.type(key)
            time.sleep(0.18)
        time.sleep(1.4)  # longer than it takes an untouched key to count as an answer
        assert not answers
        assert "Enter allows it once" in getattr(chat.chat._panel, "notice", "")
        chat.type("\r")
        asking.join(30)
        assert answers == ["once"]
        chat.type("\x04")
        assert chat.end() == 0


@pytest.mark.parametrize("is_lasting", [True, False])
@pytest.mark.parametrize("text", ["y", "once", "s", "al", "always", "n", "no", "never", "yes!"])
def test_the_notice_at_an_approval_tells_what_enter_does(text: str, is_lasting: bool) -> None:
    question = PendingQuestion("May this run?", is_approval=True, is_lasting=is_lasting)
    match read_approval(question, text):
        case Refusal(words):
            assert words == text
            assert "refuses with these words" in typing_notice(question, text)
        case "no":
            assert typing_notice(question, text).startswith("Enter refuses;")
        case _:
            assert text in (("y", "once", "s", "always") if is_lasting else ("y", "once"))
            assert typing_notice(question, text).startswith("Enter allows it")


@pytest.mark.usefixtures("_home")
def test_what_outlasts_a_question_is_allowed_with_enter_and_never_by_a_pause(tmp_path: Path) -> None:
    with Simulator(script=["Hello."]) as sim, chatting(tmp_path / "home", flags(sim)) as chat:
        chat.see("/help lists")
        answers: list[ApprovalAnswer | Refusal] = []
        asking = _asked(chat, answers)
        chat.see("[s]ession or [a]lways, and Enter", "[n]o, or say why not, and Enter")
        chat.type("s")
        chat.wait_for(lambda: "Enter allows it for this session" in getattr(chat.chat._panel, "notice", ""))
        time.sleep(1.5)  # longer than any pause was ever taken for an answer
        assert not answers
        chat.type("\x7f")
        chat.wait_for(lambda: getattr(chat.chat._panel, "notice", "") == "")
        chat.type("s")
        chat.type("top, that is mine\r")
        asking.join(30)
        assert answers == [Refusal("stop, that is mine")]
        chat.type("\x04")
        assert chat.end() == 0


def test_a_line_in_the_middle_of_being_typed_belongs_to_the_person_not_to_a_question() -> None:
    now_s = 100.0
    with create_pipe_input() as keys:
        box = PromptBox(_NO_HANDLERS, source=keys, output=DummyOutput(), clock_s=lambda: now_s)
        assert not box.is_typing
        box.buffer.insert_text("sa")
        assert box.is_typing
        now_s += 5
        assert not box.is_typing, "somebody who pauses reads the question"
        box.buffer.insert_text("y")
        box.buffer.reset()
        assert not box.is_typing, "an empty line is nobody's"


@pytest.mark.usefixtures("_home")
def test_the_mode_is_shown_cycled_by_a_key_and_chosen_by_name(tmp_path: Path) -> None:
    writes = Say(calls=(Call("write_file", {"path": "a.txt", "content": "x"}),))
    with Simulator(script=[writes, "I may not."]) as sim, chatting(tmp_path / "home", flags(sim)) as chat:
        chat.see("edits", "/~128,000")
        chat.type("\x1b[Z")
        chat.see("plan mode: changes nothing")
        chat.type("write it\r")
        chat.see("I may not.", "✗ write_file a.txt · refused")
        (refusal,) = [m["content"] for m in sim.requests[-1].body["messages"] if m["role"] == "tool"]
        assert "write_file was not run: plan mode is on" in refusal
        chat.type("/mode all\r")
        chat.see("all mode: never asks, not even before what is dangerous\n")
        chat.type("\x1b[Z/mode\r")
        chat.see("→ plan   changes nothing", "  all    never asks", "Shift-Tab leads to all but the last")
        chat.type("/help\r")
        chat.see("plan, ask, edits; all only by /mode all")
        chat.type("/mode everything\r")
        chat.see("'everything' is no mode; there are: plan, ask, edits, all")


@pytest.mark.usefixtures("_home")
def test_several_lines_are_one_message_and_history_brings_it_back(tmp_path: Path) -> None:
    with Simulator(script=["One.", "Two."]) as sim, chatting(tmp_path / "home", flags(sim)) as chat:
        chat.see("/help lists")
        chat.type("first\x1b\rsecond\\\rthird\r")
        chat.see("One.")
        chat.wait_for_history()
        chat.type("\x1b[A\r")
        chat.see("Two.")
        asked = [m["content"] for r in sim.requests for m in r.body["messages"] if m["role"] == "user"]
    assert asked == ["first\nsecond\nthird"] * 3


@pytest.mark.usefixtures("_home")
def test_a_path_in_a_paste_attaches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.env").write_text("TOPSECRET=42", encoding="utf-8")
    (tmp_path / "notes.md").write_text("MY NOTES", encoding="utf-8")
    short, long = "see @secret.env", "line\n" * 40 + "see @secret.env\n"
    with (
        Simulator(script=["One.", "Again.", "Typed.", "Two.", "Three.", "Four."]) as sim,
        chatting(tmp_path / "home", flags(sim)) as chat,
    ):
        chat.see("/help lists")
        chat.type(f"\x1b[200~{short}\x1b[201~\r")
        chat.see("One.")
        chat.wait_for_history()
        chat.type("\x1b[A\r")
        chat.see("Again.")
        chat.type("look at @\x1b[200~secret.env\x1b[201~ \r")
        chat.see("Typed.")
        chat.type(f"\x1b[200~{long}\x1b[201~ what is it?\r")
        chat.see("Two.")
        chat.wait_for_history()
        chat.type("\x1b[A\r")
        chat.see("Three.")
        assert "attached" not in chat.shown
        chat.type("sum up @notes.md \r")
        chat.see("attached notes.md", "Four.")
        sent = str(sim.requests[-1].body)
        assert "TOPSECRET" not in sent
        assert "MY NOTES" in sent


@pytest.mark.usefixtures("_home")
def test_a_pasted_path_recalled_in_another_chat_attaches_nothing_and_a_typed_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.env").write_text("TOPSECRET=42", encoding="utf-8")
    (tmp_path / "notes.md").write_text("MY NOTES", encoding="utf-8")
    home = tmp_path / "home"
    with Simulator(script=["One.", "Two."]) as sim, chatting(home, flags(sim)) as chat:
        chat.see("/help lists")
        chat.type("sum up @notes.md \r")
        chat.see("attached notes.md", "One.")
        chat.type("\x1b[200~see @secret.env\x1b[201~\r")
        chat.see("Two.")
        chat.type("\x04")
        chat.end()
    with Simulator(script=["Three.", "Four."]) as sim, chatting(home, flags(sim)) as chat:
        chat.see("/help lists")
        chat.wait_for_history()
        chat.type("\x1b[A\r")
        chat.see("Three.")
        assert "attached" not in chat.shown
        chat.wait_for_history(2)
        chat.type("\x1b[A\x1b[A\r")
        chat.see("attached notes.md", "Four.")
        sent = str(sim.requests[-1].body)
        assert "TOPSECRET" not in sent
        assert "MY NOTES" in sent


@pytest.mark.usefixtures("_home")
@pytest.mark.spec("A7")
def test_the_conversation_is_named_and_leaving_says_how_to_resume(tmp_path: Path) -> None:
    with Simulator(script=[Say("Fine.")]) as sim, chatting(tmp_path / "home", flags(sim)) as chat:
        chat.see("/help lists")
        chat.type("how are the widgets today?\r")
        chat.see("Fine.", "how are the widgets today?", "cost unknown")
        chat.type("/quit\r")
        assert chat.end() == 0
        chat.see("“how are the widgets today?”", "chat --resume c_", "input, fresh", "output")


@pytest.mark.usefixtures("_home")
@pytest.mark.spec("N2")
def test_a_compaction_under_way_can_be_cancelled(tmp_path: Path) -> None:
    script = ["word " * 400] * 5 + [Say("never read", delay_s=3.0)] * 3
    home = tmp_path / "home"
    with Simulator(script=script) as sim:
        settings = flags(sim) | {"model.context_length": "8000"}
        agent = Agent(settings=load(flags=settings, home=home).settings, home=home)
        for n in range(5):
            agent.chat(f"question {n} " + "filler " * 60)
        with chatting(home, settings, session_id=agent.session_id) as chat:
            chat.see("Resumed")
            chat.type("/compress widgets\r")
            chat.see("compacting")
            chat.type("\x03")
            chat.see("stopped; nothing has changed")


@pytest.mark.usefixtures("_home")
def test_lines_sent_in_a_row_are_answered_in_a_row(tmp_path: Path) -> None:
    with Simulator(script=["Uno.", "Due.", "Tre."]) as sim, chatting(tmp_path / "home", flags(sim)) as chat:
        chat.type("one\rtwo\rthree\r")  # before anything is open, too
        chat.see("Tre.")
        chat.type("\x04")
        assert chat.end() == 0
        places = [chat.shown.rindex(text) for text in ("› one", "Uno.", "› two", "Due.", "› three", "Tre.")]
    assert places == sorted(places)


@pytest.mark.usefixtures("_home")
def test_a_chat_that_cannot_open_says_why_and_leaves(tmp_path: Path) -> None:
    for wrong in ({"model.provider": "nonsense"}, {"compression.threshold": "7"}):
        with chatting(tmp_path / "home", wrong) as chat:
            assert chat.end() == 1
            chat.see("perdure: ")
    with chatting(tmp_path / "home", {}, session_id="c_nowhere") as chat:
        assert chat.end() == 1
        chat.see("no conversation or session 'c_nowhere'")


@pytest.mark.usefixtures("_home")
def test_an_answer_to_a_question_stands_below_it(tmp_path: Path) -> None:
    ask = Say(calls=(Call("clarify", {"question": "Which colour?", "choices": ["red", "green"]}),))
    with Simulator(script=[ask, "Green it is."]) as sim, chatting(tmp_path / "home", flags(sim)) as chat:
        chat.see("/help lists")
        chat.type("paint it\r")
        chat.see("Which colour?", "a number, or your own words")
        chat.type("2\r")
        shown = chat.see("Green it is.")
    written = shown.rindex("  2. green")
    assert written < shown.rindex("  › 2") < shown.rindex("Green it is.")


@pytest.mark.usefixtures("_home")
def test_the_window_stands_in_the_status_before_the_first_word_and_after_new(tmp_path: Path) -> None:
    sized = {"model.context_length": "32000"}
    with Simulator(script=["Hi."]) as sim, chatting(tmp_path / "home", flags(sim) | sized) as chat:
        chat.see("/32,000")
        chat.type("hello\r")
        chat.see("Hi.", "cost unknown")
        chat.type("/new\r")
        chat.see("A new conversation.")
        time.sleep(0.3)
        chat.type("\x04")
        assert chat.end() == 0


@pytest.mark.usefixtures("_home")
def test_what_a_library_warns_of_goes_to_a_file_and_not_into_the_prompt(tmp_path: Path) -> None:
    with Simulator(script=["Hi."]) as sim, chatting(tmp_path / "home", flags(sim)) as chat:
        chat.see("/help lists")
        logging.getLogger("somebody.else").warning("the moon is full")
        chat.type("\x04")
        assert chat.end() == 0
        assert "the moon is full" not in chat.shown
    assert "the moon is full" in (tmp_path / "home" / "logs" / "chat.log").read_text()


def test_our_own_words_are_wrapped_between_them() -> None:
    page = Page()
    shown = page.show(Notice("one two three " * 20), TurnFinished("failed", "", error="nothing is listening " * 10))
    assert all(len(line) <= 80 and line == line.rstrip() for line in shown.split("\n"))
    assert " ".join(shown.split()).count("one two three") == 20
    assert " ".join(shown.split()).count("nothing is listening") == 10


@pytest.mark.usefixtures("_home")
def test_what_is_loaded_for_good_is_reported_once_before_the_first_turn(tmp_path: Path) -> None:
    """The chat then leaves it out of collections, in which no key would be drawn."""
    ready: list[bool] = []
    is_ready = threading.Event()

    def note() -> None:
        ready.append("perdure.store.store" in sys.modules)
        is_ready.set()

    with Simulator(script=["Hi."]) as sim, chatting(tmp_path / "home", flags(sim), on_ready=note) as chat:
        assert is_ready.wait(30)
        chat.type("hello\r")
        chat.see("Hi.")
    assert ready == [True]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_help_is_grouped_and_no_line_breaks_inside_a_word(width: int) -> None:
    text = all_commands([EDIT, EXPORT]).help()
    lines = list(fit_lines(text.split("\n"), width))
    assert max(map(len, lines)) <= width
    assert set(" ".join(lines).split()) == set(text.split())
    headings = [line for line in lines if not line.startswith(("/", " "))]
    assert headings == ["The context", "Conversations", "Model and permissions", "This chat"]


@pytest.mark.parametrize(
    ("finish", "missing", "line"),
    [
        ("stop", "no_answer", "· The model gave no answer. /retry asks again.\n"),
        ("refusal", "", "· The model refused to answer.\n"),
        ("content_filter", "", "· A content filter of the provider cut the answer off.\n"),
    ],
)
def test_a_turn_without_an_answer_says_so(finish: str, missing: MissingAnswer, line: str) -> None:
    assert line in Page().show(TurnFinished("completed", "(a line)", finish=finish, missing_answer=missing))
    assert "·" not in Page().show(TextDelta("Hi."), TurnFinished("completed", "Hi.", finish="stop"))


def test_a_long_block_that_still_grows_is_broken_between_words() -> None:
    page = Page()
    page.show(TextDelta("characteristically " * 400))
    rows = page.transcript.live(width=60, rows=20).split("\n")
    assert {word for row in rows for word in row.split()} == {"characteristically"}


@pytest.mark.usefixtures("_home")
def test_escape_stops_a_turn_well_within_a_second_of_waiting(tmp_path: Path) -> None:
    with Simulator(script=["Hi."]) as sim, chatting(tmp_path / "home", flags(sim)) as chat:
        chat.see("/help lists")
        app = chat.chat._box.app
        assert app.ttimeoutlen + (app.timeoutlen or 0) <= 0.6


@pytest.mark.usefixtures("_home")
def test_ctrl_d_behind_a_typed_line_says_what_it_needs(tmp_path: Path) -> None:
    with Simulator(script=["One."]) as sim, chatting(tmp_path / "home", flags(sim)) as chat:
        chat.see("/help lists")
        chat.type("half a line\x04")
        chat.see("Ctrl-D leaves from an empty line; Ctrl-C empties it")
        assert chat.line == "half a line"


@pytest.mark.usefixtures("_home")
def test_lines_of_commands_are_wrapped_between_words(tmp_path: Path) -> None:
    with Simulator(script=["One.", "Two."]) as sim, chatting(tmp_path / "home", flags(sim), columns=60) as chat:
        chat.see("/help lists")
        chat.type("!seq -s ' ' 10000 10030\r")
        chat.see("10030", "the model reads")
        chat.type("hello\r")
        chat.see("One.")
        chat.type("/retry\r")
        chat.see("goes back.", "Two.")
        rows = [row.strip() for row in re.split(r"[\r\n]+", re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", chat.shown))]
        printed = [row for row in rows if re.match(r"100\d\d |Asking again", row)]
        assert len(printed) >= 4
        assert max(map(len, printed)) <= 60
