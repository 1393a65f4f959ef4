"""Handoffs in plain dicts are sealed with a key of the installation: the tests have one of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def _own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERDURE_HOME", str(tmp_path_factory.getbasetemp() / "home"))
        yield
