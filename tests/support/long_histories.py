"""Histories long enough to be compacted: a few shapes by hand, and random ones for property tests."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

Raw = dict[str, Any]


def call(call_id: str, name: str = "terminal", **arguments: Any) -> Raw:
    function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {"id": call_id, "type": "function", "function": function}


def step(n: int, *, chars: int = 2_000, text: str | None = None, name: str = "terminal", **arguments: Any) -> list[Raw]:
    """One call and its result of about `chars` characters, different for each n."""
    arguments = arguments or {"command": f"make target_{n}"}
    line = f"line of target_{n}: the quick brown fox compiles modules_{n} and links them\n"
    return [
        {"role": "assistant", "content": text, "tool_calls": [call(f"call_{n}", name, **arguments)]},
        {"role": "tool", "tool_call_id": f"call_{n}", "content": (line * (chars // len(line) + 1))[:chars]},
    ]


def working_session(turns: int = 20, *, steps: int = 3, chars: int = 2_000) -> list[Raw]:
    """Turns of one request, some tool steps and a reply each."""
    out: list[Raw] = []
    for t in range(turns):
        out.append({"role": "user", "content": f"Please bring component_{t} up to date in src/component_{t}.py."})
        for s in range(steps):
            out += step(t * steps + s, chars=chars, text=f"Looking at component_{t}, step {s}.")
        out.append({"role": "assistant", "content": f"component_{t} is up to date; its tests pass."})
    return out


def one_request(
    steps: int = 90, *, chars: int = 2_000, request: str = "Port the whole parser to the new API."
) -> list[Raw]:
    """One request and nothing but tool calls after it."""
    out: list[Raw] = [{"role": "user", "content": request}]
    for n in range(steps):
        out += step(n, chars=chars)
    return out


_WORDS = st.sampled_from(
    "fix the parser please run tests src/app.py 42 build_index error 修复 エラー 테스트 deploy to staging now".split()  # noqa: SIM905  # a pool of words reads best as a sentence
)
_SIZES = st.sampled_from([0, 1, 5, 40, 200, 900, 4_000])


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Short to long text, cheap to draw: a few words, repeated."""
    base = " ".join(draw(st.lists(_WORDS, max_size=6)))
    size = draw(_SIZES)
    return (f"{base} {draw(st.integers(0, 999))}\n" * (size // max(1, len(base) + 4) + 1))[: size or len(base)]


@st.composite
def groups(draw: st.DrawFn) -> list[Raw]:
    """One stretch of a history: a user's message, a reply, or calls with their results, sometimes broken."""
    kind = draw(st.sampled_from(["user", "reply", "calls", "calls", "calls", "broken", "odd"]))
    if kind == "user":
        words = draw(texts())
        return [{"role": "user", "content": draw(st.sampled_from([words, "continue", "thanks", f"Please {words}"]))}]
    if kind == "reply":
        return [{"role": "assistant", "content": draw(texts())}]
    if kind == "odd":
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
        return [
            draw(
                st.sampled_from(
                    [
                        {"role": "user", "content": None},
                        {"role": "user", "content": [{"type": "text", "text": "look"}, image]},
                        {"role": "system", "content": "a note in the middle"},
                        {"role": "assistant", "content": ""},
                        {"role": "tool", "tool_call_id": "nobody", "content": "stray"},
                    ]
                )
            )
        ]
    ids = [f"c{draw(st.integers(0, 9_999))}_{k}" for k in range(draw(st.integers(1, 3)))]
    asking = {"role": "assistant", "content": draw(texts()), "tool_calls": [call(i, command="make all") for i in ids]}
    results = [{"role": "tool", "tool_call_id": i, "content": draw(texts())} for i in ids]
    if kind == "broken":
        results = draw(st.sampled_from([results[1:], results[::-1], [*results, *results], []]))
    return [asking, *results]


@st.composite
def histories(draw: st.DrawFn, max_groups: int = 40) -> list[Raw]:
    """A whole history, now and then with a system prompt in front."""
    front: list[Raw] = draw(st.sampled_from([[], [], [{"role": "system", "content": "You are careful."}]]))
    return front + [m for group in draw(st.lists(groups(), max_size=max_groups)) for m in group]
