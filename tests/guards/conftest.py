"""The syntax trees of the package are dropped after the guards: a million objects in every later garbage collection."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.source_tree import modules


@pytest.fixture(scope="package", autouse=True)
def trees_end_with_the_guards() -> Iterator[None]:
    yield
    modules.cache_clear()
