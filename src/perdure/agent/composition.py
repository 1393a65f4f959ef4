"""What fills the window, part by part, kept up to date as messages come: for the gauge, the chart and `/context`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perdure.context.history import tokens_of
from perdure.core.messages import Entry, canonical_json
from perdure.models.tokens import estimate_text


class Composition:
    """Estimated tokens by part: system, tools, head, handoff, tail, outputs. Appending costs what is new."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._parts = dict.fromkeys(("system", "tools", "head", "handoff", "tail", "outputs"), 0)
        last_handoff = max((i for i, e in enumerate(entries) if e.message.kind == "handoff"), default=-1)
        for i, entry in enumerate(entries):
            self._add(entry, is_head=i < last_handoff)

    def extend(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._add(entry, is_head=False)

    def set_fixed(self, *, system: Sequence[str], tools: Sequence[Mapping[str, Any]]) -> None:
        self._parts["system"] = sum(map(estimate_text, system))
        self._parts["tools"] = estimate_text(canonical_json(list(tools))) if tools else 0

    def as_dict(self) -> dict[str, int]:
        return dict(self._parts)

    def _add(self, entry: Entry, *, is_head: bool) -> None:
        kind = entry.message.kind
        part = "handoff" if kind == "handoff" else "head" if is_head else "outputs" if kind == "tool" else "tail"
        self._parts[part] += tokens_of(entry)
