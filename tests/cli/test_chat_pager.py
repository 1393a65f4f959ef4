"""Long tool outputs in the pager: nothing that is pressed there falls into the next message."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from perdure.agent.runner import LoopThread
from perdure.core.ports import ApprovalAnswer, ApprovalRequest, Refusal
from perdure.testing.simulator import Call, Say, ScriptRequest, Simulator
from support.typed import Chat, chatting

CTRL_O = "\x0f"


@pytest.fixture
def read_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pager that keeps what it was given in files and stays open while there is a file `held`."""
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    pages = tmp_path / "pages"
    pages.mkdir()
    pager = tmp_path / "pager"
    pager.write_text(
        f'#!/bin/sh\ncat > "{pages}/$$.new"\nmv "{pages}/$$.new" "{pages}/$$.txt"\n'
        f'while [ -e "{pages}/held" ]; do sleep 0.05; done\n'
    )
    pager.chmod(0o700)
    monkeypatch.setenv("PAGER", str(pager))
    return pages


def _pages(folder: Path) -> list[str]:
    return [p.read_text() for p in sorted(folder.glob("*.txt"), key=lambda p: p.stat().st_mtime_ns)]


def _reply(asked: ScriptRequest) -> Say | str:
    last = asked.body["messages"][-1]
    words = str(last["content"])
    if last["role"] == "tool" or not words.startswith("run "):
        return "Done."
    return Say(calls=(Call("terminal", {"command": words.removeprefix("run ")}),))


def _run(chat: Chat, command: str) -> None:
    before = chat.shown.count("Done.")
    chat.type(f"run {command}\r")
    chat.wait_for(lambda: chat.shown.count("Done.") > before and chat.is_idle)


def test_an_output_longer_than_the_screen_is_paged_and_the_key_goes_on_to_those_before(
    tmp_path: Path, read_pages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.cli.chat.transcript._STEP_BACK_S", 0.5)
    with Simulator(script=_reply) as sim, chatting(tmp_path / "home", _flags(sim)) as chat:
        chat.see("/help lists")
        _run(chat, "seq 1 90")
        _run(chat, "seq 200 290")
        (read_pages / "held").touch()
        chat.type(CTRL_O)
        chat.wait_for(lambda: len(_pages(read_pages)) == 1)
        assert "  245\n" in _pages(read_pages)[0]
        chat.chat.write("· written meanwhile\n")
        time.sleep(0.7)  # longer than the key waits for its second time
        assert "written meanwhile" not in chat.shown
        (read_pages / "held").unlink()
        chat.see("· written meanwhile")
        chat.type(CTRL_O)
        chat.wait_for(lambda: len(_pages(read_pages)) == 2)
        assert "  45\n" in _pages(read_pages)[1]
        assert "  245" not in chat.shown
        assert "  45" not in chat.shown


def test_a_resumed_chat_shows_the_output_of_the_last_call_of_the_conversation(tmp_path: Path, read_pages: Path) -> None:
    with Simulator(script=_reply) as sim:
        with chatting(tmp_path / "home", _flags(sim)) as chat:
            chat.see("/help lists")
            _run(chat, "seq 1 12")
            _run(chat, "exit 3")
            session_id = chat.chat._desk.surface.session_id if chat.chat._desk is not None else None
        with chatting(tmp_path / "home", _flags(sim), session_id=session_id) as chat:
            chat.see("Resumed")
            chat.wait_for(lambda: chat.is_idle)
            chat.type(CTRL_O)
            chat.see("terminal exit 3", "(Ctrl-O again: terminal seq 1 12)")
            chat.type(CTRL_O)
            chat.see("  11\n  12\n")


def test_the_key_goes_back_through_the_outputs_of_the_resumed_conversation_alone(
    tmp_path: Path, read_pages: Path
) -> None:
    with Simulator(script=_reply) as sim, chatting(tmp_path / "home", _flags(sim)) as chat:
        chat.see("/help lists")
        _run(chat, "seq 1 12")
        first_id = chat.chat._desk.surface.session_id if chat.chat._desk is not None else None
        chat.type("/new\r")
        chat.see("A new conversation.")
        _run(chat, "exit 3")
        chat.type(f"/resume {first_id}\r")
        chat.see("Resumed")
        chat.wait_for(lambda: chat.is_idle)
        chat.type(CTRL_O)
        chat.see("  11\n  12\n")
        assert "Ctrl-O again" not in chat.shown


def test_the_key_shows_nothing_else_than_the_question_that_is_open(tmp_path: Path, read_pages: Path) -> None:
    with Simulator(script=_reply) as sim, chatting(tmp_path / "home", _flags(sim)) as chat:
        chat.see("/help lists")
        _run(chat, "echo earlier output")
        answers: list[ApprovalAnswer | Refusal] = []
        approve = chat.chat.questions.approve
        asking = threading.Thread(
            target=lambda: answers.append(LoopThread().run(approve(ApprovalRequest("rm -rf build", "deletes"))))
        )
        asking.start()
        chat.see("[y]es, once")
        chat.type(CTRL_O)
        chat.see("That is all of it.")
        assert "  terminal echo earlier" not in chat.shown
        chat.type("y")
        asking.join(10)
        assert answers == ["once"]
        assert _pages(read_pages) == []


def _flags(sim: Simulator) -> dict[str, str]:
    return {"model.base_url": sim.base_url, "model.name": "m-1", "permissions.mode": "all"}
