"""Tool output kept within budgets: what is too large goes to the outputs, whole, and a preview stands in its place.

Layer 1 is the tools' own (they page and cap). Layer 2: one result over its tool's limit is persisted. Layer 3: when all
results of one assistant message are in and together too large, the largest go until the rest fits. A preview shows the
start *and* the end, for errors are at the end. A disk that fails never ends a turn: the result stays, shortened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from perdure.core.errors import StoreError
from perdure.core.ports import Outputs, StoredOutput
from perdure.tools.tool import Tool, ToolReply

# How many characters one token of a window is worth when limits scale with it.
CHARS_PER_TOKEN = 4
_SHOWN_PLACE_CHARS = 100


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """The most characters of one result, of one message's results together, and of a preview."""

    result_chars: int = 100_000
    turn_chars: int = 200_000
    preview_chars: int = 1_500

    def scaled(self, window_tokens: int, *, result_ratio: float = 0.15, turn_ratio: float = 0.30) -> OutputLimits:
        """The limits for a window; a small one gets a share of it instead of the full figures."""
        window_chars = window_tokens * CHARS_PER_TOKEN
        result_chars = min(self.result_chars, int(window_chars * result_ratio))
        return OutputLimits(
            result_chars=result_chars,
            turn_chars=min(self.turn_chars, int(window_chars * turn_ratio)),
            preview_chars=min(self.preview_chars, max(1, result_chars // 2)),
        )


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """One call's reply on its way into the context; `spilled` is set once its output lies elsewhere."""

    tool: Tool | None
    call_id: str
    reply: ToolReply
    spilled: StoredOutput | None = None

    @property
    def is_spilled(self) -> bool:
        return self.spilled is not None or self.reply.stored is not None


class OutputLimiter:
    """Layers 2 and 3, over one place for outputs."""

    def __init__(self, outputs: Outputs | None, limits: OutputLimits | None = None) -> None:
        self._outputs = outputs
        self.limits = limits or OutputLimits()

    def fit_one(self, outcome: ToolOutcome, conversation_id: str) -> ToolOutcome:
        """Layer 2: the outcome, persisted where it is over its tool's limit."""
        limit = self._limit_of(outcome.tool)
        if limit is None or len(outcome.reply.text) <= limit or outcome.is_spilled:
            return outcome
        return self._persisted(outcome, conversation_id, limit)

    def fit_turn(self, outcomes: Sequence[ToolOutcome], conversation_id: str) -> list[ToolOutcome]:
        """Layer 3: the outcomes with the largest persisted until their sum fits; self-paging tools go last."""
        if len(outcomes) == 1 and _pages_itself(outcomes[0].tool):
            return list(outcomes)  # it chose its page for this window, and there is nothing it could make room for
        return self.spill(
            outcomes,
            conversation_id,
            is_enough=lambda now: sum(len(o.reply.text) for o in now) <= self.limits.turn_chars,
        )

    def spill(
        self,
        outcomes: Sequence[ToolOutcome],
        conversation_id: str,
        *,
        is_enough: Callable[[Sequence[ToolOutcome]], bool],
    ) -> list[ToolOutcome]:
        """The outcomes, the largest of them persisted one after the other until `is_enough`; self-paging tools last."""
        out = list(outcomes)
        # A reader's result is spilled last: the model asked for exactly that piece.
        order = sorted(range(len(out)), key=lambda i: (_pages_itself(out[i].tool), -len(out[i].reply.text)))
        share = max(self.limits.preview_chars, self.limits.turn_chars // max(1, len(out)))
        for i in order:
            if is_enough(out):
                break
            before = out[i]
            if before.is_spilled or len(before.reply.text) <= self.limits.preview_chars:
                continue
            out[i] = self._pointed(before) if before.reply.source else self._persisted(before, conversation_id, share)
        return out

    def _limit_of(self, tool: Tool | None) -> int | None:
        own = tool.max_result_chars if tool is not None else None
        if own == 0:
            return None
        return self.limits.result_chars if own is None else min(own, self.limits.result_chars)

    def _persisted(self, outcome: ToolOutcome, conversation_id: str, fallback_chars: int) -> ToolOutcome:
        text = outcome.reply.text
        if self._outputs is None:
            return _shortened(outcome, fallback_chars, "there is no place to keep it")
        try:
            stored = self._write(self._outputs, text, conversation_id, outcome.call_id)
        except (OSError, StoreError) as error:
            return _shortened(outcome, fallback_chars, f"it could not be saved: {error}")
        shown = persisted_block(stored, text[: _head(self.limits)], text[-_tail(self.limits) :])
        return replace(outcome, reply=replace(outcome.reply, text=shown), spilled=stored)

    def _write(self, outputs: Outputs, text: str, conversation_id: str, call_id: str) -> StoredOutput:
        sink = outputs.begin(conversation_id, call_id)
        try:
            sink.write(text)
            return sink.close()
        except BaseException:
            sink.abort()
            raise

    def _pointed(self, outcome: ToolOutcome) -> ToolOutcome:
        """What was read from a file needs no copy: the file is still there, and the block says where."""
        text = outcome.reply.text
        shown = (
            f"<persisted-output>\n{len(text):,} characters from {outcome.reply.source} did not fit into the "
            f"context. Read it again in smaller parts with read_file (offset, limit).\n\n"
            f"{_both_ends(text[: _head(self.limits)], text[-_tail(self.limits) :], len(text))}\n</persisted-output>"
        )
        return replace(outcome, reply=replace(outcome.reply, text=shown))


def persisted_block(stored: StoredOutput, head: str, tail: str) -> str:
    """What stands in the context for an output kept elsewhere: its size, where it is, how to read it, both its ends."""
    # A long path would eat into the room that the text has.
    place = f" ({stored.place})" if len(stored.place) <= _SHOWN_PLACE_CHARS else ""
    return (
        f"<persisted-output>\nThe output is {stored.chars:,} characters ({max(1, stored.chars // 1024):,} KB), too "
        f"large to show. All of it is kept at {stored.address}{place}.\nRead parts with read_file (that address as "
        f"path; offset, limit in lines); session_search finds words in it.\n\n"
        f"{_both_ends(head, tail, stored.chars)}\n</persisted-output>"
    )


def _both_ends(head: str, tail: str, total_chars: int) -> str:
    left_out = total_chars - len(head) - len(tail)
    return f"First {len(head):,} characters:\n{head}\n[… {left_out:,} characters …]\nLast {len(tail):,}:\n{tail}"


def _shortened(outcome: ToolOutcome, limit: int, why: str) -> ToolOutcome:
    """Layer 2 and 3 without a disk: both ends of the text, and why the middle is gone."""
    text = outcome.reply.text
    head, tail = text[: limit * 2 // 3], text[len(text) - limit // 3 :]
    marker = f"\n[… {len(text) - len(head) - len(tail):,} characters left out, {why} …]\n"
    return replace(outcome, reply=replace(outcome.reply, text=head + marker + tail))


def _pages_itself(tool: Tool | None) -> bool:
    return tool is not None and tool.max_result_chars == 0


def _head(limits: OutputLimits) -> int:
    return max(1, limits.preview_chars * 2 // 3)


def _tail(limits: OutputLimits) -> int:
    return max(1, limits.preview_chars - _head(limits))
