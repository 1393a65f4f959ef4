"""Results the model asked for and has not read: whole while they fit the window, spilled where they do not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.config.settings import Settings
from perdure.core.events import CompactionFinished, Event, OutputSpilled, TurnStarted
from perdure.testing.simulator import Call, Fail, Say
from support.agents import Bench, bench
from support.long_histories import working_session

WINDOW = 32_000


def page(name: str, tokens: int) -> str:
    """A text of about so many tokens that begins and ends with its name; few characters, so that no budget cuts it."""
    return f"{name} begins. " + "请把解析器的测试全部更新并修复错误" * (tokens // 12) + f" {name} ends."


def open_page(name: str, tokens: int) -> str:
    """Opens a page."""
    return page(name, tokens)


def asks(*names: str, tokens: int) -> Say:
    return Say(calls=tuple(Call("open_page", {"name": n, "tokens": tokens}) for n in names))


def sent(b: Bench, call: int) -> list[dict[str, Any]]:
    """The messages of the main model's request number `call`."""
    messages: list[dict[str, Any]] = b.sim.requests[call].body["messages"]
    return messages


def results_in(messages: list[dict[str, Any]]) -> list[str]:
    return [str(m["content"]) for m in messages if m["role"] == "tool"]


async def events_of(b: Bench, text: str) -> list[Event]:
    return [event async for event in b.agent.stream(text)]


@pytest.mark.spec("C4", "C4b", "B6")
@pytest.mark.parametrize("reports_usage", [True, False])
def test_results_beyond_the_threshold_reach_the_model_whole_in_every_round(tmp_path: Path, reports_usage: bool) -> None:
    def answer(request: Any) -> Say:
        done = len(b.sim.requests)
        if done > 5:
            return Say("Done.", reports_usage=reports_usage)
        calls = tuple(Call("open_page", {"name": f"page_{done}_{k}", "tokens": 6_000}) for k in range(3))
        return Say(calls=calls, reports_usage=reports_usage)

    with bench(tmp_path, answer, window=WINDOW, tools=[open_page], keeps_outputs=True) as b:
        assert b.agent.run_conversation("Read them all.").final_response == "Done."
        for round_ in range(1, 6):
            results = results_in(sent(b, round_))[-3:]
            assert results == [page(f"page_{round_}_{k}", 6_000) for k in range(3)], f"round {round_}"
        assert all(r.prompt_tokens <= WINDOW for r in b.sim.billed)


@pytest.mark.spec("C4b")
def test_what_was_read_is_compacted_and_what_was_not_stays(tmp_path: Path) -> None:
    script = (asks("first", "second", "third", tokens=6_000), asks("fourth", "fifth", tokens=6_000), "Done.")
    with bench(tmp_path, *script, window=WINDOW, tools=[open_page], keeps_outputs=True) as b:
        heard = asyncio.run(events_of(b, "Read them all."))
        assert len([e for e in heard if isinstance(e, CompactionFinished) and e.outcome != "nothing_to_do"]) == 1
        assert not any(isinstance(e, OutputSpilled) for e in heard)
        assert results_in(sent(b, 2)) == [page("fourth", 6_000), page("fifth", 6_000)]


@pytest.mark.spec("C4", "C4b", "H2")
def test_results_that_do_not_fit_the_window_are_spilled_and_the_log_keeps_them_whole(tmp_path: Path) -> None:
    script = (asks("small", "large", tokens=13_000), "Done.")
    with bench(tmp_path, *script, window=WINDOW, tools=[open_page], keeps_outputs=True) as b:
        heard = asyncio.run(events_of(b, page("request", 6_000)))
        first, second = results_in(sent(b, 1))
        previews = [r for r in (first, second) if r.startswith("<persisted-output>")]
        assert len(previews) == 1, "one goes, the other then fits"
        assert [e for e in heard if isinstance(e, OutputSpilled)]
        assert [m["role"] for m in sent(b, 1)] == ["system", "user", "assistant", "tool", "tool"]
        (start,) = [e for e in heard if isinstance(e, TurnStarted)]
        logged = [e.message.text for e in b.store.history(start.session_id).entries if e.message.role == "tool"]
        assert logged == [page("small", 13_000), page("large", 13_000)]


@pytest.mark.spec("C4b", "L4")
def test_what_was_spilled_is_sent_alike_in_later_calls_and_after_a_restart(tmp_path: Path) -> None:
    off = Settings.model_validate({"compression": {"threshold": 1.0}})
    script = (asks("one", "two", tokens=13_000), asks("three", tokens=20), "Done.", "Hello again.")
    with bench(tmp_path, *script, window=WINDOW, tools=[open_page], keeps_outputs=True, settings=off) as b:
        b.agent.run_conversation(page("request", 6_000))
        assert [r.startswith("<persisted-output>") for r in results_in(sent(b, 1))] == [True, False]
        assert sent(b, 2)[: len(sent(b, 1))] == sent(b, 1)
        tokens = b.agent.measure().tokens
        again = b.again(b.agent.session_id)
        assert abs(again.measure().tokens - tokens) < 0.05 * tokens
        again.run_conversation("Hello?")
        assert sent(b, 3)[: len(sent(b, 2))] == sent(b, 2)


@pytest.mark.spec("C4b", "G3")
@pytest.mark.parametrize(("tokens", "is_spilled"), [(4_000, False), (12_000, True)])
def test_a_service_that_refuses_the_prompt_does_not_cost_the_unread_results(
    tmp_path: Path, tokens: int, is_spilled: bool
) -> None:
    """The true window is a quarter of the believed one: older turns go, unread results stay or are spilled."""
    script = (asks("first", "second", tokens=tokens), "Done.")
    with bench(tmp_path, *script, window=64_000, sim_window=16_000, tools=[open_page], keeps_outputs=True) as b:
        result = b.agent.run_conversation("Read both.", conversation_history=working_session(3, chars=2_000))
        assert result.final_response == "Done."
        shown = results_in(sent(b, len(b.sim.requests) - 1))[-2:]
        assert [r.startswith("<persisted-output>") for r in shown].count(True) == (2 if is_spilled else 0)
        assert all(name in r for name, r in zip(("first begins", "second begins"), shown, strict=True))


@pytest.mark.spec("C4b", "G4")
def test_a_refusal_that_states_no_limit_spills_before_it_gives_up(tmp_path: Path) -> None:
    refusal = Fail(status=400, body={"error": {"message": "prompt is too long", "type": "invalid_request_error"}})
    script = (asks("first", tokens=6_000), refusal, "Done.")
    with bench(tmp_path, *script, window=WINDOW, tools=[open_page], keeps_outputs=True) as b:
        assert b.agent.run_conversation("Read it.").final_response == "Done."
        assert results_in(sent(b, 1)) == [page("first", 6_000)]
        assert results_in(sent(b, 2))[0].startswith("<persisted-output>")


@pytest.mark.spec("C4")
def test_at_the_start_of_a_turn_the_estimate_decides(tmp_path: Path) -> None:
    script: list[str | Say | Callable[..., Any]] = [Say("word " * 2_000)] * 12
    with bench(tmp_path, *script, window=WINDOW) as b:
        for turn in range(6):
            b.agent.run_conversation(f"{turn}: " + "blah " * 1_000)
        prompts = [call.prompt_tokens for call in b.sim.billed]
        assert max(prompts) < WINDOW * 0.6, "a prompt known to be beyond the threshold is compacted before it is sent"
