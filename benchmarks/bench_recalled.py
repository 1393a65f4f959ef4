"""Recalled context: how often the passages attached to a question hold its source, what they cost, when they mislead.

The same question sets as `bench_recall`, second halves; the limits were chosen on the first. *Answered*: a source is
among the passages. *Misled*: there are passages, and none is a source. For a question without an answer every passage
misleads; for one about something that changed, the old message without the new one does.

    python -m benchmarks.bench_recalled [--half first|second] [--locomo FILE] [--beam FOLDER]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.bench_recall import (
    BEAM,
    LOCOMO,
    Talk,
    beam_talks,
    locomo_talks,
    merge_talks,
    recorded_talks,
    store_talk,
)
from benchmarks.data import Skip
from benchmarks.table import Row, render
from perdure.agent.recall import StoreRecall, frame_background
from perdure.config.settings import RecallSettings
from perdure.core.ports import RecallQuery
from perdure.core.visibility import OWNER
from perdure.models.tokens import estimate_text
from perdure.store import open_store

TITLE = "Recalled context"


@dataclass(slots=True)
class _Tally:
    """What came of the questions of one set."""

    questions: int = 0
    given: int = 0
    answered: int = 0
    outdated: int = 0
    tokens: int = 0
    times_ms: list[float] = field(default_factory=list)

    def share(self, count: int) -> float:
        return 100 * count / max(1, self.questions)


def rows(half: str = "second", locomo: Path = LOCOMO, beam: Path = BEAM) -> Iterator[Row]:
    sets: list[tuple[str, Callable[[], Sequence[Talk]]]] = [
        ("LoCoMo, a store for each talk", lambda: locomo_talks(locomo, half)),
        ("LoCoMo, one store", lambda: [merge_talks(locomo_talks(locomo, half))]),
        ("BEAM-100K", lambda: beam_talks(beam, half)),
        ("BEAM-100K, knowledge updates", lambda: beam_talks(beam, half, "knowledge_update")),
        ("BEAM-100K, no answer exists", lambda: beam_talks(beam, half, "abstention")),
        ("recorded sessions", lambda: recorded_talks(half)),
    ]
    measured = 0
    for name, load in sets:
        try:
            talks = load()
        except Skip as why:
            print(f"{name}: skipped, {why}")
            continue
        measured += 1
        yield from _rows_of(name, measure(talks))
    if not measured:
        raise Skip("no question set is here")


def _rows_of(name: str, tally: _Tally) -> Iterator[Row]:
    note = f"{tally.questions} questions, p95 {sorted(tally.times_ms)[int(0.95 * len(tally.times_ms))]:.0f} ms"
    yield Row(f"{name}: answered", tally.share(tally.answered), "%", None, note)
    yield Row(f"{name}: misled", tally.share(tally.given - tally.answered), "%")
    if "updates" in name:
        yield Row(f"{name}: only the old value", tally.share(tally.outdated), "%")
    yield Row(f"{name}: tokens for a message", tally.tokens / max(1, tally.questions), "tokens")


def measure(talks: Sequence[Talk], settings: RecallSettings | None = None) -> _Tally:
    """Ask every question in a new conversation, and count what its passages hold."""
    limits, tally = settings or RecallSettings(), _Tally()
    for talk in talks:
        folder = tempfile.TemporaryDirectory(prefix="perdure-recalled-")
        with folder as name, open_store(Path(name) / "recall.db") as store:
            places = store_talk(store, talk)
            store.vectors.catch_up()
            provider = StoreRecall(store.search_index, max_passages=limits.max_passages, max_tokens=limits.max_tokens)
            for question in talk.questions:
                started = time.perf_counter()
                passages = provider.passages(RecallQuery(question.text, "", OWNER))
                tally.times_ms.append((time.perf_counter() - started) * 1_000)
                block = frame_background("\n\n".join(text for _, text in passages), max_tokens=limits.max_tokens)
                answers = ((h.conversation_id, h.answer.address) for h, _ in passages if h.answer is not None)
                addresses = [*((h.conversation_id, h.address) for h, _ in passages if h.address[:2] == "m:"), *answers]
                hits: set[Hashable] = {places[a] for a in addresses}
                if talk.is_by_conversation:
                    hits = {places[h.conversation_id, h.address][0] for h, _ in passages}
                _count(tally, question.sources, hits, block, has_passages=bool(passages))
    return tally


def _count(tally: _Tally, sources: frozenset[Hashable], hits: set[Hashable], block: str, *, has_passages: bool) -> None:
    tally.questions += 1
    tally.given += has_passages
    tally.answered += not sources.isdisjoint(hits)
    tally.tokens += estimate_text(block) if block else 0
    # The sources of an update are places in one talk: the newest one holds now.
    newest = max(sources, key=str, default=None) if all(isinstance(s, tuple) for s in sources) else None
    if sources and newest is not None:
        newest = max(s for s in sources if isinstance(s, tuple))
        tally.outdated += newest not in hits and not sources.isdisjoint(hits)


def main() -> None:
    parser = argparse.ArgumentParser(description=TITLE)
    parser.add_argument("--half", choices=("first", "second"), default="second")
    parser.add_argument("--locomo", type=Path, default=LOCOMO)
    parser.add_argument("--beam", type=Path, default=BEAM)
    given = parser.parse_args()
    print(render(TITLE, rows(given.half, given.locomo, given.beam)))


if __name__ == "__main__":
    main()
