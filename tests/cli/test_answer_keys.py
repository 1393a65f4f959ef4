"""The key that answers an approval: seen before it counts, stopped by more keys, and never followed by a lost word."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from perdure.agent.runner import LoopThread
from perdure.core.ports import ApprovalAnswer, ApprovalRequest, Refusal
from perdure.testing.simulator import Simulator
from support.typed import Chat, chatting

# Longer than a person takes to think of the next letter, and shorter than a key takes to count as an answer.
_PAUSE_S = 0.5


@dataclass
class AskedChat:
    """A chat with an approval on the screen."""

    chat: Chat
    sim: Simulator
    answers: list[ApprovalAnswer | Refusal] = field(default_factory=list)

    def ask(self) -> None:
        request = ApprovalRequest("rm -rf build", "deletes")
        self.answers.append(LoopThread().run(self.chat.chat.questions.approve(request)))

    @property
    def notice(self) -> str:
        return getattr(self.chat.chat._panel, "notice", "")

    def settle(self) -> None:
        """Allow it with one key."""
        self.chat.type("y")
        self.chat.wait_for(lambda: self.answers == ["once"])
        self.chat.wait_for(lambda: not self.chat.chat._box.is_answering)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@contextmanager
def asked(home: Path, *, draft: str = "") -> Iterator[AskedChat]:
    """A chat that asks for an approval, over a draft that was begun before."""
    flags = {"model.name": "m-1"}
    with (
        Simulator(script=["Hello."]) as sim,
        chatting(home, {**flags, "model.base_url": sim.base_url}) as chat,
    ):
        chat.see("/help lists")
        chat.type(draft)
        chat.wait_for(lambda: chat.line == draft)
        made = AskedChat(chat, sim)
        asking = threading.Thread(target=made.ask, daemon=True)
        asking.start()
        chat.see("[y]es, once")
        yield made
        asking.join(30)


def test_a_refusal_that_begins_with_y_and_a_pause_allows_nothing(home: Path) -> None:
    with asked(home) as at:
        at.chat.type("y")
        time.sleep(_PAUSE_S)
        at.chat.type("ou must not delete it\r")
        at.chat.wait_for(lambda: bool(at.answers))
        assert at.answers == [Refusal("you must not delete it")]


def test_a_key_that_is_about_to_answer_is_announced_at_once_and_backspace_stops_it(home: Path) -> None:
    with asked(home) as at:
        at.chat.type("y")
        at.chat.wait_for(lambda: at.chat.line == "y")
        assert at.notice.startswith("Allowing it once; keep typing to say no instead.")
        at.chat.type("\x7f")
        at.chat.wait_for(lambda: at.notice == "")
        time.sleep(1.4)
        assert not at.answers
        at.chat.type("no\r")
        at.chat.wait_for(lambda: at.answers == ["no"])


def test_enter_allows_at_once_and_escape_refuses_until_the_key_has_answered(home: Path) -> None:
    with asked(home) as at:
        began_s = time.monotonic()
        at.chat.type("y\r")
        at.chat.wait_for(lambda: at.answers == ["once"])
        assert time.monotonic() - began_s < 0.8
    with asked(home) as at:
        at.chat.type("y")
        time.sleep(_PAUSE_S)
        at.chat.type("\x1b")  # alone: which takes half a second to be known
        at.chat.wait_for(lambda: at.answers == ["no"])


@pytest.mark.parametrize("draft", ["", "half a message "])
def test_words_right_behind_an_answer_stay_in_view_and_the_first_enter_sends_nothing(home: Path, draft: str) -> None:
    with asked(home, draft=draft) as at:
        at.settle()
        at.chat.type("ou must not")
        at.chat.wait_for(lambda: at.chat.line == f"{draft}ou must not")
        at.chat.wait_for(lambda: at.chat.chat._hint.startswith("allowed before these words"))
        at.chat.type("\r")
        time.sleep(_PAUSE_S)
        assert at.sim.requests == []
        assert at.chat.line == f"{draft}ou must not"
        at.chat.type("\r")
        at.chat.see("Hello.")
        assert at.sim.requests[-1].body["messages"][-1]["content"] == f"{draft}ou must not"


@pytest.mark.parametrize(("keys", "line"), [("es\r", ""), ("\r", ""), ("esterday", "esterday"), ("et not", "et not")])
def test_only_the_rest_of_yes_is_dropped_behind_an_answer(home: Path, keys: str, line: str) -> None:
    with asked(home) as at:
        at.settle()
        at.chat.type(keys)
        at.chat.wait_for(lambda: at.chat.line == line)
        time.sleep(0.2)
        assert at.chat.line == line
        assert at.sim.requests == []


def test_a_message_begun_a_while_after_an_answer_is_sent_with_one_enter(home: Path) -> None:
    with asked(home) as at:
        at.settle()
        time.sleep(1.7)
        at.chat.type("run the tests\r")
        at.chat.see("Hello.")


@pytest.mark.parametrize(
    ("typed", "answer"), [("use mv inst", Refusal("use mv inst")), ("", "no"), ("a", "no"), ("/undo", "no")]
)
def test_escape_refuses_with_the_words_typed_so_far(home: Path, typed: str, answer: ApprovalAnswer | Refusal) -> None:
    with asked(home) as at:
        at.chat.type(typed)
        at.chat.wait_for(lambda: at.chat.line == typed)
        at.chat.type("\x1b")
        at.chat.wait_for(lambda: at.answers == [answer])
