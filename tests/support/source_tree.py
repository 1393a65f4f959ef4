"""The package's source, read and parsed once for all guard tests."""

from __future__ import annotations

import ast
import gc
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
_COMMENT = re.compile(r"(?m)(?:^|  )[ \t]*(# .*)$")


@dataclass(frozen=True)
class Module:
    """One module: its source text, its tree, and what can be counted in them."""

    name: str
    path: Path
    source: str

    @property
    def lines(self) -> int:
        return len(self.source.splitlines())

    @cached_property
    def tree(self) -> ast.Module:
        # Up to Python 3.11.7 a collection in mid-parse may run code of another thread that parses as well, and then the
        # parser fails with "AST constructor recursion depth mismatch".
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return ast.parse(self.source)
        finally:
            if was_enabled:
                gc.enable()

    @property
    def classes(self) -> list[str]:
        """Classes at the top level, by name."""
        return [node.name for node in self.tree.body if isinstance(node, ast.ClassDef)]

    @cached_property
    def functions(self) -> list[tuple[int, str]]:
        """Every function: how many lines it has, and where it is."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        found = (node for node in ast.walk(self.tree) if isinstance(node, kinds))
        return [((f.end_lineno or f.lineno) - f.lineno + 1, f"{self.name}.{f.name}:{f.lineno}") for f in found]

    @cached_property
    def callables(self) -> list[str]:
        """The names of its functions and methods; of properties none, which are named like values."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        found = (node for node in ast.walk(self.tree) if isinstance(node, kinds))
        return [f.name for f in found if not any("property" in ast.unparse(d) for d in f.decorator_list)]

    @cached_property
    def imports(self) -> frozenset[str]:
        """Every module it imports, at the top or inside a function."""
        return frozenset(_imports(self.tree))

    @cached_property
    def prose(self) -> str:
        """Docstrings and comments."""
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        docstrings = (ast.get_docstring(node) for node in ast.walk(self.tree) if isinstance(node, kinds))
        return "\n".join((*filter(None, docstrings), *_COMMENT.findall(self.source)))

    @cached_property
    def identifiers(self) -> list[str]:
        """Every name in the code, as often as it occurs, without leading underscores."""
        fields = ("id", "attr", "arg", "name", "asname")
        names = (getattr(node, field, None) for node in ast.walk(self.tree) for field in fields)
        return [name.lstrip("_") for name in names if isinstance(name, str)]


@cache
def modules() -> Mapping[str, Module]:
    """Every module of the package, by its dotted name."""
    found = {}
    for path in sorted(SRC.rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Module(name, path, path.read_text(encoding="utf-8"))
    return found


@cache
def import_graph() -> Mapping[str, frozenset[str]]:
    """Which modules of the package each one imports."""
    known = modules()
    return {name: frozenset(m for m in module.imports if m in known and m != name) for name, module in known.items()}


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            # `from package import module` needs the module, not what the package re-exports.
            named = [f"{node.module}.{a.name}" for a in node.names]
            yield from named
            if not all(_is_module(n) for n in named):
                yield node.module


@cache
def _is_module(name: str) -> bool:
    path = SRC / Path(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()
