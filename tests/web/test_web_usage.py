"""Usage and cost: the ledger's own sums, and what caching and compaction spared, reckoned by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.config.settings import ModelOverride
from perdure.core.usage import CanonicalUsage
from perdure.core.visibility import User
from perdure.models.catalog import Catalog, Prices
from perdure.store.ledger import CompactionSavings, RouteCacheUsage
from perdure.store.records import CallRecord, RouteRecord, StoredEvent
from perdure.store.store import SessionStore, open_store
from perdure.web.views.usage import DAY_MS, saved_by_cache, saved_by_compaction
from support.store import FakeClock, compacted, conversation
from support.web_ui_api import Asking, SeededStore

PRICED, UNPRICED = RouteRecord("openai", "priced"), RouteRecord("custom", "unpriced")
FREE = Prices(0.0, 0.0, 0.0)
DEAR = Prices(3.0, 15.0, 0.3, 3.75, 6.0)


def prices(route: RouteRecord) -> Prices:
    return DEAR if route == PRICED else Prices()


@pytest.mark.spec("A7")
@pytest.mark.parametrize("by", ["by_day", "by_model", "by_source", "by_task"])
def test_every_grouping_sums_to_the_same_totals(seeded: SeededStore, by: str) -> None:
    usage = seeded.api.get("/usage", days=7)
    calls = [c for i in _ids(seeded.store) for c in seeded.store.ledger.calls(i)]
    assert sum(g["totals"]["calls"] for g in usage[by]) == usage["totals"]["calls"] == len(calls)
    for name in ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens"):
        summed = sum(getattr(c.usage, name) for c in calls)
        assert sum(g["totals"][name] for g in usage[by]) == usage["totals"][name] == summed
    cost = sum(c.cost_usd or 0.0 for c in calls)
    assert usage["totals"]["cost_usd"] == pytest.approx(cost)
    assert usage["totals"]["unreported_calls"] == sum(not c.usage.reported for c in calls)
    refused = [c for c in calls if c.verdict == "rate_limit"]
    assert refused
    assert all(c.usage.reported and not c.usage.total_tokens for c in refused), "a refusal is never billed"


def _ids(store: SessionStore) -> list[str]:
    return [c.id for c in store.conversations.list(visibility=User("ann"), limit=1_000).conversations]


@pytest.mark.spec("A7")
def test_a_conversation_s_head_has_its_own_totals_and_gauge(seeded: SeededStore) -> None:
    head = seeded.api.get(f"/conversations/{seeded.story.long}")
    totals = seeded.store.ledger.totals(seeded.story.long)
    last = [c for c in seeded.store.ledger.calls(seeded.story.long) if c.task == "main"][-1]
    assert head["totals"]["calls"] == totals.calls
    assert head["totals"]["compactions"] == totals.compactions == len(head["handoffs"])
    compacted = seeded.store.ledger.events(seeded.story.long, kind="compaction")[-1]
    is_compacted_since = compacted.created_at_ms > last.started_at_ms
    used = compacted.payload["prompt_after"] if is_compacted_since else last.usage.total_tokens
    assert head["gauge"]["tokens"] == used
    assert (head["gauge"]["window"], head["gauge"]["threshold"]) == (last.window_tokens, last.threshold_tokens)
    assert {c["id"] for c in head["children"]} == {seeded.story.branch, seeded.story.delegate}
    assert [s["began_by"] for s in head["sessions"]][:2] == ["start", "compression"]
    assert head["sessions"][-1]["id"] == head["tip_session_id"]


@pytest.mark.spec("A7")
def test_the_gauge_follows_a_compaction_and_its_undo_before_the_next_call(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_store(tmp_path / "p.db", clock=clock) as store:
        session, api = conversation(store), Asking(store, clock=clock)

        def gauge() -> tuple[int, dict[str, int]] | None:
            clock.pass_ms(1_000)
            shown = api.get(f"/conversations/{session}", user=None)["gauge"]
            return (shown["tokens"], shown["composition"]) if shown is not None else None

        def call(tokens: int) -> None:
            usage = CanonicalUsage(input_tokens=tokens - 10, output_tokens=10)
            store.ledger.record_call(CallRecord(session, route=PRICED, usage=usage, composition={"tail": tokens}))

        assert gauge() is None
        call(900)
        assert gauge() == (900, {"tail": 900})
        for outcome, size in (("failed", 900), ("compacted", 300)):
            seeded = {"outcome": outcome, "prompt_before": 950, "prompt_after": size}
            at = compacted(store, session) if outcome == "compacted" else session
            store.ledger.record_event(StoredEvent(at, "compaction", seeded))
            assert gauge() == ((300, {}) if outcome == "compacted" else (900, {"tail": 900}))
        store.undo(session)
        assert gauge() == (950, {})
        call(960)
        assert gauge() == (960, {"tail": 960})


@pytest.mark.spec("A7")
def test_an_undo_after_further_calls_counts_what_was_said_since(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_store(tmp_path / "p.db", clock=clock) as store:
        session, api = conversation(store), Asking(store, clock=clock)

        def shown() -> list[int]:
            clock.pass_ms(1_000)
            [row] = api.get("/conversations", user=None)["conversations"]
            head = api.get(f"/conversations/{session}", user=None)
            return [head["gauge"]["tokens"], row["figures"]["context_tokens"]]

        def call(tokens: int) -> None:
            usage = CanonicalUsage(input_tokens=tokens - 10, output_tokens=10)
            store.ledger.record_call(CallRecord(session, route=PRICED, usage=usage))

        call(940)
        sizes = {"outcome": "compacted", "prompt_before": 950, "prompt_after": 300}
        store.ledger.record_event(StoredEvent(compacted(store, session), "compaction", sizes))
        assert shown() == [300, 300]
        call(500)
        assert shown() == [500, 500]
        store.undo(session)
        assert shown() == [1_150, 1_150]


def test_saved_by_the_cache_is_what_reads_spared_less_what_writes_cost_more() -> None:
    usage = CanonicalUsage(
        input_tokens=5, cache_read_tokens=1_000_000, cache_write_tokens=300_000, cache_write_1h_tokens=100_000
    )
    # 1M × (3 − 0.3) − 0.2M × (3.75 − 3) − 0.1M × (6 − 3)
    assert saved_by_cache([RouteCacheUsage(PRICED, usage)], prices) == pytest.approx(2.7 - 0.15 - 0.3)
    assert saved_by_cache([RouteCacheUsage(UNPRICED, usage)], prices) is None
    free = RouteRecord("local", "free")
    both = [RouteCacheUsage(free, usage), RouteCacheUsage(UNPRICED, usage)]
    assert saved_by_cache(both, lambda route: FREE if route == free else prices(route)) is None
    assert saved_by_cache(both[:1], lambda route: FREE) == 0.0
    assert saved_by_cache([RouteCacheUsage(PRICED, CanonicalUsage(input_tokens=9))], prices) is None
    assert saved_by_cache([], prices) is None


def test_saved_by_compaction_counts_later_calls_at_the_price_of_a_cache_read_less_the_handoff() -> None:
    spared = [
        CompactionSavings(100_000, 0.02, ((PRICED, 10),)),
        CompactionSavings(50_000, None, ((PRICED, 2), (UNPRICED, 4))),
    ]
    assert saved_by_compaction(spared, prices) == pytest.approx(0.3 * (1.0 + 0.1) - 0.02)
    assert saved_by_compaction(spared[1:], lambda _: Prices(2.0)) == pytest.approx(0.6)
    assert saved_by_compaction(spared, lambda _: Prices()) is None
    assert saved_by_compaction([], prices) is None


def test_a_compaction_spares_the_main_calls_until_the_next_one(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_store(tmp_path / "p.db", clock=clock) as store:
        session = conversation(store)

        def calls(number: int, **fields: str) -> None:
            for _ in range(number):
                clock.pass_ms(1_000)
                store.ledger.record_call(
                    CallRecord(session, route=PRICED, usage=CanonicalUsage(input_tokens=9), **fields)
                )

        def compact(before: int, after: int, outcome: str = "compacted") -> None:
            clock.pass_ms(1_000)
            payload = {"outcome": outcome, "reason": "preflight", "before": before, "after": after, "cost_usd": 0.5}
            store.ledger.record_event(StoredEvent(compacted(store, session), "compaction", payload))

        calls(5)
        compact(900, 300)
        calls(3)
        calls(2, task="compression")
        compact(700, 700, "failed")
        calls(1)
        compact(800, 400, "digest")
        calls(2)
        api = Asking(store, clock=clock)
        assert api.get("/usage", user="", days=1)["saved_by_compaction_tokens"] == 600 * 4 + 400 * 2
        assert store.savings.compactions() == [
            CompactionSavings(600, 0.5, ((RouteRecord("openai", "priced"), 4),)),
            CompactionSavings(400, 0.5, ((RouteRecord("openai", "priced"), 2),)),
        ]  # fmt: skip
        assert api.get("/usage", user="", days=1)["totals"]["compactions"] == 2
        assert api.get("/usage", user="bob", days=1)["saved_by_compaction_tokens"] == 0


def test_the_person_s_own_prices_count(tmp_path: Path) -> None:
    own = ModelOverride(
        provider="custom", model="unpriced", input_price_per_mtok=2.0, output_price_per_mtok=8.0,
        cache_read_price_per_mtok=0.5,
    )  # fmt: skip
    with open_store(tmp_path / "p.db") as store:
        session = store.create(user_key="ann")
        usage = CanonicalUsage(input_tokens=1, cache_read_tokens=2_000_000)
        store.ledger.record_call(CallRecord(session.id, route=UNPRICED, usage=usage))
        assert Asking(store).get("/usage")["saved_by_cache_usd"] is None
        assert Asking(store, catalog=Catalog([own])).get("/usage")["saved_by_cache_usd"] == pytest.approx(3.0)


def test_days_are_whole_days_and_today_is_one_of_them(tmp_path: Path) -> None:
    clock = FakeClock(1_800_000_000_000 // DAY_MS * DAY_MS + 5_000)
    with open_store(tmp_path / "p.db", clock=clock) as store:
        session = store.create(user_key="ann", source="page")
        for _ in range(3):
            store.ledger.record_call(CallRecord(session.id, route=PRICED, usage=CanonicalUsage(input_tokens=100)))
            clock.pass_ms(DAY_MS)
        clock.pass_ms(-DAY_MS)
        api = Asking(store, clock=clock)
        assert [len(api.get("/usage", days=n)["by_day"]) for n in (1, 2, 3, 30)] == [1, 2, 3, 3]
        today = api.get("/usage", days=1)
    assert today["by_day"][0]["group"] == "2027-01-17"
    assert today["saved_by_cache_usd"] is None
    assert today["saved_by_compaction_usd"] is None


def test_the_most_expensive_conversations_and_models_come_first(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_store(tmp_path / "p.db", clock=clock) as store:
        spent = {"Cheap": (0.1, "a-model"), "Dear": (3.0, "z-model"), "Old": (9.0, "old")}
        for title, (cost, model) in spent.items():
            session = store.create(user_key="ann", title=title)
            when = clock.now_ms() - (40 * DAY_MS if title == "Old" else 0)
            call = CallRecord(session.id, route=RouteRecord("x", model), cost_usd=cost, started_at_ms=when)
            store.ledger.record_call(call)
        store.ledger.record_call(CallRecord(store.create(user_key="bob", title="Not ann's").id, cost_usd=99.0))
        for cost_usd in (None, 0.0):  # neither is expensive
            route = RouteRecord("x", "a-model")
            session = store.create(user_key="ann", title="No price")
            store.ledger.record_call(CallRecord(session.id, route=route, cost_usd=cost_usd))
        usage = Asking(store, clock=clock).get("/usage", days=7)
        assert [(c["title"], c["totals"]["cost_usd"]) for c in usage["costliest"]] == [("Dear", 3.0), ("Cheap", 0.1)]
        assert [g["group"] for g in usage["by_model"]] == ["z-model", "a-model"]
