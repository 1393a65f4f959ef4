"""Ten thousand conversations, and ten thousand messages in one: quick to show, smooth to scroll, bounded in memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perdure.core.messages import assistant, user
from perdure.store.store import open_store
from perdure.testing.simulator import Simulator
from support.browser import Chromium, Page
from support.web_ui_server import WebUIServer, web_ui_server, web_ui_settings

MANY = 10_000
# A loaded machine only ever makes a figure worse: the best of a few tries is what the page can do.
TRIES = 8
PAINTED = """[
  performance.getEntriesByName("first-contentful-paint")[0].startTime,
  performance.getEntriesByType("resource").filter(r => r.name.includes("/api/page/conversations")).at(-1).responseEnd,
]"""


@contextmanager
def serving(folder: Path) -> Iterator[WebUIServer]:
    with (
        open_store(folder / "perdure.db") as store,
        Simulator(script=[]) as sim,
        web_ui_server(store, folder / "home", web_ui_settings(sim)) as server,
    ):
        yield server


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebUIServer]:
    """Ten thousand conversations."""
    with serving(tmp_path_factory.mktemp("crowd")) as server:
        for n in range(MANY):
            session = server.store.create(source="terminal", title=f"Conversation {n}")
            server.store.append(session.id, [user("Hello.")])
        yield server


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[WebUIServer, str]]:
    """One conversation of ten thousand messages."""
    with serving(tmp_path_factory.mktemp("long")) as server:
        session = server.store.create(source="terminal", title="Ten thousand messages")
        for start in range(0, MANY, 1_000):
            said = [
                message
                for n in range(start, start + 1_000, 2)
                for message in (user(f"Question {n}?"), assistant(f"Answer {n}: `x`. " + "Some words. " * (n % 40)))
            ]
            server.store.append(session.id, said)
        yield server, session.conversation_id


def test_first_paint_under_a_second_with_ten_thousand_conversations(chromium: Chromium, crowd: WebUIServer) -> None:
    best = [float("inf"), float("inf")]
    for _ in range(TRIES):
        page = chromium.page()
        page.open(crowd.link())
        page.wait("document.querySelectorAll('.row').length >= 50")
        best = [min(pair) for pair in zip(best, page.run(PAINTED), strict=True)]
        if max(best) < 1_000:
            break
    assert best[0] < 1_000, "the first paint"
    assert best[1] < 1_000, "the list itself"
    # And it goes on as one scrolls.
    page.run("scrollTo(0, document.documentElement.scrollHeight)")
    page.wait("document.querySelectorAll('.row').length >= 100")


SCROLL = """(async () => {
  const frames = []; let most = 0; let last = performance.now();
  for (let i = 0; i < 100; i += 1) {
    scrollBy(0, STEP);
    await new Promise(requestAnimationFrame);
    const now = performance.now(); frames.push(now - last); last = now;
    most = Math.max(most, document.getElementsByTagName("*").length);
  }
  frames.sort((a, b) => a - b);
  return { median: frames[50], p95: frames[95], most };
})()"""


def test_ten_thousand_messages_scroll_smoothly(page: Page, long: tuple[WebUIServer, str]) -> None:
    server, conversation = long
    page.open(server.link(f"/c/{conversation}/m/5000"))
    page.wait("document.activeElement?.id === 'm-5000'")
    best = {"median": float("inf"), "p95": float("inf")}
    for step in itertools.islice(itertools.cycle((120, -120, 600, -600)), TRIES):
        seen = page.run(SCROLL.replace("STEP", str(step)))
        # Everything ever built at once stays a small part of the 10,000.
        assert seen["most"] < 8_000
        best = {name: min(value, seen[name]) for name, value in best.items()}
        if best["median"] < 20 and best["p95"] < 50:
            break
    assert best["median"] < 20
    assert best["p95"] < 50


def test_dragging_to_any_place_shows_what_is_there(page: Page, long: tuple[WebUIServer, str]) -> None:
    server, conversation = long
    page.open(server.link(f"/c/{conversation}"))
    page.wait("document.querySelector('#m-10000')")
    for share in (0.0, 0.37, 0.81):
        page.run(f"scrollTo(0, {share} * document.documentElement.scrollHeight)")
        seq = page.wait(
            "[...document.querySelectorAll('.message')].map(m => [m.id.slice(2), m.getBoundingClientRect().top])"
            ".find(([, top]) => top > 0 && top < innerHeight)?.[0]"
        )
        assert abs(int(seq) / MANY - share) < 0.1
    page.run("scrollTo(0, document.documentElement.scrollHeight)")
    page.wait("document.querySelector('#m-10000')?.getBoundingClientRect().top < innerHeight")
