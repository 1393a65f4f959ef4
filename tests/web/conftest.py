"""One told store for all tests of the page's API that only read it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.web_ui_api import Told, told_store


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    with told_store(tmp_path_factory.mktemp("told")) as made:
        yield made
