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
from perdure.agent.context_usage import Composition, describe_fixed_oversize
from perdure.testing.simulator import Call, Fail, Say, Simulator, strict

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
        ("Fine.", "the summary is only “Fine.”"),
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


# -- services --------------------------------------------------------------------------------------------------------


def test_the_refused_key_of_a_client_is_the_clients(tmp_path: Path) -> None:
    with Simulator(strict(), script=[Fail("openai_bad_key")] * 2) as sim:
        client = openai.OpenAI(base_url=sim.base_url, api_key="k1")
        with (
            Agent("m", client=client, home=tmp_path, settings={}, tools=()) as one,
            pytest.raises(perdure.TurnFailed) as failure,
        ):
            one.chat("x")
        assert sim.requests[0].headers["authorization"] == "Bearer k1"
    assert "that of the client handed in with client=" in str(failure.value)
    for advice_for_others in ("No key was sent", "api_key=", "credentials.command"):
        assert advice_for_others not in str(failure.value)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"base_url": "http://127.0.0.1:9/v1"}, "base_url="),
        ({"api_key": "other"}, "api_key="),
        ({"provider": "anthropic", "api_key": "other"}, "provider=, api_key="),
    ],
)
def test_arguments_that_a_client_makes_ineffective_are_refused(
    tmp_path: Path, options: dict[str, Any], names: str
) -> None:
    client = openai.OpenAI(base_url="http://127.0.0.1:9/v1", api_key="k1")
    with pytest.raises(perdure.ConfigError, match=f"leave out {names}, or client="):
        Agent("m", client=client, store=tmp_path / "perdure.db", **options)
    assert not (tmp_path / "perdure.db").exists()
    Agent("m", "openai", client=client, home=tmp_path, settings={}).close()


@pytest.mark.parametrize("address", ["nonsense", "ftp://host/v1", "http://", "http://h\0/v1", "http://a b/v1", "://"])
def test_a_base_url_that_is_no_address_is_refused_at_once(tmp_path: Path, address: str) -> None:
    with (
        Simulator() as sim,
        pytest.raises(perdure.ConfigError, match=r"is no http\(s\) address: it looks like https://"),
    ):
        agent(sim, tmp_path, base_url=address)
    assert not (tmp_path / "perdure.db").exists()


def test_a_password_in_a_wrong_base_url_is_not_repeated(tmp_path: Path) -> None:
    with Simulator() as sim, pytest.raises(perdure.ConfigError, match="ftp://host/v1") as error:
        agent(sim, tmp_path, base_url="ftp://ann:secret@host/v1")
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(("provider", "nearest"), [("antropic", "anthropic"), ("mycorp", None), ("openai", None)])
def test_a_misspelt_provider_with_an_address_is_warned_of(tmp_path: Path, provider: str, nearest: str | None) -> None:
    with Simulator() as sim, agent(sim, tmp_path, provider=provider) as one:
        text = "".join(one.warnings)
        assert (f"provider {provider!r} is not known" in text) == (nearest is not None)
        assert nearest is None or f"did you mean {nearest!r}?" in text


def test_a_system_prompt_larger_than_the_window_is_named_instead_of_the_message(tmp_path: Path) -> None:
    prompt = "rule " * 20_000
    with (
        Simulator(strict(), window=8_000) as sim,
        agent(sim, tmp_path, system_prompt=prompt) as one,
        pytest.raises(perdure.TurnFailed, match="The system prompt alone does not fit the model's window"),
    ):
        one.chat("x")


@pytest.mark.parametrize(
    ("words", "window", "advice"),
    [
        (9_000, 8_000, "The system prompt alone does not fit"),
        (5_000, 8_000, "System prompt and tools alone do not fit"),
        (5_000, 200_000, ""),
        (9_000, None, ""),
    ],
)
def test_the_parts_that_no_compaction_can_shorten_are_named(words: int, window: int | None, advice: str) -> None:
    composition = Composition()
    tool = {"type": "function", "function": {"name": "note", "description": "word " * 5_000, "parameters": {}}}
    composition.set_fixed(system=("rule " * words,), tools=[tool])
    text = describe_fixed_oversize(composition, window)
    assert text.startswith(advice) if advice else text == ""
