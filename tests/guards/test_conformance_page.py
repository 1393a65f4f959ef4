"""docs/conformance.md lists every requirement, and what it points at exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "conformance.md"
SPEC = ROOT.parent / "shared" / "SPEC.md"
STATES = {"done", "partly", "open"}

ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if re.match(r"\| [A-P]\d+ ", line)
]


def test_every_row_has_a_known_state() -> None:
    assert ROWS
    assert {row[1] for row in ROWS} <= STATES


def test_what_is_called_done_names_code_and_test() -> None:
    assert [row[0] for row in ROWS if row[1] in ("done", "partly") and not (row[3] and row[4])] == []


def test_every_file_named_exists() -> None:
    named = {m for row in ROWS for m in re.findall(r"`((?:src|tests|docs|benchmarks|examples)/[^`:]+)`", " ".join(row))}
    assert named
    assert {m for m in named if not (ROOT / m).exists()} == set()


def test_a_test_named_for_a_requirement_marks_it() -> None:
    """The page may not claim a test that does not itself name the id it proves."""
    missing = []
    for row in ROWS:
        for name in re.findall(r"`(tests/[^`]+\.py)`", row[4]):
            text = (ROOT / name).read_text(encoding="utf-8")
            if not re.search(rf"\b{row[0]}\b", text):
                missing.append(f"{row[0]}: {name}")
    assert missing == []


def test_every_requirement_of_the_spec_is_listed() -> None:
    if not SPEC.is_file():
        pytest.skip("the specification is not here")
    ids = re.findall(r"(?m)^([A-N]\d+)\b", SPEC.read_text(encoding="utf-8"))
    assert {row[0] for row in ROWS} >= set(ids)
