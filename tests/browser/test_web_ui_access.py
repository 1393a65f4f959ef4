"""Everybody can use it: no finding of axe in any view, light or dark; keyboard alone; narrow screens."""

from __future__ import annotations

import pytest

from support.axe import axe_findings
from support.browser import Page
from support.web_ui_server import WebUIServer
from support.web_ui_story import Story

SeededSite = tuple[WebUIServer, Story]
VIEWS = {
    "list": "/",
    "search": "/?q=lease&show=hits",
    "story": "/c/{long}",
    "context": "/c/{long}/context",
    "handoff": "/c/{long}/handoff",
    "usage": "/usage",
    "approvals": "/approvals",
    "new": "/new",
}
SETTLED = "document.querySelector('.row, .timeline .message, .plot .area, .sections .fact, .tiles, .approvals, .intro')"


def go(page: Page, story: Story, view: str) -> None:
    page.run("document.querySelector('main').replaceChildren()")
    page.run(f"location.hash = {('#' + VIEWS[view].format(long=story.long))!r}")
    page.wait(SETTLED)


def unfold(page: Page, view: str) -> None:
    """What only shows when it is used."""
    page.run("for (const d of document.querySelectorAll('details')) d.open = true")
    if view == "handoff":
        page.click(".sections .fact:not(.unsupported)")
        page.wait("document.querySelector('.source mark')")
    if view == "new":
        page.click("#say")
        page.type("/")
        page.wait("document.querySelector('.commands li')")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_has_no_finding_in_any_view(page: Page, seeded: SeededSite, theme: str) -> None:
    server, story = seeded
    page.prefer(theme)
    page.open(server.link("/usage"))
    page.wait(SETTLED)
    for view in VIEWS:
        go(page, story, view)
        unfold(page, view)
        assert axe_findings(page) == [], view


def test_axe_would_find_something(page: Page, seeded: SeededSite) -> None:
    server, _ = seeded
    page.open(server.link("/usage"))
    page.wait(SETTLED)
    page.run("document.querySelector('.tiles .big').style.color = '#eee'")
    assert any(found.startswith("color-contrast") for found in axe_findings(page))


def test_nothing_overflows_a_narrow_screen(page: Page, seeded: SeededSite) -> None:
    server, story = seeded
    page.resize(360, 740)
    page.open(server.link("/usage"))
    for view in VIEWS:
        go(page, story, view)
        assert page.run("document.documentElement.scrollWidth") <= 360, view


def test_the_keyboard_alone_opens_a_conversation(page: Page, seeded: SeededSite) -> None:
    server, _ = seeded
    page.open(server.link())
    page.wait("document.querySelector('.row')")
    seen: list[str] = []
    for _ in range(40):
        page.press("Tab")
        here = page.run(
            "(() => { const e = document.activeElement, o = getComputedStyle(e);"
            "return [e.className || e.id || e.textContent.trim(), o.outlineStyle, parseFloat(o.outlineWidth)] })()"
        )
        seen.append(here[0])
        assert here[1] != "none", f"no visible focus on {here}"
        assert here[2] >= 1, f"no visible focus on {here}"
        if here[0] == "row-title":
            break
    assert seen[0] == "skip"
    assert seen[-1] == "row-title"
    page.press("Enter")
    page.wait("document.querySelector('.timeline')")


def test_the_theme_can_be_chosen_and_is_kept(page: Page, seeded: SeededSite) -> None:
    server, _ = seeded
    page.prefer("light")
    page.open(server.link())
    page.wait("document.querySelector('.row')")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.run(ground)
    page.click("#theme")
    page.click("#theme")
    dark = page.run(ground)
    assert dark != light
    page.call("Page.reload")
    page.wait("document.querySelector('.row')")
    assert page.run(ground) == dark
    page.run("localStorage.clear()")


def test_landmarks_and_one_heading_name_every_view(page: Page, seeded: SeededSite) -> None:
    server, story = seeded
    page.open(server.link("/usage"))
    for view in VIEWS:
        go(page, story, view)
        found = page.run("['header', 'nav[aria-label]', 'main', 'h1'].map(s => document.querySelectorAll(s).length)")
        assert min(found) >= 1, f"{view}: {found}"
        assert found[2:] == [1, 1], f"{view}: {found}"
