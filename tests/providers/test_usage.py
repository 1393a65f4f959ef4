from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.core.usage import NOT_REPORTED, CanonicalUsage
from perdure.providers import anthropic_messages
from perdure.providers.types import normalize_usage
from support.packages import package

anthropic = package("anthropic")
openai = package("openai")

MODES = ("chat_completions", "codex_responses", "anthropic_messages")

# 21,000 fresh + 60,000 cached + 3,000 out, in the shape of each wire.
VECTOR = {
    "anthropic_messages": {
        "input_tokens": 21_000,
        "cache_read_input_tokens": 60_000,
        "cache_creation_input_tokens": 0,
        "output_tokens": 3_000,
    },
    "codex_responses": {
        "input_tokens": 81_000,
        "input_tokens_details": {"cached_tokens": 60_000},
        "output_tokens": 3_000,
        "output_tokens_details": {"reasoning_tokens": 1_200},
        "total_tokens": 84_000,
    },
    "chat_completions": {
        "prompt_tokens": 81_000,
        "prompt_tokens_details": {"cached_tokens": 60_000},
        "completion_tokens": 3_000,
        "completion_tokens_details": {"reasoning_tokens": 1_200},
        "total_tokens": 84_000,
    },
}

# A response in which the service compacted first: the sums are those of the message alone.
ITERATED: dict[str, Any] = {
    "input_tokens": 1_000,
    "output_tokens": 1_000,
    "cache_read_input_tokens": 20_000,
    "cache_creation_input_tokens": 3_000,
    "iterations": [
        {"type": "compaction", "input_tokens": 180_000, "output_tokens": 3_500},
        {
            "type": "message",
            "input_tokens": 1_000,
            "output_tokens": 1_000,
            "cache_read_input_tokens": 20_000,
            "cache_creation_input_tokens": 3_000,
        },
        {"type": "advisor_message", "input_tokens": 900_000, "output_tokens": 9_000},
    ],
}


@pytest.mark.spec("A1", "A2", "A8")
@pytest.mark.parametrize("mode", MODES)
def test_one_call_gives_one_record_in_all_three_shapes(mode: str) -> None:
    usage = normalize_usage(VECTOR[mode], mode)
    assert (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens) == (21_000, 60_000, 3_000)
    assert (usage.prompt_tokens, usage.total_tokens, usage.reported) == (81_000, 84_000, True)


