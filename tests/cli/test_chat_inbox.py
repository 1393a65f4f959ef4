"""What waits for the prompt's thread: nothing overtakes anything, text is joined, keys get their turn."""

from __future__ import annotations

import threading
import time
from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from perdure.cli.chat.input import EventInbox, Work
from perdure.core.events import Event, ReasoningDelta, TextDelta, TurnFinished

FINISHED = TurnFinished("completed", "")


def said(item: str | Event) -> str:
    """What a logged item was about."""
    match item:
        case TextDelta(text) | ReasoningDelta(text) | TurnFinished(final_response=text) | str(text):
            return text
    raise AssertionError(f"{item!r} was never put in")


class Desk:
    """A prompt's thread that runs what it is called with when it is told to."""

    def __init__(self) -> None:
        self.calls: deque[Work] = deque()
        self.delayed: list[tuple[float, Work]] = []
        self.log: list[str | Event] = []
        self.inbox = EventInbox(
            self._show, self.calls.append, lambda seconds, work: self.delayed.append((seconds, work))
        )

    def _show(self, event: Event) -> None:
        self.log.append(event)

    def note(self, what: str) -> None:
        self.inbox.put(lambda: self.log.append(what))

    def run(self) -> None:
        while self.calls or self.delayed:
            if self.calls:
                self.calls.popleft()()
            else:
                _, work = self.delayed.pop()
                time.sleep(0.035)
                work()


def test_an_answer_never_overtakes_the_echo_of_its_question() -> None:
    desk = Desk()
    desk.inbox.put(TextDelta("first answer"))
    desk.inbox.put(FINISHED)
    desk.note("end of one")
    desk.note("› two")
    desk.inbox.put(TextDelta("second answer"))
    desk.run()
    assert desk.log == [TextDelta("first answer"), FINISHED, "end of one", "› two", TextDelta("second answer")]


def test_text_that_comes_faster_than_the_eye_is_joined() -> None:
    desk = Desk()
    for n in range(1_000):
        desk.inbox.put(TextDelta(f"{n} "))
    desk.inbox.put(ReasoningDelta("hm"))
    desk.run()
    assert desk.log == [TextDelta("".join(f"{n} " for n in range(1_000))), ReasoningDelta("hm")]


def test_text_right_behind_text_waits_for_more_of_it_but_nothing_else_does() -> None:
    desk = Desk()
    desk.inbox.put(TextDelta("a"))
    desk.calls.popleft()()
    desk.inbox.put(TextDelta("b"))
    desk.calls.popleft()()
    assert desk.log == [TextDelta("a")]
    assert [0 < seconds <= 0.03 for seconds, _ in desk.delayed] == [True]
    desk.inbox.put(TextDelta("c"))
    desk.inbox.put(FINISHED)
    desk.run()
    assert desk.log == [TextDelta("a"), TextDelta("bc"), FINISHED]


def test_long_work_is_done_in_slices_so_that_keys_come_in_between() -> None:
    desk = Desk()
    for _ in range(10):
        desk.inbox.put(lambda: time.sleep(0.005))
    slices = 0
    while desk.calls:
        desk.calls.popleft()()
        slices += 1
    assert slices >= 4


@given(st.lists(st.sampled_from("tnwr"), max_size=40))
def test_whatever_comes_is_shown_once_and_in_order(kinds: list[str]) -> None:
    desk = Desk()
    wanted: list[str] = []
    for n, kind in enumerate(kinds):
        if kind == "w":
            desk.note(f"{n},")
        elif kind == "n":
            desk.inbox.put(TurnFinished("completed", f"{n},"))
        else:
            desk.inbox.put(TextDelta(f"{n},") if kind == "t" else ReasoningDelta(f"{n},"))
        wanted.append(f"{n},")
    desk.run()
    assert "".join(map(said, desk.log)) == "".join(wanted)


def test_nothing_is_left_behind_when_many_threads_put_at_once() -> None:
    desk, wake = Desk(), threading.Semaphore(0)
    inbox = EventInbox(desk._show, lambda work: (desk.calls.append(work), wake.release())[0], lambda s, w: w())
    done: list[int] = []

    def put() -> None:
        for n in range(2_000):
            inbox.put(lambda n=n: done.append(n))

    threads = [threading.Thread(target=put) for _ in range(4)]
    for thread in threads:
        thread.start()
    while wake.acquire(timeout=0.5):
        desk.calls.popleft()()
    assert len(done) == 8_000
    assert all(not t.is_alive() for t in threads)
