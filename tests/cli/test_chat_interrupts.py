"""Stopping an answer: what was typed meanwhile stays, and leaving is announced first."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

import perdure
from perdure.store.leases import holder_id, is_holder_dead
from perdure.testing.simulator import Call, Say, Simulator
from support.typed import Chat, chatting

ENDLESS = Say("endless words " * 2_000, chunk_delay_s=0.02)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def flags(sim: Simulator) -> dict[str, str]:
    return {"model.base_url": sim.base_url, "model.name": "m-1"}


def stream(chat: Chat) -> None:
    """Send a line, and wait until its answer streams."""
    chat.see("/help lists")
    chat.type("go\r")
    chat.see("endless words")


@pytest.mark.parametrize("key", ["\x03", "\x1b"])
def test_stopping_an_answer_keeps_the_line_that_is_being_typed(home: Path, key: str) -> None:
    with Simulator(script=[ENDLESS, "Done."]) as sim, chatting(home, flags(sim)) as chat:
        stream(chat)
        chat.type("half typed")
        chat.wait_for(lambda: chat.line == "half typed")
        chat.type(key)
        chat.see("stopped; the conversation is kept")
        chat.wait_for(lambda: chat.is_idle)
        assert chat.line == "half typed"
        chat.type(" line\r")
        chat.see("› half typed line", "Done.")


@pytest.mark.parametrize("key", ["\x03", "\x1b"])
def test_lines_that_waited_behind_a_stopped_answer_come_back_into_the_input(home: Path, key: str) -> None:
    with Simulator(script=[ENDLESS, "Done."]) as sim, chatting(home, flags(sim)) as chat:
        stream(chat)
        chat.type("first\rsecond\rthird")
        chat.see("then: first", "then: second")
        chat.wait_for(lambda: chat.line == "third")
        chat.type(key)
        chat.see("The 2 lines that waited were not sent: back in the input", "stopped; the conversation is kept")
        chat.wait_for(lambda: chat.is_idle)
        assert chat.line == "first\nsecond\nthird"
        assert len(sim.requests) == 1
        chat.type("\r")
        chat.see("› first", "Done.")


def test_a_path_pasted_into_a_line_that_came_back_still_attaches_nothing(home: Path, tmp_path: Path) -> None:
    secret = tmp_path / "notes.txt"
    secret.write_text("unattached words")
    with Simulator(script=[ENDLESS, "Done."]) as sim, chatting(home, flags(sim)) as chat:
        stream(chat)
        chat.type(f"\x1b[200~see @{secret} there\x1b[201~ please\r")
        chat.see("then: see @")
        chat.type("\x03")
        chat.see("The line that waited was not sent")
        chat.wait_for(lambda: chat.is_idle)
        chat.type("\r")
        chat.see("Done.")
        assert "unattached words" not in str(sim.requests[-1].body)


def test_ctrl_c_some_time_after_an_answer_stopped_does_not_leave_unannounced(home: Path) -> None:
    now_s = [100.0]
    script = [ENDLESS, "Still here."]
    with Simulator(script=script) as sim, chatting(home, flags(sim), clock_s=lambda: now_s[0]) as chat:
        stream(chat)
        chat.type("\x03")
        chat.see("stopped; the conversation is kept")
        chat.wait_for(lambda: chat.is_idle)
        now_s[0] += 1.5
        chat.type("\x03")
        chat.type("are you there?\r")
        chat.see("Still here.")
        chat.wait_for(lambda: chat.is_idle)
        chat.type("\x03")
        chat.see("Ctrl-C again leaves")
        chat.type("\x03")
        assert chat.end() == 0


@pytest.mark.spec("P6")
def test_a_new_message_stops_the_answer_where_the_setting_demands_it(home: Path) -> None:
    settings = {"agent.while_busy": "interrupt"}
    with Simulator(script=[ENDLESS, "Second."]) as sim, chatting(home, flags(sim) | settings) as chat:
        stream(chat)
        chat.type("never mind\r")
        chat.see("stopped; the conversation is kept", "› never mind", "Second.")
        sent = str(sim.requests[-1].body["messages"])
        positions = [
            sent.find(text) for text in ("'go'", "'endless words", "'never mind'", "stopped your previous reply")
        ]
        assert positions == sorted(positions), "what was written by then stays"
        assert -1 not in positions


@pytest.mark.spec("P6")
def test_a_command_waits_also_where_messages_stop_the_answer(home: Path) -> None:
    settings = {"agent.while_busy": "interrupt"}
    with Simulator(script=[ENDLESS, "Second."]) as sim, chatting(home, flags(sim) | settings) as chat:
        stream(chat)
        chat.type("/title Something\r")
        chat.see("then: /title Something")
        assert not chat.is_idle
        chat.type("\x03")
        chat.see("stopped; the conversation is kept")


def test_what_a_stopped_command_had_printed_stays_on_the_screen_and_reaches_the_model(home: Path) -> None:
    command = f"printf 'first-%s\\n' row; : {'x' * 80}; sleep 60"
    script = [Say(calls=(Call("terminal", {"command": command}),)), "I see."]
    with Simulator(script=script) as sim, chatting(home, flags(sim)) as chat:
        chat.see("/help lists")
        chat.type("go\r")
        chat.see("first-row")
        chat.type("\x1b")
        chat.see("stopped; the conversation is kept")
        chat.wait_for(lambda: chat.is_idle)
        row, printed = chat.shown.partition("■ terminal")[2].splitlines()[:2]
        assert "… · stopped" in row, "in one row, whatever the command's length"
        assert "  first-row" in printed
        chat.type("what was it?\r")
        chat.see("I see.")
        result = next(m for m in sim.requests[-1].body["messages"] if m["role"] == "tool")
        assert result["content"].startswith("[Interrupted before it finished")
        assert "first-row" in result["content"]


def test_a_message_waits_while_another_program_answers_in_the_conversation(home: Path) -> None:
    with Simulator(script=["One.", "Two.", "Three."]) as sim, chatting(home, flags(sim)) as chat:
        chat.see("/help lists")
        chat.type("first\r")
        chat.see("One.")
        chat.wait_for(lambda: chat.is_idle)
        with contextlib.closing(perdure.open_store(home / "perdure.db")) as store:
            session_id = store.conversations.list(limit=1).conversations[0].id
            with store.leases.hold(session_id, holder_id(), is_dead=is_holder_dead):
                chat.type("stopped while it waits\r")
                chat.see("another program is answering in this conversation; waiting (Esc stops)")
                chat.type("\x1b")
                chat.see("stopped; the message was not sent")
                chat.wait_for(lambda: chat.is_idle and chat.line == "stopped while it waits")
                assert len(sim.requests) == 1
                chat.type("\x03second\r")
                chat.see("› second")
                chat.wait_for(lambda: not chat.is_idle)
        chat.see("Two.")
        assert "second" in str(sim.requests[-1].body["messages"][-1])


def test_a_line_that_was_emptied_comes_back_with_up(home: Path) -> None:
    with (
        Simulator(script=["One."]) as sim,
        chatting(home, {"model.base_url": sim.base_url, "model.name": "m-1"}) as chat,
    ):
        chat.see("/help lists")
        chat.type("precious words")
        chat.wait_for(lambda: chat.line == "precious words")
        chat.type("\x03")
        chat.wait_for_empty_line()
        chat.see("Up brings it back")
        chat.type("\x1b[A")
        chat.wait_for(lambda: chat.line == "precious words")
        chat.type("\x15")
        chat.wait_for_empty_line()
