"""One Chromium and two gateways per test process: one with stored conversations, one whose model follows the tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perdure.store.store import open_store
from perdure.testing.simulator import Simulator
from support.browser import Chromium, Page, chromium_path
from support.web_ui_server import WebUIServer, web_ui_server, web_ui_settings
from support.web_ui_story import WINDOW, Script, Story, tell


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    if chromium_path() is None:
        pytest.skip("no Chromium on this machine")
    with Chromium.start(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture
def page(chromium: Chromium) -> Iterator[Page]:
    """A fresh tab that must end without a script error, a refused load or a dialog, having asked nobody else."""
    tab = chromium.page()
    yield tab
    refused = tab.refused()
    tab.call("Page.close")
    assert tab.errors == []
    assert refused == []
    assert tab.dialogs == []
    assert [url for url in tab.requests if not url.startswith(("http://127.0.0.1:", "about:", "data:"))] == []


@pytest.fixture(scope="session")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[WebUIServer, Story]]:
    """Conversations really held: four compactions, spills, a recovery, a model switch, and markup in every text."""
    folder = tmp_path_factory.mktemp("seeded")
    with open_store(folder / "perdure.db") as store:
        story = tell(store, folder / "home")
        with (
            Simulator(script=Script(), window=WINDOW, chat_thinking_key="reasoning_content") as sim,
            web_ui_server(store, folder / "home", web_ui_settings(sim)) as server,
        ):
            yield server, story
