"""The list of conversations: in order, in pages, searched and filtered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perdure.core.messages import assistant, user
from perdure.core.usage import CanonicalUsage
from perdure.core.visibility import User
from perdure.store.records import CallRecord, RouteRecord, StoredEvent
from perdure.store.store import SessionStore, open_store
from support.store import FakeClock
from support.web_ui_api import Asking, SeededStore
from support.web_ui_story import EVIL


def test_pages_hold_every_conversation_once_last_used_first(seeded: SeededStore) -> None:
    seen, cursor = [], None
    while True:
        page = seeded.api.get("/conversations", limit=4, **({"cursor": cursor} if cursor else {}))
        seen += page["conversations"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
        assert len(page["conversations"]) == 4
    stored = seeded.store.conversations.list(visibility=User("ann"), limit=1_000).conversations
    assert [row["id"] for row in seen] == [c.id for c in stored]
    assert [row["updated_at"] for row in seen] == sorted((c.updated_at_ms for c in stored), reverse=True)
    assert seeded.story.delegate not in {row["id"] for row in seen}


def test_a_row_says_what_a_list_shows(seeded: SeededStore) -> None:
    rows = {row["id"]: row for row in seeded.api.get("/conversations", limit=200)["conversations"]}
    long = rows[seeded.story.long]
    stored = seeded.store.conversations.get(seeded.story.long)
    assert long["title"] == f"Leases, 租约 {EVIL}"
    assert (long["source"], long["kind"], long["messages"]) == ("terminal", "main", stored.last_seq)
    assert (rows[seeded.story.branch]["kind"], rows[seeded.story.branch]["user_key"]) == ("branch", "ann")


def test_a_conversation_without_a_title_is_called_by_its_first_words(tmp_path: Path) -> None:
    with open_store(tmp_path / "p.db") as store:
        session = store.create(user_key="ann")
        nothing_said = store.create(user_key="ann")
        store.append(session.id, [user("# Why is **the sky** blue?\nTell me."), assistant("Rayleigh.")])
        titles = {r["id"]: r["title"] for r in Asking(store).get("/conversations")["conversations"]}
        assert titles[session.conversation_id] == "Why is the sky blue?"
        assert titles[nothing_said.conversation_id] == ""


def test_filters_narrow_by_source_model_and_time_together(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_store(tmp_path / "p.db", clock=clock) as store:
        made = {}
        for source, model in (("page", "m-1"), ("page", "m-2"), ("telegram", "m-1")):
            made[source, model] = store.create(
                source=source, user_key="ann", route=RouteRecord("x", model)
            ).conversation_id
            clock.pass_ms(1_000)
        api = Asking(store, clock=clock)

        def ids(**narrowed: object) -> list[str]:
            return [r["id"] for r in api.get("/conversations", **narrowed)["conversations"]]

        assert ids(source="page") == [made["page", "m-2"], made["page", "m-1"]]
        assert ids(model="m-1") == [made["telegram", "m-1"], made["page", "m-1"]]
        assert ids(source="page", model="m-1") == [made["page", "m-1"]]
        middle = clock.now_ms() - 2_000
        assert ids(since=middle, until=middle + 1_000) == [made["page", "m-2"]]
        assert ids(source="nobody") == []
        assert ids(source="") == ids()
        assert api.get("/filters") == {"sources": ["page", "telegram"], "models": ["m-1", "m-2"]}


@pytest.mark.spec("I5")
def test_a_search_finds_what_was_said_and_what_it_is_called(seeded: SeededStore) -> None:
    found = seeded.api.get("/conversations", q="lease renewed")["conversations"]
    assert found[0]["id"] == seeded.story.branch
    assert {_marked(row) for row in found[:1]} == {("lease", "renewed")}
    message = seeded.store.timeline.page(found[0]["id"], before_seq=found[0]["hit_seq"] + 1, limit=1).entries[0]
    assert "never renewed" in message.entry.message.text
    by_title = seeded.api.get("/conversations", q="a BRANCH <img")["conversations"]
    assert seeded.story.branch in [row["id"] for row in by_title]
    assert seeded.api.get("/conversations", q="lease", source="telegram")["conversations"] == []
    assert seeded.api.get("/conversations", q="%")["conversations"] == []


def _marked(row: dict[str, object]) -> tuple[str, ...]:
    snippet, marks = row["snippet"], row["marks"]
    assert isinstance(snippet, str)
    assert isinstance(marks, list)
    return tuple(snippet[start:end].lower() for start, end in marks)


@pytest.mark.spec("I5")
def test_marks_count_characters_and_leave_the_text_as_it_was(tmp_path: Path) -> None:
    said = "«guillemets» 🚀🚀 and the needle, «once more» the needle"
    with open_store(tmp_path / "p.db") as store:
        store.append(store.create(user_key="ann").id, user(said))
        (hit,) = Asking(store).get("/search", q="needle")["hits"]
    assert hit["snippet"] == said
    assert [said[start:end] for start, end in hit["marks"]] == ["needle", "needle"]
    assert (hit["seq"], hit["output_id"], hit["role"]) == (1, None, "user")


@pytest.mark.spec("I5")
def test_a_search_looks_into_outputs_that_were_spilled(seeded: SeededStore) -> None:
    hits = seeded.api.get("/search", q="row 01999", limit=50)["hits"]
    kept = [h for h in hits if h["output_id"] is not None]
    assert kept
    assert kept[0]["seq"] is None
    assert kept[0]["title"].startswith("Leases")
    page = seeded.api.get(
        f"/conversations/{kept[0]['conversation_id']}/open", address=f"output:{kept[0]['output_id']}", limit=100
    )
    assert page["next_offset"] == 100


def test_what_a_list_says_is_text_whatever_it_says(seeded: SeededStore) -> None:
    answer = seeded.api.client.get("/api/page/conversations", headers={"x-user": "ann"})
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert EVIL in answer.json()["conversations"][-1]["title"] + str(answer.json())


def _spent(store: SessionStore, title: str, *costs: float | None, window: int = 1_000) -> str:
    session = store.create(user_key="ann", title=title)
    for cost in costs:
        usage = CanonicalUsage(input_tokens=80, cache_read_tokens=20, output_tokens=10)
        route = RouteRecord("x", "m-9")  # chosen after the session had begun
        call = CallRecord(session.id, route=route, usage=usage, cost_usd=cost, window_tokens=window)
        store.ledger.record_call(replace(call, started_at_ms=1, ended_at_ms=2))
    return session.conversation_id


def test_a_row_has_cost_tokens_context_compactions_and_failures(tmp_path: Path) -> None:
    with open_store(tmp_path / "p.db") as store:
        dear = _spent(store, "Dear", 0.25, 0.5, None)
        silent = _spent(store, "Silent")
        tip = store.conversations.get(dear).tip_session_id
        states = {"a": "failed", "b": "completed", ': "failed"': "failed", "d": "refused"}
        failed = [StoredEvent(tip, "turn_failed", {"reason": "no"}), StoredEvent(tip, "tools", {"states": states})]
        store.ledger.record(failed)
        rows = {r["id"]: r["figures"] for r in Asking(store).get("/conversations")["conversations"]}
        assert rows[dear] == {
            "calls": 3,
            "tokens": 330,
            "cost_usd": pytest.approx(0.75),
            "unpriced_calls": 1,
            "unreported_calls": 0,
            "context_tokens": 110,
            "window": 1_000,
            "model": "m-9",
            "compactions": 0,
            "failed_turns": 1,
            "model_refusals": 0,
            "stopped_turns": 0,
            "provider_errors": 0,
            "failed_tool_calls": 2,
            "refused_tool_calls": 1,
        }
        assert (rows[silent]["calls"], rows[silent]["cost_usd"], rows[silent]["context_tokens"]) == (0, None, None)


def test_the_context_of_a_row_is_what_the_gauge_shows(seeded: SeededStore) -> None:
    rows = seeded.api.get("/conversations", limit=200)["conversations"]
    compacted = [r for r in rows if r["figures"]["compactions"]]
    assert compacted
    for row in compacted:
        head = seeded.api.get(f"/conversations/{row['id']}")
        assert row["figures"]["context_tokens"] == head["gauge"]["tokens"]
        assert row["figures"]["window"] == head["gauge"]["window"]
        assert row["figures"]["model"] == head["gauge"]["model"]
        assert row["figures"]["compactions"] == head["totals"]["compactions"]
        assert row["figures"]["cost_usd"] == head["totals"]["cost_usd"]


def test_lists_are_sorted_by_any_figure_in_both_directions_page_by_page(tmp_path: Path) -> None:
    with open_store(tmp_path / "p.db") as store:
        cheap, dear = _spent(store, "Cheap", 0.1, 0.1), _spent(store, "Dear", 5.0, window=200)
        nothing = _spent(store, "Nothing")
        tip = store.conversations.get(nothing).tip_session_id
        store.ledger.record_event(StoredEvent(tip, "turn_failed", {"reason": "no"}))
        api = Asking(store)

        def ids(**asked: object) -> list[str]:
            found, cursor = [], ""
            while True:
                page = api.get("/conversations", limit=1, cursor=cursor, **asked)
                found += [r["id"] for r in page["conversations"]]
                cursor = page["next_cursor"]
                if cursor is None:
                    return found

        assert ids(sort="cost") == [dear, cheap, nothing]
        assert ids(sort="cost", direction="asc") == [nothing, cheap, dear]
        assert ids(sort="tokens") == [cheap, dear, nothing]
        assert ids(sort="context") == [dear, cheap, nothing]
        assert ids(sort="failures")[0] == nothing
        assert ids(only="failed") == [nothing]
        assert ids(only="compacted") == []
        assert api.ask("/conversations", sort="cost", cursor="7:c_x")[0] == 400
        assert api.ask("/conversations", sort="beauty")[0] == 422


def test_a_search_ranks_conversations_as_the_terminal_does(seeded: SeededStore) -> None:
    """Best hit first; a conversation that only its title matches comes after them."""
    query = "lease"
    report = seeded.store.search_index.report(query, visibility=User("ann"), limit=200)
    ranked = list(dict.fromkeys(hit.conversation_id for hit in report.hits))
    named = seeded.store.create(user_key="ann", title="The lease of the flat").conversation_id
    found = [row["id"] for row in seeded.api.get("/conversations", q=query, limit=200)["conversations"]]
    assert found[: len(ranked)] == ranked
    assert found[len(ranked) :] == [named]
