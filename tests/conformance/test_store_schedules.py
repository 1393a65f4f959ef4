"""Schedules on every database: one run for each due time, whichever process is first."""

from __future__ import annotations

import threading

import pytest

from perdure.core.errors import NotFound, StoreError
from perdure.core.visibility import OWNER
from perdure.store.inbox import InboundMessage
from perdure.store.schedules import MAX_RUNS, MissedRuns, NameTaken, NewSchedule, RunStart, Schedule
from perdure.store.store import SessionStore
from support.store import Backend, FakeClock, conversation

HOUR_MS = 3_600_000
TTL_MS = 10_000


def add(store: SessionStore, clock: FakeClock, prompt: str = "check the build", **more: str) -> Schedule:
    return store.schedules.add(
        NewSchedule(prompt, "Europe/Berlin", clock.now_ms() + HOUR_MS, every_ms=HOUR_MS, allowed=("terminal",), **more)
    )


def inbound(schedule: Schedule, due_at_ms: int, number: int = 0) -> InboundMessage:
    name = f"{schedule.id}:{due_at_ms}"
    return InboundMessage(
        f"t_{name}_{number}", f"chat:{name}", "schedule", OWNER, name, schedule.prompt, ("chat",), name
    )


def start(store: SessionStore, schedule: Schedule, number: int = 0) -> bool:
    due = schedule.next_at_ms
    run = RunStart(due, due + HOUR_MS, schedule.missed)
    message = inbound(schedule, due, number)
    return store.schedules.start_run(schedule, run, message, owner=f"p{number}", ttl_ms=TTL_MS) is not None


@pytest.mark.spec("P2")
def test_a_schedule_survives_its_process_unchanged(backend: Backend, clock: FakeClock) -> None:
    added = add(
        backend.open(clock), clock, "prüfe “das” \ud800\x00", name="nightly", model="openai/gpt-5.5", folder="/srv/ü"
    )
    store = backend.open(clock)
    assert store.schedules.get("nightly") == store.schedules.get(added.id) == added
    assert (added.prompt, added.allowed, added.model) == ("prüfe “das” \ufffd", ("terminal",), "openai/gpt-5.5")
    assert (added.folder, store.schedules.all()) == ("/srv/ü", [added])


def test_schedules_are_named_after_their_prompt_and_names_are_unique(store: SessionStore, clock: FakeClock) -> None:
    names = [add(store, clock, prompt).name for prompt in ("Check the build!", "check the build", "…", "word " * 50)]
    assert names[:3] == ["check-the-build", "check-the-build-2", "schedule"]
    assert len(names[3]) <= 40
    with pytest.raises(NameTaken, match="check-the-build"):
        add(store, clock, name="check-the-build")


def test_a_removed_schedule_is_gone_with_its_runs(store: SessionStore, clock: FakeClock) -> None:
    schedule = add(store, clock)
    assert start(store, schedule)
    assert store.schedules.remove(schedule)
    assert not store.schedules.remove(schedule)
    assert store.schedules.open_runs() == []
    assert store.inbox.count_pending() == 1, "a run that was started goes on"
    with pytest.raises(NotFound, match="schedule list"):
        store.schedules.get(schedule.name)
    assert store.schedules.start_run(
        schedule, RunStart(clock.now_ms()), inbound(schedule, 1), owner="p", ttl_ms=TTL_MS
    ) is None  # fmt: skip


def test_a_schedule_is_due_from_its_time_on(store: SessionStore, clock: FakeClock) -> None:
    schedule = add(store, clock)
    clock.pass_ms(HOUR_MS - 1)
    assert store.schedules.due() == []
    clock.pass_ms(1)
    assert store.schedules.due() == [schedule]
    assert start(store, schedule)
    assert store.schedules.due() == []


