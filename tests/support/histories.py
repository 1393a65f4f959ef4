"""Random messages and histories, valid and broken, for property tests anywhere in the tree."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from perdure.core.messages import Message, ToolCall, assistant, tool_result, user

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
# No lone surrogates: those are mended on the way in, so they cannot come back as they were.
TEXT = st.text(max_size=60)
_EXTRA = st.dictionaries(st.sampled_from(["x_id", "cache_control", "phase", "annotations"]), JSON, max_size=2)


@st.composite
def part_dicts(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["text", "image_url", "input_audio"]))
    extra = draw(_EXTRA)
    if kind == "text":
        return {"type": "text", "text": draw(TEXT), **extra}
    if kind == "image_url":
        image = {"url": draw(st.sampled_from(["data:image/png;base64,AAAA", "https://example.test/a.png"]))}
        if draw(st.booleans()):
            image["detail"] = draw(st.sampled_from(["low", "high"]))
        return {"type": "image_url", "image_url": image, **extra}
    return {"type": "input_audio", "input_audio": draw(JSON)}


@st.composite
def call_dicts(draw: st.DrawFn) -> dict[str, Any]:
    function = {"name": draw(st.sampled_from(["terminal", "read_file"])), "arguments": draw(TEXT)}
    if draw(st.booleans()):
        function["strict"] = draw(st.booleans())
    call = {"id": draw(st.sampled_from(["call_1", "call_2", "c|fc_3"])), "function": function, **draw(_EXTRA)}
    if draw(st.booleans()):
        call["type"] = draw(st.sampled_from(["function", "custom"]))
    return call


@st.composite
def message_dicts(draw: st.DrawFn) -> dict[str, Any]:
    """A well-formed OpenAI-style dict with all the freedom services take: absent, null and unknown keys."""
    role = draw(st.sampled_from(["system", "developer", "user", "assistant", "tool"]))
    raw: dict[str, Any] = {"role": role, **draw(_EXTRA)}
    if role != "assistant" or draw(st.booleans()):
        raw["content"] = draw(TEXT | st.none() | st.lists(part_dicts(), max_size=3))
    if role == "assistant" and draw(st.booleans()):
        raw["tool_calls"] = draw(st.lists(call_dicts(), max_size=3) | st.none())
    if role == "assistant" and draw(st.booleans()):
        raw["reasoning"] = draw(TEXT | st.none())
        raw["reasoning_details"] = draw(st.lists(st.dictionaries(st.text(max_size=5), JSON, max_size=2), max_size=2))
    if role == "tool":
        raw["tool_call_id"] = draw(st.sampled_from(["call_1", "call_2", "fc_3", "gone"]))
    if draw(st.booleans()):
        raw["name"] = draw(TEXT | st.none())
    return raw


def broken_histories(max_size: int = 14) -> st.SearchStrategy[list[Message]]:
    """Any messages in any order: orphans, doubled ids, missing results, wrong turns."""
    return st.lists(message_dicts().map(Message.from_dict), max_size=max_size)


@st.composite
def valid_histories(draw: st.DrawFn, max_turns: int = 6) -> list[Message]:
    """Whole turns: a request, some rounds of tool calls with their results, an answer."""
    out: list[Message] = []
    n = 0
    for _ in range(draw(st.integers(0, max_turns))):
        out.append(user(draw(TEXT) or "go on"))
        for _ in range(draw(st.integers(0, 3))):
            calls = tuple(
                ToolCall(f"call_{n + k}", "terminal", '{"command":"ls"}') for k in range(draw(st.integers(1, 3)))
            )
            n += len(calls)
            out.append(assistant(draw(TEXT) or None, calls))
            out += [tool_result(c.id, draw(TEXT), c.name) for c in calls]
        out.append(assistant(draw(TEXT)))
    return out
