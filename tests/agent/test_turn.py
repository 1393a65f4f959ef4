"""Whole turns against the strict simulator: answers, tools, recovery, interrupts, limits, continuation."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from perdure.config.settings import Settings
from perdure.core import rules
from perdure.core.errors import InvalidMessage
from perdure.core.events import CompactionFinished, Event, ModelSwitched, Recovered, TextDelta, TurnFinished
from perdure.core.messages import Message
from perdure.core.usage import CanonicalUsage
from perdure.providers.types import ApiMode, Endpoint
from perdure.testing.simulator import Call, Fail, Say
from perdure.tools.runtime import INTERRUPTED
from support.agents import PROMPT, KnownModels, bench
from support.simulator import MODES


def echo(text: str) -> str:
    """Says it again."""
    return f"echo {text}"


@pytest.mark.spec("J1", "J2", "A4")
@pytest.mark.parametrize("mode", MODES)
def test_a_message_is_answered_stored_and_accounted_to_the_last_token(tmp_path: Path, mode: ApiMode) -> None:
    with bench(tmp_path, "Hello there.", "Again.", mode=mode) as b:
        assert b.agent.chat("hi") == "Hello there."
        result = b.agent.run_conversation("once more")
        assert (result.outcome, result.final_response) == ("completed", "Again.")
        assert [m["role"] for m in result.messages] == ["user", "assistant", "user", "assistant"]
        totals = b.store.ledger.totals(result.session_id)
        assert totals.usage == b.sim.total
        assert totals.cost_usd == pytest.approx(b.sim.total.total_tokens / 1e6)
        assert b.sim.violations == []
        assert PROMPT in str(b.sim.requests[0].body)


@pytest.mark.spec("J5", "J6", "K2")
@pytest.mark.parametrize("mode", MODES)
def test_tools_run_and_their_results_go_back(tmp_path: Path, mode: ApiMode) -> None:
    two = Say("Looking.", calls=(Call("echo", {"text": "a"}), Call("echo", {"text": "b"})))
    with bench(tmp_path, two, "Done.", mode=mode, tools=[echo]) as b:
        result = b.agent.run_conversation("go")
        assert result.final_response == "Done."
        assert [m["content"] for m in result.messages if m["role"] == "tool"] == ["echo a", "echo b"]
        assert b.sim.violations == []


@pytest.mark.spec("L4")
@pytest.mark.parametrize("mode", MODES)
def test_what_was_sent_is_sent_again_unchanged(tmp_path: Path, mode: ApiMode) -> None:
    with bench(tmp_path, *[f"Answer {i}." for i in range(6)], mode=mode) as b:
        for i in range(6):
            b.agent.chat(f"question {i} " + "padding " * 300)
        key = "input" if mode == "codex_responses" else "messages"
        bodies = [r.body[key] for r in b.sim.requests]
        for before, after in itertools.pairwise(bodies):
            assert after[: len(before)] == before
        cached = b.store.ledger.totals(b.agent.session_id or "").usage.cache_read_tokens
        assert cached > 0 or mode == "anthropic_messages"


@pytest.mark.spec("G3", "G4", "I2", "C3")
def test_a_conversation_outgrows_its_window_and_carries_on(tmp_path: Path) -> None:
    with bench(tmp_path, *[f"Answer {i}: " + "word " * 400 for i in range(30)], window=8_000) as b:
        events: list[object] = []
        stop = b.agent.events.listen(events.append)
        for i in range(30):
            b.agent.chat(f"Question {i}? The code word number {i} is zebra-{i}. " + "filler " * 200)
        stop()
        assert b.sim.violations == []
        done = [e for e in events if isinstance(e, CompactionFinished) and e.outcome == "digest"]
        assert done
        assert b.agent.session_id is not None
        tip = b.store.history(b.agent.session_id)
        assert tip.session.began_by == "compression"
        assert b.store.get_compression_tip(tip.session.conversation_id) == b.agent.session_id
        said = [e.message for e in b.store.log.originals(b.agent.session_id)]
        assert [m.text for m in said if m.is_real_user][7].startswith("Question 7?")
        assert sum(m.is_real_user for m in said) == 30
        assert max(u.prompt_tokens for u in b.sim.billed) <= 8_000


@pytest.mark.spec("G3")
def test_a_stated_limit_is_believed_learned_and_compacted_for(tmp_path: Path) -> None:
    with bench(tmp_path, *[f"Answer {i}: " + "word " * 300 for i in range(30)], window=200_000, sim_window=8_000) as b:
        for i in range(20):
            b.agent.chat(f"Question {i}? " + "filler " * 250)
        assert b.models.learned
        assert b.models.learned[0] == 8_000
        assert b.sim.violations == []


@pytest.mark.spec("G2")
def test_an_output_cap_lowers_the_allowance_and_the_window_stays(tmp_path: Path) -> None:
    settings = Settings.model_validate({"model": {"max_tokens": 20_000}})
    with bench(tmp_path, "Fine.", settings=settings, window=32_000, max_output=4_096) as b:
        assert b.agent.chat("hi") == "Fine."
        assert b.models.learned == []
        assert b.sim.requests[-1].body["max_tokens"] == 4_096


@pytest.mark.spec("G4")
def test_a_prompt_that_cannot_be_made_to_fit_ends_in_advice_and_an_intact_history(tmp_path: Path) -> None:
    with bench(tmp_path, "hello", window=4_000) as b:
        result = b.agent.run_conversation("x " * 40_000)
        assert result.outcome == "failed"
        assert result.error is not None
        assert "take it back with /undo" in result.error
        assert len(b.sim.requests) <= 4
        assert result.messages[0]["content"] == "x " * 40_000
        assert b.agent.chat("then just say hello") == "hello"


@pytest.mark.spec("J10")
def test_a_failing_provider_hands_over_to_the_next_and_the_conversation_goes_on(tmp_path: Path) -> None:
    spare = Endpoint("spare", "", "chat_completions", "m-2", api_key="k")
    with bench(tmp_path, Fail(status=500), "From the spare.", "Still there.", fallbacks=(spare,)) as b:
        assert b.agent.chat("hi") == "From the spare."
        assert b.agent.chat("you there?") == "Still there."
        assert [r.body["model"] for r in b.sim.requests] == ["m-1", "m-2", "m-2"]


@pytest.mark.spec("J10")
def test_a_switch_is_announced_before_it_happens(tmp_path: Path) -> None:
    spare = Endpoint("spare", "", "chat_completions", "m-2", api_key="k")
    with bench(tmp_path, Fail(status=500), "From the spare.", fallbacks=(spare,)) as b:
        heard: list[str] = []

        def note(event: Event) -> None:
            if isinstance(event, Recovered):
                heard.append(event.action)
            elif isinstance(event, ModelSwitched):
                heard.append(f"{event.old} → {event.new}")

        b.agent.events.tap(note)
        b.agent.chat("hi")
        assert heard == ["trying again with the next provider", "m-1 → m-2"]


@pytest.mark.spec("A4")
def test_a_dropped_stream_is_recorded_as_unreported_and_its_text_as_a_cut_reply(tmp_path: Path) -> None:
    with bench(tmp_path, Say("Half an answer that never ends", drop_after=2), "Whole answer.") as b:
        result = b.agent.run_conversation("hi")
        assert result.outcome == "failed"
        totals = b.store.ledger.totals(result.session_id)
        assert (totals.calls, totals.unreported_calls) == (1, 1)
        assert b.agent.chat("again") == "Whole answer."
        cut, whole = (e.message for e in b.store.log.originals(result.session_id) if e.message.role == "assistant")
        assert (cut.cut_off, whole.cut_off) == ("transport", None)


class FreeModels(KnownModels):
    """An embedded model: no call costs anything."""

    def cost_usd(self, endpoint: Endpoint, usage: CanonicalUsage) -> float | None:
        return 0.0


@pytest.mark.spec("A4", "A5")
@pytest.mark.parametrize(("models", "cost"), [(FreeModels(), 0.0), (KnownModels(), None)])
def test_a_call_that_ended_unreported_costs_nothing_where_no_call_does(
    tmp_path: Path, models: KnownModels, cost: float | None
) -> None:
    with bench(tmp_path, Say("Half an answer that never ends", drop_after=2), models=models) as b:
        totals = b.store.ledger.totals(b.agent.run_conversation("hi").session_id)
        assert (totals.unreported_calls, totals.least_cost_usd) == (1, cost)


def test_advice_names_fallbacks_only_where_there_is_none_yet(tmp_path: Path) -> None:
    spare = Endpoint("custom", "", "chat_completions", "m-2")
    for number, fallbacks in enumerate(((), (spare,))):
        with bench(tmp_path / str(number), *[Fail(status=500)] * 2, fallbacks=fallbacks) as b:
            error = b.agent.run_conversation("hi").error or ""
            assert ("under fallback_providers in config.yaml would" in error) is not bool(fallbacks)
            assert ("every service of fallback_providers has failed" in error) is bool(fallbacks)


@pytest.mark.spec("J4")
def test_an_interrupt_closes_the_call_and_the_agent_is_usable_at_once(tmp_path: Path) -> None:
    with bench(tmp_path, Say("slow " * 500, delay_s=30), "Quick.") as b:
        threading.Timer(0.3, b.agent.interrupt).start()
        started = time.monotonic()
        result = b.agent.run_conversation("hi")
        assert result.outcome == "interrupted"
        assert time.monotonic() - started < 5
        assert b.agent.chat("still there?") == "Quick."
        assert b.sim.violations == []


@pytest.mark.spec("J4")
def test_an_interrupt_before_the_turn_has_begun_is_not_lost_and_what_was_said_is_kept(tmp_path: Path) -> None:
    with bench(tmp_path, "First.", "Second.", "Third.") as b, ThreadPoolExecutor() as threads:
        b.agent.chat("one")
        is_free = threading.Event()
        # The loop is busy: the turn is started, but cannot begin.
        b.loop_thread.loop.call_soon_threadsafe(is_free.wait, 10)
        turn = threads.submit(b.agent.run_conversation, "two")
        for _ in range(50):
            b.agent.interrupt()
            time.sleep(0.01)
        is_free.set()
        assert turn.result(10).outcome == "interrupted"
        assert [e.message.text for e in b.store.log.originals(b.agent.session_id or "")] == ["one", "First.", "two"]
        assert b.agent.chat("three") == "Second."


@pytest.mark.spec("J4")
def test_an_interrupt_says_whether_it_met_a_turn_and_one_it_met_ends(tmp_path: Path) -> None:
    with bench(tmp_path, *[Say("never read", delay_s=30)] * 20) as b, ThreadPoolExecutor() as threads:
        assert not b.agent.interrupt()
        for n in range(20):
            turn = threads.submit(b.agent.run_conversation, f"go {n}")
            # From the first moment on, and once: no second one may have to make up for the first.
            while not b.agent.interrupt():
                pass
            assert turn.result(10).outcome == "interrupted"
        assert not b.agent.interrupt()


@pytest.mark.spec("J4")
def test_a_tool_cut_off_by_an_interrupt_says_that_its_outcome_is_unknown(tmp_path: Path) -> None:
    begun = threading.Event()

    async def wait() -> str:
        """Waits."""
        begun.set()
        await asyncio.sleep(60)
        return "never"

    with bench(tmp_path, Say(calls=(Call("wait", {}),)), "I see.", tools=[wait]) as b:
        threading.Thread(target=lambda: (begun.wait(10), b.agent.interrupt())).start()
        result = b.agent.run_conversation("go")
        assert result.outcome == "interrupted"
        assert result.messages[-1]["content"] == INTERRUPTED
        assert b.agent.chat("what happened?") == "I see."
        assert b.sim.violations == []


@pytest.mark.spec("J4", "I1")
def test_calls_left_open_by_a_crash_are_settled_on_resume(tmp_path: Path) -> None:
    with bench(tmp_path, "Going on.") as b:
        session = b.store.create(system_prompt=PROMPT)
        open_call = {"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": "{}"}}
        b.store.append(
            session.id, [{"role": "user", "content": "go"}, {"role": "assistant", "tool_calls": [open_call]}]
        )
        agent = b.again(session.id)
        assert agent.chat("where were we?") == "Going on."
        said = [e.message for e in b.store.log.originals(session.id)]
        assert said[2].text == INTERRUPTED
        assert b.sim.violations == []


@pytest.mark.spec("J9", "C7")
def test_at_the_step_limit_the_agent_stops_and_sums_up(tmp_path: Path) -> None:
    settings = Settings.model_validate({"agent": {"max_turns": 3}})
    loops = [Say(calls=(Call("echo", {"text": str(i)}),)) for i in range(3)]
    with bench(tmp_path, *loops, "Did three things; one is left.", tools=[echo], settings=settings) as b:
        result = b.agent.run_conversation("go")
        assert (result.outcome, result.final_response) == ("budget", "Did three things; one is left.")
        assert len(b.sim.requests) == 4
        assert all("limit" not in str(r.body) for r in b.sim.requests[:3])
        assert rules.is_valid([Message.from_dict(m) for m in result.messages])


@pytest.mark.spec("J15")
def test_a_spending_limit_stops_before_the_call_that_would_pass_it(tmp_path: Path) -> None:
    settings = Settings.model_validate({"limits": {"max_cost_per_session": 0.0001}})
    with bench(tmp_path, "One.", "Two.", settings=settings) as b:
        b.agent.chat("hi")
        result = b.agent.run_conversation("word " * 2_000)
        assert result.outcome == "failed"
        assert "limits.max_cost_per_session" in (result.error or "")
        assert len(b.sim.requests) == 1


@pytest.mark.spec("I4")
def test_any_id_of_a_chain_resumes_its_tip(tmp_path: Path) -> None:
    with bench(tmp_path, *["Answer: " + "word " * 400 for _ in range(20)], "Resumed.", window=8_000) as b:
        first = b.agent.run_conversation("start").session_id
        for i in range(12):
            b.agent.chat(f"Question {i}? " + "filler " * 300)
        assert b.agent.session_id != first
        again = b.again(first)
        again.chat("hello again")
        assert again.session_id == b.store.get_compression_tip(first)


@pytest.mark.spec("J8")
def test_events_stream_in_order_and_end_with_the_turn(tmp_path: Path) -> None:
    async def read() -> list[object]:
        return [e async for e in b.agent.stream("hi")]

    with bench(tmp_path, "one two three four five") as b:
        events = asyncio.run(read())
        assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "one two three four five"
        assert isinstance(events[-1], TurnFinished)


@pytest.mark.parametrize("text", ["", "  \n", {"role": "assistant", "content": "x"}])
def test_what_is_no_message_is_refused_before_anything_happens(tmp_path: Path, text: str) -> None:
    with bench(tmp_path, "never") as b:
        with pytest.raises(InvalidMessage):
            b.agent.chat(text)
        assert b.sim.requests == []


@pytest.mark.spec("J14")
def test_a_recalled_passage_goes_with_its_message_until_the_next_compaction(tmp_path: Path) -> None:
    def recall(text: str) -> str:
        if "broken" in text:
            raise RuntimeError("index gone")
        return "Recalled: the port was 8080." if "port" in text else ""

    with bench(tmp_path, *[f"Answer {i}." for i in range(9)], recall=recall) as b:
        b.agent.chat("which port?")
        b.agent.chat("thanks")
        again = b.again(b.agent.session_id)
        again.chat("and now?")
        bodies = [r.body["messages"] for r in b.sim.requests]
        assert all("Recalled: the port was 8080." in str(body[1]) for body in bodies)
        assert bodies[2][:2] == bodies[0][:2]
        assert "Recalled" not in str([e.message for e in b.store.log.originals(again.session_id or "")])
        assert b.store.search("Recalled") == []
        assert again.chat("is the index broken?") == "Answer 3."


def test_a_system_prompt_larger_than_the_window_ends_in_a_clear_message(tmp_path: Path) -> None:
    with bench(tmp_path, "never", window=2_000) as b:
        result = b.agent.run_conversation("hi", system_message="rule " * 20_000)
        assert result.outcome == "failed"
        assert "window" in (result.error or "")
        assert len(b.sim.requests) <= 4


def test_a_message_of_five_megabytes_does_not_break_the_session(tmp_path: Path) -> None:
    with bench(tmp_path, "Fine.", window=32_000) as b:
        result = b.agent.run_conversation("word " * 1_000_000)
        assert result.outcome == "failed"
        assert b.agent.chat("then something shorter") == "Fine."


def test_a_tool_that_returns_bytes_is_read_as_text(tmp_path: Path) -> None:
    def raw() -> bytes:
        """Returns bytes."""
        return b"caf\xc3\xa9 \xff"

    with bench(tmp_path, Say(calls=(Call("raw", {}),)), "Done.", tools=[raw]) as b:
        assert b.agent.run_conversation("go").messages[2]["content"] == "café \ufffd"


@pytest.mark.spec("J1")
def test_a_history_handed_in_is_gone_on_with_and_handing_it_back_adds_nothing(tmp_path: Path) -> None:
    with bench(tmp_path, *[f"Answer {i}." for i in range(4)]) as b:
        given = [{"role": "user", "content": "the port is 8080"}, {"role": "assistant", "content": "Noted."}]
        first = b.agent.run_conversation("which port?", conversation_history=given)
        second = b.agent.run_conversation("and now?", conversation_history=first.messages)
        assert second.session_id == first.session_id
        assert [m["content"] for m in second.messages] == [
            *("the port is 8080", "Noted."),
            *("which port?", "Answer 0."),
            *("and now?", "Answer 1."),
        ]
        other = b.agent.run_conversation("hello", conversation_history=[])
        assert other.session_id == first.session_id or len(other.messages) == 2
        fresh = b.agent.run_conversation("hi", conversation_history=given[:1] + given[1:] + given)
        assert fresh.conversation_id != first.conversation_id


@pytest.mark.spec("J3")
def test_with_an_empty_system_prompt_no_system_message_is_sent(tmp_path: Path) -> None:
    with bench(tmp_path, "Hi.") as b:
        b.agent.run_conversation("hello", system_message="")
        assert [m["role"] for m in b.sim.requests[0].body["messages"]] == ["user"]


@pytest.mark.spec("J1")
def test_a_system_message_is_for_its_own_turn_and_none_means_the_sessions_own(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        for system_message in (None, "Answer in verse.", None, ""):
            b.agent.run_conversation("hi", system_message=system_message)
        heads = [r.body["messages"][0] for r in b.sim.requests]
        assert [h["content"] for h in heads[:3]] == [PROMPT, "Answer in verse.", PROMPT]
        assert heads[3]["role"] == "user"
        assert b.store.conversations.session(b.agent.session_id or "").system_prompt == PROMPT


@pytest.mark.spec("K1", "J3")
@pytest.mark.parametrize("mode", ["chat_completions", "codex_responses", "anthropic_messages"])
@pytest.mark.parametrize("empty", [Say(""), Say("", thinking="hm"), Say(" \n ")], ids=["nothing", "thought", "blanks"])
def test_an_empty_reply_does_not_spoil_the_conversation(tmp_path: Path, mode: ApiMode, empty: Say) -> None:
    with bench(tmp_path, "fine", empty, *["fine"] * 9, mode=mode) as b:
        outcomes = [b.agent.run_conversation(f"turn {n}").outcome for n in range(4)]
        assert outcomes[2:] == ["completed", "completed"]
        assert b.sim.violations == []
