"""A conversation that is gone on with shows its last turns as they looked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from perdure import Agent, open_store
from perdure.cli.chat.shell import ShellRun
from perdure.cli.chat.stored_messages import markdown_lines, replay_text
from perdure.cli.style import Style
from perdure.commands.format import short_when, when
from perdure.core.messages import CUT_OFF, Message, TextPart, ToolCall, ToolState, assistant, tool_result, user
from perdure.store.records import StoredEvent
from perdure.testing.simulator import Call, Say, Simulator
from support.store import compacted
from support.typed import chatting

PLAIN = Style(is_color=False)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def talk(home: Path, script: list[str | Say], questions: list[str], **options: str) -> str:
    """A stored conversation; its session id."""
    with Simulator(script=script) as sim:
        agent = Agent(model="m-1", base_url=sim.base_url, home=home, settings=options or {}, source="terminal")
        with agent:
            for question in questions:
                agent.chat(question)
            assert agent.session_id is not None
            return agent.session_id


def flags(sim: Simulator) -> dict[str, str]:
    return {"model.base_url": sim.base_url, "model.name": "m-1"}


def shown(home: Path, session_id: str, width: int = 80) -> str:
    with open_store(home / "perdure.db") as store:
        return replay_text(store, session_id, width=width, ink=PLAIN)


def test_words_and_calls_are_shown_and_results_are_not(home: Path) -> None:
    home.mkdir()
    calls = Say("Let me look.", calls=(Call("terminal", {"command": "echo a-result"}),))
    session_id = talk(home, [calls, "It is **done**."], ["Is it done?"])
    text = shown(home, session_id)
    assert text.startswith("› Is it done?\nLet me look.\n\n● terminal echo a-result\nIt is done.\n")
    assert text.count("a-result") == 1


def test_a_command_of_the_users_own_is_no_attachment(home: Path) -> None:
    home.mkdir()
    ran = ShellRun("ls", "a.txt", 0, 0.1)
    with open_store(home / "perdure.db") as store:
        session = store.create()
        for said, attached in (("delete it", ran.context), ("see this", "File a.txt:\nx")):
            store.append(session.id, [Message("user", (TextPart(said), TextPart(attached)))])
    assert "› delete it\n› see this [1 attachment]\n" in shown(home, session.id)


def test_calls_that_failed_were_refused_or_stopped_are_marked_as_when_they_ended(home: Path) -> None:
    home.mkdir()
    calls = [ToolCall(f"c{n}", "terminal", json.dumps({"command": f"step {n}"})) for n in range(5)]
    states: list[ToolState] = ["completed", "failed", "failed", "refused"]
    results = [tool_result(c.id, "output", c.name, state=s) for c, s in zip(calls, states, strict=False)]
    run = {"states": {"c1": "failed"}, "exit_codes": {"c1": 3}}
    with open_store(home / "perdure.db") as store:
        session = store.create()
        store.append(session.id, [user("go"), assistant("I try.", tuple(calls))])
        store.append(session.id, results, events=[StoredEvent(session.id, "tools", run)])
    assert shown(home, session.id).splitlines()[3:] == [
        "● terminal step 0",
        "✗ terminal step 1 · exit 3",
        "✗ terminal step 2 · failed",
        "✗ terminal step 3 · refused",
        "■ terminal step 4 · stopped",
        "",
    ]


def test_a_stopped_answer_is_shown_and_marked(home: Path) -> None:
    home.mkdir()
    reply = replace(assistant("The walrus sleeps"), extra={CUT_OFF: "interrupted"})
    with open_store(home / "perdure.db") as store:
        session = store.create(title="walrus")
        store.append(session.id, [user("Where?"), reply])
        exported = "\n".join(markdown_lines("walrus", store.log.originals(session.id)))
    assert "The walrus sleeps\n\nstopped here\n" in shown(home, session.id)
    assert "The walrus sleeps\n\n*[stopped here]*" in exported


def test_of_a_long_conversation_the_end_is_shown_and_how_to_read_the_rest(home: Path) -> None:
    home.mkdir()
    session_id = talk(home, [f"Answer {n}." for n in range(20)], [f"Question {n}?" for n in range(20)])
    text = shown(home, session_id)
    assert "… 28 earlier messages: /expand m:1-28 opens them" in text
    assert ("Question 13?" in text, "Question 14?" in text, "Answer 19." in text) == (False, True, True)


def test_a_very_long_message_is_shortened_in_the_middle_and_wrapped(home: Path) -> None:
    home.mkdir()
    session_id = talk(home, ["\n\n".join(f"Paragraph {n}." for n in range(90))], ["word " * 200])
    text = shown(home, session_id, width=40)
    assert "more lines" in text
    assert "more lines: /expand m:2 opens it\n" in text
    assert ("Paragraph 0." in text, "Paragraph 45." in text, "Paragraph 89." in text) == (True, False, True)
    assert max(map(len, text.splitlines())) <= 60


def test_resuming_in_the_chat_replays_the_conversation(home: Path) -> None:
    home.mkdir()
    talk(home, ["The port is 54321."], ["Which port is it?"])
    with Simulator(script=["Fine."]) as sim, chatting(home, flags(sim)) as chat:
        chat.see("m-1")
        chat.type("/resume last\r")
        chat.see("Resumed", "Which port is it?", "The port is 54321.")


@pytest.mark.parametrize(
    ("columns", "title", "more"),
    [(100, "the port of the database", "2 messages"), (60, f"the port of the database {'and more ' * 9}", "cost ")],
)
def test_a_conversation_is_chosen_from_a_menu_by_title_and_time(
    home: Path, columns: int, title: str, more: str
) -> None:
    home.mkdir()
    session_id = talk(home, ["The port is 54321."], ["Which port is it?"])
    with open_store(home / "perdure.db") as store:
        store.conversations.set_title(session_id, title)
        updated_at = (when if columns >= 80 else short_when)(store.conversations.get(session_id).updated_at_ms)
    with Simulator(script=["Fine."]) as sim, chatting(home, flags(sim), columns=columns) as chat:
        chat.see("m-1")
        chat.type("/resume\r")
        chat.see("the port of the", "2 messages", updated_at)
        chat.type("\x1b[B\r")
        chat.see("Resumed", "The port is 54321.", more)


def test_two_compactions_with_nothing_between_them_are_one_line(home: Path) -> None:
    home.mkdir()
    with open_store(home / "perdure.db") as store:
        session = store.create()
        store.append(session.id, [m for n in range(6) for m in (user(f"q{n}"), assistant(f"a{n}"))])
        compacted(store, session.id)
        compacted(store, store.get_compression_tip(session.id))
    assert shown(home, session.id).count("compacted here") == 1


def test_a_compaction_that_was_taken_back_is_marked_as_such(home: Path) -> None:
    home.mkdir()
    with open_store(home / "perdure.db") as store:
        session = store.create()
        store.append(session.id, [m for n in range(6) for m in (user(f"q{n}"), assistant(f"a{n}"))])
        compacted(store, session.id)
    assert "· compacted here: /handoff shows what the model reads of it" in shown(home, session.id)
    with open_store(home / "perdure.db") as store:
        store.undo(session.id)
    text = shown(home, session.id)
    assert "· compacted here, and taken back with /undo compaction" in text
    assert "/handoff shows" not in text
