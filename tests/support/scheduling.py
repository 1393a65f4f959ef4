"""Distribution of the tests over parallel workers: which ones run on the same worker, and which start first.

A *unit* runs on one worker, in order, and shares its module and session fixtures. A unit is a module, unless
`tests/durations.txt` has a line for it: a folder (`browser/`, one browser for all of it) or a single slow test. The
longest units start first, so that no worker is left with a long one at the end. `tests/slow.txt` lists the test
functions that `make test-fast` leaves out. `make durations` rewrites both files.
"""

from __future__ import annotations

import gc
import os
from collections import defaultdict
from collections.abc import Generator, Iterable
from functools import cache
from pathlib import Path

import pytest

FILE = Path(__file__).parents[1] / "durations.txt"
SLOW_FILE = FILE.with_name("slow.txt")
# Shorter units are not listed, and a test of this length is a unit of its own where it shares no fixture.
LISTED_S, ALONE_S = 1.0, 4.0
# A test function is slow if one of its cases takes so long.
SLOW_S = 0.4
# Tests make many objects and few cycles: looking for them seventy times less often saves 3 % of a run.
GC_THRESHOLDS = (50_000, 20, 100)
# Folders whose tests share something that takes long to make: a server, a browser, the syntax trees of the package.
FOLDERS = ("tests/browser/", "tests/guards/", "tests/web/")
# Outside of its folder, but in need of the same syntax trees.
_TREE_READERS = ("tests/core/test_visibility.py",)
# Modules that import the same official clients, which takes a worker two seconds.
CLIENTS = "tests/official clients"
_CLIENT_MODULES = (
    "tests/conformance/test_adapters.py",
    "tests/providers/test_sdk_client.py",
    "tests/testing/test_simulator_clients.py",
)


@cache
def durations() -> dict[str, float]:
    """Seconds by unit: the beginning of a test's id."""
    lines = FILE.read_text().splitlines() if FILE.exists() else []
    pairs = (line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    return {unit: float(seconds) for seconds, unit in pairs}


@cache
def slow_functions() -> frozenset[str]:
    """Test functions by id, without the parameters."""
    lines = SLOW_FILE.read_text().splitlines() if SLOW_FILE.exists() else []
    return frozenset(line for line in lines if not line.startswith("#"))


def unit_of(test_id: str) -> str:
    """Return the unit a test belongs to."""
    return shared_unit_of(test_id) or (test_id if test_id in durations() else test_id.partition("::")[0])


def shared_unit_of(test_id: str) -> str | None:
    """Return the unit of several modules that a test belongs to, if any."""
    if test_id.startswith(_CLIENT_MODULES):
        return CLIENTS
    if test_id.startswith(_TREE_READERS):
        return "tests/guards/"
    return next((folder for folder in FOLDERS if test_id.startswith(folder)), None)


# A browser or a terminal on a busy machine misses a deadline now and then: such a test may be tried once more.
DRIVEN = ("tests/browser/", "tests/cli/test_chat_live.py", "tests/journeys/test_terminal.py")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector: what a collection makes stays, and looking through it is a fifth of it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Start each worker at another place of a folder: what one has compiled, the others need not compile again."""
    report = yield
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker and isinstance(collector, pytest.Dir) and report.result:
        start = len(report.result) * int(worker.removeprefix("gw")) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        report.result = [*report.result[start:], *report.result[:start]]
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(DRIVEN):
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=1))
        if item.nodeid.partition("[")[0] in slow_functions():
            item.add_marker(pytest.mark.slow)
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    for item in items:
        unit = unit_of(item.nodeid)
        if unit != item.nodeid:
            item.add_marker(pytest.mark.xdist_group(unit.removeprefix("tests/").removesuffix(".py")))
    # By path as well: every worker has collected in another order, and all must end with the same.
    items.sort(key=lambda item: (-durations().get(unit_of(item.nodeid), 0.0), str(item.path)))


def pytest_runtest_setup() -> None:
    """Undo what a gateway that an earlier test has served in this process set for itself."""
    gc.set_threshold(*GC_THRESHOLDS)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-durations", action="store_true", help=f"measure, and rewrite {FILE.name} and {SLOW_FILE.name}"
    )


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
        slow = {test_id.partition("[")[0] for test_id, seconds in self._seconds.items() if seconds >= SLOW_S}
        SLOW_FILE.write_text(
            "\n".join(["# Left out of `make test-fast`; written by `make durations`.", *sorted(slow), ""])
        )

    def _units(self) -> dict[str, float]:
        units: dict[str, float] = defaultdict(float)
        shared = _modules_with_shared_fixtures(self._seconds)
        for test_id, seconds in self._seconds.items():
            module = test_id.partition("::")[0]
            is_alone = seconds >= ALONE_S and module not in shared
            units[shared_unit_of(test_id) or (test_id if is_alone else module)] += seconds
        return units


def _is_grouped(test_id: str) -> bool:
    return test_id.rfind("@") > test_id.rfind("]")


def _modules_with_shared_fixtures(test_ids: Iterable[str]) -> set[str]:
    """Return the modules whose tests have a fixture for all of the module: they are not torn apart."""
    root = FILE.parents[1]
    modules = {test_id.partition("::")[0] for test_id in test_ids}
    return {m for m in modules if 'scope="module"' in (root / m).read_text()}
