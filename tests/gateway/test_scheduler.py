"""Scheduled runs in a hub: started once when due, unattended, with missed runs reported and outcomes recorded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure.agent.runner import RunningLoop
from perdure.app.runtime import Shared
from perdure.config.load import validate_settings
from perdure.core.visibility import Owner
from perdure.gateway.auth.principal import Principal
from perdure.gateway.events.types import ChatKey, ChatMessage
from perdure.gateway.executor import run_store_write
from perdure.gateway.workers.agent_pool import WiredAgentFactory
from perdure.gateway.workers.hub import Hub
from perdure.gateway.workers.routing import SCOPE as CHATS
from perdure.gateway.workers.routing import chat_key, queue_key
from perdure.gateway.workers.scheduler import chat_of_run, format_time, record_outcomes
from perdure.store.inbox import InboundMessage
from perdure.store.schedules import MissedRuns, NewSchedule, RunStart, Schedule, ScheduleRun
from perdure.store.store import SessionStore, open_store
from perdure.testing.simulator import Call, Fail, Say, ScriptRequest, Simulator
from perdure.testing.simulator.script import Script
from support.store import FakeClock

HOUR_MS = 3_600_000
OWNER = Principal(Owner(), frozenset(("chat", "read", "shell")))
WAIT_S = 30.0


@asynccontextmanager
async def hub_on(folder: Path, sim: Simulator, store: SessionStore, clock: FakeClock) -> AsyncIterator[Hub]:
    """A hub whose periodic tasks run only when the test calls them."""
    model = {"name": "m-1", "provider": "custom", "base_url": sim.base_url, "context_length": 32_000}
    settings = validate_settings({"model": model, "permissions": {"mode": "ask"}})
    shared = Shared(settings, home=folder, store=store, loop_thread=RunningLoop(), run_blocking=run_store_write)
    hub = Hub(WiredAgentFactory(shared), store, settings=settings.gateway, clock=clock, ids=shared.ids)
    try:
        yield hub
    finally:
        await hub.drain(5)
        await shared.transport.aclose()


def add(store: SessionStore, clock: FakeClock, prompt: str = "check the build", **more: Any) -> Schedule:
    return store.schedules.add(NewSchedule(prompt, "Europe/Berlin", clock.now_ms() + HOUR_MS, every_ms=HOUR_MS, **more))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)


async def finish(hub: Hub, store: SessionStore) -> None:
    """Wait for every message, then record the outcomes."""
    await until(lambda: store.inbox.count_pending() == 0 and hub.running == 0)
    record_outcomes(store)


def story(
    folder: Path, work: Callable[[Hub, SessionStore, FakeClock, Simulator], Awaitable[None]], *, script: Script
) -> None:
    async def main() -> None:
        clock = FakeClock()
        with Simulator(script=script) as sim, open_store(folder / "perdure.db", clock=clock) as store:
            async with hub_on(folder, sim, store, clock) as hub:
                await work(hub, store, clock, sim)

    asyncio.run(main())


def only_run(store: SessionStore, schedule: Schedule) -> ScheduleRun:
    (run,) = store.schedules.runs(schedule)
    return run


def user_text(store: SessionStore, run: ScheduleRun) -> str:
    assert run.conversation_id is not None
    (message,) = [e.message for e in store.log.originals(run.conversation_id) if e.message.is_real_user]
    return message.text


@pytest.mark.spec("P2", "A4")
def test_a_due_run_is_an_accounted_conversation_of_its_own(tmp_path: Path) -> None:
    async def work(hub: Hub, store: SessionStore, clock: FakeClock, sim: Simulator) -> None:
        schedule = add(store, clock)
        await hub.scheduler.run_due()
        assert store.inbox.count_pending() == 0, "not due yet"
        for _ in range(2):
            clock.pass_ms(HOUR_MS)
            await hub.scheduler.run_due()
            await hub.scheduler.run_due()
            await finish(hub, store)
        runs = store.schedules.runs(schedule)
        assert [(r.outcome, r.detail, r.missed) for r in runs] == [("completed", "", None)] * 2
        listed = store.conversations.list(source="schedule", limit=10).conversations
        assert {c.id for c in listed} == {r.conversation_id for r in runs}
        assert {c.title for c in listed} == {"check the build"}
        assert [store.ledger.totals(c.id).calls for c in listed] == [1, 1]
        assert user_text(store, runs[0]) == "check the build"
        assert store.state(CHATS).items() == {}, "the chat of a run is not used again"
        assert schedule.next_at_ms + 2 * HOUR_MS == store.schedules.get(schedule.id).next_at_ms

    story(tmp_path, work, script=lambda asked: "All green.")


@pytest.mark.spec("P2")
def test_missed_runs_are_reported_once_and_not_piled_up(tmp_path: Path) -> None:
    async def work(hub: Hub, store: SessionStore, clock: FakeClock, sim: Simulator) -> None:
        schedule = add(store, clock)
        clock.pass_ms(5 * HOUR_MS + 600_000)
        await hub.scheduler.run_due()
        await finish(hub, store)
        run = only_run(store, schedule)
        assert run.missed == MissedRuns(4, schedule.next_at_ms)
        assert run.due_at_ms == schedule.next_at_ms + 4 * HOUR_MS
        text = user_text(store, run)
        assert text.startswith("check the build\n\n[Note on this scheduled run: it was due at 2027-01-15 14:00 CET")
        assert "4 earlier runs were missed, since 2027-01-15 10:00 CET.]" in text
        clock.pass_ms(HOUR_MS - 600_000)
        await hub.scheduler.run_due()
        await finish(hub, store)
        assert [r.missed for r in store.schedules.runs(schedule)] == [None, run.missed]

    story(tmp_path, work, script=lambda asked: "All green.")


def test_a_due_time_during_a_run_is_missed_and_reported_by_the_next(tmp_path: Path) -> None:
    slow = Say("word " * 2_000, chunk_chars=5, chunk_delay_s=0.02)

    async def work(hub: Hub, store: SessionStore, clock: FakeClock, sim: Simulator) -> None:
        schedule = add(store, clock)
        clock.pass_ms(HOUR_MS)
        await hub.scheduler.run_due()
        await until(lambda: len(sim.requests) == 1)
        for _ in range(2):
            clock.pass_ms(HOUR_MS)
            await hub.scheduler.run_due()
        assert len(store.schedules.runs(schedule)) == 1
        assert store.schedules.get(schedule.id).missed == MissedRuns(2, schedule.next_at_ms + HOUR_MS)
        await hub.stop_message(only_run(store, schedule).message_id, OWNER)
        await finish(hub, store)
        clock.pass_ms(HOUR_MS)
        await hub.scheduler.run_due()
        await finish(hub, store)
        newest, first = store.schedules.runs(schedule)
        assert (first.outcome, newest.outcome) == ("interrupted", "completed")
        assert newest.missed == MissedRuns(2, schedule.next_at_ms + HOUR_MS)

    story(tmp_path, work, script=lambda asked: slow if asked.number == 1 else "Done.")


def _touches(path: Path) -> Script:
    def script(asked: ScriptRequest) -> Say:
        if asked.body["messages"][-1]["role"] == "tool":
            return Say("Finished.")
        return Say("", calls=(Call("terminal", {"command": f"touch {path}"}),))

    return script


def _tool_results(store: SessionStore, run: ScheduleRun) -> list[str | None]:
    assert run.conversation_id is not None
    return [e.message.tool_state for e in store.log.originals(run.conversation_id) if e.message.role == "tool"]


@pytest.mark.spec("P2")
def test_what_needs_approval_is_refused_at_once_with_the_reason_on_the_run(tmp_path: Path) -> None:
    async def work(hub: Hub, store: SessionStore, clock: FakeClock, sim: Simulator) -> None:
        schedule = add(store, clock)
        clock.pass_ms(HOUR_MS)
        await hub.scheduler.run_due()
        await finish(hub, store)
        run = only_run(store, schedule)
        assert (run.outcome, _tool_results(store, run)) == ("completed, 1 call refused", ["refused"])
        assert not (tmp_path / "touched").exists()
        assert "terminal was not run, no one is available to approve it" in run.detail

    story(tmp_path, work, script=_touches(tmp_path / "touched"))


@pytest.mark.spec("P2")
def test_what_was_allowed_in_advance_runs_without_asking(tmp_path: Path) -> None:
    async def work(hub: Hub, store: SessionStore, clock: FakeClock, sim: Simulator) -> None:
        schedule = add(store, clock, allowed=("terminal",))
        clock.pass_ms(HOUR_MS)
        await hub.scheduler.run_due()
        await finish(hub, store)
        run = only_run(store, schedule)
        assert (run.outcome, run.detail) == ("completed", "")
        assert _tool_results(store, run) == ["completed"]
        assert (tmp_path / "touched").exists()
        # The conversation goes on with a user: the agent of the run, and what it was allowed, are not used again.
        chat = ChatKey("http", Owner())
        ticket = await hub.submit(ChatMessage(chat, "again", conversation_id=run.conversation_id), OWNER)
        await until(lambda: bool(store.state("questions").items()))
        await hub.stop_message(ticket.turn_id, OWNER)
        await finish(hub, store)

    story(tmp_path, work, script=_touches(tmp_path / "touched"))


def _lists_files(asked: ScriptRequest) -> Say:
    if asked.body["messages"][-1]["role"] == "tool":
        return Say("Finished.")
    return Say("", calls=(Call("terminal", {"command": "ls"}),))


def test_a_run_works_in_the_folder_of_its_schedule(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "only-here.txt").touch()

    async def work(hub: Hub, store: SessionStore, clock: FakeClock, sim: Simulator) -> None:
        schedule = add(store, clock, folder=str(tmp_path / "project"))
        missing = add(store, clock, folder=str(tmp_path / "gone"))
        clock.pass_ms(HOUR_MS)
        await hub.scheduler.run_due()
        await finish(hub, store)
        assert only_run(store, schedule).outcome == "completed"
        assert "only-here.txt" in str(sim.requests[-1].body["messages"][-1])
        failed = only_run(store, missing)
        assert (failed.outcome, "gone does not exist" in failed.detail) == ("failed", True)

    story(tmp_path, work, script=_lists_files)


def test_the_model_of_a_schedule_answers_its_runs(tmp_path: Path) -> None:
    async def work(hub: Hub, store: SessionStore, clock: FakeClock, sim: Simulator) -> None:
        schedule = add(store, clock, model="m-2")
        clock.pass_ms(HOUR_MS)
        await hub.scheduler.run_due()
        await finish(hub, store)
        assert only_run(store, schedule).outcome == "completed"
        assert [r.body["model"] for r in sim.requests] == ["m-2"]

    story(tmp_path, work, script=lambda asked: "Done.")


@pytest.mark.parametrize("prompt", ["check the build", "/no-such-command"])
def test_errors_are_recorded_on_the_run(tmp_path: Path, prompt: str) -> None:
    error = Fail(status=400, body={"error": {"message": "this was not to be", "type": "invalid_request_error"}})

    async def work(hub: Hub, store: SessionStore, clock: FakeClock, sim: Simulator) -> None:
        schedule = add(store, clock, prompt)
        clock.pass_ms(HOUR_MS)
        await hub.scheduler.run_due()
        await finish(hub, store)
        run = only_run(store, schedule)
        assert run.outcome == "failed"
        assert ("not to be" if prompt[0] != "/" else "no-such-command") in run.detail
        assert store.schedules.due() == []

    story(tmp_path, work, script=lambda asked: error)


def test_a_schedule_that_cannot_be_read_does_not_hold_up_others(tmp_path: Path) -> None:
    async def work(hub: Hub, store: SessionStore, clock: FakeClock, sim: Simulator) -> None:
        broken = store.schedules.add(NewSchedule("x", "Mars/Olympus", clock.now_ms(), cron="0 9 * * *"))
        other = add(store, clock)
        clock.pass_ms(HOUR_MS)
        await hub.scheduler.run_due()
        await finish(hub, store)
        assert store.schedules.runs(broken) == []
        assert store.schedules.get(broken.id).next_at_ms > clock.now_ms()
        assert format_time(0, broken.timezone) == "1970-01-01 00:00 UTC"
        assert only_run(store, other).outcome == "completed"

    story(tmp_path, work, script=lambda asked: "Done.")


@pytest.mark.spec("P2", "I7")
@pytest.mark.parametrize("is_begun", [True, False])
def test_a_run_of_a_process_that_died_is_finished_with_a_title_and_without_leftovers(
    tmp_path: Path, is_begun: bool
) -> None:
    async def work(hub: Hub, store: SessionStore, clock: FakeClock, sim: Simulator) -> None:
        schedule = add(store, clock)
        chat = chat_of_run(Owner(), schedule.id, schedule.next_at_ms)
        inbound = InboundMessage("t_1", queue_key(chat, None), *chat_parts(chat), schedule.prompt, ("chat",))
        run = RunStart(schedule.next_at_ms, schedule.next_at_ms + HOUR_MS)
        queued = store.schedules.start_run(schedule, run, inbound, owner="gone", ttl_ms=0)
        assert queued is not None
        session = store.create(source="schedule", chat_key=chat_key(chat))
        conversation = store.conversations.get(session.id)
        store.leases.acquire(conversation.id, "gone", is_dead=lambda holder: True)
        clock.pass_ms(60_000)
        if is_begun:
            assert store.inbox.begin(queued, conversation_id=conversation.id, seq=0)
        hub.queues.wake(queued)
        await finish(hub, store)
        recorded = only_run(store, schedule)
        (left,) = store.conversations.list(source="schedule").conversations
        assert (left.id == conversation.id, left.id) == (is_begun, recorded.conversation_id)
        assert (left.title, left.last_seq, recorded.outcome) == ("check the build", 2, "completed")

    story(tmp_path, work, script=lambda asked: "Done.")


def chat_parts(chat: ChatKey) -> tuple[str, str, str]:
    return chat.platform, chat.user, chat.chat


def test_a_run_by_hand_leaves_the_next_due_time(tmp_path: Path) -> None:
    async def work(hub: Hub, store: SessionStore, clock: FakeClock, sim: Simulator) -> None:
        schedule = add(store, clock)
        await hub.scheduler.run_now(schedule)
        await finish(hub, store)
        run = only_run(store, schedule)
        assert (run.is_manual, run.outcome) == (True, "completed")
        assert store.schedules.get(schedule.id) == schedule

    story(tmp_path, work, script=lambda asked: "Done.")
