"""The documentation names files, packages, modules and classes that exist."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

from support.source_tree import ROOT, SRC, modules

PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
# Files of a user's project in examples.
EXAMPLES = {"parcels/quote.py", "conftest.py"}
FILES = {str(path.relative_to(SRC / "perdure")) for path in SRC.rglob("*.py")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_source_file_named_on_a_page_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    names = set(re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py)`", text)) - EXAMPLES
    links = set(re.findall(r"\]\(\.\./([^)#\s]+)", text))
    # A package's own page or table row may leave the folder out.
    assert {n for n in names if not _is_source_file(n) and not (ROOT / n).exists()} == set()
    assert {link for link in links if not (ROOT / link).exists()} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_module_that_a_page_imports_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for module, names in re.findall(r"^from (perdure[\w.]*) import ([\w, ]+)", text, re.MULTILINE):
        loaded = importlib.import_module(module)
        assert [name for name in names.split(", ") if not hasattr(loaded, name.split(" as ")[0])] == [], module


def test_every_package_is_listed_with_its_purpose() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    packages = {path.parent.name for path in (SRC / "perdure").glob("*/__init__.py")}
    assert {name for name in packages if f"`{name}/`" not in text} == set()


@pytest.mark.parametrize("page", ["architecture.md", "turn.md"])
def test_every_class_and_method_that_a_page_follows_exists(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    members: dict[str, set[str]] = {}
    for module in modules().values():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                members[node.name] = {
                    n.name for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
                }
    named = re.findall(r"`([A-Z][A-Za-z]+)(?:\.([a-z_]+))?(?:\(\))?`", text)
    assert len(named) >= 5
    assert [(c, m) for c, m in named if c not in members or (m and m not in members[c])] == []


def _is_source_file(name: str) -> bool:
    return any(file == name or file.endswith(f"/{name}") for file in FILES)
