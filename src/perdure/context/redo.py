"""A digest written once more, by a model that answers now: from the messages themselves, not from the digest (D8)."""

from __future__ import annotations

from dataclasses import replace

from perdure.context.boundaries import Boundaries
from perdure.context.handoff import handoff_of
from perdure.context.history import CompactionHistory
from perdure.core.messages import Entry
from perdure.core.ports import LogReader


def expand_digest(
    history: CompactionHistory, found: Boundaries, log: LogReader | None, *, model: str = ""
) -> tuple[CompactionHistory, Boundaries] | None:
    """The history with the messages behind its digest in place of it, and the boundaries moved accordingly.

    None where the newest handoff is no digest, or its messages cannot be read.
    """
    at = found.previous
    if at is None or log is None or not history.is_logged or history.origins is not None:
        return None
    handoff = handoff_of(history.messages[at])
    if handoff is None or not handoff.is_digest or not handoff.covers:
        return None
    in_view = {e.seq for e in history.entries}
    source = [
        entry
        for lo, hi in handoff.covers
        for entry in log.read(lo, hi)
        if entry.seq not in in_view and entry.message.kind != "handoff"
    ]
    if not source:
        return None
    entries: list[Entry] = [*history.entries[:at], *source, *history.entries[at + 1 :]]
    more = len(source) - 1

    def moved(i: int) -> int:
        return i if i <= at else i + more

    boundaries = replace(
        found,
        size=len(entries),
        head_end=min(found.head_end, at),
        kept=tuple(map(moved, found.kept)),
        tail_start=moved(found.tail_start),
        previous=None,
        unread=moved(found.unread) if found.unread is not None else None,
    )
    return CompactionHistory.read(entries, model), boundaries
