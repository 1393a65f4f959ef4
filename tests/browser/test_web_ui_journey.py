"""A person looks for something, finds it, sees why it was compacted, checks the handoff, and takes it back."""

from __future__ import annotations

import time

import pytest

from perdure.core.messages import assistant, user
from support.browser import Chromium, Page
from support.web_ui_server import WebUIServer
from support.web_ui_story import Story

SeededSite = tuple[WebUIServer, Story]


@pytest.mark.spec("A7", "I4", "I5", "E11", "E12")
def test_search_open_chart_handoff_sources_undo(page: Page, seeded: SeededSite) -> None:
    server, story = seeded
    page.open(server.link())
    page.wait("document.querySelector('.row')")
    assert "token" not in page.run("location.href")

    page.click("#q")
    page.type("lose their lease")
    page.wait("document.querySelector('.snippet mark')")
    page.click(f".row[data-id='{story.long}'] a[href*='/m/']")
    page.wait("document.querySelector('.timeline .is-target')")
    assert "lease" in page.text(".is-target").lower()

    page.click("text/Context")
    page.wait("document.querySelector('.plot svg .area')")
    page.wait_text("Why it was compacted last")
    because = page.text(".because")
    assert because.startswith("Last time: Compacted: ")
    assert "because the prompt reached the threshold of 6,000" in because.replace("had reached", "reached")
    assert page.count(".mark.compaction") == 4

    page.click("text/What the handoff kept, and from where")
    page.wait("document.querySelector('.fact:not(.unsupported):not(.sample)')")
    page.wait_text("not found in any of them")
    page.click(".sections .fact:not(.unsupported)")
    page.wait("document.querySelector('.source mark')")
    chosen = page.run("document.querySelector('.fact[aria-pressed=true]').firstChild.data")
    assert page.text(".source mark").lower() == chosen.lower()
    # The other way: a source names its facts, and choosing one marks it in the handoff.
    page.click(".source details summary")
    page.click(".source .backlinks li:last-child .fact")
    other = page.wait("document.querySelector('.sections .fact[aria-pressed=true]')?.firstChild.data")
    assert other in page.text(".sources")

    # Sections are Markdown; the record stands apart, and each of its entries leads to its message.
    assert page.count(".sections ol li") > 0
    # It is open, and a line above says what it holds.
    assert page.run("document.querySelector('.record').open")
    assert "messages of the user" in page.text(".contents")
    assert "by its address" in page.text(".contents")
    assert page.run("document.querySelector('.record .user .address').hash").startswith(f"#/c/{story.long}/m/")

    page.click("text/Undo this compaction")
    page.click("text/Take it back")
    page.wait_text("The last compaction is undone")


def test_a_session_id_opens_its_conversation(page: Page, seeded: SeededSite) -> None:
    server, story = seeded
    first = server.store.conversations.sessions(story.long)[0].id
    page.open(server.link(f"/c/{first}"))
    page.wait(f"location.hash === '#/c/{story.long}'")


def test_a_deep_link_shows_its_message_and_the_next_one_follows(page: Page, seeded: SeededSite) -> None:
    server, story = seeded
    page.open(server.link(f"/c/{story.long}/m/3"))
    page.wait("document.activeElement?.id === 'm-3'")
    page.run(f"location.hash = '#/c/{story.long}/m/60'")
    page.wait("document.activeElement?.id === 'm-60'")
    page.wait("(({ top, bottom }) => top > 0 && bottom < innerHeight)(document.activeElement.getBoundingClientRect())")


def test_a_spilled_output_opens_and_pages(page: Page, seeded: SeededSite) -> None:
    server, story = seeded
    page.open(server.link(f"/c/{story.long}/m/1"))
    page.wait("document.activeElement?.id === 'm-1'")
    page.click(".tool-call.spilled summary")
    page.click(".tool-call.spilled .opened button")
    page.wait("document.querySelector('.opened-text')?.textContent.includes('row 00007')")
    page.click(".pager button:nth-child(2)")
    page.wait("!document.querySelector('.opened-text').textContent.includes('row 00007')")
    assert "20,001" in page.text(".pager")


