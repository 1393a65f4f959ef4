"""What the library says where a program hands in a value that it cannot use, and how its results are read."""

from __future__ import annotations

import dataclasses
import enum
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypedDict

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionMessage

import perdure
from perdure import Agent
from perdure.testing.simulator import Call, Say, Simulator

WORK = [
    {"role": "user" if i % 2 == 0 else "assistant", "content": f"step {i}: module_{i}.py has port={3000 + i}. " * 6}
    for i in range(80)
]


def agent(sim: Simulator, folder: Path, **options: Any) -> Agent:
    required = {"base_url": sim.base_url, "api_key": "k", "home": folder, "settings": {}, "tools": ()}
    return Agent("m", store=folder / "perdure.db", **{**required, **options})


# -- summaries -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (
            ChatCompletionMessage(role="assistant", content="## Goal\nFix ports."),
            "ChatCompletionMessage: return its .c",
        ),
        (b"## Goal\nFix ports.", "summarize must return text, not bytes"),
        ({"text": "## Goal"}, "summarize must return text, not dict"),
        (42, "summarize must return text, not int"),
        ("I'm sorry, I can't help.", "the summariser refused"),
        ("Fine.", "the summary is too short"),
        (None, "the summary is empty"),
        (" \n", "the summary is empty"),
    ],
)
def test_a_summary_that_is_no_text_is_named_by_what_it_is(answer: Any, reason: str) -> None:
    report = perdure.compress(WORK, context_length=32_000, summarize=lambda prompt: answer)
    assert report.outcome == "digest"
    assert reason in report.message


# -- tools -----------------------------------------------------------------------------------------------------------


class Job:
    """No type that JSON can hold."""


class Untyped(TypedDict):
    """Python 3.11's own; pydantic needs that of typing_extensions there."""

    a: int


def start(job: Job) -> str:
    """Start a job."""
    return "started"


def visit(count: int, call: Callable[[int], int]) -> str:
    """Visit."""
    return "visited"


def count(row: Untyped) -> str:
    """Count."""
    return "counted"


ON_3_11 = pytest.mark.skipif(sys.version_info >= (3, 12), reason="typing.TypedDict is enough from 3.12 on")


def read(lines: Iterator[int]) -> str:
    """Read."""
    return "read"


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (start, "parameter 'job' .*Job"),
        (visit, "parameter 'call' .*Callable"),
        (read, "parameter 'lines' .*Iterator"),
        pytest.param(count, "parameter 'row' .*write typing_extensions.TypedDict", marks=ON_3_11),
    ],
)
def test_a_parameter_without_a_schema_is_named_with_its_tool(
    tmp_path: Path, function: Callable[..., str], what: str
) -> None:
    with Simulator() as sim, pytest.raises(perdure.ConfigError, match=f"tool '{function.__name__}': {what}"):
        agent(sim, tmp_path, tools=[function])


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: int
    y: float = 1.0


def paint(color: Color, where: Point) -> str:
    """Paint."""
    return f"{color} at {where}"


def test_the_error_of_a_call_says_which_values_a_parameter_takes(tmp_path: Path) -> None:
    calls = (Call("paint", {}), Call("paint", {"color": "green", "where": {"x": 1}}))
    with Simulator(script=[Say(calls=calls), "Done."]) as sim, agent(sim, tmp_path, tools=[paint]) as one:
        results = [m["content"] for m in one.run_conversation("x").messages if m["role"] == "tool"]
    takes = 'It takes: color: one of "red", "blue", where: object {x: integer, y: number = 1.0}'
    assert [takes in result for result in results] == [True, True]


# -- results ---------------------------------------------------------------------------------------------------------


def test_compactions_and_verdicts_are_read_by_key_as_results_are() -> None:
    compaction = perdure.ContextCompressor(context_length=8_000).compress(WORK)
    assert (compaction["outcome"], compaction.get("nothing")) == ("digest", None)
    assert dict(compaction)["after_tokens"] == compaction.after_tokens
    assert json.loads(json.dumps(compaction.to_dict()))["messages"] == compaction.messages
    verdict = perdure.classify_error(429, "slow down", headers={"retry-after": "3"})
    assert (verdict["kind"], verdict["retry_after_s"]) == ("rate_limit", 3.0)
    assert verdict.to_dict()["status"] == 429


class Detached:
    """A record whose session is closed."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("session is closed")


def test_usage_whose_attributes_raise_is_not_reported() -> None:
    assert not perdure.normalize_usage(Detached(), "chat_completions").reported
    perdure.ContextCompressor(context_length=8_000).update_from_response(Detached())


def test_the_wait_of_an_sdk_exception_is_read_from_its_response() -> None:
    response = httpx.Response(429, request=httpx.Request("POST", "http://x"), headers={"retry-after": "7"})
    error = openai.RateLimitError("Rate limit", response=response, body=None)
    assert perdure.classify_error(None, error).retry_after_s == 7.0
    assert perdure.classify_error(None, error, headers={"retry-after": "2"}).retry_after_s == 2.0
