"""The token estimator against a real vocabulary: error by kind of text and by request, speed, cost of appending."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks.data import sessions
from benchmarks.fit_tokens import load_vocabulary
from benchmarks.table import Row
from benchmarks.token_pieces import FILES, KINDS, Piece, pieces
from perdure.core.messages import Entry, Message, user
from perdure.core.usage import CanonicalUsage
from perdure.models.tokens import TokenCounter, entry_figures, estimate_text, estimate_tokens, family_of

TITLE = "Token estimates (o200k)"
Count = Callable[[str], int]

MODEL = "gpt-5"
# What a service adds around a message and a call is the same constant on both sides: only the text is judged.
_FAMILY = family_of(MODEL)


def rows() -> Iterator[Row]:
    found = list(pieces())
    count = load_vocabulary("o200k")
    yield from _piece_rows(found, count)
    yield from _request_rows(count)
    yield from _speed_rows(found)
    yield from _append_rows()


def _piece_rows(found: Sequence[Piece], count: Count) -> Iterator[Row]:
    errors: dict[str, list[float]] = defaultdict(list)
    for piece in found:
        errors[piece.kind].append(_error(estimate_text(piece.text, MODEL), count(piece.text)))
    for kind in KINDS:
        some = errors[kind]
        yield Row(f"{kind}: median error a piece", _percentile(some, 0.5), "%", "<= 5", f"{len(some)} pieces")
        yield Row(f"{kind}: p95 error a piece", _percentile(some, 0.95), "%", "<= 15")


def _request_rows(count: Count) -> Iterator[Row]:
    before: list[float] = []
    after: list[float] = []
    frozen: list[float] = []
    for name in FILES:
        for session in sessions(name):
            messages = [Message.from_dict(m) for m in session["messages"]]
            before.append(_error(estimate_tokens(messages, model=MODEL), _real(messages, count)))
            live, once = _errors_after_replies(messages, count)
            after += live
            frozen += once
    yield Row(
        "whole request before calibration: median", _percentile(before, 0.5), "%", "<= 3", f"{len(before)} sessions"
    )
    within = 100 * sum(e <= 3 for e in before) / len(before)
    yield Row("whole request before calibration: within 3%", within, "%", None, "of sessions")
    yield Row("whole request before calibration: p95", _percentile(before, 0.95), "%", None)
    yield Row("whole request before calibration: worst", max(before), "%", None)
    yield Row("after replies: median", _percentile(after, 0.5), "%", "<= 1.5", f"{len(after)} requests")
    yield Row("after replies: p95", _percentile(after, 0.95), "%", "<= 1.5")
    yield Row("after the first reply alone, at the next request: median", _percentile(frozen, 0.5), "%", "<= 1.5")


def _errors_after_replies(messages: Sequence[Message], count: Count) -> tuple[list[float], list[float]]:
    """The counter's error before every call but the first, each reply observed; and at the second call alone."""
    counter = TokenCounter(MODEL)
    real, calls, errors = 0.0, 0, []
    for seq, message in enumerate(messages):
        if message.role == "assistant" and seq:
            if calls:
                errors.append(_error(counter.estimate, real))
            counter.observe(CanonicalUsage(input_tokens=round(real)))
            calls += 1
        counter.append(Entry(seq, message))
        real += _real_message(message, count)
    return errors, errors[:1]


def _speed_rows(found: Sequence[Piece]) -> Iterator[Row]:
    for kind in KINDS:
        text = "\n".join(p.text for p in found if p.kind == kind)[:1_000_000]
        copies = 1 + 1_000_000 // len(text)
        yield Row(f"{kind}: speed", _megabytes_a_second([text] * copies), "MB/s", ">= 20")
    yield Row("message by message: speed", _megabytes_a_second([p.text for p in found]), "MB/s", ">= 20")


def _megabytes_a_second(texts: Sequence[str]) -> float:
    size = sum(len(t.encode()) for t in texts)
    best = min(_seconds(lambda: [estimate_text(t, MODEL) for t in texts]) for _ in range(5))
    return size / best / 1e6


def _append_rows() -> Iterator[Row]:
    entries = [Entry(i, user(f"message {i}: " + "some words of a history, " * 40)) for i in range(10_000)]
    counter = TokenCounter(MODEL)
    whole = _seconds(lambda: counter.extend(entries))
    looked_at = _figures_computed(counter, entries)
    yield Row("10,000 messages counted at first", whole * 1e3, "ms", None)
    yield Row("messages looked at to append one more", looked_at, "", "<= 1")
    extra = [Entry(10_000 + i, user("one more question about the plan " * 12)) for i in range(500)]
    each = _seconds(lambda: [(counter.append(e), counter.estimate) for e in extra]) / len(extra)
    yield Row("append one and ask again", each * 1e6, "µs", "<= 1000")
    again = _seconds(lambda: (counter.switch_model("claude-opus-4-8"), counter.estimate))
    yield Row("re-estimate all 10,000 under another model", again * 1e6, "µs", "<= 1000")


def _figures_computed(counter: TokenCounter, entries: Sequence[Entry]) -> int:
    """How many messages are measured when a history that was already counted grows by one."""
    measured: list[int] = []

    class Watched(Entry):
        __slots__ = ()

        def memo(self, key: Any, compute: Any) -> Any:
            return super().memo(key, lambda message: (measured.append(self.seq), compute(message))[1])

    watched = [Watched(e.seq, e.message) for e in entries[:1_000]]
    for entry in watched:
        entry_figures(entry)
    measured.clear()
    counter.rebase([*entries, *watched])
    counter.append(Watched(20_000, user("new")))
    _ = counter.estimate
    return len(measured)


def _real(messages: Sequence[Message], count: Count) -> float:
    return sum(_real_message(m, count) for m in messages)


def _real_message(message: Message, count: Count) -> float:
    tokens = float(count(message.text)) + _FAMILY.per_message + (count(message.name) if message.name else 0)
    return tokens + sum(count(c.name) + count(c.arguments) + _FAMILY.per_call for c in message.tool_calls)


def _error(estimate: float, real: float) -> float:
    return abs(estimate / max(real, 1) - 1) * 100


def _percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def _seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return max(time.process_time() - start, 1e-9)
