"""The figures that docs/tokens.md prints are the ones the code gives."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perdure.models.windows import DEFAULT_WINDOW, LADDER, window_budgets

PAGE = (Path(__file__).parents[2] / "docs" / "tokens.md").read_text("utf-8")
ROW = re.compile(r"^\| ([\d,]+)([^|]*)\| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|$", re.MULTILINE)


def number(text: str) -> int:
    return int(text.replace(",", ""))


@pytest.mark.spec("C2", "B5", "C6", "C9")
def test_the_table_of_budgets_is_what_the_code_computes() -> None:
    rows = ROW.findall(PAGE)
    assert len(rows) == 6
    for window, note, *figures in rows:
        provider = "openai-codex" if "openai-codex" in note else "openai"
        budgets = window_budgets(number(window), provider=provider, model="gpt-5.5")
        assert [number(f) for f in figures] == [
            budgets.threshold_tokens,
            budgets.tail_tokens,
            budgets.head_tokens,
            budgets.summary_cap_tokens,
            budgets.record_tokens,
        ]


@pytest.mark.spec("G3", "B4")
def test_the_ladder_and_the_default_are_as_printed() -> None:
    printed = re.search(r"2M, 1M, .*8K", PAGE)
    assert printed
    units = {"M": 1_000_000, "K": 1_000}
    assert tuple(int(r[:-1]) * units[r[-1]] for r in printed.group().split(", ")) == LADDER
    assert f"| `default` | {DEFAULT_WINDOW:,} |" in PAGE
