"""docs/compaction.md says what is so: every setting with its default, and a handoff that is one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure.config.settings import CompressionSettings
from perdure.context.handoff import END_MARKER, SECTIONS, parse_handoff
from perdure.core.messages import HANDOFF_FIRST_LINE

DOC = (Path(__file__).parents[2] / "docs" / "compaction.md").read_text(encoding="utf-8")


@pytest.mark.spec("C1")
@pytest.mark.parametrize("key", CompressionSettings.model_fields)
def test_every_setting_is_in_the_table_with_its_default(key: str) -> None:
    default = CompressionSettings.model_fields[key].default
    assert f"| `compression.{key}` | {json.dumps(default)} |" in DOC


@pytest.mark.spec("E1", "E2")
def test_the_handoff_shown_is_a_whole_one() -> None:
    text = HANDOFF_FIRST_LINE + DOC.split(HANDOFF_FIRST_LINE, 1)[1].split(END_MARKER, 1)[0] + END_MARKER
    shown = parse_handoff(text)
    assert shown is not None
    assert all(f"## {name}" in text for name in SECTIONS)
    assert shown.message_count > 20
    assert "> Yes, commit it." in shown.section("Active Task")
