"""Sessions outlive the process: they are listed, loaded with their history, resumed, forked and closed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.app import Agent
from perdure.store.store import open_store
from perdure.testing.simulator import Call, Say, ScriptRequest, Simulator
from perdure.testing.simulator.script import Step
from support.editor import LIMIT_S, Editor, editor_here
from support.gateway_process import obedient
from support.packages import package

acp = package("acp", reason="the extra `acp` is not installed")

Story = Callable[[Editor], Awaitable[Any]]


def _lives(tmp_path: Path, *stories: Story, script: Any = obedient, busy_timeout_s: float = LIMIT_S) -> list[Any]:
    """Run each story with an agent of its own, one after the other, on one store."""

    async def run(sim: Simulator, story: Story) -> Any:
        async with editor_here(tmp_path, sim, busy_timeout_s=busy_timeout_s) as ed:
            return await asyncio.wait_for(story(ed), 120)

    with Simulator(script=script) as sim:
        results = [asyncio.run(run(sim, story)) for story in stories]
        assert sim.violations == []
    return results


def _load(ed: Editor, session_id: str) -> Awaitable[Any]:
    return ed.agent.load_session(cwd=str(ed.folder), session_id=session_id, mcp_servers=[])


@pytest.mark.spec("P2", "I7")
def test_a_loaded_session_replays_its_history_in_order_and_goes_on(tmp_path: Path) -> None:
    known: list[str] = []

    async def first(ed: Editor) -> None:
        known.append(await ed.new())
        await ed.ask(known[0], "run echo hi")
        await ed.ask(known[0], "say bye")

    async def second(ed: Editor) -> None:
        await _load(ed, known[0])
        kinds = [u.session_update for u in ed.client.updates if u.session_update != "available_commands_update"]
        assert kinds == [
            "user_message_chunk",
            "agent_message_chunk",
            "tool_call",
            "tool_call_update",
            "agent_message_chunk",
            "user_message_chunk",
            "agent_message_chunk",
        ]
        (call,), (result,) = ed.client.of_kind("tool_call"), ed.client.of_kind("tool_call_update")
        assert (call.title, call.tool_call_id) == ("echo hi", result.tool_call_id)
        assert (call.status, result.status) == ("in_progress", "completed")
        assert await ed.ask(known[0], "count") == "end_turn"
        assert ed.client.text().endswith("3: count")

    _lives(tmp_path, first, second)


def test_a_session_without_a_message_can_be_loaded_and_is_not_listed(tmp_path: Path) -> None:
    known: list[str] = []

    async def first(ed: Editor) -> None:
        known.append(await ed.new())

    async def second(ed: Editor) -> None:
        assert (await ed.agent.list_sessions()).sessions == []
        await _load(ed, known[0])
        assert await ed.ask(known[0], "say hello") == "end_turn"
        assert [s.session_id for s in (await ed.agent.list_sessions()).sessions] == known

    _lives(tmp_path, first, second)

    with open_store(tmp_path / "home" / "perdure.db") as store:
        assert len(store.conversations.list().conversations) == 1


def test_sessions_are_listed_newest_first_and_by_folder(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()

    async def story(ed: Editor) -> None:
        first, second = await ed.new(), await ed.new()
        third = (await ed.agent.new_session(cwd=str(other), mcp_servers=[])).session_id
        for session_id in (first, second, third):
            await ed.ask(session_id, f"say {session_id}")

        everything = (await ed.agent.list_sessions()).sessions
        assert [s.session_id for s in everything] == [third, second, first]
        assert everything[0].title.startswith("say a_")
        assert [s.session_id for s in (await ed.agent.list_sessions(cwd=str(other))).sessions] == [third]

    _lives(tmp_path, story)


def test_a_conversation_of_the_terminal_can_be_continued(tmp_path: Path) -> None:
    with Simulator(script=obedient) as sim:
        home = tmp_path / "home"
        with Agent("gpt-5-mini", "custom", base_url=sim.base_url, home=home, source="terminal") as agent:
            agent.chat("say one")
            session_id = agent.open().live.conversation_id

    async def story(ed: Editor) -> None:
        await _load(ed, session_id)
        assert ed.client.text() == "one"
        assert await ed.ask(session_id, "count") == "end_turn"
        assert ed.client.text() == "one2: count"

    _lives(tmp_path, story)


def test_a_session_goes_on_in_the_branch_that_retry_made_also_after_a_restart(tmp_path: Path) -> None:
    known: list[str] = []

    async def first(ed: Editor) -> None:
        known.append(await ed.new())
        await ed.ask(known[0], "say one")
        await ed.ask(known[0], "say two")
        assert await ed.ask(known[0], "/retry") == "end_turn"
        await ed.ask(known[0], "say three")

    async def second(ed: Editor) -> None:
        await _load(ed, known[0])
        assert ed.client.text("user_message_chunk") == "say onesay twosay three"
        assert [s.session_id for s in (await ed.agent.list_sessions()).sessions] == known

    _lives(tmp_path, first, second)


def test_the_mode_of_a_session_is_stored_except_to_never_ask(tmp_path: Path) -> None:
    known: list[str] = []

    def choose(mode: str) -> Story:
        async def story(ed: Editor) -> str:
            if not known:
                known.append(await ed.new())
            response = await _load(ed, known[0])
            await ed.agent.set_session_mode(session_id=known[0], mode_id=mode)
            return str(response.modes.current_mode_id)

        return story

    assert _lives(tmp_path, *map(choose, ("plan", "ask", "all", "edits"))) == ["edits", "plan", "ask", "edits"]


def test_a_session_that_another_process_writes_is_refused_plainly_after_a_while(tmp_path: Path) -> None:
    async def story(ed: Editor) -> None:
        session_id = await ed.new()
        await ed.ask(session_id, "say one")
        with open_store(tmp_path / "home" / "perdure.db") as store:
            (conversation,) = store.conversations.list().conversations
            lease = store.leases.acquire(conversation.id, "elsewhere:1")
            with pytest.raises(acp.RequestError, match="send the message again when it has finished"):
                await ed.ask(session_id, "say two")
            store.leases.release(lease)
        assert await ed.ask(session_id, "say two") == "end_turn"

    _lives(tmp_path, story, busy_timeout_s=0.2)


def test_a_prompt_waits_for_the_process_that_writes_its_session(tmp_path: Path) -> None:
    async def story(ed: Editor) -> None:
        session_id = await ed.new()
        await ed.ask(session_id, "say one")
        with open_store(tmp_path / "home" / "perdure.db") as store:
            (conversation,) = store.conversations.list().conversations
            lease = store.leases.acquire(conversation.id, "elsewhere:1")
            store.append(conversation.id, [{"role": "user", "content": "say two"}], lease=lease)
            prompt = asyncio.create_task(ed.ask(session_id, "say two"))
            done, _ = await asyncio.wait([prompt], timeout=0.3)
            assert not done
            store.append(conversation.id, [{"role": "assistant", "content": "two"}], lease=lease)
            store.leases.release(lease)
        assert await prompt == "end_turn"
        with open_store(tmp_path / "home" / "perdure.db") as store:
            texts = [e.message.text for e in store.log.originals(conversation.id) if e.message.role != "system"]
        assert texts == ["say one", "one", "say two", "two", "say two", "two"]

    _lives(tmp_path, story)


def test_a_prompt_that_waits_for_another_process_can_be_cancelled(tmp_path: Path) -> None:
    async def story(ed: Editor) -> None:
        session_id = await ed.new()
        await ed.ask(session_id, "say one")
        with open_store(tmp_path / "home" / "perdure.db") as store:
            (conversation,) = store.conversations.list().conversations
            store.leases.acquire(conversation.id, "elsewhere:1")
            prompt = asyncio.create_task(ed.ask(session_id, "say two"))
            await asyncio.wait([prompt], timeout=0.3)
            await ed.agent.cancel(session_id=session_id)
            assert await prompt == "cancelled"

    _lives(tmp_path, story)


def test_a_session_can_be_resumed_silently_forked_and_closed(tmp_path: Path) -> None:
    async def story(ed: Editor) -> None:
        session_id = await ed.new()
        await ed.ask(session_id, "say one")
        await ed.agent.close_session(session_id=session_id)
        with pytest.raises(acp.RequestError, match="load it first"):
            await ed.ask(session_id, "say two")
        count = len(ed.client.text("agent_message_chunk"))
        await ed.agent.resume_session(cwd=str(ed.folder), session_id=session_id, mcp_servers=[])
        assert len(ed.client.text("agent_message_chunk")) == count
        fork = await ed.agent.fork_session(cwd=str(ed.folder), session_id=session_id, mcp_servers=[])
        await ed.ask(fork.session_id, "count")
        await ed.ask(session_id, "again")

        assert ed.client.text().endswith("2: count2: again")

    _lives(tmp_path, story)


def test_a_turn_that_was_cut_off_is_named_and_finished_by_sending_it_again(tmp_path: Path) -> None:
    """The store as a killed process leaves it: a call without a result."""

    def script(asked: ScriptRequest) -> Step:
        last = asked.body["messages"][-1]
        return Say("Finished.") if last["role"] == "tool" else Say("", calls=(Call("todo", {}),))

    known: list[str] = []

    async def first(ed: Editor) -> None:
        known.append(await ed.new())
        await ed.ask(known[0], "go")

    async def second(ed: Editor) -> None:
        await _load(ed, known[0])
        assert "cut off" in ed.client.text("agent_thought_chunk")
        assert ed.client.of_kind("tool_call")[-1].status == "failed"
        assert await ed.ask(known[0], "go on") == "end_turn"

    async def third(ed: Editor) -> None:
        await _load(ed, known[0])
        assert "cut off" not in ed.client.text("agent_thought_chunk")
        assert ed.client.text("user_message_chunk") == "gogo on"

    def cut(ed: Editor) -> Awaitable[None]:
        return asyncio.to_thread(_cut_off, tmp_path / "home" / "perdure.db")

    _lives(tmp_path, first, cut, second, third, script=script)


@pytest.mark.spec("P2", "J4")
def test_text_that_was_streamed_before_a_cancel_is_replayed_and_marked(tmp_path: Path) -> None:
    known: list[str] = []

    async def cancelled(ed: Editor) -> str:
        known.append(await ed.new())
        turn = asyncio.create_task(ed.ask(known[0], "count to a thousand"))
        await ed.client.until(lambda: len(ed.client.text()) > 20)
        await ed.agent.cancel(session_id=known[0])
        assert await turn == "cancelled"
        return ed.client.text()

    async def loaded(ed: Editor) -> str:
        await _load(ed, known[0])
        assert "stopped" in ed.client.text("agent_thought_chunk")
        return ed.client.text()

    script = [Say("word " * 1_000, chunk_chars=4, chunk_delay_s=0.05)]
    streamed, replayed = _lives(tmp_path, cancelled, loaded, script=script)
    assert replayed == streamed


def _cut_off(path: Path) -> None:
    with open_store(path) as store:
        (conversation,) = store.conversations.list().conversations
        call = {"id": "call_9", "type": "function", "function": {"name": "todo", "arguments": "{}"}}
        store.append(conversation.id, [{"role": "user", "content": "go on"}])
        store.append(conversation.id, [{"role": "assistant", "content": "", "tool_calls": [call]}])
