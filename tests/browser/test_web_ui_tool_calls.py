"""Tool calls in the story: whole wherever the cut between blocks falls, and each says how it ended."""

from __future__ import annotations

from pathlib import Path

from perdure.core.messages import Message, ToolCall, assistant, tool_result, user
from perdure.store.records import StoredEvent
from perdure.store.store import SessionStore
from perdure.tools.output_limits import persisted_block
from perdure.tools.runtime import INTERRUPTED
from support.browser import Page
from support.web_ui_server import WebUIServer
from support.web_ui_story import Story

SeededSite = tuple[WebUIServer, Story]
STATES = "[...document.querySelectorAll('.tool-call')].map(e => e.querySelector('.state').innerText)"


def called(*ids: str) -> Message:
    return assistant("", tuple(ToolCall(i, "terminal", f'{{"command": "run {i}"}}') for i in ids))


def cut_in_the_middle(store: SessionStore) -> str:
    """Calls in messages 40 and 80, their results right behind: where blocks of forty end."""
    session = store.create(title="Cut in the middle")
    for _ in range(2):
        store.append(session.id, [user(f"m{n}") for n in range(39)])
        store.append(session.id, [called("a", "b"), tool_result("a", "[exit 0]\nA"), tool_result("b", "[exit 3]\nB")])
        store.append(session.id, [user("x")] * (80 - 42) if store.conversations.get(session.id).last_seq < 80 else [])
    return session.conversation_id


def test_calls_and_results_in_different_blocks_are_one(page: Page, seeded: SeededSite) -> None:
    server, _ = seeded
    conversation = cut_in_the_middle(server.store)
    page.open(server.link(f"/c/{conversation}/m/41"))
    page.wait("document.querySelectorAll('.tool-call').length >= 2")
    assert page.run(STATES)[:2] == ["", "exit 3"]
    # The result is found by its own address, inside the fold of its call.
    assert "run a" in page.text("#m-41 .target")
    assert page.run("document.activeElement.id") == "m-41"
    page.open(server.link(f"/c/{conversation}"))
    page.wait("document.querySelectorAll('.tool-call').length >= 2")
    assert "running" not in page.run(STATES)


def test_a_result_that_comes_later_completes_a_call_at_the_end_of_a_block(page: Page, seeded: SeededSite) -> None:
    server, _ = seeded
    session = server.store.create(title="Still running")
    server.store.append(session.id, [user(f"m{n}") for n in range(39)])
    server.store.append(session.id, [called("a", "b")])
    page.open(server.link(f"/c/{session.conversation_id}"))
    page.wait(f"({STATES}).join() === 'running,running'")
    server.store.append(session.id, tool_result("a", "[exit 0]\nA"))
    page.wait(f"({STATES}).join() === ',running'")
    server.store.append(session.id, tool_result("b", "[exit 0]\nB"))
    page.wait(f"({STATES}).join() === ','")
    server.store.append(session.id, assistant("Both are done."))
    page.wait_text("Both are done.")
    assert page.count(".tool-call") == 2


def test_refused_stopped_and_failed_calls_do_not_look_like_successes(
    page: Page, seeded: SeededSite, tmp_path: Path
) -> None:
    server, _ = seeded
    store = server.store
    session = store.create(title="How calls end")
    sink = store.outputs.begin(session.id, "kept")
    sink.write("line\n" * 40_000)
    stored = sink.close()
    states = {"good": "completed", "bad": "failed", "no": "refused", "cut": "interrupted", "kept": "completed"}
    results = ["[exit 0]\nok", "[exit 1]\nno", "Error: the person said no", INTERRUPTED]
    results.append(f"[exit 0]\n{persisted_block(stored, 'line', 'line')}")
    said = [user("go"), called(*states), *(tool_result(*r) for r in zip(states, results, strict=True))]
    known = {"seconds": dict.fromkeys(states, 0.5), "states": states, "exit_codes": {"good": 0, "bad": 1, "kept": 0}}
    store.append(session.id, said, events=[StoredEvent(session.id, "tools", known)])
    page.open(server.link(f"/c/{session.conversation_id}"))
    page.wait("document.querySelectorAll('.tool-call').length === 5")
    assert page.run(STATES) == ["", "exit 1", "refused", "stopped", ""]
    colour = "[...document.querySelectorAll('.tool-call .state')].map(e => getComputedStyle(e).color)"
    colours = page.run(colour)
    assert colours[1] != colours[0] != colours[2] != colours[1]
    # What was kept apart opens, and the page does not show where on the machine it lies.
    assert "200k chars" in page.text(".tool-call.spilled .size")
    page.click(".tool-call.spilled summary")
    assert "persisted-output" not in page.text(".tool-call.spilled .result")
    page.click(".tool-call.spilled .result button")
    page.wait("document.querySelector('.tool-call.spilled .opened pre')?.innerText.length > 10000")
