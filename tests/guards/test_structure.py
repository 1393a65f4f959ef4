"""The tree stays readable: short files, short functions, no cycles, downward imports, a documented front door."""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import perdure
from support.source_tree import ROOT, SRC, import_graph, modules

MAX_MODULE_LINES = 600
MEDIAN_MODULE_LINES = range(140, 261)
MAX_FUNCTION_LINES = 60
MAX_P95_FUNCTION_LINES = 25
# A module this small belongs to its only importer, unless there is a reason; so many may have one.
SMALL_MODULE_LINES = 80
MAX_SMALL_MODULES = 5
# A package's front page and a module of constants are no slivers.
TINY_MODULE_LINES = 12
# To be renamed; no more may join them.
SHARED_CLASS_NAMES: set[str] = set()


def test_no_module_is_longer_than_a_person_reads_at_once() -> None:
    assert {name: m.lines for name, m in modules().items() if m.lines > MAX_MODULE_LINES} == {}


def test_modules_are_topics_and_not_slivers() -> None:
    assert int(statistics.median(m.lines for m in modules().values())) in MEDIAN_MODULE_LINES
    importers = Counter(target for targets in import_graph().values() for target in targets)
    small = [
        name
        for name, m in modules().items()
        if TINY_MODULE_LINES < m.lines < SMALL_MODULE_LINES and importers[name] == 1 and not name.endswith("__main__")
    ]
    assert len(small) <= MAX_SMALL_MODULES, f"merge them into their importers: {small}"


def test_no_function_is_longer_than_a_screen() -> None:
    found = sorted((f for m in modules().values() for f in m.functions), reverse=True)
    assert [f"{where}: {lines} lines" for lines, where in found if lines > MAX_FUNCTION_LINES] == []
    assert found[len(found) // 20][0] <= MAX_P95_FUNCTION_LINES


def test_no_two_classes_share_a_name() -> None:
    homes = defaultdict(list)
    for name, module in modules().items():
        for class_name in module.classes:
            homes[class_name].append(name)
    assert {c: where for c, where in homes.items() if len(where) > 1} == {}


def test_no_module_imports_itself_in_a_circle() -> None:
    graph = {name: targets for name, targets in import_graph().items() if name != "perdure"}  # lazily, by name
    state: dict[str, str] = {}

    def walk(module: str, path: tuple[str, ...]) -> None:
        assert state.get(module) != "open", f"import cycle: {' → '.join((*path, module))}"
        if module in graph and module not in state:
            state[module] = "open"
            for other in sorted(graph[module]):
                walk(other, (*path, module))
            state[module] = "done"

    for module in graph:
        walk(module, ())
    assert set(state) == set(graph)


def test_imports_point_downward_only() -> None:
    tool = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run([tool], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


def test_core_needs_nothing_but_the_standard_library() -> None:
    for name, module in modules().items():
        if name.startswith("perdure.core"):
            tops = {m.split(".")[0] for m in module.imports}
            assert tops <= sys.stdlib_module_names | {"perdure"}, name


def test_every_package_says_what_it_is_for() -> None:
    for f in SRC.rglob("__init__.py"):
        assert len(ast.get_docstring(ast.parse(f.read_text(encoding="utf-8"))) or "") > 40, f


def test_the_front_door_is_what_the_docs_say() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^### `perdure\.(\w+)", page, re.MULTILINE))
    assert documented == set(perdure.__all__)


@pytest.mark.parametrize("name", perdure.__all__)
def test_every_public_name_opens(name: str) -> None:
    assert getattr(perdure, name).__doc__


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        perdure.nonsense  # noqa: B018  # the access is the test
