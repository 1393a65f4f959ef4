"""One simulated reply, independent of the protocol: content, finish reason and usage."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from perdure.core.usage import NOT_REPORTED, CanonicalUsage
from perdure.testing.simulator.rules import Issued, Rules
from perdure.testing.simulator.script import Call, Say
from perdure.testing.simulator.tokens import count_call, count_text, cut_text

Ending = Literal["stop", "tool_calls", "length", "refusal", "window"]


@dataclass(frozen=True, slots=True)
class SimulatedTurn:
    """A reply to render as a body or a stream."""

    number: int
    model: str
    created_s: int
    text: str = ""
    thinking: str = ""
    calls: tuple[Call, ...] = ()
    refusal: str = ""
    ending: Ending = "stop"
    finish: str | None = None
    usage: CanonicalUsage = NOT_REPORTED
    reports_usage: bool = True
    chunk_chars: int = 12
    is_stamped: bool = False

    @property
    def thinking_tokens(self) -> int:
        return count_text(self.thinking)

    @property
    def output_tokens(self) -> int:
        calls = sum(count_call(c.id or "", c.name, c.arguments_text) for c in self.calls)
        return self.thinking_tokens + count_text(self.text) + count_text(self.refusal) + calls

    def pieces(self, text: str) -> Iterator[str]:
        """Split a text into the chunks it is streamed in."""
        size = max(1, self.chunk_chars)
        for start in range(0, len(text), size):
            stamp = f"@{time.monotonic_ns()} " if self.is_stamped else ""
            yield stamp + text[start : start + size]


@dataclass(frozen=True, slots=True)
class Scene:
    """Context for rendering a reply: the request, the rules, and reasoning issued before."""

    body: Mapping[str, Any]
    rules: Rules
    issued: Issued
    reports_writes: bool = False


def take_turn(say: Say, *, number: int, model: str, created_s: int, max_output: int, ending: Ending) -> SimulatedTurn:
    """Build a turn from a scripted reply, with call ids; truncated to `max_output`, with `ending` as the reason."""
    calls = tuple(replace(c, id=c.id or f"call_sim{number:04d}_{k}") for k, c in enumerate(say.calls))
    turn = SimulatedTurn(
        number=number,
        model=model,
        created_s=created_s,
        text=say.text,
        thinking=say.thinking,
        calls=calls,
        refusal=say.refusal,
        ending="refusal" if say.refusal else "tool_calls" if calls else "stop",
        finish=say.finish,
        reports_usage=say.reports_usage,
        chunk_chars=say.chunk_chars,
        is_stamped=say.is_stamped,
    )
    if turn.output_tokens <= max_output:
        return turn
    thinking = cut_text(say.thinking, max_output)
    text = cut_text(say.text, max_output - count_text(thinking))
    return replace(turn, thinking=thinking, text=text, calls=(), refusal="", ending=ending)


def frame(data: Mapping[str, Any] | str, name: str = "") -> bytes:
    """Return one server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {text}\n\n".encode()