@pytest.mark.spec("A1", "A2")
@pytest.mark.parametrize(
    ("mode", "raw", "expected"),
    [
        (
            "chat_completions",
            {
                "prompt_tokens": 100,
                "completion_tokens": 9,
                "prompt_cache_hit_tokens": 64,
                "prompt_cache_miss_tokens": 36,
            },
            CanonicalUsage(36, 9, 64),
        ),
        (
            "chat_completions",
            {"prompt_tokens": 100, "completion_tokens": 9, "cached_tokens": 40},
            CanonicalUsage(60, 9, 40),
        ),
        (
            "chat_completions",
            {
                "prompt_tokens": 100,
                "completion_tokens": 9,
                "prompt_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 20},
            },
            CanonicalUsage(40, 9, 40, 20),
        ),
        (
            "chat_completions",
            {"prompt_tokens": 50, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 80}},
            CanonicalUsage(0, 5, 80),
        ),
        (
            "chat_completions",
            {"prompt_tokens": 12, "total_tokens": 20, "completion_tokens": 8, "prompt_tokens_details": None},
            CanonicalUsage(12, 8),
        ),
        # The total owns up to reasoning that the output figure leaves out.
        (
            "chat_completions",
            {
                "prompt_tokens": 32,
                "completion_tokens": 9,
                "total_tokens": 135,
                "completion_tokens_details": {"reasoning_tokens": 94},
            },
            CanonicalUsage(32, 103, reasoning_tokens=94),
        ),
        (
            "codex_responses",
            {
                "input_tokens": 100,
                "output_tokens": 9,
                "input_tokens_details": {"cached_tokens": 40, "cache_creation_tokens": 20},
            },
            CanonicalUsage(40, 9, 40, 20),
        ),
        (
            "anthropic_messages",
            {
                "input_tokens": 5,
                "output_tokens": 9,
                "cache_creation_input_tokens": 11,
                "cache_creation": {"ephemeral_5m_input_tokens": 6, "ephemeral_1h_input_tokens": 5},
            },
            CanonicalUsage(5, 9, 0, 11, cache_write_1h_tokens=5),
        ),
        (
            "anthropic_messages",
            {"input_tokens": 5, "output_tokens": 9, "cache_creation": {"ephemeral_1h_input_tokens": 7}},
            CanonicalUsage(5, 9, 0, 7, cache_write_1h_tokens=7),
        ),
        ("anthropic_messages", {"cache_read_input_tokens": 70, "output_tokens": 1}, CanonicalUsage(0, 1, 70)),
        ("anthropic_messages", ITERATED, CanonicalUsage(181_000, 4_500, 20_000, 3_000)),
        (
            "anthropic_messages",
            {**ITERATED, "iterations": ITERATED["iterations"][1:]},
            CanonicalUsage(1_000, 1_000, 20_000, 3_000),
        ),
        ("anthropic_messages", {**ITERATED, "iterations": "junk"}, CanonicalUsage(1_000, 1_000, 20_000, 3_000)),
        ("anthropic_messages", {"prompt_tokens": 7, "completion_tokens": 2}, CanonicalUsage(7, 2)),
        (
            "chat_completions",
            {"input_tokens": 7, "output_tokens": 2, "cache_read_input_tokens": 3},
            CanonicalUsage(7, 2, 3),
        ),
        ("chat_completions", {"prompt_tokens": "1,200", "completion_tokens": 2.0}, CanonicalUsage(1200, 2)),
        ("chat_completions", {"prompt_tokens": 0, "completion_tokens": 0}, CanonicalUsage()),
    ],
)
def test_variants_of_services(mode: str, raw: dict[str, Any], expected: CanonicalUsage) -> None:
    assert normalize_usage(raw, mode) == expected


def test_of_several_prompts_in_one_response_all_are_billed_and_the_last_is_the_context() -> None:
    body = {"id": "r", "content": "Done.", "stop_reason": "end_turn", "usage": ITERATED}
    reply = anthropic_messages.parse(body)
    assert reply.usage.total_tokens == 208_500
    assert reply.last_usage == CanonicalUsage(1_000, 1_000, 20_000, 3_000)
    single = anthropic_messages.parse({**body, "usage": {**ITERATED, "iterations": ITERATED["iterations"][1:]}})
    assert single.last_usage is None


@pytest.mark.spec("A3")
@pytest.mark.parametrize("mode", [*MODES, "no_such_mode"])
@pytest.mark.parametrize(
    "raw",
    [
        None, {}, [], "", "junk", b"junk", 7, 0.5, True, object(), int, float("nan"), {"unrelated": 3},
        {"prompt_tokens": "junk", "input_tokens": "junk"},
        {"prompt_tokens": -1, "input_tokens": -1, "completion_tokens": 5, "output_tokens": 5},
        {"prompt_tokens": math.nan, "input_tokens": math.nan}, {"prompt_tokens": math.inf, "input_tokens": math.inf},
        {"prompt_tokens": {"a": 1}, "input_tokens": [1]}, {"prompt_tokens": True, "input_tokens": True},
        {"prompt_tokens": 10**30, "input_tokens": 10**30}, {"prompt_tokens": None, "input_tokens": None},
        {"prompt_tokens": 5, "completion_tokens": "x", "input_tokens": 5, "output_tokens": "x"},
    ],
    ids=lambda raw: type(raw).__name__,
)  # fmt: skip
def test_what_cannot_be_read_is_empty_and_not_reported(raw: object, mode: str) -> None:
    assert normalize_usage(raw, mode) == NOT_REPORTED


@pytest.mark.spec("A3")
def test_junk_in_side_figures_does_not_spoil_the_main_ones() -> None:
    raw = {"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": "?", "completion_tokens_details": [1]}
    assert normalize_usage(raw, "chat_completions") == CanonicalUsage(10, 2)
    raw["prompt_tokens_details"] = {"cached_tokens": -4}
    assert normalize_usage(raw, "chat_completions") == CanonicalUsage(10, 2)


