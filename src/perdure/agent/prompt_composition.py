"""What fills the window, part by part, kept up to date as messages come: for the gauge, the chart and `/context`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perdure.agent.prompt import memory_part
from perdure.context.history import tokens_of
from perdure.core.messages import Entry, canonical_json
from perdure.models.tokens import estimate_text

PARTS = ("system", "tools", "memory", "head", "handoff", "tail", "outputs")


class Composition:
    """Estimated tokens by part. Memory is what the prompt shows of it and the passages recalled beside messages."""

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        self._parts = dict.fromkeys(PARTS, 0)
        self._recalled = 0
        last_handoff = max((i for i, e in enumerate(entries) if e.message.kind == "handoff"), default=-1)
        for i, entry in enumerate(entries):
            self._add(entry, is_head=i < last_handoff)

    def extend(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._add(entry, is_head=False)

    def replace(self, changed: Iterable[tuple[Entry, Entry]]) -> None:
        """Messages behind the last handoff are sent in another form: (old, new) each."""
        for old, new in changed:
            self._add(new, is_head=False)
            self._add(old, is_head=False, sign=-1)

    def recall(self, passage: str) -> None:
        """A passage that goes with a message."""
        tokens = estimate_text(passage)
        self._recalled += tokens
        self._parts["memory"] += tokens

    def set_fixed(self, *, system: Sequence[str], tools: Sequence[Mapping[str, Any]]) -> None:
        remembered = sum(estimate_text(memory_part(block)) for block in system)
        self._parts["memory"] = remembered + self._recalled
        self._parts["system"] = max(0, sum(map(estimate_text, system)) - remembered)
        self._parts["tools"] = estimate_text(canonical_json(list(tools))) if tools else 0

    def as_dict(self, total: int | None = None) -> dict[str, int]:
        """The parts; with `total`, scaled so that they sum to the counter's total."""
        whole = sum(self._parts.values())
        if total is None or not whole:
            return dict(self._parts)
        # Rounded at the running sum: the parts then add up exactly, and none is off by more than one.
        shared, cumulative, assigned = {}, 0, 0
        for name, tokens in self._parts.items():
            cumulative += tokens
            shared[name] = round(total * cumulative / whole) - assigned
            assigned += shared[name]
        return shared

    def _add(self, entry: Entry, *, is_head: bool, sign: int = 1) -> None:
        kind = entry.message.kind
        part = "handoff" if kind == "handoff" else "head" if is_head else "outputs" if kind == "tool" else "tail"
        self._parts[part] += sign * tokens_of(entry)
