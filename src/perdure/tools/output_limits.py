"""Limit tool output: store what is too large and put a preview into the context.

Layer 1 is in the tools themselves, which paginate and cap. Layer 2 stores a single result over its tool's limit.
Layer 3 runs once all results of an assistant message are in: while their sum is too large, the largest is stored. A
preview has the start *and* the end, because errors are at the end. If the disk fails, the result is truncated instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from perdure.core.errors import StoreError
from perdure.core.ports import Outputs, StoredOutput
from perdure.tools.tool import Tool, ToolReply

# Characters per token, for limits that scale with the context window.
CHARS_PER_TOKEN = 4
_MAX_LOCATION_CHARS = 100


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """Maximum characters of one result, of all results of a message, and of a preview."""

    result_chars: int = 100_000
    turn_chars: int = 200_000
    preview_chars: int = 1_500

    def scale(self, window_tokens: int, *, result_ratio: float = 0.15, turn_ratio: float = 0.30) -> OutputLimits:
        """Return the limits for a context window: a share of it where that is less than the defaults."""
        window_chars = window_tokens * CHARS_PER_TOKEN
        result_chars = min(self.result_chars, int(window_chars * result_ratio))
        return OutputLimits(
            result_chars=result_chars,
            turn_chars=min(self.turn_chars, int(window_chars * turn_ratio)),
            preview_chars=min(self.preview_chars, max(1, result_chars // 2)),
        )


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """The reply of one call; `spilled` is set once its output has been stored."""

    tool: Tool | None
    call_id: str
    reply: ToolReply
    spilled: StoredOutput | None = None

    @property
    def is_spilled(self) -> bool:
        return self.spilled is not None or self.reply.stored is not None


class OutputLimiter:
    """Applies layers 2 and 3 (see the module) to tool results; outputs go to one output store."""

    def __init__(self, outputs: Outputs | None, limits: OutputLimits | None = None) -> None:
        self._outputs = outputs
        self.limits = limits or OutputLimits()

    def within(self, limits: OutputLimits) -> OutputLimiter:
        """Return a limiter with the same output store and other limits, such as those of another window."""
        return OutputLimiter(self._outputs, limits)

    def limit_result(self, outcome: ToolOutcome, conversation_id: str) -> ToolOutcome:
        """Store the output of one call and return a preview, if it exceeds its tool's limit (layer 2)."""
        limit = self._limit_of(outcome.tool)
        if limit is None or len(outcome.reply.text) <= limit or outcome.is_spilled:
            return outcome
        return self._store(outcome, conversation_id, limit)

    def limit_turn(self, outcomes: Sequence[ToolOutcome], conversation_id: str) -> list[ToolOutcome]:
        """Store the largest outputs of a message until their sum fits (layer 3); those of paginating tools last."""
        if len(outcomes) == 1 and _paginates(outcomes[0].tool):
            return list(outcomes)  # it chose its page size for this window, and no other result needs the room
        return self.spill(outcomes, conversation_id, is_enough=lambda now: not self.exceeds_turn(now))

    def exceeds_turn(self, outcomes: Sequence[ToolOutcome]) -> bool:
        """Whether all results of a message together are too large."""
        return sum(len(o.reply.text) for o in outcomes) > self.limits.turn_chars

    def spill(
        self,
        outcomes: Sequence[ToolOutcome],
        conversation_id: str,
        *,
        is_enough: Callable[[Sequence[ToolOutcome]], bool],
    ) -> list[ToolOutcome]:
        """Store outputs, largest first, until `is_enough`; those of paginating tools last."""
        out = list(outcomes)
        # The model requested exactly that page, so it is spilled last.
        order = sorted(range(len(out)), key=lambda i: (_paginates(out[i].tool), -len(out[i].reply.text)))
        share = max(self.limits.preview_chars, self.limits.turn_chars // max(1, len(out)))
        for i in order:
            if is_enough(out):
                break
            before = out[i]
            if before.is_spilled or len(before.reply.text) <= self.limits.preview_chars:
                continue
            out[i] = (
                self._point_to_source(before) if before.reply.source else self._store(before, conversation_id, share)
            )
        return out

    def _limit_of(self, tool: Tool | None) -> int | None:
        own = tool.max_result_chars if tool is not None else None
        if own == 0:
            return None
        return self.limits.result_chars if own is None else min(own, self.limits.result_chars)

    def _store(self, outcome: ToolOutcome, conversation_id: str, fallback_chars: int) -> ToolOutcome:
        text = outcome.reply.text
        if self._outputs is None:
            return _truncate(outcome, fallback_chars, "there is no output store")
        try:
            stored = self._write(self._outputs, text, conversation_id, outcome.call_id)
        except (OSError, StoreError) as error:
            return _truncate(outcome, fallback_chars, f"it could not be saved: {error}")
        preview = persisted_block(
            stored,
            text[: _head_chars(self.limits)],
            text[-_tail_chars(self.limits) :],
            lines=text.count("\n") + (not text.endswith("\n")),
        )
        return replace(outcome, reply=replace(outcome.reply, text=preview), spilled=stored)

    def _write(self, outputs: Outputs, text: str, conversation_id: str, call_id: str) -> StoredOutput:
        sink = outputs.begin(conversation_id, call_id)
        try:
            sink.write(text)
            return sink.close()
        except BaseException:
            sink.abort()
            raise

    def _point_to_source(self, outcome: ToolOutcome) -> ToolOutcome:
        """Replace text read from a file by a pointer: the file is still there, so no copy is stored."""
        text = outcome.reply.text
        head, tail = text[: _head_chars(self.limits)], text[-_tail_chars(self.limits) :]
        preview = (
            f"<persisted-output>\n{len(text):,} characters from {outcome.reply.source} did not fit into the "
            f"context. Read it again in smaller parts with read_file (offset, limit).\n\n"
            f"{_head_and_tail(head, tail, len(text))}\n</persisted-output>"
        )
        return replace(outcome, reply=replace(outcome.reply, text=preview))


def persisted_block(stored: StoredOutput, head: str, tail: str, *, lines: int | None = None) -> str:
    """Format the preview of a stored output: its size, address, how to read it, and both ends of its text."""
    # A long path would take space from the preview.
    location = f" ({stored.location})" if len(stored.location) <= _MAX_LOCATION_CHARS else ""
    size = f"{stored.chars:,} characters ({max(1, stored.chars // 1024):,} KB)"
    if lines is not None:
        size += f" in {lines:,} line{'' if lines == 1 else 's'}"
    return (
        f"<persisted-output>\nThe output is {size}, too large to show. All of it is kept at "
        f"{stored.address}{location}.\nRead parts with read_file (that address as path; offset, limit in lines); "
        f"session_search finds words in it.\n\n"
        f"{_head_and_tail(head, tail, stored.chars)}\n</persisted-output>"
    )


def _head_and_tail(head: str, tail: str, total_chars: int) -> str:
    left_out = total_chars - len(head) - len(tail)
    return f"First {len(head):,} characters:\n{head}\n[… {left_out:,} characters …]\nLast {len(tail):,}:\n{tail}"


def _truncate(outcome: ToolOutcome, limit: int, why: str) -> ToolOutcome:
    """Truncate the middle of an output that could not be stored, with the reason."""
    text = outcome.reply.text
    head, tail = text[: limit * 2 // 3], text[len(text) - limit // 3 :]
    marker = f"\n[… {len(text) - len(head) - len(tail):,} characters left out, {why} …]\n"
    return replace(outcome, reply=replace(outcome.reply, text=head + marker + tail))


def _paginates(tool: Tool | None) -> bool:
    return tool is not None and tool.max_result_chars == 0


def _head_chars(limits: OutputLimits) -> int:
    return max(1, limits.preview_chars * 2 // 3)


def _tail_chars(limits: OutputLimits) -> int:
    return max(1, limits.preview_chars - _head_chars(limits))
