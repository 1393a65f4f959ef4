"""Whole stories in a real terminal, read off its screen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.providers.local import has_runtime, packaged_weights
from perdure.store.store import open_store
from perdure.testing.simulator import Call, Say, Simulator
from support.tmux import Terminal, needs_tmux, terminal

pytestmark = needs_tmux
SMALL = ("--set", "model.max_tokens=8", "--set", "model.context_length=2048")
needs_model = pytest.mark.skipif(packaged_weights() is None or not has_runtime(), reason="no embedded model here")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def term(home: Path) -> Iterator[Terminal]:
    with terminal(home) as made:
        yield made


def at(sim: Simulator, *more: str) -> tuple[str, ...]:
    """The arguments that point a chat at a simulator."""
    return ("--set", f"model.base_url={sim.base_url}", "--set", "model.name=m-1", *more, "chat")


@needs_model
@pytest.mark.spec("A7", "I4", "I5", "N1", "N2", "E10")
def test_first_run_to_undo_on_the_embedded_model(term: Terminal, home: Path) -> None:
    term.run(*SMALL, "chat")
    term.see(
        "Welcome to Perdure", "keys: none in the environment", "using      smollm2 (local)", "change it", "login URL"
    )
    term.say("Remember: the database listens on port 54321. " + "It holds widgets, sprockets and cogs. " * 25)
    term.see("/2,048 ·")  # the gauge is there, so the first answer is too
    for n in (1, 2):
        term.say(f"Question {n}: is that right? " + "There are many widgets in it. " * 25)
        term.see(f"Question {n}", "/2,048 ·")
    term.say("/compress port")
    seen = term.see("Compacted without a model", "before █", "after  ", "compaction takes it back")
    assert re.search(r"before █+ +[\d,]+ tokens in 6 messages", seen)
    term.say("/quit")
    seen = term.see("Go on with it:", "output")
    assert term.status() == 0
    conversation = re.search(r"--resume (c_\w+)", seen)
    assert conversation is not None
    with open_store(home / "perdure.db") as store:
        sessions = store.conversations.sessions(conversation[1])
        assert len(sessions) == 2
    term.run(*SMALL, "chat", "--resume", sessions[0].id)
    term.see(f"Resumed {conversation[1]} “Remember: the database")
    term.say("/search 54321")
    term.see("«54321»")
    term.say("/expand")
    term.see("m:1", "the database listens on port 54321")
    term.say("/undo compaction")
    term.see("The last compaction is undone")
    term.press("C-d")
    term.see("chat --resume")
    assert term.status() == 0


@pytest.mark.spec("I1", "J4")
def test_killed_in_mid_answer_then_resumed(term: Terminal, home: Path) -> None:
    slow = Say("The answer is long. " * 200, chunk_delay_s=0.02)
    with Simulator(script=[slow, "Back again."]) as sim:
        term.run(*at(sim))
        term.see("/help lists")
        term.say("What is the meaning of widgets?")
        term.see("The answer is long.")
        term.kill()
        with open_store(home / "perdure.db") as store:
            (kept,) = store.conversations.list().conversations
        term.run(*at(sim), "--resume", kept.id)
        term.see("Resumed", "› What is the meaning of widgets?")
        term.say("Are you there?")
        term.see("Back again.")


@pytest.mark.spec("J4")
def test_ctrl_c_stops_the_turn_and_typed_text_is_not_lost(term: Terminal) -> None:
    with Simulator(script=[Say("endless words " * 400, chunk_delay_s=0.02), "Second answer."]) as sim:
        term.run(*at(sim))
        term.see("/help lists")
        term.say("go")
        term.see("endless words")
        term.type("typed meanwhile")
        term.see("› typed meanwhile")
        term.press("C-u")
        term.press("C-c")
        term.see("stopped; the conversation is kept")
        term.say("again, please")
        term.see("Second answer.")
        term.press("C-c")
        term.see("Ctrl-C again leaves")
        term.press("C-c")
        term.see("Go on with it:")
        assert term.status() == 0


def test_what_is_sent_while_an_answer_streams_waits_its_turn(term: Terminal) -> None:
    with Simulator(script=[Say("first answer. " * 80, chunk_delay_s=0.05), "**second** answer."]) as sim:
        term.run(*at(sim))
        term.see("/help lists")
        term.say("one")
        term.see("first answer.")
        term.say("two")
        term.see("then: two")
        screen = term.see("second answer.")
        assert screen.index("› two") < screen.index("second answer.")
        assert "then: two" not in term.screen


@pytest.mark.spec("J6")
def test_something_dangerous_is_asked_about_inline(home: Path, tmp_path: Path) -> None:
    for name in ("precious", "project"):
        (tmp_path / name).mkdir()
    dangerous = Say(calls=(Call("terminal", {"command": "rm -rf ~/precious"}),))
    question = Say(calls=(Call("clarify", {"question": "Which one?", "choices": ["red", "green"]}),))
    script = [dangerous, "As you wish.", question, "Green it is."]
    with Simulator(script=script) as sim, terminal(home, folder=tmp_path / "project") as term:
        term.run(*at(sim))
        term.see("/help lists")
        term.say("clean up")
        term.see("May this run?  rm -rf ~/precious", "[y]es, once")
        term.say("n")
        term.see("As you wish.", "terminal rm -rf ~/precious")
        assert (tmp_path / "precious").exists()
        term.say("and now?")
        term.see("Which one?", "2. green")
        term.say("2")
        term.see("Green it is.")
        (told,) = [m["content"] for m in sim.requests[-1].body["messages"][-1:]]
    assert told == "green"


@pytest.mark.spec("J6")
def test_a_long_command_is_paged_in_a_small_window(home: Path, tmp_path: Path) -> None:
    steps = "\n".join(f"echo step {n}" for n in range(60))
    command = f"set -e\n{steps}\nrm -rf data_of_mine\necho \u202etxt.exe\u202c the last line"
    script = [Say("", calls=(Call("terminal", {"command": command}),)), "As you wish."]
    with Simulator(script=script) as sim, terminal(home, columns=60, rows=20, folder=tmp_path) as term:
        term.run(*at(sim))
        term.see("Ctrl-D leaves")
        term.say("go")
        choices = "say why not"
        term.see("May this run?  set -e", "of 63 · ▶ also on line 62 · PgDn, PgUp", "perhaps for good: rm -rf", choices)
        for _ in range(14):
            term.press("NPage")
        term.see("▶ rm -rf data_of_mine", "echo <U+202E>txt.exe<U+202C> the last line", "until revoked", choices)
        term.say("no, keep the data")
        seen = term.see("As you wish.", "· refused")
        assert all(f"echo step {n}\n" in seen for n in range(60))
        (told,) = [m["content"] for m in sim.requests[-1].body["messages"][-1:]]
    assert "the user refused: “no, keep the data”" in told


@pytest.mark.spec("L5")
def test_no_key_is_said_before_anything_is_sent(term: Terminal) -> None:
    term.run("chat", "-p", "anthropic")
    term.see("prompt caching on (anthropic, claude", "5m)", "no key for 'anthropic': run", "perdure login anthropic`")


def test_a_refused_key_is_told_apart_and_never_shown(home: Path) -> None:
    with Simulator(script=["hi"], api_key="right") as sim, terminal(home, OPENAI_API_KEY="sk-wrong-1234567890") as term:
        term.run("--set", "model.provider=openai", *at(sim))
        term.see("/help lists")
        term.say("hello")
        assert "sk-wrong" not in term.see("the key was refused (401)", "perdure doctor", "cost $0.0000")


def test_offline_is_told_apart_and_the_message_is_kept(term: Terminal) -> None:
    term.run("--set", "model.base_url=http://127.0.0.1:9/v1", "--set", "model.name=m-1", "chat")
    term.see("/help lists")
    term.say("hello out there")
    term.see("nothing is listening there", "Nothing of the conversation is lost")
    term.say("/context")
    term.see("tail")


def test_a_hundred_thousand_lines_are_pasted_folded_and_sent_whole(term: Terminal, tmp_path: Path) -> None:
    lines = "".join(f"log line {i}\n" for i in range(100_000))
    with Simulator(script=["Thanks for the log."], window=2_000_000) as sim:
        term.run("--set", "model.context_length=2000000", *at(sim))
        term.see("/help lists")
        term.paste(lines, tmp_path)
        term.see("[pasted #1: 100,000 lines]")
        term.say(" what went wrong?")
        term.see("Thanks for the log.")
        (sent,) = [r.body for r in sim.requests]
    assert "log line 0\n" in str(sent["messages"][-1]["content"])
    assert "log line 99999\n" in str(sent["messages"][-1]["content"])
    assert str(sent["messages"][-1]["content"]).endswith("what went wrong?")


def test_a_narrow_terminal_without_colour(home: Path) -> None:
    said = "# Title\n\nSome *text* and `code`, long enough to be wrapped.\n\n- one\n- two"
    with Simulator(script=[said]) as sim, terminal(home, columns=30, rows=20, NO_COLOR="1") as term:
        term.run(*at(sim))
        term.see("/help lists")
        term.say("hi")
        term.see("Title", "Some text and code, long\nenough to be wrapped.", "• one", "• two")


def test_a_dumb_terminal_gets_plain_lines(home: Path, tmp_path: Path) -> None:
    with Simulator(script=["A plain answer.", "Two lines."]) as sim, terminal(home, TERM="dumb") as term:
        term.run(*at(sim))
        term.see("/help lists", "> ")
        term.say("hi")
        term.see("A plain answer.")
        term.paste("line one\nline two\n", tmp_path)
        term.see("Two lines.")
        term.say("/quit")
        term.see("chat --resume")
        assert term.status() == 0
        assert sim.requests[-1].body["messages"][-1]["content"] == "line one\nline two"
