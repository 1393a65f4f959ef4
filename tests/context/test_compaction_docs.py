"""docs/compaction.md says what is so: every setting with its default, and the handoff that a fresh run leaves."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from benchmarks import handover

from perdure.config.sections import CompressionSettings
from perdure.context.handoff import END_MARKER, SECTIONS, Handoff, parse_handoff
from perdure.core.messages import HANDOFF_FIRST_LINE

DOC = (Path(__file__).parents[2] / "docs" / "compaction.md").read_text(encoding="utf-8")


@pytest.mark.spec("C1")
@pytest.mark.parametrize("key", CompressionSettings.model_fields)
def test_every_setting_is_in_the_table_with_its_default(key: str) -> None:
    default = CompressionSettings.model_fields[key].default
    assert f"| `compression.{key}` | {json.dumps(default)} |" in DOC


@pytest.mark.spec("C1")
def test_no_setting_is_in_the_table_that_does_not_exist() -> None:
    assert set(re.findall(r"^\| `compression\.(\w+)` \|", DOC, re.MULTILINE)) == set(CompressionSettings.model_fields)


@pytest.fixture(scope="module")
def fresh() -> handover.Run:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    return handover.run()


def shown() -> Handoff:
    parsed = parse_handoff(HANDOFF_FIRST_LINE + DOC.split(f"````markdown\n{HANDOFF_FIRST_LINE}", 1)[1])
    assert parsed is not None
    return parsed


@pytest.mark.spec("E1", "E2", "E3", "F1")
def test_the_handoff_shown_is_the_one_a_fresh_run_leaves(fresh: handover.Run) -> None:
    made = parse_handoff(fresh.handoff)
    assert made is not None
    assert made.is_digest
    assert fresh.violations == 0
    assert all(f"## {name}" in fresh.handoff for name in SECTIONS)
    assert END_MARKER in fresh.handoff
    for name in SECTIONS:
        assert made.section(name) == shown().section(name), name
    assert made.record == shown().record
    assert (made.message_count, made.covers) == (shown().message_count, shown().covers)


@pytest.mark.spec("D6")
def test_the_picture_is_that_of_the_run(fresh: handover.Run) -> None:
    for line in handover.picture(fresh).splitlines()[1:]:
        assert line in DOC
    assert f"before, {fresh.before_tokens:,} tokens" in DOC
    after = re.search(r"after, ([\d,]+) tokens", DOC)
    assert after is not None
    assert int(after[1].replace(",", "")) == pytest.approx(fresh.after_tokens, rel=0.1)
    assert f"{fresh.before_messages} messages became {fresh.after_messages}" in DOC
