"""Three hundred turns of coding on a 32K window with everything that goes wrong in a real day."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perdure.config.settings import Settings
from perdure.core.events import CompactionFinished, Event, ModelSwitched, Recovered
from perdure.core.usage import CanonicalUsage
from perdure.providers.routes import EndpointChain
from perdure.providers.types import ApiMode, Endpoint
from perdure.testing.simulator import Call, Fail, Say, ScriptRequest
from perdure.testing.simulator.script import Step
from support.agents import Bench, bench
from support.simulator import MODES

TURNS = 300
SHRUNK = 9_000
MODELS = {"chat_completions": "gpt-5", "codex_responses": "gpt-5", "anthropic_messages": "claude-sonnet-4-5"}
PROVIDERS = {"chat_completions": "custom", "codex_responses": "custom", "anthropic_messages": "anthropic"}


class Day:
    """The script of the day: every third question needs tools, and some requests meet a fault first."""

    def __init__(self, faults: dict[int, Step]) -> None:
        self.faults = faults
        self.turn = 0

    def __call__(self, asked: ScriptRequest) -> Step | str:
        fault = self.faults.pop(self.turn, None)
        if fault is not None:
            return fault
        last = str(asked.body.get("messages", asked.body.get("input", ""))[-1])
        if f"question {self.turn}" in last and self.turn % 3 == 0:
            calls = tuple(Call("read_log", {"n": n}) for n in range(self.turn, self.turn + 1 + self.turn % 2))
            return Say("Let me look.", calls=calls)
        return f"Answer {self.turn}: the value is {self.turn * 7}."


def read_log(n: int) -> str:
    """Reads a log file."""
    return f"log {n}\n" + "\n".join(f"line {i}: worker-{n % 9} did step {i} in {i * n % 97} ms" for i in range(60))


def _faults(mode: ApiMode) -> dict[int, Step]:
    too_slow = Fail(status=429, body={"error": {"message": "Rate limit reached: 30000 tokens per minute"}})
    return {
        40: too_slow,
        90: Fail(status=500, body={"error": {"message": "internal error"}}),
        150: Say("half of an answer that never ends", drop_after=3),
        200: Fail(sample="anthropic_output_cap" if mode == "anthropic_messages" else "openai_output_cap"),
        230: Say("too slow " * 100, delay_s=30),
    }


@pytest.mark.spec("A4", "A6", "C3", "C4", "G1", "G2", "G3", "J2", "J4", "J10", "K3", "L4")
@pytest.mark.parametrize("mode", MODES)
def test_a_long_day_ends_with_the_right_answer_and_the_right_bill(tmp_path: Path, mode: ApiMode) -> None:
    day = Day(_faults(mode))
    spares = tuple(Endpoint(PROVIDERS[mode], "", mode, f"{MODELS[mode]}-{i}", api_key="k") for i in range(4))
    settings = Settings.model_validate({"model": {"max_tokens": 2_000}})
    with bench(
        tmp_path,
        day,
        mode=mode,
        tools=[read_log],
        settings=settings,
        fallbacks=spares,
        model=MODELS[mode],
        provider=PROVIDERS[mode],
        key_command="echo new-key",
    ) as b:
        events: list[Event] = []
        stop = b.agent.events.listen(events.append)
        outcomes = {turn: _one_turn(b, day, turn) for turn in range(TURNS)}
        stop()
        assert outcomes[TURNS - 1] == f"Answer {TURNS - 1}: the value is {(TURNS - 1) * 7}."
        assert b.sim.violations == []
        assert {t: o for t, o in outcomes.items() if not o.startswith("Answer")} == {230: "interrupted"}
        _check_recoveries(b, events)
        _check_books(b)
        _check_cache(b, events)


def _one_turn(b: Bench, day: Day, turn: int) -> str:
    """Asks one question; on some turns something happens to the service first."""
    day.turn = turn
    if turn == 60:
        b.sim.change(api_key="new-key")  # the old key is refused from now on
    if turn == 120:
        b.sim.change(window=SHRUNK)  # the window is smaller than anyone said: an overflow tells
    if turn == 230:
        threading.Timer(0.4, b.agent.interrupt).start()
    if turn == 260:
        here = b.deps.routes.endpoint
        smaller = replace(here, model=f"{MODELS[here.api_mode]}-small")
        b.models.windows[smaller.model] = 8_000
        b.agent.switch_model(EndpointChain((smaller,)))
    result = b.agent.run_conversation(f"question {turn}: what is the value? " + "detail " * 20)
    return result.final_response if result.outcome == "completed" else result.outcome


def _check_recoveries(b: Bench, events: list[Event]) -> None:
    kinds = {e.verdict.kind for e in events if isinstance(e, Recovered)}
    assert kinds >= {"rate_limit", "auth", "output_cap", "prompt_too_long"}
    # The Responses protocol states no limit: there the window steps down a ladder instead.
    assert SHRUNK in b.models.learned or b.deps.routes.endpoint.api_mode == "codex_responses"
    assert sum(isinstance(e, ModelSwitched) for e in events) >= 3
    assert sum(isinstance(e, CompactionFinished) for e in events) >= 5


def _check_books(b: Bench) -> None:
    """Every token the simulator reported is in the ledger; what it never reported is recorded as such, apart."""
    assert b.agent.session_id is not None
    totals = b.store.ledger.totals(b.agent.session_id)
    calls = b.store.ledger.calls(b.agent.session_id)
    assert totals.calls == len(b.sim.requests)
    for call, request in zip(calls, b.sim.requests, strict=True):
        if call.usage.reported:
            # A request that was refused used nothing, and that is known.
            assert call.usage == (request.usage or CanonicalUsage())
            assert request.usage or call.verdict
        else:
            assert call.verdict
            assert call.estimate_tokens
    assert totals.usage == sum((c.usage for c in calls if c.usage.reported), CanonicalUsage())


def _check_cache(b: Bench, events: list[Event]) -> None:
    """Between compactions and model switches, what the service can cache is read from its cache."""
    cacheable = read = 0
    answered = [r for r in b.sim.requests if r.usage is not None]
    for before, after in itertools.pairwise(answered):
        if _is_continued(before.body, after.body):
            cacheable += before.prompt_tokens // 128 * 128 if before.prompt_tokens >= 1_024 else 0
            read += after.usage.cache_read_tokens if after.usage is not None and before.prompt_tokens >= 1_024 else 0
    assert cacheable > 500_000
    assert read / cacheable >= 0.98


def _is_continued(before: Any, after: Any) -> bool:
    """The later request carries on the earlier one: same model, same system prompt, the same first messages."""
    key = "input" if "input" in before else "messages"
    same = all(
        _unmarked(before.get(k)) == _unmarked(after.get(k)) for k in ("model", "system", "instructions", "tools")
    )
    n = len(before[key])
    return same and _unmarked(after[key][:n]) == _unmarked(before[key])


def _unmarked(value: Any) -> Any:
    """The value without cache marks, text parts of one text as that text."""
    if isinstance(value, dict):
        return {k: _unmarked(v) for k, v in value.items() if k != "cache_control"}
    if isinstance(value, list):
        return [_unmarked(v) for v in value]
    return value