@pytest.mark.spec("A3")
def test_an_output_figure_alone_is_kept_but_its_missing_prompt_is_no_real_zero() -> None:
    usage = normalize_usage({"completion_tokens": 7}, "chat_completions")
    assert (usage.output_tokens, usage.reported) == (7, False)


@pytest.mark.spec("A2")
def test_objects_of_official_clients_are_read_as_their_dicts_would_be() -> None:
    chat = openai.types.CompletionUsage.model_validate(VECTOR["chat_completions"])
    responses = openai.types.responses.ResponseUsage.model_construct(**VECTOR["codex_responses"])
    claude = anthropic.types.Usage.model_validate(VECTOR["anthropic_messages"])
    deepseek = openai.types.CompletionUsage.model_validate(
        {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10, "prompt_cache_hit_tokens": 4}
    )
    assert normalize_usage(chat, "chat_completions").total_tokens == 84_000
    assert normalize_usage(responses, "codex_responses").total_tokens == 84_000
    assert normalize_usage(claude, "anthropic_messages").total_tokens == 84_000
    assert normalize_usage(deepseek, "chat_completions").cache_read_tokens == 4
    assert normalize_usage(SimpleNamespace(prompt_tokens=3, completion_tokens=1), "chat_completions").total_tokens == 4


_LEAF = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.binary(max_size=4)
    | st.sampled_from(["12", "1,024", "-3", 0, 7, 1000, 10**13])
)  # fmt: skip
_KEYS = st.sampled_from(
    [
        "prompt_tokens", "completion_tokens", "total_tokens", "input_tokens", "output_tokens", "cached_tokens",
        "cache_read_input_tokens", "cache_creation_input_tokens", "prompt_cache_hit_tokens", "prompt_tokens_details",
        "completion_tokens_details", "input_tokens_details", "output_tokens_details", "cache_creation",
        "reasoning_tokens", "cache_write_tokens", "ephemeral_1h_input_tokens", "ephemeral_5m_input_tokens",
    ]
)  # fmt: skip
_USAGE = st.recursive(_LEAF, lambda inner: st.dictionaries(_KEYS, inner, max_size=8) | st.lists(inner, max_size=3))


@pytest.mark.spec("A1", "A3")
@settings(max_examples=120, deadline=None)
@given(raw=_USAGE, mode=st.sampled_from(MODES))
def test_whatever_comes_nothing_is_negative_and_totals_add_up(raw: object, mode: str) -> None:
    usage = normalize_usage(raw, mode)
    counts = (
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.reasoning_tokens,
        usage.cache_write_1h_tokens,
    )
    assert all(isinstance(c, int) and c >= 0 for c in counts)
    assert usage.prompt_tokens == usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    assert usage.total_tokens == usage.prompt_tokens + usage.output_tokens
    assert usage.reported or usage.prompt_tokens == 0
    assert usage.cache_write_1h_tokens <= usage.cache_write_tokens


_COUNT = st.integers(min_value=0, max_value=10**7)


@pytest.mark.spec("A1", "A2")
@settings(max_examples=100, deadline=None)
@given(fresh=_COUNT, read=_COUNT, written=_COUNT, output=_COUNT)
def test_the_three_shapes_agree_on_any_call(fresh: int, read: int, written: int, output: int) -> None:
    total = fresh + read + written
    shapes = {
        "anthropic_messages": {
            "input_tokens": fresh,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": written,
            "output_tokens": output,
        },
        "codex_responses": {
            "input_tokens": total,
            "input_tokens_details": {"cached_tokens": read, "cache_creation_tokens": written},
            "output_tokens": output,
        },
        "chat_completions": {
            "prompt_tokens": total,
            "prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": written},
            "completion_tokens": output,
        },
    }
    records = {normalize_usage(raw, mode) for mode, raw in shapes.items()}
    assert records == {CanonicalUsage(fresh, output, read, written)}


def test_a_count_may_be_an_integer_of_another_library() -> None:
    class Whole:
        def __index__(self) -> int:
            return 7

    usage = normalize_usage({"prompt_tokens": Whole(), "completion_tokens": 2.0}, "chat_completions")
    assert (usage.prompt_tokens, usage.output_tokens) == (7, 2)
