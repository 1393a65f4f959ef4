"""What the chat prints: answers as they come, tools as they run, compactions with their figures."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TextIO

from perdure.agent.callbacks import status_line as told
from perdure.cli.chat_surface import ChatSurface
from perdure.commands.figures import bar, money, share, tokens, usage_lines
from perdure.core.events import (
    CompactionFinished,
    Event,
    ModelSwitched,
    Notice,
    OutputSpilled,
    ReasoningDelta,
    Recovered,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from perdure.core.messages import ToolCall

_TARGET_CHARS = 60


class ChatScreen:
    """Prints events. Called from the event thread and, at the end of a turn, from the prompt's."""

    def __init__(self, out: TextIO, *, shows_reasoning: bool = False) -> None:
        self._out = out
        self._shows_reasoning = shows_reasoning
        self._lock = threading.Lock()
        self._is_mid_line = False

    def show(self, event: Event) -> None:
        with self._lock:
            match event:
                case TextDelta(text):
                    self._write(text)
                case ReasoningDelta(text) if self._shows_reasoning:
                    self._write(text)
                case ToolStarted(call):
                    self._line(f"· {call.name} {_target(call)}")
                case ToolFinished(call=call, seconds=seconds, result=result, is_error=is_error):
                    mark = "failed" if is_error else "done"
                    self._line(f"  {call.name} {mark} in {seconds:.1f} s, {tokens(len(result.text))} characters")
                case OutputSpilled(address=address, chars=chars):
                    self._line(f"  {tokens(chars)} characters kept at {address}")
                case CompactionFinished() | Recovered() | ModelSwitched() | Notice():
                    self._line(f"[{told(event)}]")
                case _:
                    pass

    def progress(self, text: str, seconds: float) -> None:
        with self._lock:
            self._out.write(f"\r{text} … {seconds:.0f} s ")
            self._out.flush()
            self._is_mid_line = True

    def end(self, problem: str) -> None:
        """The turn is over; `problem` says why there is no answer, if there is none."""
        with self._lock:
            self._line(f"[{problem}]" if problem else "")

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
        self._is_mid_line = not text.endswith("\n")

    def _line(self, text: str) -> None:
        lead = "\n" if self._is_mid_line else ""
        self._out.write(f"{lead}{text}\n" if text else lead)
        self._out.flush()
        self._is_mid_line = False


def opening_lines(surface: ChatSurface) -> Iterator[str]:
    gauge = surface.agent.gauge
    yield f"Perdure · {gauge.model} · /help lists the commands, Alt-Enter makes a new line"
    yield from (f"[{w}]" for w in surface.warnings)
    if gauge.model == "smollm2":
        yield "No key is set, so this is the small embedded model: fit for trying things out, not for real work."
        yield "Point Perdure at a real one: export ANTHROPIC_API_KEY=… or OPENAI_API_KEY=…, or see docs/providers.md."


def closing_lines(surface: ChatSurface) -> Iterator[str]:
    session_id = surface.agent.session_id
    if session_id is None:
        return
    conversation = surface.store.conversations.get(session_id)
    totals = surface.store.ledger.totals(session_id)
    yield ""
    yield f"Conversation {conversation.id}; go on with: perdure chat --resume {conversation.id}"
    yield from usage_lines(totals.usage)
    yield f"{'cost':<18} {money(totals.cost_usd):>12}"


def status_line(surface: ChatSurface) -> str:
    """Model, gauge with its threshold mark, cache hit rate, cost, title."""
    gauge = surface.agent.gauge
    parts = [gauge.model]
    if gauge.window:
        drawn = bar(gauge.tokens, gauge.window, width=16, mark=gauge.threshold)
        parts.append(f"{drawn} {tokens(gauge.tokens)}/{tokens(gauge.window)}")
    if (session_id := surface.agent.session_id) is not None:
        totals = surface.store.ledger.totals(session_id)
        parts += [f"cache {share(totals.usage.cache_hit_rate)}", money(totals.cost_usd)]
        if title := surface.store.conversations.get(session_id).title:
            parts.append(title)
    return " · ".join(parts)


def _target(call: ToolCall) -> str:
    """The argument that says most about a call, shortened."""
    given = call.parsed_arguments() or {}
    for key in ("command", "path", "query", "pattern", "url", "question", "action"):
        if isinstance(value := given.get(key), str):
            shown = " ".join(value.split())
            return shown if len(shown) <= _TARGET_CHARS else f"{shown[:_TARGET_CHARS]}…"
    return ""
