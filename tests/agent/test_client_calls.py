"""Tools that the client of a turn runs itself: the turn ends with their calls, and goes on with their results."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from perdure.agent.agent import ConversationAgent
from perdure.agent.turn import ConversationResult
from perdure.core.messages import Message, ToolCall, assistant, tool_result, user
from perdure.core.turn_options import AnswerFormat, TurnOptions
from perdure.providers.types import ApiMode
from perdure.testing.simulator import Call, Say
from perdure.tools.runtime import INTERRUPTED
from support.agents import Bench, bench
from support.simulator import MODES

THEIRS = {
    "type": "function",
    "function": {"name": "ask_client", "description": "", "parameters": {"type": "object", "properties": {}}},
}
OPTIONS = TurnOptions(tools=(THEIRS,))
CLIENT = Call("ask_client", {}, id="call_theirs")


def look(what: str) -> str:
    """Look at something.

    Args:
        what: the thing
    """
    return f"saw {what}"


def run(agent: ConversationAgent, message: str | None, options: TurnOptions = OPTIONS) -> ConversationResult:
    return asyncio.run(agent.arun_conversation(message, options=options))


def with_results(*results: Message) -> TurnOptions:
    return TurnOptions(tools=(THEIRS,), results=results)


def stored(b: Bench, session_id: str) -> list[str]:
    """What the log has, as `role text`."""
    return [f"{e.message.role} {e.message.text}".strip() for e in b.store.history(session_id).entries]


@pytest.mark.parametrize("mode", MODES)
def test_mixed_calls_keep_their_order_on_every_protocol(tmp_path: Path, mode: ApiMode) -> None:
    calls = (Call("look", {"what": "a"}, id="call_a"), CLIENT, Call("look", {"what": "b"}, id="call_b"))
    with bench(tmp_path, Say("Hm.", calls=calls), "Done.", mode=mode, tools=[look]) as b:
        first = run(b.agent, "go")
        assert (first.outcome, first.final_response) == ("completed", "Hm.")
        assert [c.id.partition("|")[0] for c in first.client_calls] == ["call_theirs"]
        assert stored(b, first.session_id) == ["user go", "assistant Hm.", "tool saw a"]
        second = run(b.agent, None, with_results(tool_result(first.client_calls[0].id, "theirs")))
        assert (second.final_response, second.client_calls) == ("Done.", ())
        assert stored(b, first.session_id)[2:] == ["tool saw a", "tool theirs", "tool saw b", "assistant Done."]
        assert b.sim.violations == []


def test_a_message_behind_the_results_comes_after_all_of_them(tmp_path: Path) -> None:
    calls = (CLIENT, Call("look", {"what": "b"}, id="call_b"))
    with bench(tmp_path, Say(calls=calls), "Done.", tools=[look]) as b:
        first = run(b.agent, "go")
        run(b.agent, "and hurry", with_results(tool_result("call_theirs", "theirs")))
        assert stored(b, first.session_id)[2:] == [
            "tool theirs", "tool saw b", "user and hurry", "assistant Done.",
        ]  # fmt: skip
        assert b.sim.violations == []


def test_a_call_of_ours_that_may_have_run_before_a_crash_is_not_run_again(tmp_path: Path) -> None:
    """The first result is in the log: the process died while it ran what comes behind it."""
    runs: list[str] = []

    def once(what: str) -> str:
        """Do something.

        Args:
            what: the thing
        """
        runs.append(what)
        return "did it"

    calls = (CLIENT, Call("once", {"what": "b"}, id="call_b"), Call("ask_client", {}, id="call_more"))
    with bench(tmp_path, Say(calls=calls), "Done.", tools=[once]) as b:
        first = run(b.agent, "go")
        b.store.append(first.session_id, [tool_result("call_theirs", "theirs", "ask_client")])
        agent = b.again(first.session_id)
        options = with_results(tool_result("call_theirs", "theirs"), tool_result("call_more", "more"))
        result = asyncio.run(agent.afinish_turn(options=options))
        assert result.final_response == "Done."
        assert runs == []
        assert stored(b, first.session_id)[2:-1] == ["tool theirs", f"tool {INTERRUPTED}", "tool more"]
        assert b.sim.violations == []
        agent.close()


def test_after_a_crash_behind_the_reply_its_calls_are_returned_again(tmp_path: Path) -> None:
    with bench(tmp_path, Say("Hm.", calls=(CLIENT,)), tools=[look]) as b:
        first = run(b.agent, "go")
        agent = b.again(first.session_id)
        result = asyncio.run(agent.afinish_turn(options=OPTIONS))
        assert (result.outcome, result.final_response) == ("completed", "Hm.")
        assert [c.id for c in result.client_calls] == ["call_theirs"]
        assert len(b.sim.requests) == 1
        agent.close()


def test_after_a_crash_newer_calls_are_not_answered_by_older_results(tmp_path: Path) -> None:
    again = Call("ask_client", {}, id="call_again")
    with bench(tmp_path, Say(calls=(CLIENT,)), Say("More.", calls=(again,))) as b:
        first = run(b.agent, "go")
        options = with_results(tool_result("call_theirs", "theirs"))
        run(b.agent, None, options)
        agent = b.again(first.session_id)
        result = asyncio.run(agent.afinish_turn(options=options))
        assert [c.id for c in result.client_calls] == ["call_again"]
        assert stored(b, first.session_id)[-1] == "assistant More."
        agent.close()


def test_an_interrupt_leaves_the_clients_calls_open(tmp_path: Path) -> None:
    with bench(tmp_path, Say(calls=(CLIENT,)), "Done.") as b:
        first = run(b.agent, "go")
        b.agent.close()
        agent = b.again(first.session_id)
        assert run(agent, None, with_results(tool_result("call_theirs", "x"))).final_response == "Done."
        agent.close()


def test_an_imported_call_is_answered_as_well(tmp_path: Path) -> None:
    with bench(tmp_path, "Done.") as b:
        live = b.agent.open().live
        live.append(user("go"), assistant(None, (ToolCall("call_x", "ask_client").for_client(),)))
        assert run(b.agent, None, with_results(tool_result("call_x", "theirs"))).final_response == "Done."
        assert b.sim.violations == []


def test_a_model_that_takes_no_tools_answers_unless_a_call_is_required(tmp_path: Path) -> None:
    with bench(tmp_path, "hi") as b:
        b.models.takes_tools = lambda endpoint: False  # type: ignore[method-assign]  # a model without tools
        assert run(b.agent, "go").final_response == "hi"
        assert "tools" not in b.sim.requests[-1].body
        result = run(b.agent, "go", TurnOptions(tools=(THEIRS,), tool_choice="required"))
        assert result.outcome == "failed"
        assert "cannot call tools" in (result.error or "")


@pytest.mark.parametrize(
    ("mode", "key", "required", "named"),
    [
        ("chat_completions", "tool_choice", "required", {"type": "function", "function": {"name": "ask_client"}}),
        ("codex_responses", "tool_choice", "required", {"type": "function", "name": "ask_client"}),
        ("anthropic_messages", "tool_choice", {"type": "any"}, {"type": "tool", "name": "ask_client"}),
    ],
)
def test_a_tool_choice_is_sent_on_every_protocol(
    tmp_path: Path, mode: ApiMode, key: str, required: Any, named: Any
) -> None:
    with bench(tmp_path, lambda _: Say(calls=(CLIENT,)), mode=mode) as b:
        for choice, wire in (("required", required), ("ask_client", named)):
            result = run(b.agent, "go", TurnOptions(tools=(THEIRS,), tool_choice=choice))
            assert len(result.client_calls) == 1
            assert b.sim.requests[-1].body[key] == wire


OTHER = {"type": "function", "function": {**THEIRS["function"], "name": "other"}}  # type: ignore[dict-item]  # a dict


def test_a_call_of_another_tool_than_the_named_one_is_repaired_once_and_then_an_error(tmp_path: Path) -> None:
    options = TurnOptions(tools=(THEIRS, OTHER), tool_choice="ask_client")
    wrong = Say(calls=(Call("other", {}),))
    with bench(tmp_path, wrong, Say(calls=(CLIENT,)), wrong, wrong) as b:
        repaired = run(b.agent, "go", options)
        assert [c.name for c in repaired.client_calls] == ["ask_client"]
        assert "must call ask_client" in str(b.sim.requests[-1].body["messages"][0])
        failed = run(b.agent, "again", options)
        assert (failed.outcome, failed.client_calls) == ("failed", ())
        assert "must call ask_client" in (failed.error or "")
        assert b.sim.violations == []


def test_the_named_tool_alone_is_called_where_a_reply_calls_others_too(tmp_path: Path) -> None:
    options = TurnOptions(tools=(THEIRS, OTHER), tool_choice="ask_client")
    with bench(tmp_path, Say(calls=(Call("other", {}), CLIENT)), "Done.") as b:
        first = run(b.agent, "go", options)
        assert [c.name for c in first.client_calls] == ["ask_client"]
        assert run(b.agent, None, with_results(tool_result("call_theirs", "x"))).final_response == "Done."
        assert b.sim.violations == []


def test_a_model_that_makes_several_calls_at_once_against_the_request_gets_one(tmp_path: Path) -> None:
    options = TurnOptions(tools=(THEIRS,), allows_parallel_calls=False)
    calls = (Call("look", {"what": "a"}), CLIENT, Call("ask_client", {}, id="call_more"), Call("look", {"what": "b"}))
    with bench(tmp_path, Say(calls=calls), "Done.", tools=[look]) as b:
        first = run(b.agent, "go", options)
        assert [c.id for c in first.client_calls] == ["call_theirs"]
        run(b.agent, None, with_results(tool_result("call_theirs", "theirs")))
        assert stored(b, first.session_id)[2:] == ["tool saw a", "tool theirs", "tool saw b", "assistant Done."]
        assert b.sim.violations == []


@pytest.mark.parametrize("mode", MODES)
def test_parallel_calls_can_be_switched_off_on_every_protocol(tmp_path: Path, mode: ApiMode) -> None:
    with bench(tmp_path, "hi", mode=mode) as b:
        run(b.agent, "go", TurnOptions(tools=(THEIRS,), allows_parallel_calls=False))
        body = b.sim.requests[-1].body
        is_off = body.get("parallel_tool_calls") is False
        assert is_off or body["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}


@pytest.mark.spec("A4")
@pytest.mark.parametrize("mode", MODES)
def test_a_rejected_answer_is_paid_for_and_not_in_the_history(tmp_path: Path, mode: ApiMode) -> None:
    form = AnswerFormat({"type": "object", "required": ["n"]})
    with bench(tmp_path, "no", '{"n": 1}', mode=mode) as b:
        result = run(b.agent, "go", TurnOptions(answer_format=form))
        assert json.loads(result.final_response) == {"n": 1}
        assert stored(b, result.session_id) == ["user go", 'assistant {"n": 1}']
        assert len(b.store.ledger.calls(result.session_id)) == 2
        assert result.cost_usd is not None
        assert result.cost_usd > 0


@pytest.mark.spec("A4")
@pytest.mark.parametrize(
    "options",
    [
        TurnOptions(answer_format=AnswerFormat({"type": "object", "required": ["n"]})),
        TurnOptions(tools=(THEIRS,), tool_choice="required"),
    ],
    ids=["format", "tool choice"],
)
def test_an_answer_rejected_twice_is_paid_for(tmp_path: Path, options: TurnOptions) -> None:
    with bench(tmp_path, "no", "no, still not") as b:
        result = run(b.agent, "go", options)
        assert result.outcome == "failed"
        calls = b.store.ledger.calls(result.session_id)
        assert len(calls) == 2
        assert sum(call.cost_usd or 0 for call in calls) == result.cost_usd
        assert b.store.ledger.totals(result.session_id).cost_usd == result.cost_usd


class WaitingSchema(dict[str, Any]):
    """A schema whose check begins once the simulator has answered, and waits until the test goes on."""

    def __init__(self) -> None:
        super().__init__(type="object")
        self.is_answered: Callable[[], bool] = lambda: False
        self.has_begun, self.may_end = threading.Event(), threading.Event()

    def items(self) -> Any:
        if self.is_answered():
            self.has_begun.set()
            self.may_end.wait(30)
        return super().items()


@pytest.mark.spec("A4")
def test_a_turn_stopped_during_the_check_has_paid_for_the_answer(tmp_path: Path) -> None:
    schema = WaitingSchema()

    async def stop_during_check(b: Bench) -> None:
        schema.is_answered = lambda: bool(b.sim.requests)
        options = TurnOptions(answer_format=AnswerFormat(schema))
        turn = asyncio.create_task(b.agent.arun_conversation("go", options=options))
        await asyncio.to_thread(schema.has_begun.wait, 30)
        turn.cancel()
        with suppress(asyncio.CancelledError):
            await turn
        schema.may_end.set()

    with bench(tmp_path, "{}") as b:
        asyncio.run(stop_during_check(b))
        assert [call.verdict for call in b.store.ledger.calls(b.agent.session_id)] == [""]


def test_a_format_is_enforced_by_responses_of_openai(tmp_path: Path) -> None:
    form = AnswerFormat({"type": "object"}, name="thing", is_strict=False)
    with bench(tmp_path, "{}", mode="codex_responses", provider="openai-responses") as b:
        run(b.agent, "go", TurnOptions(answer_format=form))
        wire = {"type": "json_schema", "name": "thing", "schema": {"type": "object"}, "strict": False}
        assert b.sim.requests[-1].body["text"] == {"format": wire}


@pytest.mark.parametrize(("provider", "is_enforced"), [("vllm", True), ("custom", False)])
def test_a_repair_goes_without_tools_where_the_format_is_then_enforced(
    tmp_path: Path, provider: str, is_enforced: bool
) -> None:
    with bench(tmp_path, "no", "{}", provider=provider, tools=[look]) as b:
        run(b.agent, "go", TurnOptions(answer_format=AnswerFormat({"type": "object"})))
        first, repair = (request.body for request in b.sim.requests)
        assert "tools" in first
        assert "response_format" not in first
        assert ("response_format" in repair, "tools" in repair) == (is_enforced, not is_enforced)


def test_calls_cut_off_at_the_clients_limit_are_dropped(tmp_path: Path) -> None:
    with bench(tmp_path, Say("Let me", calls=(CLIENT,), finish="length")) as b:
        result = run(b.agent, "go", TurnOptions(tools=(THEIRS,), max_tokens=64))
        assert (result.outcome, result.finish, result.client_calls) == ("completed", "length", ())
        assert b.sim.requests[-1].body["max_tokens"] == 64
