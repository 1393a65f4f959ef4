"""Browsing, moments and savings, on every database: what the page asks of a store."""

from __future__ import annotations

import pytest

from perdure.core.errors import StoreError
from perdure.core.messages import assistant, user
from perdure.core.usage import CanonicalUsage
from perdure.core.visibility import User
from perdure.store import CallRecord, RouteRecord, SessionStore, Span, StoredEvent
from perdure.store.ledger import CompactionSavings, RouteCacheUsage
from perdure.store.listing import ConversationFilter
from perdure.store.records import ToolRun
from support.store import FakeClock, compacted, conversation, exchange


def ids(store: SessionStore, filter_: ConversationFilter, limit: int = 50) -> list[str]:
    """Every page's ids, one page after the other."""
    listed: list[str] = []
    cursor = None
    while True:
        page, cursor = store.listing.page(filter_, cursor=cursor, limit=limit)
        listed += [b.conversation.id for b in page]
        if cursor is None:
            return listed


@pytest.mark.parametrize("limit", [1, 2, 50])
def test_pages_are_in_order_and_filters_combine(store: SessionStore, clock: FakeClock, limit: int) -> None:
    created = []
    for n in range(6):
        route, source = RouteRecord("x", f"m-{n % 2}"), ("page", "telegram", "page")[n % 3]
        created.append(
            store.create(source=source, user_key=("ann", "bob")[n == 5], route=route, title=f"100% talk_{n}")
        )
        clock.pass_ms(n % 2)  # some were last used in the same millisecond
    last_first = [s.conversation_id for s in reversed(created)]
    assert ids(store, ConversationFilter(), limit) == last_first
    assert ids(store, ConversationFilter(visibility=User("ann")), limit) == last_first[1:]
    both = [created[2].conversation_id, created[0].conversation_id]
    assert ids(store, ConversationFilter(visibility=User("ann"), model="m-0", source="page"), limit) == both
    assert ids(store, ConversationFilter(title="100% TALK_3"), limit) == [created[3].conversation_id]
    assert ids(store, ConversationFilter(title="100%_talk"), limit) == []
    store.conversations.set_title(created[1].id, "ÉTÉ à Zürich")
    assert ids(store, ConversationFilter(title="ÉTÉ À zürich"), limit) == []
    assert ids(store, ConversationFilter(title="ÉtÉ à zürich"), limit) == [created[1].conversation_id]
    assert ids(store, ConversationFilter(ids=()), limit) == []
    assert ids(store, ConversationFilter(ids=(created[2].conversation_id, "c_none")), limit) == [
        created[2].conversation_id
    ]
    assert store.listing.sources(User("bob")) == ["page"]
    assert store.listing.models(User("ann")) == ["m-0", "m-1"]
    for cursor in ("", "x", "-1:c", "²:c", "9" * 40 + ":c"):
        with pytest.raises(StoreError):
            store.listing.page(ConversationFilter(), cursor=cursor)


def test_a_row_has_the_model_of_its_tip_and_its_opening_where_it_has_no_title(store: SessionStore) -> None:
    session = store.create(route=RouteRecord("x", "old"))
    store.append(session.id, [assistant("Hello."), user("what was asked"), user("and then")])
    branch = store.conversations.branch(session.id, at_seq=2)
    store.append(branch.id, [assistant("mine"), user("asked in the branch")])
    delegate = store.conversations.delegate(session.id)
    rows = {b.conversation.id: b for b in store.listing.page(ConversationFilter())[0]}
    assert set(rows) == {session.conversation_id, branch.conversation_id}
    openings = [rows[s.conversation_id].opening for s in (session, branch)]
    assert [o.message.text for o in openings if o is not None] == ["what was asked", "asked in the branch"]
    assert rows[session.conversation_id].model == "old"
    children = {b.conversation.id for b in store.listing.page(ConversationFilter(parent_id=session.conversation_id))[0]}
    assert children == {branch.conversation_id, delegate.conversation_id}


def test_conversations_are_listed_by_their_own_state(store: SessionStore, clock: FakeClock) -> None:
    sessions = []
    for folder in ("/a", "/b ü", None, "/a"):
        clock.pass_ms(10)
        sessions.append(session := store.create())
        store.append(session.id, user("hello"))
        store.conversation_state(session.id).set("mode", "ask")
        store.conversation_state(session.id).set("folder", folder)
    ids = [session.conversation_id for session in sessions]

    def listed(state: dict[str, str | None]) -> list[str]:
        return [row.conversation.id for row in store.listing.page(ConversationFilter(state=state))[0]]

    assert listed({"folder": "/a"}) == [ids[3], ids[0]]
    assert listed({"folder": "/b ü", "mode": "ask"}) == [ids[1]]
    assert listed({"folder": None}) == [ids[3], ids[1], ids[0]]
    assert listed({"folder": "/c"}) == listed({"folder": "/a", "mode": "plan"}) == []


