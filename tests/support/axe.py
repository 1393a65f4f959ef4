"""axe-core in a page: what it finds that keeps people from using it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from support.browser import Page


def axe_findings(page: Page) -> list[str]:
    """Every violation, with the first element concerned."""
    if not page.run("'axe' in self"):
        page.run(_script() + "; true")
    told = page.run(
        "axe.run(document, { resultTypes: ['violations'] }).then(r => r.violations"
        ".map(v => `${v.id} (${v.impact}): ${v.nodes[0].html.slice(0, 160)} ${v.nodes[0].failureSummary}`))"
    )
    return list(told)


def _script() -> str:
    """As the package `axe-core-python` carries it; found without importing the package."""
    spec = importlib.util.find_spec("axe_core_python")
    if spec is None or spec.origin is None:
        pytest.skip("axe-core-python is not installed")
    return (Path(spec.origin).parent / "axe.min.js").read_text(encoding="utf-8")
