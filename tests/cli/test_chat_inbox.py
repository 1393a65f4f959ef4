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


class FakePromptThread:
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
    prompt_thread = FakePromptThread()
    prompt_thread.inbox.put(TextDelta("first answer"))
    prompt_thread.inbox.put(FINISHED)
    prompt_thread.note("end of one")
    prompt_thread.note("› two")
    prompt_thread.inbox.put(TextDelta("second answer"))
    prompt_thread.run()
    assert prompt_thread.log == [TextDelta("first answer"), FINISHED, "end of one", "› two", TextDelta("second answer")]


def test_text_that_comes_faster_than_the_eye_is_joined() -> None:
    prompt_thread = FakePromptThread()
    for n in range(1_000):
        prompt_thread.inbox.put(TextDelta(f"{n} "))
    prompt_thread.inbox.put(ReasoningDelta("hm"))
    prompt_thread.run()
    assert prompt_thread.log == [TextDelta("".join(f"{n} " for n in range(1_000))), ReasoningDelta("hm")]


def test_text_right_behind_text_waits_for_more_of_it_but_nothing_else_does() -> None:
    prompt_thread = FakePromptThread()
    prompt_thread.inbox.put(TextDelta("a"))
    prompt_thread.calls.popleft()()
    prompt_thread.inbox.put(TextDelta("b"))
    prompt_thread.calls.popleft()()
    assert prompt_thread.log == [TextDelta("a")]
    assert [0 < seconds <= 0.03 for seconds, _ in prompt_thread.delayed] == [True]
    prompt_thread.inbox.put(TextDelta("c"))
    prompt_thread.inbox.put(FINISHED)
    prompt_thread.run()
    assert prompt_thread.log == [TextDelta("a"), TextDelta("bc"), FINISHED]


def test_long_work_is_done_in_slices_so_that_keys_come_in_between() -> None:
    prompt_thread = FakePromptThread()
    for _ in range(10):
        prompt_thread.inbox.put(lambda: time.sleep(0.005))
    slices = 0
    while prompt_thread.calls:
        prompt_thread.calls.popleft()()
        slices += 1
    assert slices >= 4


@given(st.lists(st.sampled_from("tnwr"), max_size=40))
def test_whatever_comes_is_shown_once_and_in_order(kinds: list[str]) -> None:
    prompt_thread = FakePromptThread()
    wanted: list[str] = []
    for n, kind in enumerate(kinds):
        if kind == "w":
            prompt_thread.note(f"{n},")
        elif kind == "n":
            prompt_thread.inbox.put(TurnFinished("completed", f"{n},"))
        else:
            prompt_thread.inbox.put(TextDelta(f"{n},") if kind == "t" else ReasoningDelta(f"{n},"))
        wanted.append(f"{n},")
    prompt_thread.run()
    assert "".join(map(said, prompt_thread.log)) == "".join(wanted)


def test_nothing_is_left_behind_when_many_threads_put_at_once() -> None:
    prompt_thread, wake = FakePromptThread(), threading.Semaphore(0)
    inbox = EventInbox(
        prompt_thread._show, lambda work: (prompt_thread.calls.append(work), wake.release())[0], lambda s, w: w()
    )
    done: list[int] = []

    def put() -> None:
        for n in range(2_000):
            inbox.put(lambda n=n: done.append(n))

    threads = [threading.Thread(target=put) for _ in range(4)]
    for thread in threads:
        thread.start()
    while wake.acquire(timeout=0.5):
        prompt_thread.calls.popleft()()
    assert len(done) == 8_000
    assert all(not t.is_alive() for t in threads)