@pytest.mark.spec("P2")
def test_one_of_many_processes_starts_the_run_of_a_due_time(backend: Backend, clock: FakeClock) -> None:
    stores = [backend.open(clock) for _ in range(4)]
    schedule = add(stores[0], clock)
    barrier, started = threading.Barrier(len(stores)), []

    def try_to_start(number: int) -> None:
        barrier.wait()
        started.append(start(stores[number], schedule, number))

    threads = [threading.Thread(target=try_to_start, args=(n,)) for n in range(len(stores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(started) == [False, False, False, True]
    assert len(stores[0].schedules.runs(schedule)) == stores[0].inbox.count_pending() == 1


def test_a_run_that_cannot_be_stored_leaves_the_schedule_due(store: SessionStore, clock: FakeClock) -> None:
    schedule = add(store, clock)
    store.inbox.enqueue(inbound(schedule, schedule.next_at_ms), owner="other", ttl_ms=TTL_MS)
    with pytest.raises(StoreError):  # its message has a key that is stored already
        start(store, schedule)
    assert store.schedules.get(schedule.id) == schedule
    assert store.schedules.runs(schedule) == []


def test_missed_runs_are_reported_by_one_run_alone(store: SessionStore, clock: FakeClock) -> None:
    schedule, missed = add(store, clock), MissedRuns(3, 1_000)
    later = schedule.next_at_ms + 3 * HOUR_MS
    assert store.schedules.skip(schedule, next_at_ms=later, missed=missed)
    assert not store.schedules.skip(schedule, next_at_ms=later, missed=missed), "it was moved already"
    schedule = store.schedules.get(schedule.id)
    assert (schedule.next_at_ms, schedule.missed) == (later, missed)
    assert start(store, schedule)
    assert store.schedules.get(schedule.id).missed is None
    assert [run.missed for run in store.schedules.runs(schedule)] == [missed]


def test_a_manual_run_leaves_the_next_due_time(store: SessionStore, clock: FakeClock) -> None:
    schedule = add(store, clock)
    message = inbound(schedule, clock.now_ms())
    assert store.schedules.start_run(schedule, RunStart(clock.now_ms()), message, owner="p", ttl_ms=TTL_MS)
    assert store.schedules.get(schedule.id) == schedule
    assert [run.is_manual for run in store.schedules.runs(schedule)] == [True]


def test_a_run_is_finished_once(store: SessionStore, clock: FakeClock) -> None:
    schedule = add(store, clock)
    assert start(store, schedule)
    (run,) = store.schedules.open_runs()
    assert store.schedules.finish_run(run, outcome="failed", detail="no credit", conversation_id=None)
    assert not store.schedules.finish_run(run, outcome="completed", conversation_id=None)
    (run,) = store.schedules.runs(schedule)
    assert (run.outcome, run.detail, store.schedules.open_runs()) == ("failed", "no credit", [])


def test_old_runs_are_deleted_but_no_open_one(store: SessionStore, clock: FakeClock) -> None:
    schedule = add(store, clock)
    for number in range(MAX_RUNS + 5):
        schedule = store.schedules.get(schedule.id)
        assert start(store, schedule)
        if number:
            run = store.schedules.runs(schedule, limit=1)[0]
            store.schedules.finish_run(run, outcome="completed", conversation_id=None)
    runs = store.schedules.runs(schedule, limit=1_000)
    assert len(runs) == MAX_RUNS + 1
    assert [run.outcome for run in runs].index(None) == MAX_RUNS


def test_deleting_a_conversation_deletes_what_its_run_recorded(store: SessionStore, clock: FakeClock) -> None:
    schedule, session = add(store, clock), conversation(store)
    assert start(store, schedule)
    (run,) = store.schedules.open_runs()
    owner = store.conversations.get(session).id
    assert store.schedules.finish_run(run, outcome="failed", detail="words of it", conversation_id=owner)
    store.delete(session)
    assert store.schedules.runs(schedule) == []
    assert store.schedules.get(schedule.id).next_at_ms > schedule.next_at_ms