def test_timestamps_map_to_the_newest_message_at_the_time(store: SessionStore, clock: FakeClock) -> None:
    session = store.create()
    began = clock.now_ms()
    for n in range(4):
        clock.pass_ms(100)
        store.append(session.id, user(f"m{n}"))
    times = [began, began + 100, began + 150, began + 400, began + 9_999]
    assert store.timeline.last_seqs_at(session.id, times) == [0, 1, 1, 4, 4]
    assert store.timeline.last_seqs_at(session.id, []) == []
    branch = store.conversations.branch(session.id, at_seq=2)
    clock.pass_ms(100)
    store.append(branch.id, user("mine"))
    assert store.timeline.last_seqs_at(branch.id, [began + 200, clock.now_ms()]) == [2, 3]


def test_events_belong_to_the_span_they_happened_in(store: SessionStore, clock: FakeClock) -> None:
    session = store.create()
    store.ledger.record_event(StoredEvent(session.id, "notice", {"n": 0}))
    for n in range(1, 5):
        clock.pass_ms(10)
        store.append(session.id, user(f"m{n}"))
        clock.pass_ms(10)
        store.ledger.record_event(StoredEvent(session.id, "notice", {"n": n}))

    def placed(lo: int, hi: int) -> list[tuple[int, int]]:
        return [(seq, e.payload["n"]) for seq, e in store.timeline.events_between(session.id, Span(lo, hi))]

    assert placed(1, 4) == [(1, 0), (1, 1), (2, 2), (3, 3), (4, 4)]
    assert placed(1, 2) + placed(3, 4) == placed(1, 4)
    assert placed(2, 2) == [(2, 2)]
    assert placed(9, 12) == []
    assert len(store.timeline.events_between(session.id, Span(1, 4), limit=2)) == 2


def test_events_are_written_with_their_messages_or_not_at_all(store: SessionStore, clock: FakeClock) -> None:
    session = store.create()
    payload = StoredEvent(session.id, "tools", {"seconds": {"call_1": 1.5}})
    store.append(session.id, exchange(1), events=[payload])
    store.append(session.id, exchange(1), after_seq=0, events=[payload])
    (stored,) = store.ledger.events(session.id, kind="tools")
    assert stored.created_at_ms == clock.now_ms()
    assert store.timeline.tool_runs(session.id, Span(1, 4)) == {(clock.now_ms(), "call_1"): ToolRun(1.5)}
    assert store.timeline.events_between(session.id, Span(1, 4)) == []
    clock.pass_ms(5)
    store.append(session.id, exchange(2), events=[StoredEvent(session.id, "tools", {"seconds": {"call_1": 2.5}})])
    assert store.timeline.tool_runs(session.id, Span(5, 8)) == {(clock.now_ms(), "call_1"): ToolRun(2.5)}
    with pytest.raises(StoreError):
        store.append(session.id, exchange(3), after_seq=99, events=[payload])
    assert len(store.ledger.events(session.id, kind="tools")) == 2


def test_stored_bodies_and_a_view_without_its_messages(store: SessionStore) -> None:
    session = conversation(store)
    child = compacted(store, session)
    bodies = store.timeline.bodies(child, Span(1, 21))
    assert [(seq, kind) for seq, kind, _ in bodies][::20] == [(1, "user"), (21, "handoff")]
    assert b'"question 0"' in bodies[0][2]
    assert store.log.view(child) == (Span(1, 2), Span(21, 21), Span(17, 20))
    assert store.log.view(session) == (Span(1, 20),)


def test_savings_count_cached_and_removed_tokens(store: SessionStore, clock: FakeClock) -> None:
    session = conversation(store)
    route = RouteRecord("openai", "m")
    usage = CanonicalUsage(input_tokens=10, cache_read_tokens=90, cache_write_tokens=7, cache_write_1h_tokens=2)
    store.ledger.record_call(CallRecord(session, route=route, usage=usage))
    assert store.savings.compactions() == []
    clock.pass_ms(10)
    payload = {
        "outcome": "compacted",
        "before": 1,
        "after": 1,
        "prompt_before": 900,
        "prompt_after": 400,
        "cost_usd": 0.1,
    }
    store.ledger.record_event(StoredEvent(compacted(store, session), "compaction", payload))
    clock.pass_ms(10)
    for task in ("main", "compression", "main"):
        store.ledger.record_call(CallRecord(session, task=task, route=route, usage=usage))
    assert store.savings.cache_usage() == [
        RouteCacheUsage(route, CanonicalUsage(input_tokens=40, cache_read_tokens=360, cache_write_tokens=28,
                                       cache_write_1h_tokens=8))
    ]  # fmt: skip
    assert store.savings.compactions() == [CompactionSavings(500, 0.1, ((route, 2),))]
    assert store.savings.compactions(visibility=User("somebody")) == []
    assert store.savings.compactions(since_ms=clock.now_ms() + 1) == []
    assert store.savings.cache_usage(visibility=User("somebody")) == []
