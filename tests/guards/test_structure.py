"""The tree stays readable: short files, short functions, no cycles, downward imports, a documented front door."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
FILES = sorted(SRC.rglob("*.py"))
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60


def _module(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(path: Path) -> Iterator[str]:
    """Every module of ours that a file imports, at the top or inside a function."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            # `from package import module` needs the module, not what the package's front page re-exports.
            named = [f"{node.module}.{a.name}" for a in node.names]
            yield from named
            if not all(_is_module(n) for n in named):
                yield node.module


def _is_module(name: str) -> bool:
    path = SRC / Path(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


def test_no_file_is_longer_than_a_person_reads_at_once() -> None:
    lengths = {str(f.relative_to(ROOT)): len(f.read_text(encoding="utf-8").splitlines()) for f in FILES}
    assert {f: n for f, n in lengths.items() if n > MAX_FILE_LINES} == {}


def test_no_function_is_longer_than_a_screen() -> None:
    long = []
    for f in FILES:
        for node in ast.walk(ast.parse(f.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
                lines = node.end_lineno - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    long.append(f"{f.relative_to(ROOT)}:{node.lineno} {node.name}: {lines} lines")
    assert long == []


def test_no_module_imports_itself_in_a_circle() -> None:
    known = {_module(f) for f in FILES}
    graph = {_module(f): {m for m in _imports(f) if m in known and m != _module(f)} for f in FILES}
    graph.pop("perdure")  # the front door imports lazily, by name
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
    for f in (SRC / "perdure" / "core").glob("*.py"):
        tops = {m.split(".")[0] for m in _imports(f)}
        assert tops <= sys.stdlib_module_names | {"perdure"}, f.name


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