def test_the_chart_answers_to_the_keyboard_the_mouse_and_a_click(page: Page, seeded: SeededSite) -> None:
    server, story = seeded
    page.open(server.link(f"/c/{story.long}/context"))
    page.wait("document.querySelector('.plot svg .area')")
    page.run("document.querySelector('.plot').focus()")
    page.press("Home")
    assert page.run("document.querySelector('.plot').getAttribute('aria-valuetext')").startswith("Call 1 of ")
    page.press("PageDown")
    page.press("PageDown")
    spoken = page.run("document.querySelector('.plot').getAttribute('aria-valuetext')")
    assert "Before it, compacted: " in spoken
    assert "Compacted: " in page.text(".readout")
    box = page.run("(b => [b.x, b.y, b.width, b.height])(document.querySelector('.plot').getBoundingClientRect())")
    page.hover(box[0] + box[2] - 15, box[1] + box[3] / 2)
    calls = page.run("document.querySelector('.plot').getAttribute('aria-valuemax')")
    assert f"Call {calls} of {calls}" in page.text(".readout")
    page.run("document.querySelector('.plot').focus()")
    page.press("Enter")
    page.wait("location.hash.includes('/m/') && document.querySelector('.is-target')")


def test_titles_are_edited_where_they_stand(page: Page, seeded: SeededSite) -> None:
    server, story = seeded
    page.open(server.link(f"/c/{story.branch}"))
    page.wait("document.querySelector('.timeline .message')")
    page.click("h1 .rename")
    page.wait("document.querySelector('.renaming input')")
    page.run("document.querySelector('.renaming input').select()")
    page.type("Another way, tried")
    page.press("Enter")
    page.wait_text("Another way, tried", inside="h1")
    assert server.store.conversations.get(story.branch).title == "Another way, tried"


def test_filters_narrow_the_list_and_stay_in_the_address(page: Page, seeded: SeededSite) -> None:
    server, _ = seeded
    page.open(server.link("/?source=telegram"))
    page.wait("document.querySelector('.row')")
    sources = page.run(
        "[...new Set([...document.querySelectorAll('.row .facts span:nth-child(2)')].map(e => e.textContent))]"
    )
    assert sources == ["telegram"]
    page.wait("document.querySelector('#filter-source').value === 'telegram'")
    page.open(server.link("/?since=2001-01-01&until=2001-12-31"))
    page.wait_text("Nothing fits.")


def test_the_filters_look_the_same_after_every_other_view(page: Page, seeded: SeededSite) -> None:
    server, story = seeded
    labels = "[...document.querySelectorAll('.filters label[for^=filter]')]"
    tops = f"{labels}.map(e => Math.round(e.getBoundingClientRect().y))"
    page.open(server.link("/"))
    page.wait("document.querySelector('.row')")
    before = page.run(tops)
    for path, ready in (
        (f"/c/{story.long}/context", ".plot .area"),
        (f"/c/{story.long}/handoff", ".sections"),
        ("/usage", ".tiles"),
    ):
        page.run(f"location.hash = {'#' + path!r}")
        page.wait(f"document.querySelector({ready!r})")
    page.run("location.hash = '#/'")
    page.wait("document.querySelector('.row')")
    assert page.run(tops) == before


def test_every_hit_of_a_search_can_be_listed(page: Page, seeded: SeededSite) -> None:
    server, _ = seeded
    page.open(server.link("/?q=invoice&show=hits"))
    page.wait_text("inside a stored tool output")


@pytest.mark.spec("I5")
def test_what_happens_elsewhere_appears_within_a_second(page: Page, seeded: SeededSite) -> None:
    server, story = seeded
    page.open(server.link(f"/c/{story.delegate}"))
    page.wait("document.querySelector('#m-2')")
    time.sleep(0.5)
    tip = server.store.conversations.get(story.delegate).tip_session_id
    took_s = []
    # A loaded machine only ever makes it later: the best of a few is what the page can do.
    for n in range(5):
        said = time.monotonic()
        server.store.append(tip, [user("Said in a terminal."), assistant(f"Heard on the page, {n}.")])
        page.wait_text(f"Heard on the page, {n}.")
        took_s.append(time.monotonic() - said)
        if took_s[-1] < 1.0:
            break
    assert min(took_s) < 1.0


