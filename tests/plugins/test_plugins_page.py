"""The example in docs/plugins.md is real: put in its folder, it is found, chosen, and passes the engines' own suite."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perdure.context import conformance
from perdure.context.registry import engines, start_engine

PAGE = Path(__file__).parents[2] / "docs" / "plugins.md"


@pytest.mark.spec("M2", "M5")
def test_the_documented_engine_works_as_a_folder(tmp_path: Path) -> None:
    example = re.search(r"```python\n# ~/\.perdure/(plugins/\S+)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert example is not None
    place = tmp_path / example[1]
    place.parent.mkdir(parents=True)
    place.write_text(example[2])

    assert engines(tmp_path).names() == ("compressor", "windows", "tidy")
    started = start_engine("tidy", home=tmp_path)
    assert (started.name, started.value.name, started.warning) == ("tidy", "tidy", "")
    for check in conformance.CHECKS:
        check(engines(tmp_path).load("tidy"))


@pytest.mark.spec("M2")
def test_the_warning_on_the_page_is_the_one_that_is_shown(tmp_path: Path) -> None:
    for name in ("tidy",):
        folder = tmp_path / "plugins" / "context_engine" / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("plugin = object\n")
    warning = start_engine("lcm", home=tmp_path).warning
    assert (
        warning == "context engine 'lcm' not found; installed: compressor, windows, tidy. Using 'compressor' instead."
    )
    assert warning in PAGE.read_text()
    assert "object is no ContextEngine" in start_engine("tidy", home=tmp_path).warning
