"""Distribution of the tests over parallel workers: which ones run on the same worker, and which start first.

A *unit* runs on one worker, in order, and shares its module and session fixtures. A unit is a module, unless
`tests/durations.txt` has a line for it: a folder (`browser/`, one browser for all of it) or a single slow test. The
longest units start first, so that no worker is left with a long one at the end. `make durations` rewrites the file.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

FILE = Path(__file__).parents[1] / "durations.txt"
# Shorter units are not listed, and a test of this length is a unit of its own where it shares no fixture.
LISTED_S, ALONE_S = 1.0, 4.0
# Folders whose tests share a server or a browser that takes long to start.
FOLDERS = ("tests/browser/", "tests/web/")


@cache
def durations() -> dict[str, float]:
    """Seconds by unit: the beginning of a test's id."""
    lines = FILE.read_text().splitlines() if FILE.exists() else []
    pairs = (line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    return {unit: float(seconds) for seconds, unit in pairs}


def unit_of(test_id: str) -> str:
    """Return the unit a test belongs to."""
    folder = next((f for f in FOLDERS if test_id.startswith(f)), None)
    if folder is not None:
        return folder
    return test_id if test_id in durations() else test_id.partition("::")[0]


# A browser or a terminal on a busy machine misses a deadline now and then: such a test may be tried once more.
DRIVEN = ("tests/browser/", "tests/cli/test_chat_live.py", "tests/journeys/test_terminal.py")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(DRIVEN):
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=1))
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    for item in items:
        unit = unit_of(item.nodeid)
        if unit != item.nodeid:
            item.add_marker(pytest.mark.xdist_group(unit.removeprefix("tests/").removesuffix(".py")))
    items.sort(key=lambda item: -durations().get(unit_of(item.nodeid), 0.0))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-durations", action="store_true", help=f"measure, and rewrite {FILE.name}")


def pytest_configure(config: pytest.Config) -> None:
    # Workers report to the process that started them, which does the writing.
    if config.getoption("--write-durations") and "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(_Stopwatch())


class _Stopwatch:
    """Adds up what the tests take."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test_id, _, _ = report.nodeid.rpartition("@") if _is_grouped(report.nodeid) else (report.nodeid, "", "")
        self._seconds[test_id] += report.duration

    def pytest_sessionfinish(self) -> None:
        rows = sorted(self._units().items(), key=lambda row: -row[1])
        lines = [f"{seconds:.1f} {unit}\n" for unit, seconds in rows if seconds >= LISTED_S]
        FILE.write_text("# Seconds by unit, longest first; written by `make durations`.\n" + "".join(lines))

    def _units(self) -> dict[str, float]:
        units: dict[str, float] = defaultdict(float)
        shared = _modules_with_shared_fixtures(self._seconds)
        for test_id, seconds in self._seconds.items():
            module = test_id.partition("::")[0]
            folder = next((f for f in FOLDERS if test_id.startswith(f)), None)
            is_alone = seconds >= ALONE_S and module not in shared
            units[folder or (test_id if is_alone else module)] += seconds
        return units


def _is_grouped(test_id: str) -> bool:
    return test_id.rfind("@") > test_id.rfind("]")


def _modules_with_shared_fixtures(test_ids: Iterable[str]) -> set[str]:
    """Return the modules whose tests have a fixture for all of the module: they are not torn apart."""
    root = FILE.parents[1]
    modules = {test_id.partition("::")[0] for test_id in test_ids}
    return {m for m in modules if 'scope="module"' in (root / m).read_text()}
