"""What failed, why it was compacted and what was kept: found from a conversation's header and its timeline."""

from __future__ import annotations

from itertools import pairwise

import pytest

from perdure.core.messages import ToolCall, assistant, tool_result, user
from perdure.core.usage import NOT_REPORTED, CanonicalUsage
from perdure.core.visibility import Everyone
from perdure.store.records import CallRecord, RouteRecord, StoredEvent
from perdure.store.store import SessionStore
from support.axe import axe_findings
from support.browser import Page
from support.web_ui_server import WebUIServer
from support.web_ui_story import Story

SeededSite = tuple[WebUIServer, Story]
TARGET = "document.querySelector('.is-target:focus')"
EVIL = '<img src=x onerror="window.pwned=1">'


def troubled(store: SessionStore) -> str:
    """A failed tool call far above, a refusal, a failed turn and a stop."""
    session = store.create(title="Trouble")
    run = StoredEvent(session.id, "tools", {"states": {"c1": "failed"}, "exit_codes": {"c1": 3}})
    store.append(session.id, [user("go"), assistant(None, (ToolCall("c1", "terminal", "{}"),))])
    store.append(session.id, tool_result("c1", "[exit 3]\nno", name="terminal", state="failed"), events=[run])
    store.append(session.id, [user(f"m{n}") for n in range(90)])
    for kind, payload in (
        ("model_refused", {"model": f"m {EVIL}"}),
        ("turn_failed", {"reason": f"401: wrong key {EVIL}"}),
        ("turn_stopped", {}),
    ):
        store.append(session.id, user(kind))
        store.ledger.record_event(StoredEvent(session.id, kind, payload))
    return session.conversation_id


def test_the_header_counts_failures_and_a_click_visits_them_one_by_one(page: Page, seeded: SeededSite) -> None:
    server, _ = seeded
    conversation = troubled(server.store)
    page.open(server.link(f"/c/{conversation}"))
    page.wait_text("3 failures · ■ 1 stop", inside=".tabs")
    assert "1 failed turn" in page.text(".head .facts")
    page.click(".tabs .failures")
    page.wait(f"{TARGET}?.matches('.tool-call.failed')")
    page.wait_text("1 of 4 · next", inside=".tabs")
    for number, kind in enumerate(("model_refused", "turn_failed", "turn_stopped"), 2):
        page.click(".tabs .failures")
        page.wait(f"{TARGET}?.matches('.event.{kind}')")
        page.wait_text(f"{number} of 4 · next", inside=".tabs")
    # After the last one, the first again; and the address leads there in a new tab, too.
    page.click(".tabs .failures")
    page.wait(f"{TARGET}?.matches('.tool-call.failed')")
    assert axe_findings(page) == []


def test_the_events_of_a_conversation_are_filtered_by_kind(page: Page, seeded: SeededSite) -> None:
    server, story = seeded
    page.open(server.link(f"/c/{story.long}/context"))
    page.wait("document.querySelector('.events li')")
    every = page.count(".events li")
    choose = (
        "(v => { const s = document.querySelector('#event-kind'); s.value = v; s.dispatchEvent(new Event('change')) })"
    )
    page.run(f"{choose}('failures')")
    assert 0 < page.count(".events li") == page.count(".events li.failure") < every
    page.run(f"{choose}('compaction')")
    assert page.count(".events li") == page.count(".events li.compaction") == 4
    page.run(f"{choose}('')")
    assert page.count(".events li") == every


def test_the_list_shows_only_conversations_with_failures(page: Page, seeded: SeededSite) -> None:
    server, story = seeded
    conversation = troubled(server.store)
    page.open(server.link("/?only=refused"))
    page.wait(f"document.querySelector('[data-id={conversation}]')")
    words = page.text(f"[data-id={conversation}] .went-wrong")
    assert words.split(", ") == ["1 failed turn", "1 refused", "1 failed tool call", "1 stopped"]
    assert not page.run(f"document.querySelector('[data-id={story.branch}]')")


@pytest.mark.parametrize("width", [390, 1280])
def test_a_compaction_says_why_and_leads_to_what_was_kept(page: Page, seeded: SeededSite, width: int) -> None:
    server, story = seeded
    page.resize(width, 900)
    newest = max(server.store.log.handoffs(story.long))
    page.open(server.link(f"/c/{story.long}"))
    page.click(".head .facts a[href*='/m/']")
    page.wait(f"document.querySelector('#m-{newest} .compaction-facts dd')")
    facts = page.text(f"#m-{newest} .compaction-facts")
    assert "threshold of 6,000 tokens" in facts or "too long for the model's window" in facts
    assert " → " in facts
    assert "Cost" in facts
    card = f"document.querySelector('#m-{newest} .handoff-card')"
    assert page.run(f"{card}.querySelector('.button').getBoundingClientRect().right") <= page.run(
        f"{card}.getBoundingClientRect().right"
    )
    # The compaction is told once: in the card of its handoff.
    assert page.count(f"#m-{newest} ~ .event.compaction") == 0
    page.click(f"#m-{newest} .handoff-card a.button")
    page.wait_text("What the model reads now")


