"""A pytest fixture for your own tests: `pytest_plugins = ["perdure.testing.simulator.fixture"]` in conftest.py.

Only a test run imports this file: pytest is not a dependency of Perdure.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perdure.testing.simulator.rules import strict
from perdure.testing.simulator.server import Simulator


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    """Yield a strict simulator for one test, to be given steps with `add`; a broken rule fails the test."""
    with Simulator(strict()) as running:
        yield running
        broken = [f"{v.path}: {v.message}" for v in running.violations]
    if broken:
        pytest.fail("the service would have refused: " + "; ".join(broken), pytrace=False)
