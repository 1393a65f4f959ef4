"""Engines of somebody else's in a real agent: what they leave out is left out, again and again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from perdure.context.compressor import ContextCompressor
from perdure.context.engine import Compaction, ContextEngine, Insert, Keep, Reason, as_compaction
from perdure.context.handoff import Handoff
from perdure.context.registry import FallbackEngine
from perdure.core.errors import PluginBroken
from perdure.core.events import CompactionFinished, Notice
from perdure.core.messages import Entry, Message, assistant, user
from perdure.core.usage import CanonicalUsage
from perdure.testing.simulator import Call, Say
from support.agents import bench

WINDOW = 8_000


class Slide(ContextEngine):
    """The last ten messages, and nothing else."""

    name = "slide"
    window = WINDOW

    def update_model(
        self, *, context_length: int, model: str = "", provider: str = "", max_tokens: int | None = None
    ) -> None:
        self.window = context_length

    def update_from_response(self, usage: CanonicalUsage) -> None:
        return

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return (prompt_tokens or 0) >= self.window // 2

    def compress(
        self, messages: Sequence[Entry], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> list[Message]:
        return [entry.message for entry in messages[-10:]]


class Tidy(Slide):
    """The same, behind a note that is always the same."""

    name = "tidy"

    def compress(
        self, messages: Sequence[Entry], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> list[Message]:
        note = Message(role="user", content="(earlier messages were left out)", kind="note")
        return [note, *super().compress(messages)]


class Empties(Slide):
    """Leaves nothing at all."""

    def compress(
        self, messages: Sequence[Entry], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> list[Message]:
        return []


@pytest.mark.spec("M1", "M2", "D8")
@pytest.mark.parametrize("engine", [Slide, Tidy])
def test_an_engine_that_leaves_messages_out_works_for_a_whole_conversation(
    tmp_path: Path, engine: type[ContextEngine]
) -> None:
    with bench(tmp_path, *[Say("reply " + "word " * 150)] * 40, window=WINDOW, engine=engine) as b:
        heard: list[CompactionFinished] = []
        b.agent.events.tap(lambda e: heard.append(e) if isinstance(e, CompactionFinished) else None)
        for turn in range(40):
            assert b.agent.run_conversation(f"question {turn} " + "blah " * 100).outcome == "completed"
        assert max(call.prompt_tokens for call in b.sim.billed) < 0.6 * WINDOW
    done = [e for e in heard if e.outcome == "compacted"]
    assert len(done) >= 4
    assert all(0 < e.after_tokens < e.before_tokens for e in done)


@pytest.mark.spec("D4", "C4b")
def test_no_engine_takes_the_request_or_unread_results_away(tmp_path: Path) -> None:
    def look(what: str) -> str:
        """Looks."""
        return f"{what}: " + "word " * 200

    calls = [Say(calls=(Call("look", {"what": f"part {i}"}),)) for i in range(20)]
    with bench(tmp_path, *calls, "Done.", window=WINDOW, engine=Slide, tools=[look]) as b:
        assert b.agent.run_conversation("Look at every part of the parser.").final_response == "Done."
        for number, request in enumerate(b.sim.requests):
            assert any(m["content"] == "Look at every part of the parser." for m in request.body["messages"])
            assert number == 0 or f"part {number - 1}:" in request.body["messages"][-1]["content"]


@pytest.mark.spec("M2", "D8")
def test_an_engine_that_answers_with_nothing_costs_no_history(tmp_path: Path) -> None:
    with bench(tmp_path, *["word " * 800] * 9, window=WINDOW, engine=Empties) as b:
        for _ in range(3):
            b.agent.run_conversation("More. " + "blah " * 500)
        assert b.agent.session_id is not None
        assert len(b.store.history(b.agent.session_id).entries) == 6
        assert {e.payload["outcome"] for e in b.store.ledger.events(b.agent.session_id, kind="compaction")} == {
            "failed"
        }


class SlideEntries(Slide):
    """The last ten entries, as they were handed in."""

    def compress(  # type: ignore[override]
        self, messages: Sequence[Entry], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> Sequence[Entry]:
        return messages[-10:]


class WorksOnce(Slide):
    """Compacts once, and returns every later history unchanged."""

    has_compacted = False

    def compress(
        self, messages: Sequence[Entry], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> list[Message]:
        if self.has_compacted:
            return [entry.message for entry in messages]
        self.has_compacted = True
        return super().compress(messages)


class Raises(Slide):
    """Fails in every compaction."""

    def compress(
        self, messages: Sequence[Entry], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> list[Message]:
        raise RuntimeError("no disk")


class Yields(Slide):
    """Returns a generator."""

    def compress(  # type: ignore[override]
        self, messages: Sequence[Entry], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> Iterator[Message]:
        return (entry.message for entry in messages[-6:])


@pytest.mark.spec("M1", "M2")
def test_an_engine_may_return_the_entries_it_was_given(tmp_path: Path) -> None:
    with bench(tmp_path, *[Say("reply " + "word " * 150)] * 20, window=WINDOW, engine=SlideEntries) as b:
        for turn in range(20):
            assert b.agent.run_conversation(f"question {turn} " + "blah " * 100).outcome == "completed"
        assert max(call.prompt_tokens for call in b.sim.billed) < 0.6 * WINDOW


@pytest.mark.spec("M2")
@pytest.mark.parametrize("engine", [WorksOnce, Raises, Empties, Yields])
def test_an_engine_that_cannot_compact_is_replaced_before_the_conversation_outgrows_its_window(
    tmp_path: Path, engine: type[Slide]
) -> None:
    def guarded() -> ContextEngine:
        return FallbackEngine(engine(), lambda: ContextCompressor(context_length=WINDOW))

    with bench(tmp_path, *["word " * 400] * 40, window=WINDOW, engine=guarded) as b:
        notices: list[str] = []
        b.agent.events.tap(lambda e: notices.append(e.text) if isinstance(e, Notice) else None)
        for turn in range(25):
            assert b.agent.run_conversation(f"question {turn} " + "blah " * 200).outcome == "completed"
    assert [text for text in notices if "Using 'compressor' instead until the next start." in text] == [
        text for text in notices if "Context engine 'slide'" in text
    ]
    assert len([text for text in notices if "Context engine 'slide'" in text]) == 1


def entries(*messages: Message) -> list[Entry]:
    return [Entry(i, m) for i, m in enumerate(messages)]


@pytest.mark.spec("D8")
def test_a_new_message_equal_to_an_old_one_is_kept_where_the_old_one_stands() -> None:
    note, said = user("(left out)"), [user("a"), assistant("b"), user("c"), assistant("d")]
    same = as_compaction([user("(left out)"), *said], entries(note, *said))
    assert (same.outcome, same.is_noop) == ("nothing_to_do", True)
    shorter = as_compaction([user("(left out)"), *said[2:]], entries(note, *said))
    assert (shorter.outcome, shorter.is_noop) == ("compacted", False)
    assert [m.text if isinstance(m, Message) else m.message.text for m in shorter.apply(entries(note, *said))] == [
        "(left out)", "c", "d",
    ]  # fmt: skip


HISTORY = entries(user("a"), assistant("b"), user("c"), assistant("d"))


@pytest.mark.spec("M1")
@pytest.mark.parametrize(
    ("result", "error"),
    [
        (None, "not NoneType"),
        ((m for m in ()), "not generator"),
        ("text", "not str"),
        ([], "empty history"),
        ([{"role": "user", "content": "a"}], "holds dict"),
        ([None], "holds NoneType"),
        (Compaction("compacted", (Keep(2, 4), Keep(0, 1))), "out of order"),
        (Compaction("compacted", (Keep(0, 2), Keep(1, 4))), "out of order"),
        (Compaction("compacted", (Keep(0, 9),)), "out of range"),
        (Compaction("compacted", (Keep(-2, 4),)), "out of range"),
        (Compaction("compacted", (Keep("0", "1"),)), "out of range"),  # type: ignore[arg-type]
        (Compaction("compacted", ((0, 1),)), "plan holds tuple"),  # type: ignore[arg-type]
        (Compaction("compacted", (Insert("text"),)), "inserts str"),  # type: ignore[arg-type]
        (Compaction("compacted", None), "plan is NoneType"),  # type: ignore[arg-type]
        (Compaction("compacted", (Keep(0, 0),)), "empty history"),
        (Compaction("done", (Keep(0, 1),)), "outcome 'done'"),  # type: ignore[arg-type]
        (Compaction("compacted", (Keep(0, 1),), handoff_data="text"), "handoff_data is str"),  # type: ignore[arg-type]
        (Compaction("compacted", (Keep(0, 1),), record="text"), "handoff_data is str"),  # type: ignore[arg-type]
        (Compaction("compacted", (Keep(0, 1),), before_tokens=None), "before_tokens"),  # type: ignore[arg-type]
        (Compaction("compacted", (Keep(0, 1),), notices="note"), "notices is str"),  # type: ignore[arg-type]
        (Compaction("compacted", (Keep(0, 1),), message=None), "message is NoneType"),  # type: ignore[arg-type]
    ],
)
def test_a_result_that_is_no_plan_is_an_engine_failure(result: object, error: str) -> None:
    with pytest.raises(PluginBroken, match=error):
        as_compaction(result, HISTORY)


def test_an_engine_may_set_the_handoff_by_its_former_name() -> None:
    handoff = Handoff({"Goal": "Write the parser."})
    compaction = Compaction("compacted", (Keep(0, 1),), record=handoff)
    assert compaction.handoff_data is handoff
    assert compaction.record is handoff
    assert replace(compaction, calls=1).handoff_data is handoff
    assert Compaction("compacted", (Keep(0, 1),)).record is None


@pytest.mark.spec("M1", "D8")
def test_empty_steps_are_dropped_from_a_plan() -> None:
    assert as_compaction(Compaction("nothing_to_do", (Keep(0, 0),)), []).is_noop
    same = as_compaction(Compaction("compacted", (Keep(0, 0), Keep(0, 4), Keep(4, 4))), HISTORY)
    assert (same.outcome, same.plan) == ("nothing_to_do", (Keep(0, 4),))


@pytest.mark.spec("J4", "M1")
def test_an_interrupt_does_not_wait_for_an_engine_that_blocks(tmp_path: Path) -> None:
    has_begun, may_end = threading.Event(), threading.Event()

    class Blocking(Slide):
        def compress(
            self, messages: Sequence[Entry], *, focus_topic: str | None = None, reason: Reason = "threshold"
        ) -> list[Message]:
            has_begun.set()
            may_end.wait(30)
            return super().compress(messages)

    with bench(tmp_path, *["Yes."] * 3, window=WINDOW, engine=Blocking) as b:
        for n in range(2):
            b.agent.chat(f"question {n}")

        async def interrupted() -> bool:
            compaction = asyncio.ensure_future(b.agent.acompress())
            await asyncio.to_thread(has_begun.wait, 30)
            b.agent.interrupt()
            await asyncio.wait([compaction], timeout=10)
            return compaction.cancelled()

        assert b.loop_thread.run(interrupted())
        assert b.agent.chat("and now?") == "Yes.", "the lease was released"
        may_end.set()
