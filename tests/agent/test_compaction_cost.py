"""When a compaction pays: a table of decisions, and the agent that follows them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.agent.compaction_cost import CostInputs, TokenPrices, decide
from perdure.config.sections import CompressionSettings
from perdure.config.settings import Settings
from perdure.core.usage import CanonicalUsage
from perdure.lab.replay.measures import SessionMeasures
from perdure.lab.replay.policies import parse_policy
from perdure.lab.replay.run import ReplayJob, replay
from perdure.models.catalog import Catalog
from perdure.providers.codec import prefix_lifetime_s
from perdure.providers.routes import EndpointChain
from perdure.providers.types import CacheTtl, Endpoint
from support.agents import Bench, KnownModels, bench
from support.long_histories import working_session
from support.recorded import recorded_session
from support.store import FakeClock

# A model at 3 dollars for a million tokens of input: reads a tenth of it, writes a quarter more.
CLAUDE = TokenPrices(0.3e-6, 3.75e-6)
UNCACHED = TokenPrices(3e-6, 3e-6)


def inputs(**changes: Any) -> CostInputs:
    """A long conversation in a window of 200,000 tokens, just beyond its threshold, with a cached prefix."""
    rule = changes.pop("rule", "both")
    changes = {"cost_floor": 0.6, **changes}
    options = {name: changes.pop(name) for name in ("cost_floor", "cost_delay", "cost_min_calls") if name in changes}
    settings = CompressionSettings(cost_rule=rule, **options)
    base = CostInputs(
        prompt_tokens=100_000,
        threshold_tokens=100_000,
        room_tokens=184_000,
        after_tokens=30_000,
        fixed_tokens=5_000,
        cold=None,
        remaining_calls=60,
        calls_since=None,
        summary_usd=0.0,
        prices=CLAUDE,
        settings=settings,
    )
    return replace(base, **changes)


@pytest.mark.spec("C4")
@pytest.mark.parametrize(
    ("changes", "action", "reason"),
    [
        # At the threshold, with the prefix in the cache.
        ({}, "compact", "threshold of 100,000 tokens is reached"),
        ({"remaining_calls": 2}, "wait", "would not pay yet"),
        ({"remaining_calls": 2, "rule": "off"}, "compact", "is reached"),
        ({"remaining_calls": 2, "rule": "advance"}, "compact", "is reached"),
        ({"remaining_calls": 2, "rule": "delay"}, "wait", "would not pay yet"),
        ({"remaining_calls": 2, "prices": None}, "compact", "is reached"),
        ({"remaining_calls": 2, "prices": UNCACHED}, "compact", "is reached"),
        ({"remaining_calls": 8, "summary_usd": 0.5}, "wait", "would not pay yet"),
        # As far as the delay goes, and never beyond the room of the window.
        ({"remaining_calls": 1, "prompt_tokens": 141_999, "after_tokens": 140_000}, "wait", "would not pay"),
        ({"remaining_calls": 1, "prompt_tokens": 142_000, "after_tokens": 140_000}, "compact", "is reached"),
        ({"remaining_calls": 1, "prompt_tokens": 184_000, "cost_delay": 1.0}, "compact", "the window is full"),
        ({"prompt_tokens": 184_000, "calls_since": 1}, "compact", "the window is full"),
        # Two in a burst.
        ({"calls_since": 7}, "wait", "the last compaction was 7 calls ago"),
        ({"calls_since": 8}, "compact", "is reached"),
        ({"calls_since": 1, "rule": "advance"}, "compact", "is reached"),
        ({"calls_since": 1, "prompt_tokens": 150_000}, "compact", "is reached"),
        # Below it.
        ({"prompt_tokens": 99_999}, "wait", "is not reached"),
        ({"prompt_tokens": 60_000, "cold": "expired"}, "compact", "the cached prefix has expired: saves $0.113 now"),
        ({"prompt_tokens": 60_000, "cold": "other model"}, "compact", "this model has no cached prefix yet"),
        ({"prompt_tokens": 59_999, "cold": "expired"}, "wait", "is not reached"),
        ({"prompt_tokens": 59_999, "cold": "expired", "cost_floor": 0.5}, "compact", "has expired"),
        ({"prompt_tokens": 60_000, "cold": "expired", "rule": "delay"}, "wait", "is not reached"),
        ({"prompt_tokens": 60_000, "cold": "expired", "rule": "off"}, "wait", "is not reached"),
        ({"prompt_tokens": 60_000, "cold": "expired", "prices": None}, "wait", "is not reached"),
        ({"prompt_tokens": 60_000, "cold": "expired", "calls_since": 3}, "wait", "last compaction was 3 calls ago"),
        ({"prompt_tokens": 60_000, "cold": "expired", "summary_usd": 2.0}, "wait", "has expired, but"),
        ({"prompt_tokens": 60_000, "cold": "expired", "after_tokens": 60_000}, "wait", "would not pay"),
    ],
)
def test_the_decision_and_its_reason(changes: dict[str, Any], action: str, reason: str) -> None:
    decision = decide(inputs(**changes))
    assert (decision.action, reason in decision.reason) == (action, True), decision


def test_what_a_compaction_costs_now_and_saves_later() -> None:
    warm = inputs(remaining_calls=10)
    # 25,000 tokens are written anew and 5,000 read, in place of 100,000 read.
    assert warm.cost_usd == pytest.approx(25_000 * 3.75e-6 + 5_000 * 0.3e-6 - 100_000 * 0.3e-6)
    assert warm.saving_usd == pytest.approx(70_000 * 0.3e-6 * 10)
    assert replace(warm, cold="expired").cost_usd == pytest.approx(-70_000 * 3.75e-6)


@pytest.mark.parametrize(
    ("provider", "model", "ttl", "seconds"),
    [
        ("anthropic", "claude-sonnet-4-5", "5m", 300.0),
        ("anthropic", "claude-sonnet-4-5", "1h", 3_600.0),
        ("openrouter", "anthropic/claude-sonnet-4.5", "5m", 300.0),
        ("openai", "gpt-5.5", "1h", 600.0),
        ("deepseek", "deepseek-chat", "5m", 21_600.0),
        ("openrouter", "qwen/qwen3", "5m", None),
        ("vllm", "qwen3", "5m", None),
    ],
)
def test_how_long_a_prefix_lives_by_route(provider: str, model: str, ttl: CacheTtl, seconds: float | None) -> None:
    assert prefix_lifetime_s(Endpoint(provider, "", "chat_completions", model), ttl) == seconds


# -- the agent --------------------------------------------------------------------------------------------------------


def replayed(policy: str, *, seconds: float) -> SessionMeasures:
    """Eight short turns in a window that they fill to a third: the threshold is never reached."""
    return replay(ReplayJob(recorded_session(seconds=seconds), parse_policy(policy), 64_000))


@pytest.mark.spec("C4")
def test_a_compaction_is_advanced_once_the_cached_prefix_has_expired() -> None:
    plain, advanced = (
        replayed(f"digest:{rule}", seconds=400.0) for rule in ("cost_rule=off", "cost_rule=advance,cost_floor=0.3")
    )
    assert (plain.compactions, advanced.compactions > 0) == (0, True)
    assert advanced.cost_usd["anthropic-5m"] < plain.cost_usd["anthropic-5m"]
    assert advanced.rewrites_avoidable == 0
    assert replayed("digest:cost_rule=advance,cost_floor=0.3", seconds=20.0).compactions == 0


def cached(usage: CanonicalUsage) -> float:
    return Catalog().cost_usd("anthropic", "claude-sonnet-4-5", usage) or 0.0


class ClaudePrices(KnownModels):
    """Windows as the test says, prices of one model."""

    def cost_usd(self, endpoint: Endpoint, usage: CanonicalUsage) -> float | None:
        return cached(usage)


def reasons(b: Bench, session_id: str | None) -> list[str]:
    assert session_id is not None
    return [str(e.payload["reason"]) for e in b.store.ledger.events(session_id, kind="compaction")]


@pytest.mark.spec("C3", "C4")
@pytest.mark.parametrize(("rule", "count"), [("advance", 1), ("off", 0)])
def test_another_model_starts_with_a_compacted_history_where_that_is_cheaper(
    tmp_path: Path, rule: Any, count: int
) -> None:
    settings = Settings(compression=CompressionSettings(cost_rule=rule, cost_floor=0.4, summarize=False))
    with bench(tmp_path, *["Yes."] * 5, settings=settings, models=ClaudePrices(32_000)) as b:
        b.agent.run_conversation("Go on?", conversation_history=working_session(6, chars=2_200))
        b.agent.run_conversation("And now?")
        assert reasons(b, b.agent.session_id) == []
        main = b.deps.routes.endpoint
        b.agent.switch_model(EndpointChain((replace(main, model="m-2"),)))
        b.agent.run_conversation("Go on with the other one.")
        assert reasons(b, b.agent.session_id) == ["cold"] * count
        b.agent.run_conversation("And on.")
        assert len(reasons(b, b.agent.session_id)) == count


@pytest.mark.spec("C4")
def test_a_conversation_resumed_after_its_prefix_expired_is_compacted_first(tmp_path: Path) -> None:
    clock = FakeClock()
    settings = Settings(compression=CompressionSettings(cost_rule="advance", cost_floor=0.4, summarize=False))
    options: dict[str, Any] = {"provider": "anthropic", "model": "claude-m", "mode": "anthropic_messages"}
    with bench(tmp_path, *["Yes."] * 5, settings=settings, models=ClaudePrices(32_000), clock=clock, **options) as b:
        b.agent.run_conversation("Go on?", conversation_history=working_session(6, chars=2_200))
        b.agent.run_conversation("And now?")
        session_id = b.agent.session_id
        clock.pass_ms(290_000)
        soon = b.again(session_id)
        soon.measure()
        assert "threshold of 16,000 tokens is not reached" in str(soon.open().gate.cost.explain())
        soon.run_conversation("Soon after.")
        assert reasons(b, session_id) == []
        clock.pass_ms(300_000)
        late = b.again(session_id)
        late.measure()
        assert "the cached prefix has expired" in str(late.open().gate.cost.explain())
        late.run_conversation("Much later.")
        assert reasons(b, late.session_id) == ["cold"]


@pytest.mark.parametrize(
    ("options", "provider", "line"),
    [
        ({}, "anthropic", "earlier, from 8,000 tokens, after 5 minutes without a request, or a change of model"),
        ({}, "vllm", "earlier, from 8,000 tokens, after a change of model (compression.cost_rule advance)"),
        ({"cost_rule": "delay", "cost_delay": 0.5}, "anthropic", "may come later, up to 23,500 tokens, while it would"),
        ({"cost_rule": "both", "cost_while_idle": True}, "anthropic", "would not pay; or at the end of a turn"),
        ({"cost_rule": "off"}, "anthropic", "the threshold alone decides (compression.cost_rule off)"),
    ],
)
def test_the_context_command_names_the_setting_and_its_limits(
    tmp_path: Path, options: dict[str, Any], provider: str, line: str
) -> None:
    settings = Settings(compression=CompressionSettings(**options))
    route: dict[str, Any] = {"provider": provider, "model": "claude-m", "mode": "anthropic_messages"}
    with bench(tmp_path, "Yes.", settings=settings, models=ClaudePrices(32_000), **route) as b:
        b.agent.run_conversation("Go on?")
        assert line in b.agent.open().gate.cost.describe()


class NoPrices(KnownModels):
    """Windows as the test says, and no prices, as of a subscription."""

    def cost_usd(self, endpoint: Endpoint, usage: CanonicalUsage) -> float | None:
        return None


@pytest.mark.parametrize(("options", "says_so"), [({}, False), ({"cost_rule": "both"}, True)])
def test_a_rule_without_prices_is_named_where_the_user_chose_it(
    tmp_path: Path, options: dict[str, Any], says_so: bool
) -> None:
    settings = Settings(compression=CompressionSettings(**options))
    with bench(tmp_path, "Yes.", settings=settings, models=NoPrices(32_000)) as b:
        b.agent.run_conversation("Go on?")
        line = b.agent.open().gate.cost.describe()
        assert ("has no effect" in line) is says_so
        assert says_so or not line


@pytest.mark.parametrize(("hours", "compacts"), [(-5, 0), (0, 0), (5, 1)])
def test_a_clock_that_goes_backwards_expires_nothing(tmp_path: Path, hours: int, compacts: int) -> None:
    clock = FakeClock()
    settings = Settings(compression=CompressionSettings(cost_floor=0.4, summarize=False))
    options: dict[str, Any] = {"provider": "anthropic", "model": "claude-m", "mode": "anthropic_messages"}
    with bench(tmp_path, *["Yes."] * 5, settings=settings, models=ClaudePrices(32_000), clock=clock, **options) as b:
        b.agent.run_conversation("Go on?", conversation_history=working_session(6, chars=2_200))
        b.agent.run_conversation("And now?")
        clock.pass_ms(hours * 3_600_000)
        b.agent.run_conversation("And later?")
        assert reasons(b, b.agent.session_id) == ["cold"] * compacts


@given(
    prompt=st.integers(0, 400_000),
    threshold=st.integers(1, 200_000),
    room=st.integers(1, 200_000),
    after=st.integers(0, 200_000),
    calls=st.integers(1, 500),
    since=st.none() | st.integers(0, 20),
    rule=st.sampled_from(("off", "advance", "delay", "both")),
    cold=st.sampled_from((None, "expired", "other model")),
    prices=st.sampled_from((None, CLAUDE, UNCACHED)),
    delay=st.floats(0.01, 1.0),
)
def test_no_rule_lets_a_prompt_fill_the_window_and_only_some_move_the_threshold(
    prompt: int, threshold: int, room: int, after: int, calls: int, since: int | None, rule: str, cold: Any,
    prices: TokenPrices | None, delay: float,
) -> None:  # fmt: skip
    given_inputs = inputs(
        prompt_tokens=prompt, threshold_tokens=threshold, room_tokens=threshold + room, after_tokens=after,
        remaining_calls=calls, calls_since=since, rule=rule, cold=cold, prices=prices, cost_delay=delay,
    )  # fmt: skip
    is_compacted = decide(given_inputs).action == "compact"
    if prompt >= threshold + room:
        assert is_compacted
    if prices is None or rule == "off":
        assert is_compacted == (prompt >= threshold)
    if rule == "advance" and prompt >= threshold:
        assert is_compacted
    if rule == "delay" and prompt < threshold:
        assert not is_compacted
    if is_compacted and prompt < threshold:
        assert cold is not None
        assert since is None or since >= given_inputs.settings.cost_min_calls


@pytest.mark.parametrize(("idle", "compacts"), [("false", False), ("true", True)])
def test_an_idle_conversation_is_compacted_only_where_that_is_switched_on(idle: str, compacts: bool) -> None:
    measures = replayed(f"digest:cost_rule=advance,cost_floor=0.3,cost_while_idle={idle}", seconds=20.0)
    assert (measures.compactions > 0) is compacts


def test_two_compactions_never_follow_in_a_burst() -> None:
    policy = parse_policy("digest:cost_rule=both,cost_floor=0.1,cost_min_calls=6")
    measures = replay(ReplayJob(recorded_session(seconds=400.0), policy, 20_000))
    calls = [detail.call for detail in measures.details]
    assert len(calls) > 1
    assert all(later - earlier >= 6 for earlier, later in pairwise(calls))
