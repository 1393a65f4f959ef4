"""A conversation that is resumed is as large as it was when it was left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pytest

from perdure.testing.simulator import Call, Say
from perdure.tools.tool import tool
from support.agents import bench

STORY = "Die Größe des Auftrags steht in Zeile 7, geändert am 3. März; siehe `orders/parser.py`. " * 30


@tool()
def look(at: Annotated[str, "a place"]) -> str:
    """Looks at a place."""
    return f"{at}: {STORY}"


def _reads() -> list[Any]:
    return [Say("I look.", thinking=STORY, calls=(Call("look", {"at": "here"}),)), STORY, "Yes."]


@pytest.mark.spec("A6", "B2", "C4")
@pytest.mark.parametrize("mode", ["chat_completions", "anthropic_messages", "codex_responses"])
def test_a_resumed_conversation_is_as_large_as_when_it_was_left(tmp_path: Path, mode: Any) -> None:
    with bench(tmp_path, *_reads(), mode=mode, tools=(look,), calibrates=True) as b:
        b.agent.chat("What is there?")
        b.agent.chat("Is that all?")
        left, reported = b.agent.measure(), b.agent.open().live.counter.last_prompt_tokens
        resumed = b.again(b.agent.session_id)
        assert resumed.measure().tokens == left.tokens
        assert resumed.open().live.counter.last_prompt_tokens == reported == b.sim.billed[-1].prompt_tokens


def test_a_conversation_resumed_after_a_compaction_is_as_large_as_it_was(tmp_path: Path) -> None:
    with bench(tmp_path, *_reads(), *[STORY * 2] * 6, tools=(look,), calibrates=True) as b:
        for n in range(8):
            b.agent.chat(f"And what is at {n}?")
        assert b.agent.compress().outcome in ("compacted", "digest")
        left = b.agent.measure()
        # Another conversation has taught another ratio since, within the step that is not worth a write.
        b.deps.calibrations.keep("custom", "m-1", replace(b.deps.calibration, ratio=b.deps.calibration.ratio * 1.01))
        assert b.again(b.agent.session_id).measure().tokens == left.tokens


@pytest.mark.parametrize(("window", "other_window"), [(200_000, 20_000), (60_000, 200_000)])
def test_a_head_of_another_length_than_the_one_that_was_sent_counts_anew(
    tmp_path: Path, window: int, other_window: int
) -> None:
    with bench(tmp_path, *[STORY] * 20, window=window) as b:
        b.agent.chat("A word of many. " * 2_000)
        for n in range(8):
            b.agent.chat(f"And what is at {n}? {STORY}")
        b.agent.compress()
        b.agent.chat("Is that all?")
        left = b.agent.measure().tokens
        assert b.again(b.agent.session_id).measure().tokens == left
        with bench(tmp_path, window=other_window) as other:
            resumed = other.again(b.agent.session_id)
            resumed.measure()
            counter = resumed.open().live.counter
            assert counter.last_prompt_tokens is None
            assert counter.calibration.ratio == 1.0


def test_other_tools_than_when_it_was_left_are_counted(tmp_path: Path) -> None:
    with bench(tmp_path, *_reads(), tools=(look,)) as b:
        b.agent.chat("What is there?")
        resumed = b.again(b.agent.session_id)
        for n in range(20):
            resumed.deps.tools.registry.add(tool(name=f"look_{n}")(lambda at: f"{at}"))
        assert resumed.open().live.counter.last_prompt_tokens is None
        assert resumed.measure().tokens > b.agent.measure().tokens


def test_another_model_counts_anew(tmp_path: Path) -> None:
    with bench(tmp_path, *_reads(), tools=(look,)) as b:
        b.agent.chat("What is there?")
        with bench(tmp_path, "Yes.", model="m-2") as other:
            assert other.again(b.agent.session_id).open().live.counter.last_prompt_tokens is None
