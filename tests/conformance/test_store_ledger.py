"""Calls, events, totals and small state, on every database."""

from __future__ import annotations

import pytest

from perdure.core.errors import LeaseLost, NotFound
from perdure.core.usage import NOT_REPORTED, CanonicalUsage
from perdure.core.visibility import User
from perdure.store import CallRecord, RouteRecord, SessionStore, StoredEvent
from support.store import Backend, FakeClock, compacted, conversation

DAY_MS = 86_400_000
A = CanonicalUsage(21_000, 3_000, 50_000, 10_000, 700, 4_000)


def call(session: str, *, at: int, model: str = "big", task: str = "main", cost: float | None = 0.5) -> CallRecord:
    return CallRecord(
        session, task, "t_1", RouteRecord("openai", model, "chat_completions"), A, cost, 80_000, 200_000, 100_000,
        {"system": 1200, "tail": 300}, "", at, at + 900,
    )  # fmt: skip


@pytest.mark.spec("A4")
def test_a_call_is_stored_immediately_with_every_figure(backend: Backend) -> None:
    store = backend.open()
    session = conversation(store)
    record = call(session, at=1_700_000_000_000)
    store.ledger.record_call(record)
    assert backend.open().ledger.calls(session) == [record]


@pytest.mark.spec("A4", "I1")
def test_a_call_is_written_with_the_reply_it_paid_for_or_not_at_all(store: SessionStore) -> None:
    session = conversation(store)
    paid = call(session, at=1_700_000_000_000)
    store.append(session, [{"role": "assistant", "content": "Yes."}], calls=[paid])
    assert store.ledger.calls(session) == [paid]
    with store.leases.hold(session, "elsewhere"), pytest.raises(LeaseLost):
        store.append(session, [{"role": "assistant", "content": "No."}], calls=[call(session, at=2)])
    assert store.ledger.calls(session) == [paid]


@pytest.mark.spec("A4")
def test_calls_and_events_are_recorded_together_in_order(store: SessionStore, clock: FakeClock) -> None:
    session = conversation(store)
    store.ledger.record([StoredEvent(session, "notice", {"n": 1}), call(session, at=5), StoredEvent(session, "notice")])
    store.ledger.record([])
    assert [e.payload for e in store.ledger.events(session)] == [{"n": 1}, {}]
    assert {e.created_at_ms for e in store.ledger.events(session)} == {clock.now_ms()}
    assert store.ledger.calls(session) == [call(session, at=5)]


@pytest.mark.spec("A4")
def test_an_unreported_call_is_recorded_as_such_with_its_estimate_apart(store: SessionStore) -> None:
    session = conversation(store)
    store.ledger.record_call(call(session, at=1))
    store.ledger.record_call(CallRecord(session, usage=NOT_REPORTED, estimate_tokens=1234, verdict="interrupted"))
    totals = store.ledger.totals(session)
    assert (totals.calls, totals.unreported_calls, totals.unreported_estimate_tokens) == (2, 1, 1234)
    assert (totals.usage.prompt_tokens, totals.usage.total_tokens) == (81_000, 84_000)
    assert (totals.cost_usd, totals.unpriced_calls) == (0.5, 1)
    assert store.ledger.calls(session)[1].usage.reported is False


@pytest.mark.spec("A4", "A5")
def test_unknown_cost_is_not_zero(store: SessionStore) -> None:
    session = conversation(store)
    assert store.ledger.totals(session).cost_usd is None
    assert store.ledger.totals(session).usage.reported is False
    store.ledger.record_call(call(session, at=1, cost=None))
    assert store.ledger.totals(session).cost_usd is None


@pytest.mark.spec("A7")
def test_a_conversation_sums_its_chain_and_a_session_itself(store: SessionStore) -> None:
    first = conversation(store)
    store.ledger.record_call(call(first, at=1))
    second = compacted(store, first)
    store.ledger.record_call(call(second, at=2))
    store.ledger.record_call(call(second, at=3, task="compression", model="small", cost=0.01))
    totals = store.ledger.totals(first)
    assert (totals.calls, totals.compactions, totals.undone_compactions) == (3, 1, 0)
    assert totals.cost_usd == pytest.approx(1.01)
    assert store.ledger.session_totals(first).calls == 1
    assert store.ledger.session_totals(second).calls == 2
    store.undo(first)
    totals = store.ledger.totals(first)
    assert (totals.compactions, totals.undone_compactions) == (1, 1)


@pytest.mark.spec("A7")
def test_usage_by_day_model_source_and_task(store: SessionStore) -> None:
    cli = store.create(source="cli", user_key="ann")
    web = store.create(source="gateway", user_key="bob")
    day = 20_000 * DAY_MS
    store.ledger.record_call(call(cli.id, at=day - 1))
    store.ledger.record_call(call(cli.id, at=day, model="small", task="compression"))
    store.ledger.record_call(call(web.id, at=day + DAY_MS - 1))

    def groups(by: str, **more: object) -> dict[str, int]:
        return {r.group: r.totals.calls for r in store.ledger.usage(by, **more)}  # type: ignore[arg-type]  # a Grouping

    assert groups("day") == {"2024-10-03": 1, "2024-10-04": 2}
    assert groups("model") == {"big": 2, "small": 1}
    assert groups("source") == {"cli": 2, "gateway": 1}
    assert groups("task") == {"compression": 1, "main": 2}
    assert groups("day", since_ms=day) == {"2024-10-04": 2}
    assert groups("model", until_ms=day) == {"big": 1}
    assert groups("source", visibility=User("bob")) == {"gateway": 1}
    (row,) = store.ledger.usage("source", visibility=User("bob"))
    assert row.totals.usage == A


def test_events_are_stored_in_order_and_can_be_followed(store: SessionStore, clock: FakeClock) -> None:
    session = conversation(store)
    store.ledger.record_event(StoredEvent(session, "compaction", {"before": 10, "text": "ünï \ud800\0"}))
    clock.pass_ms(5)
    store.ledger.record_event(StoredEvent(session, "notice", {"n": 1}))
    first, second = store.ledger.events(session)
    assert (first.kind, first.payload["before"], second.created_at_ms - first.created_at_ms) == ("compaction", 10, 5)
    assert [e.kind for e in store.ledger.events(session, after_id=first.id)] == ["notice"]
    assert [e.kind for e in store.ledger.events(session, kind="compaction")] == ["compaction"]


def test_a_call_of_an_unknown_session_is_rejected(store: SessionStore) -> None:
    with pytest.raises(NotFound):
        store.ledger.record_call(call("s_nowhere", at=1))


def test_state_survives_and_scopes_are_separate(backend: Backend) -> None:
    store = backend.open()
    session = conversation(store)
    value = {"strikes": 2, "until": 1.5, "text": "ünï \0 \ud800", "none": None, "list": [True]}
    store.state("cooldown").set("small-model", value)
    store.state("cooldown").set("small-model", {**value, "strikes": 3})
    store.conversation_state(session).set("paused", True)
    again = backend.open()
    assert again.state("cooldown").get("small-model") == {**value, "strikes": 3}
    assert again.state("other").get("small-model") is None
    assert again.conversation_state(session).get("paused") is True
    again.state("cooldown").set("small-model", None)
    assert store.state("cooldown").items() == {}