def test_a_header_that_is_drawn_again_keeps_its_links_and_the_focus(page: Page, seeded: SeededSite) -> None:
    server, _ = seeded
    session = server.store.create(title="Watched")
    server.store.append(session.id, [user("one")])
    page.open(server.link(f"/c/{session.conversation_id}"))
    page.wait_text("1 message", inside=".head .facts")
    page.run("self.watched = document.querySelectorAll('.tabs a')[1], watched.focus()")
    server.store.append(session.id, [assistant("two")])
    page.wait_text("2 messages", inside=".head .facts")
    assert page.run("document.activeElement === watched")


def test_usage_shows_each_class_of_tokens_and_what_was_saved(page: Page, seeded: SeededSite) -> None:
    server, _ = seeded
    page.open(server.link("/usage"))
    page.wait_text("Saved by the cache")
    for words in (
        "By model",
        "By source",
        "By task",
        "Cache read",
        "Cache write",
        "Fresh input",
        "gpt-5-mini",
        "Compaction summaries",
        "Most expensive conversations",
    ):
        assert words in page.text("main")
    page.run("document.querySelector('.day-plot').focus()")
    page.press("End")
    assert "cache read" in page.text(".days [role=status]")


def test_an_unknown_conversation_and_a_missing_token_are_told_plainly(page: Page, seeded: SeededSite) -> None:
    server, _ = seeded
    page.open(server.link("/c/c_nothing"))
    page.wait_text("This could not be shown")
    page.run("sessionStorage.clear(); localStorage.clear()")
    page.open(server.url + "/?again#/")
    page.wait_text("A token is needed")


def test_the_list_is_sorted_by_cost_with_one_click_and_the_order_stays_in_the_address(
    page: Page, seeded: SeededSite
) -> None:
    server, _ = seeded
    page.resize(1440, 900)
    page.open(server.link())
    page.wait("document.querySelector('.row')")
    page.click(".columns [data-sort=cost]")
    page.wait_text("By cost, highest first")
    # A cost that leaves out unpriced calls ends in "+".
    costs = page.run(
        "[...document.querySelectorAll('.figures .cost')].map(e => parseFloat(e.textContent.slice(1)) || 0)"
    )
    assert costs == sorted(costs, reverse=True)
    assert page.run("location.hash") == "#/?sort=cost"
    page.click(".columns [data-sort=cost]")
    page.wait_text("By cost, lowest first")
    page.open(server.link("/?only=compacted&sort=failures"))
    page.wait_text("By failures, highest first")
    assert page.count(".row") == page.run(
        "[...document.querySelectorAll('.figures')].filter(e => e.textContent.includes('compaction')).length"
    )


def test_a_new_tab_is_signed_in_and_no_script_can_read_the_token(
    page: Page, chromium: Chromium, seeded: SeededSite
) -> None:
    server, _ = seeded
    page.open(server.link())
    page.wait("document.querySelector('.row') && localStorage.getItem('perdure-key')")
    page.wait("sessionStorage.getItem('perdure-token') === null")
    assert page.run("document.cookie") == ""
    assert server.token not in page.run("JSON.stringify({ ...localStorage, ...sessionStorage })")
    other = chromium.page()
    other.open(f"{server.url}/#/usage")
    other.wait("document.querySelector('.tiles')")
    other.run("location.hash = '#/approvals'")
    other.wait("document.querySelector('.approvals p')")
    other.click("text/Sign out")
    other.wait_text("A token is needed")
    other.call("Page.close")


def test_an_approval_given_for_good_is_listed_and_revoked(page: Page, seeded: SeededSite) -> None:
    server, _ = seeded
    state = server.store.state("approvals")
    state.set("", ["git-push"])
    page.open(server.link("/approvals"))
    page.wait("document.querySelector('.granted')?.innerText.includes('git-push')")
    page.click("text/Revoke")
    page.wait_text("every dangerous action is asked about")
    assert not state.get("")


def test_title_tabs_and_cost_stay_in_view(page: Page, seeded: SeededSite) -> None:
    server, story = seeded
    page.open(server.link(f"/c/{story.long}"))
    page.wait("document.querySelector('.timeline .message')")
    page.run("scrollTo(0, document.documentElement.scrollHeight)")
    page.wait("document.querySelector('.tabs.is-stuck')")
    box = page.run("(b => [b.top, b.bottom])(document.querySelector('.tabs').getBoundingClientRect())")
    assert 0 <= box[0] < box[1] < 150
    assert "Leases" in page.text(".tabs .brief")
