"""Makes the pictures of docs/web-ui.md:  cd tests && python -m support.web_ui_shots [folder] [png|webp]"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from perdure.store.store import open_store
from perdure.testing.simulator import Simulator
from support.browser import Chromium, Page
from support.web_ui_scene import WINDOW, Investigator, SceneClock, set_scene
from support.web_ui_server import WebUIServer, web_ui_server, web_ui_settings

FOLDER = Path(__file__).parents[2] / "docs" / "web-ui"
QUALITY = 62


def main(folder: Path = FOLDER, kind: str = "webp") -> None:
    """Every view, light and dark, wide; and three of them as a phone shows them."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
        home = Path(made)
        clock = SceneClock()
        with open_store(home / "perdure.db", clock=clock) as store:
            long = set_scene(store, clock, home / "home")
            with (
                Simulator(script=Investigator(), window=WINDOW, chat_thinking_key="reasoning_content") as sim,
                web_ui_server(store, home / "home", web_ui_settings(sim)) as server,
                Chromium.start(home) as chromium,
            ):
                for theme in ("light", "dark"):
                    take(chromium, server, long, Shots(folder, theme, kind))
                    take(chromium, server, long, Shots(folder, theme, kind), width=390)


@dataclass(frozen=True, slots=True)
class Shots:
    """Where a row of pictures goes."""

    folder: Path
    theme: str
    kind: str


def take(chromium: Chromium, server: WebUIServer, long: str, shots: Shots, *, width: int = 1200) -> None:
    """One theme at one width."""
    page = chromium.page(width=width, height=800)
    page.prefer(shots.theme)
    size = "-phone" if width < 600 else ""
    handoff = min(server.store.log.handoffs(long))
    page.open(server.link("/new"))
    for name, path, ready in VIEWS:
        if size and name not in PHONE:
            continue
        page.run("document.querySelector('main').replaceChildren()")
        page.run(f"location.hash = {('#' + path.format(long=long, handoff=handoff))!r}")
        page.wait(ready)
        show(page, name)
        time.sleep(0.6)
        page.screenshot(shots.folder / f"{name}{size}-{shots.theme}.{shots.kind}", kind=shots.kind, quality=QUALITY)
    print(shots.theme, width, page.errors, page.refused())
    page.call("Page.close")


VIEWS = (
    ("conversations", "/", "document.querySelector('.row')"),
    ("search", "/?q=load_rules", "document.querySelector('.snippet mark')"),
    ("timeline", "/c/{long}/m/{handoff}", "document.querySelector('.is-target')"),
    ("context", "/c/{long}/context", "document.querySelector('.plot .area')"),
    ("handoff", "/c/{long}/handoff", "document.querySelector('.sections .fact')"),
    ("usage", "/usage", "document.querySelector('.tiles')"),
    ("chat", "/c/{long}", "document.querySelector('.timeline .message')"),
)
PHONE = ("conversations", "context", "chat")


def show(page: Page, name: str) -> None:
    """What the picture is about."""
    if name == "handoff":
        page.click(".sections section:nth-child(4) .fact:not(.unsupported)")
        page.wait("document.querySelector('.source mark')")
        page.run("scrollTo(0, 0)")
    if name == "timeline":
        page.run("for (const fold of document.querySelectorAll('.handoff-card details')) fold.open = false")
        page.run("document.activeElement.scrollIntoView({ block: 'center' }); document.activeElement.blur()")
    if name == "chat":
        page.run("document.querySelector('#say').focus()")
        page.type("/co")
        page.wait("document.querySelector('.commands li')")


if __name__ == "__main__":
    main(*(Path(sys.argv[1]), *sys.argv[2:]) if sys.argv[1:] else ())