@pytest.mark.parametrize("width", [390, 1024, 1440])
def test_no_label_of_the_chart_covers_another_or_an_arrow(page: Page, seeded: SeededSite, width: int) -> None:
    server, story = seeded
    page.resize(width, 800)
    page.open(server.link(f"/c/{story.long}/context"))
    page.wait("document.querySelector('.plot .label')")
    boxes = page.run(
        "[...document.querySelectorAll('.plot .label, .plot .drop, .plot .drop-end')].map(e => {"
        " const { left, right, top, bottom } = e.getBoundingClientRect();"
        " return [e.classList[0], left, right, top, bottom] })"
    )
    labels = [box for box in boxes if box[0] == "label"]
    assert len(labels) >= 2
    overlaps = [
        (a, b)
        for a in labels
        for b in boxes
        if a is not b and a[1] < b[2] and b[1] < a[2] and a[3] < b[4] and b[3] < a[4]
    ]
    assert overlaps == []
    marks = page.run(
        "[...document.querySelectorAll('.lane .mark')].map(e => e.getBoundingClientRect())"
        ".map(({ left, right, top }) => [top, left, right]).sort((a, b) => a[0] - b[0] || a[1] - b[1])"
    )
    assert all(a[0] != b[0] or a[2] <= b[1] for a, b in pairwise(marks))


def test_a_stop_of_the_users_own_is_no_failure(page: Page, seeded: SeededSite) -> None:
    server, _ = seeded
    session = server.store.create(title="Only stops")
    stopped = StoredEvent(session.id, "partial_reply", {"why": "interrupted", "text": "As I was say"})
    server.store.append(session.id, user("go"), events=[stopped])
    page.open(server.link(f"/c/{session.conversation_id}"))
    page.wait_text("■ 1 stop", inside=".tabs")
    assert "failure" not in page.text(".tabs")
    page.wait_text("■", inside=".event.partial .sign")  # the timeline may be drawn after the header
    page.open(server.link("/"))
    # A row that the browser has not laid out yet has no text.
    page.wait_text("1 stopped", inside=f"[data-id={session.conversation_id}] .went-wrong")
    assert page.text(f"[data-id={session.conversation_id}] .went-wrong") == "1 stopped"
    assert page.count(f"[data-id={session.conversation_id}] .failed") == 0


def test_a_call_the_user_refused_is_no_failure(page: Page, seeded: SeededSite) -> None:
    server, _ = seeded
    session = server.store.create(title="Only a refusal")
    run = StoredEvent(session.id, "tools", {"states": {"c1": "refused"}})
    call = assistant(None, (ToolCall("c1", "terminal", '{"command": "rm -rf build"}'),))
    server.store.append(session.id, [user("go"), call])
    server.store.append(session.id, tool_result("c1", "no", name="terminal", state="refused"), events=[run])
    page.open(server.link(f"/c/{session.conversation_id}"))
    page.wait_text("⊘ 1 refused call", inside=".tabs")
    assert "failure" not in page.text(".tabs")
    assert page.text(".head .facts .failed") == ""
    page.click(".tabs .failures")
    page.wait(f"{TARGET}?.matches('.tool-call.refused')")
    page.open(server.link("/?only=failures"))
    page.wait("document.querySelector('[data-id]')")
    assert page.count(f"[data-id={session.conversation_id}]") == 0


@pytest.mark.spec("A7")
def test_a_cost_that_leaves_calls_out_says_which_and_why(page: Page, seeded: SeededSite) -> None:
    """Each call is left out for one reason: a stopped call of a model with a price is not one without a price."""
    server, _ = seeded
    session = server.store.create(title="Stopped twice")
    server.store.append(session.id, user("go"))
    priced, priceless = RouteRecord("openai", "priced"), RouteRecord("custom", "priceless")
    usage = CanonicalUsage(input_tokens=900, output_tokens=10)
    for route, used, cost in ((priced, usage, 0.5), (priced, NOT_REPORTED, None), (priceless, usage, None)):
        call = CallRecord(session.id, route=route, usage=used, cost_usd=cost, window_tokens=500, estimate_tokens=900)
        server.store.ledger.record_call(call)
    unreported = "1 call without token counts (stopped, or broken off by the provider)"
    reasons = f"{unreported} and 1 call to models without a known price"
    page.open(server.link(f"/c/{session.conversation_id}"))
    page.wait_text("$0.500+ without 2 of 3 calls", inside=".head .facts")
    assert reasons in page.run("document.querySelector('.head .facts .cost').title")
    # More than the window holds is a warning.
    assert page.run("document.querySelector('.desk .gauge').matches('.over')")
    page.open(server.link("/"))
    page.wait_text("A cost with “+” leaves some calls out")
    assert reasons in page.run(f"document.querySelector('[data-id={session.conversation_id}] .cost').title")
    assert page.count(f"[data-id={session.conversation_id}] .context.over") == 1
    page.open(server.link("/usage"))
    page.wait("document.querySelector('.cost-note')")
    totals = server.store.ledger.usage("model", since_ms=0, visibility=Everyone())
    stopped = sum(row.totals.unreported_calls for row in totals)
    priceless_calls = sum(row.totals.unpriced_calls for row in totals) - stopped
    note = page.text(".cost-note")
    assert f"{stopped} call" in note.partition(" and ")[0]
    assert f"{priceless_calls} call" in note.partition(" and ")[2]
    assert axe_findings(page) == []


def test_the_plus_behind_a_cost_is_explained_where_there_is_one(page: Page, seeded: SeededSite) -> None:
    server, _ = seeded
    session = server.store.create(title="No price at all", source="no-prices")
    server.store.append(session.id, user("go"))
    usage = CanonicalUsage(input_tokens=900, output_tokens=10)
    route = RouteRecord("custom", "priceless-alone")
    server.store.ledger.record_call(CallRecord(session.id, route=route, usage=usage))
    page.open(server.link("/?source=no-prices"))
    page.wait(f"document.querySelector('[data-id={session.conversation_id}]')")
    assert page.run("document.querySelector('.cost-hint').hidden")
