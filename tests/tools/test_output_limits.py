"""Output limits: large results are stored whole, and truncated if the disk fails."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.tools.output_limits import OutputLimiter, OutputLimits, ToolOutcome
from perdure.tools.tool import Tool, ToolReply
from support.outputs import FullDisk, MemoryOutputs


def _tool(max_result_chars: int | None = None) -> Tool:
    return Tool("t", "", {"type": "object"}, handler=print, max_result_chars=max_result_chars)


def _outcome(text: str, call_id: str = "c", tool: Tool | None = None, source: str | None = None) -> ToolOutcome:
    return ToolOutcome(tool or _tool(), call_id, ToolReply(text, source=source))


@pytest.mark.spec("H1")
def test_preview_has_size_address_instructions_and_both_ends() -> None:
    text = "START" + "a" * 100_000 + "ERROR at the very end"
    outputs = MemoryOutputs()
    block = OutputLimiter(outputs).limit_result(_outcome(text), "c_1").reply.text
    assert len(block) <= 2_000
    for expected in (
        "100,026 characters (97 KB)",
        "output:o1",
        "read_file",
        "offset",
        "START",
        "ERROR at the very end",
    ):
        assert expected in block
    assert outputs.read("o1", conversation_id="c_1", limit=200_000).text == text


@pytest.mark.spec("H1")
def test_result_of_exactly_the_limit_is_unchanged() -> None:
    outcome = _outcome("a" * 100_000)
    assert OutputLimiter(MemoryOutputs()).limit_result(outcome, "c_1") is outcome


@pytest.mark.spec("H1")
def test_tool_limit_overrides_the_default() -> None:
    assert OutputLimiter(MemoryOutputs()).limit_result(_outcome("a" * 5_001, tool=_tool(5_000)), "c_1").is_spilled


@pytest.mark.spec("H2")
def test_paginating_tool_has_no_result_limit() -> None:
    outcome = _outcome("a" * 900_000, tool=_tool(0))
    assert OutputLimiter(MemoryOutputs()).limit_result(outcome, "c_1") is outcome


@pytest.mark.spec("H1")
@given(st.lists(st.integers(0, 120_000), max_size=12))
def test_results_of_one_message_fit_the_turn_limit_and_the_largest_are_stored_first(sizes: list[int]) -> None:
    budgets = OutputLimiter(MemoryOutputs())
    limited = budgets.limit_turn([_outcome("x" * n, f"c{i}") for i, n in enumerate(sizes)], "c_1")
    assert sum(len(o.reply.text) for o in limited) <= 200_000
    spilled = [n for n, o in zip(sizes, limited, strict=True) if o.is_spilled]
    stored = [n for n, o in zip(sizes, limited, strict=True) if not o.is_spilled]
    assert not spilled or min(spilled) >= max(stored, default=0)


@pytest.mark.spec("H2")
def test_text_read_from_a_file_is_spilled_last_as_a_pointer() -> None:
    outputs = MemoryOutputs()
    read = _outcome("r" * 150_000, "read", _tool(0), source="src/a.py lines 1-4000")
    other = _outcome("o" * 60_000, "other")
    small = OutputLimiter(outputs, OutputLimits(turn_chars=160_000)).limit_turn([read, other], "c_1")
    assert small[0].reply.text == read.reply.text
    assert small[1].is_spilled
    tiny = OutputLimiter(outputs, OutputLimits(turn_chars=50_000)).limit_turn([read, _outcome("done", "brief")], "c_1")
    assert "src/a.py lines 1-4000" in tiny[0].reply.text
    assert len(tiny[0].reply.text) < 3_000
    assert len(outputs.stored) == 1


@pytest.mark.spec("H2")
def test_single_paginated_result_is_not_replaced_by_a_pointer() -> None:
    read = _outcome("r" * 24_000, "read", _tool(0), source="src/a.py lines 1-500")
    assert OutputLimiter(MemoryOutputs(), OutputLimits().scale(16_000)).limit_turn([read], "c_1") == [read]


@pytest.mark.spec("H3")
@pytest.mark.parametrize(
    ("window", "result", "turn"), [(200_000, 100_000, 200_000), (64_000, 38_400, 76_800), (2_048, 1_228, 2_457)]
)
def test_limits_scale_with_a_small_window(window: int, result: int, turn: int) -> None:
    limits = OutputLimits().scale(window)
    assert (limits.result_chars, limits.turn_chars) == (result, turn)
    assert limits.preview_chars <= limits.result_chars


@pytest.mark.spec("H5")
@pytest.mark.parametrize("outputs", [FullDisk(), None])
def test_disk_error_truncates_the_result_with_the_reason(outputs: FullDisk | None) -> None:
    text = "START" + "a" * 200_000 + "END"
    limited = OutputLimiter(outputs).limit_result(_outcome(text), "c_1")
    assert not limited.is_spilled
    assert len(limited.reply.text) < 100_200
    assert limited.reply.text.startswith("START")
    assert limited.reply.text.endswith("END")
    assert ("No space left on device" if outputs else "there is no output store") in limited.reply.text
