"""The queue between a turn and its reader: order, merging, bounds and threads."""

from __future__ import annotations

import threading
import time

import pytest

from perdure.core.event_queue import EventQueue, coalesce
from perdure.core.events import Event, Notice, ReasoningDelta, TextDelta


def test_consecutive_deltas_of_one_kind_are_merged_and_nothing_else() -> None:
    events: list[Event] = [
        TextDelta("a"), TextDelta("b"), ReasoningDelta("r"), TextDelta("c"), Notice("n"), Notice("n"), TextDelta("d"),
    ]  # fmt: skip
    merged = [TextDelta("ab"), ReasoningDelta("r"), TextDelta("c"), Notice("n"), Notice("n"), TextDelta("d")]
    assert coalesce(events) == merged
    assert coalesce([]) == []


def test_popping_one_by_one_returns_the_same_as_taking_all() -> None:
    queue = EventQueue[Event]()
    for text in "abc":
        queue.put(TextDelta(text))
    queue.put(Notice("n"))
    assert (len(queue), queue.has_only_deltas) == (2, False)
    assert [queue.pop(), queue.pop()] == [TextDelta("abc"), Notice("n")]
    with pytest.raises(IndexError):
        queue.pop()


def test_deltas_wait_one_by_one_until_the_reader_falls_behind() -> None:
    queue = EventQueue[Event](merge_above=3)
    for i in range(10):
        queue.put(TextDelta(str(i)))
    assert [e.text for e in queue.take() if isinstance(e, TextDelta)] == ["0", "1", "2", "3456789"]


def test_a_full_queue_refuses_unless_forced_and_still_merges() -> None:
    queue = EventQueue[Event](max_items=2)
    assert queue.put(Notice("1"))
    assert queue.put(TextDelta("a"))
    assert queue.put(TextDelta("b")), "merged: it takes no room"
    assert not queue.put(Notice("2"))
    assert queue.put(Notice("2"), force=True)
    queue.drop_deltas()
    assert queue.take() == [Notice("1"), Notice("2")]


def test_a_closed_queue_discards_what_comes_and_delivers_what_waits() -> None:
    queue, calls = EventQueue[Event](), list[str]()
    queue.on_ready = lambda: calls.append("ready")
    queue.put(Notice("before"))
    queue.close()
    assert queue.put(Notice("after"))
    assert queue.take() == [Notice("before")]
    assert calls == ["ready", "ready"]


def test_no_text_is_lost_between_threads() -> None:
    queue, arrived, received = EventQueue[Event](), threading.Event(), list[str]()
    queue.on_ready = arrived.set

    def write() -> None:
        for i in range(20_000):
            queue.put(TextDelta(f"{i} "))
        queue.close()

    thread = threading.Thread(target=write)
    thread.start()
    while True:
        arrived.clear()
        is_closed, batch = queue.is_closed, queue.take()
        received += [e.text for e in batch if isinstance(e, TextDelta)]
        if is_closed and not batch:
            break
        if not batch:
            arrived.wait(1)
    thread.join()
    assert "".join(received) == "".join(f"{i} " for i in range(20_000))


def test_merging_a_long_answer_takes_linear_time() -> None:
    def seconds(count: int) -> float:
        queue = EventQueue[Event]()
        piece = TextDelta("x" * 100)
        started = time.thread_time()
        for _ in range(count):
            queue.put(piece)
        queue.take()
        return time.thread_time() - started

    short, long = (min(seconds(count) for _ in range(3)) for count in (2_000, 40_000))
    assert long < 20 * short * 4 + 0.05
