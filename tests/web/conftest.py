"""One seeded store for all tests of the web UI's API that only read it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.web_ui_api import SeededStore, seeded_store


@pytest.fixture(scope="session")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeededStore]:
    with seeded_store(tmp_path_factory.mktemp("seeded")) as made:
        yield made
