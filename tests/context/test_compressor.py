"""The built-in engine over its life: figures, gate, chain of compactions, failures, cool-downs, pause, notices."""

from __future__ import annotations

import re
from typing import Any

import pytest

from perdure.config.sections import CompressionSettings
from perdure.context.compressor import ContextCompressor
from perdure.context.engine import Compaction, EngineServices, Insert, Keep
from perdure.context.handoff import Handoff, handoff_of
from perdure.context.task_state.sections import IN_TASK
from perdure.core import rules
from perdure.core.errors import ConfigError, ErrorVerdict, ProviderError
from perdure.core.messages import Entry, ImagePart, Message
from perdure.core.ports import Summarize
from perdure.core.usage import NOT_REPORTED, CanonicalUsage
from support.compaction import HeldClock, Shelf, logged
from support.long_histories import one_request, step, working_session
from support.summarisers import GOOD, HOSTILE, Scripted, overloaded, refused_key

WINDOW = 64_000
KEY = "sk-ant-api03-" + "Ab3dE5fG7h" * 9


def engine(
    summarize: Summarize | None = None,
    *,
    main: Summarize | None = None,
    state: Shelf | None = None,
    clock: HeldClock | None = None,
    window: int = WINDOW,
    summary_window: int | None = None,
    **settings: Any,
) -> ContextCompressor:
    made = ContextCompressor(context_length=window)
    services = EngineServices(
        summarize=summarize,
        summarize_main=main,
        summary_window_tokens=summary_window,
        state=state or Shelf(),
        clock=clock or HeldClock(),
        settings=CompressionSettings(**settings),
    )
    made.on_session_start("s_1", services=services)
    made.take_notices()
    return made


def go_on(done: Compaction, entries: list[Entry], more: list[dict[str, Any]] | None = None) -> list[Entry]:
    """The history after a compaction, with what was said since."""
    after = [e if isinstance(e, Entry) else Entry(9_000, e) for e in done.apply(entries)]
    return after + logged(more or [], 10_000 + len(entries))


def written(done: Compaction) -> Handoff:
    assert done.handoff_data is not None, done.message
    return done.handoff_data


# -- figures and gate ------------------------------------------------------------------------------------------------


@pytest.mark.spec("C1", "C2", "B5")
def test_figures_follow_the_main_models_window() -> None:
    b = engine(window=200_000).budgets
    assert (b.threshold_tokens, b.tail_tokens, b.summary_cap_tokens, b.record_tokens) == (
        100_000,
        20_000,
        10_000,
        12_000,
    )
    made = engine(window=200_000, summary_window=8_000)
    assert made.budgets.threshold_tokens == 100_000
    made.update_model(context_length=100_000, max_tokens=60_000)
    assert made.budgets.threshold_tokens == 40_000


@pytest.mark.spec("C1", "C2")
def test_every_figure_is_a_setting() -> None:
    b = engine(
        window=200_000, threshold=0.8, target_ratio=0.5, summary_max_tokens=700, record_max_tokens=300, head_ratio=0.01
    ).budgets
    assert (b.threshold_tokens, b.tail_tokens, b.summary_cap_tokens, b.record_tokens) == (160_000, 80_000, 700, 300)
    assert b.head_tokens == 2_000


@pytest.mark.spec("C9")
def test_small_windows_have_rules_of_their_own() -> None:
    b = engine(window=8_000).budgets
    assert (b.threshold_tokens, b.head_tokens, b.handoff_cap_tokens) == (6_000, 0, 1_200)
    done = engine(Scripted(), window=8_000).compress(logged(working_session(20)))
    text = next(s.message.text for s in done.plan if isinstance(s, Insert))
    assert "## Blocked" not in text, "empty sections are left out"
    assert done.plan[0] == Insert(done.plan[0].message) if isinstance(done.plan[0], Insert) else False, "no head"
    assert len(text) / 4 <= 1_200
    assert "None" not in re.findall(r"^None$", text, re.MULTILINE)


@pytest.mark.spec("C4", "B6")
def test_the_exact_threshold_fires_and_output_never_counts() -> None:
    made = engine()
    assert not made.should_compress()
    assert not made.should_compress(31_999)
    assert made.should_compress(32_000)
    made.update_from_response(CanonicalUsage(input_tokens=100, output_tokens=90_000, reasoning_tokens=80_000))
    assert not made.should_compress()
    made.update_from_response(CanonicalUsage(input_tokens=2_000, cache_read_tokens=30_000))
    assert made.should_compress()


@pytest.mark.spec("C1")
def test_disabled_it_never_asks_but_compacts_when_told() -> None:
    made = engine(enabled=False)
    assert not made.should_compress(63_000)
    assert not made.compress(logged(working_session(20)), reason="user").is_noop


@pytest.mark.spec("C5")
def test_after_a_compaction_the_gate_waits_for_one_response() -> None:
    made = engine()
    made.compress(logged(working_session(20)))
    made.on_session_start("s_2", reason="compression", previous="s_1")
    assert not made.should_compress(60_000)
    made.update_from_response(NOT_REPORTED)
    assert made.should_compress(60_000), "no usage reported: the estimate stands"


@pytest.mark.spec("C5")
def test_two_ineffective_passes_pause_it_across_restarts_until_a_prompt_fits() -> None:
    shelf = Shelf()
    made = engine(state=shelf)
    few = logged(working_session(2))
    assert made.compress(few).is_noop
    assert made.should_compress(60_000), "one failed pass is one strike"
    told = made.compress(few)
    assert "paused" in told.notices[0]
    assert "/compress" in told.notices[0]
    assert not made.should_compress(60_000)
    again = engine(state=shelf)
    assert again.is_paused
    again.update_from_response(CanonicalUsage(input_tokens=50_000))
    assert again.is_paused, "a prompt above the threshold does not fit"
    again.update_from_response(CanonicalUsage(input_tokens=9_000))
    assert again.should_compress(60_000)


@pytest.mark.spec("C5")
def test_the_user_lifts_the_pause_and_an_effective_pass_clears_the_strike() -> None:
    made = engine()
    few, many = logged(working_session(2)), logged(working_session(20))
    made.compress(few)
    made.compress(many)
    made.compress(few)
    assert not made.is_paused, "not two in a row"
    made.compress(few)
    assert made.is_paused
    made.compress(few, reason="user")
    assert not made.is_paused


@pytest.mark.spec("C5")
def test_fixed_costs_above_the_threshold_do_not_compact_for_ever() -> None:
    """System prompt and tools alone exceed the threshold: every real prompt says "too long", no pass can help."""
    made = engine()
    entries = logged(working_session(20))
    rounds = 0
    while made.should_compress(60_000) and rounds < 50:
        done = made.compress(entries)
        if not done.is_noop:
            made.on_session_start(f"s_{rounds}", reason="compression", previous="s")
        entries = go_on(done, entries)
        made.update_from_response(CanonicalUsage(input_tokens=60_000))
        rounds += 1
    assert rounds == 3


@pytest.mark.spec("C6")
def test_the_one_raised_route_says_so_once_and_how_to_turn_it_off() -> None:
    shelf = Shelf()
    made = engine(state=shelf, window=272_000)
    made.update_model(context_length=272_000, provider="openai-codex", model="gpt-5.5")
    assert made.budgets.threshold_tokens == 231_200
    (notice,) = made.take_notices()
    assert "perdure config set compression.codex_gpt55_autoraise false" in notice
    made.update_model(context_length=272_000, provider="openai-codex", model="gpt-5.5")
    assert made.take_notices() == ()
    made.update_model(context_length=272_000, provider="openai", model="gpt-5.5")
    assert made.budgets.threshold_tokens == 136_000
    for settings, wanted in (({"codex_gpt55_autoraise": False}, 136_000), ({"threshold": 0.9}, 244_800)):
        other = engine(window=272_000, **settings)
        other.update_model(context_length=272_000, provider="openai-codex", model="gpt-5.5")
        assert other.budgets.threshold_tokens == wanted
        assert other.take_notices() == ()


@pytest.mark.spec("C6", "J10")
def test_notices_about_a_route_come_once_for_each_installation() -> None:
    installation = Shelf()
    told = []
    for n in range(3):
        made = ContextCompressor()
        services = EngineServices(summary_window_tokens=100_000, state=Shelf(), installation=installation)
        made.on_session_start(f"s_{n}", services=services)
        made.update_model(context_length=272_000, provider="openai-codex", model="gpt-5.5")
        told.append(len(made.take_notices()))
    assert told == [2, 0, 0]


@pytest.mark.spec("C2", "J10")
@pytest.mark.parametrize(("window", "is_told"), [(64_000, False), (100_000, False), (200_000, True)])
def test_a_small_summary_model_is_held_against_the_real_window(window: int, is_told: bool) -> None:
    made = ContextCompressor()
    made.on_session_start("s_1", services=EngineServices(summary_window_tokens=100_000, state=Shelf()))
    assert made.take_notices() == (), "the window is not known yet"
    made.update_model(context_length=window, provider="custom", model="m")
    assert [f"({window:,})" in text for text in made.take_notices()] == [True] * is_told


@pytest.mark.spec("C2")
def test_a_small_summary_model_is_pointed_out_once_and_lowers_nothing() -> None:
    shelf = Shelf()
    made = ContextCompressor(context_length=WINDOW)
    services = EngineServices(summary_window_tokens=8_000, state=shelf)
    made.on_session_start("s_1", services=services)
    assert "in parts" in made.take_notices()[0]
    made.on_session_start("s_1", reason="resume", services=services)
    assert made.take_notices() == ()
    assert made.budgets.threshold_tokens == WINDOW // 2


@pytest.mark.spec("C3")
def test_a_switch_to_a_smaller_window_is_seen_at_once() -> None:
    made = engine(window=200_000)
    assert not made.should_compress(20_000)
    made.update_model(context_length=32_000, model="small")
    assert made.should_compress(20_000)


# -- the four phases -------------------------------------------------------------------------------------------------


@pytest.mark.spec("D1", "D6", "D7")
def test_head_and_tail_leave_unmodified_around_one_handoff() -> None:
    entries = logged(working_session(30))
    done = engine(Scripted()).compress(entries)
    head, handoff, tail = done.plan
    assert isinstance(head, Keep)
    assert isinstance(handoff, Insert)
    assert isinstance(tail, Keep)
    assert (head.lo, tail.hi) == (0, len(entries))
    assert handoff.message.kind == "handoff"
    assert done.outcome == "compacted"
    assert rules.violations(done.messages) == []
    assert done.messages[0] is entries[0].message
    assert done.messages[-1] is entries[-1].message
    assert done.after_tokens <= engine().budgets.threshold_tokens < done.before_tokens


@pytest.mark.spec("D5")
@pytest.mark.parametrize(("window", "turns", "wanted"), [(64_000, 30, 3_200), (200_000, 7, 2_000), (30_000, 12, 1_500)])
def test_the_summary_budget_follows_the_middle(window: int, turns: int, wanted: int) -> None:
    ask = Scripted()
    engine(ask, window=window).compress(logged(working_session(turns)), reason="user")
    assert ask.limits[0] == wanted


@pytest.mark.spec("D5", "J10")
def test_the_summary_models_own_window_bounds_its_input() -> None:
    ask = Scripted()
    engine(ask, summary_window=6_000).compress(logged(working_session(40, chars=190)))
    assert 1 < ask.calls <= 7
    assert all(len(p.split("<transcript>")[1]) / 3 < 6_000 for p in ask.prompts)


@pytest.mark.spec("D4", "E2")
def test_one_request_and_ninety_calls() -> None:
    entries = logged(one_request(90))
    done = engine(Scripted()).compress(entries)
    shown = done.messages
    assert shown[0].parts[-1].text == "Port the whole parser to the new API."  # type: ignore[union-attr]  # a text part
    assert "> Port the whole parser to the new API." in written(done).section("Active Task")
    assert done.after_tokens < 32_000


@pytest.mark.spec("D8")
def test_a_second_pass_without_new_content_is_a_no_op() -> None:
    made, entries = engine(Scripted()), logged(working_session(20))
    after = go_on(made.compress(entries), entries)
    again = made.compress(after)
    assert again.is_noop
    assert again.outcome == "nothing_to_do"
    assert again.messages == [e.message for e in after]


@pytest.mark.spec("D9")
@pytest.mark.parametrize("head_decay", [True, False])
def test_first_turns_do_not_fossilise(head_decay: bool) -> None:
    made, entries = engine(head_decay=head_decay), logged(working_session(20))
    first = made.compress(entries)
    assert first.plan[0] == Keep(0, 3)
    after = go_on(first, entries, working_session(20))
    second = made.compress(after)
    assert (second.plan[0] == Keep(0, 3)) is not head_decay
    if head_decay:
        assert written(second).covers[0] == (0, written(second).covers[0][1]), "the old head is in the handoff now"


@pytest.mark.spec("D1")
def test_the_newest_image_goes_on_with_the_handoff_until_a_newer_one_is_shown() -> None:
    def shown(name: str) -> dict[str, Any]:
        picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{name}"}}
        return {"role": "user", "content": [{"type": "text", "text": f"Look at {name}."}, picture]}

    def images(messages: list[Message]) -> list[str]:
        return [p.url[-4:] for m in messages for p in m.parts if isinstance(p, ImagePart)]

    rest = working_session(20)
    entries = logged([*rest[:40], shown("AAAA"), *rest[32:64], shown("BBBB"), *rest[32:]])
    first = engine().compress(entries)
    assert images(first.messages) == ["BBBB"]
    assert rules.violations(first.messages) == []
    after = go_on(first, entries, working_session(20))
    second = engine().compress(after)
    assert images(second.messages) == ["BBBB"]
    assert second.messages[0].text.startswith("[PERDURE HANDOFF")
    third = engine().compress(go_on(second, after, [*working_session(20), shown("CCCC")]))
    assert images(third.messages) == ["CCCC"]


# -- the handoff over a chain ----------------------------------------------------------------------------------------


@pytest.mark.spec("E2", "E12")
def test_an_active_task_the_summariser_made_up_is_not_used() -> None:
    done = engine(Scripted(GOOD)).compress(logged(working_session(20)))
    assert "something nobody ever asked for" not in written(done).section("Active Task")
    assert "component_19" in written(done).section("Active Task")


@pytest.mark.spec("E5")
def test_a_second_compaction_updates_the_first_even_after_a_restart() -> None:
    entries = logged(working_session(20))
    after = go_on(engine(Scripted(GOOD)).compress(entries), entries, working_session(20))
    ask = Scripted(GOOD)
    done = engine(ask).compress(after)  # a new engine: it finds the handoff in the history
    assert "the public interface stays" in ask.prompts[0]
    assert "Do not start over" in ask.prompts[0]
    assert sum(isinstance(s, Insert) for s in done.plan) == 1
    assert sum(m.kind == "handoff" or "[PERDURE" in m.text for m in done.messages) == 1


@pytest.mark.spec("E11", "M4")
def test_a_handoff_records_what_it_stands_for() -> None:
    clock = HeldClock()
    entries = logged(working_session(20), start=100)
    first = engine(Scripted(), clock=clock).compress(entries)
    made = written(first)
    lo, hi = made.covers[0]
    assert (lo, made.message_count, made.model) == (103, hi - 103 + 1, "scripted-1")
    assert made.created_at_ms == clock.now
    assert made.cost_usd == 0.001
    assert f"m:{lo}-{hi}" in first.messages[3].text or any(f"m:{lo}-{hi}" in m.text for m in first.messages)
    after = go_on(first, entries, working_session(20))
    second = written(engine(Scripted()).compress(after))
    assert second.message_count > made.message_count
    assert second.covers[0][0] == 100


@pytest.mark.spec("E10")
def test_the_person_is_told_from_the_second_compaction_on_the_model_never() -> None:
    shelf = Shelf()
    made, entries = engine(state=shelf), logged(working_session(20))
    first = made.compress(entries)
    assert first.notices == ()
    made.on_session_start("s_2", reason="compression", previous="s_1")
    made = engine(state=shelf)
    after = go_on(first, entries, working_session(20))
    second = made.compress(after)
    assert "compacted 2 times" in second.notices[0]
    assert "/new" in second.notices[0]
    assert "memory" in second.notices[0]
    assert not any("2 times" in m.text for m in second.messages)


@pytest.mark.spec("E12", "E5")
@pytest.mark.parametrize("ask", [None, GOOD])
def test_rules_the_user_gave_early_outlive_summarisers_that_drop_them(ask: str | None) -> None:
    raw = working_session(20)
    raw[0]["content"] = "Always run `make lint` before you commit. Please bring component_0 up to date."
    raw[24]["content"] = "From now on never push to the release branch."
    entries = logged(raw)
    for n in range(3):
        done = engine(Scripted(ask) if ask else None).compress(entries)
        section = written(done).section("Constraints & Preferences")
        assert "never push to the release branch" in section, n
        assert "Always run `make lint` before you commit." in section, n
        assert section.count("never push to the release branch") == 1
        entries = go_on(done, entries, working_session(20))


@pytest.mark.spec("E6")
def test_a_focus_topic_reaches_the_summariser_and_the_record() -> None:
    ask = Scripted()
    done = engine(ask).compress(logged(working_session(20)), focus_topic="database schema", reason="user")
    assert "database schema" in ask.prompts[0]
    assert written(done).focus_topic == "database schema"


@pytest.mark.spec("E9")
@pytest.mark.parametrize("answer", [None, f"{GOOD}\n## Critical Context\nANTHROPIC_API_KEY={KEY}\n"])
def test_no_secret_gets_into_a_prompt_or_a_handoff(answer: str | None) -> None:
    raw = working_session(20)
    raw[20]["content"] = f"Use ANTHROPIC_API_KEY={KEY} from now on, always."
    raw[45]["content"] = f"the key {KEY} was accepted\n" * 40
    raw += [{"role": "user", "content": f"Deploy with {KEY} please."}, *step(999)]
    ask = Scripted(answer) if answer else None
    done = engine(ask).compress(logged(raw))
    handoff = next(s.message.text for s in done.plan if isinstance(s, Insert))
    for text in (handoff, *(ask.prompts if ask else ())):
        assert KEY[:24] not in text
    assert any(KEY in m.text for m in done.messages), "what is kept stays exact"


# -- when the summary cannot be made ---------------------------------------------------------------------------------


@pytest.mark.spec("F1", "F4")
@pytest.mark.parametrize("temper", HOSTILE)
def test_a_hostile_summariser_still_ends_in_a_valid_smaller_history(temper: str) -> None:
    ask = HOSTILE[temper]()
    entries = logged(working_session(20))
    done = engine(ask).compress(entries)
    assert not done.is_noop
    assert ask.calls <= 7
    assert rules.violations(done.messages) == []
    assert done.after_tokens < engine().budgets.threshold_tokens
    assert (
        written(done).section("Active Task").endswith("> Please bring component_19 up to date in src/component_19.py.")
    )


@pytest.mark.spec("F1")
def test_without_a_summariser_the_digest_says_so_and_how_many_messages_it_stands_for() -> None:
    done = engine().compress(logged(working_session(20)))
    assert done.outcome == "digest"
    text = next(s.message.text for s in done.plan if isinstance(s, Insert))
    assert f"Source: {written(done).message_count} messages" in text
    assert "no summary model" in text


@pytest.mark.spec("F1", "E1")
def test_an_open_request_is_the_active_task_until_it_was_answered_and_is_not_told_again() -> None:
    entries = logged(one_request(90))
    done = engine().compress(entries)
    assert written(done).section("Active Task").startswith("The user's unfinished requests")
    assert written(done).section("Remaining Work") == IN_TASK
    answered = go_on(done, entries, [{"role": "assistant", "content": "It is done."}, *working_session(40)])
    later = written(engine().compress(answered))
    assert later.section("Active Task").startswith("None")


@pytest.mark.spec("F1", "E5")
def test_a_failed_second_summary_does_not_take_the_first_with_it() -> None:
    entries = logged(working_session(20))
    after = go_on(engine(Scripted(GOOD)).compress(entries), entries, working_session(20))
    done = engine(Scripted(overloaded())).compress(after)
    assert done.outcome == "digest"
    assert "the public interface stays" in written(done).body
    assert "overloaded" in done.message


@pytest.mark.spec("F2")
def test_the_main_model_is_tried_once_then_the_digest() -> None:
    aux, main = Scripted(refused_key()), Scripted(GOOD)
    done = engine(aux, main=main).compress(logged(working_session(20)))
    assert (done.outcome, aux.calls, main.calls, done.calls) == ("compacted", 1, 1, 2)
    aux, main = Scripted(refused_key()), Scripted("")
    done = engine(aux, main=main).compress(logged(working_session(20)))
    assert (done.outcome, aux.calls, main.calls) == ("digest", 1, 1)


@pytest.mark.spec("F3")
def test_a_passing_failure_cools_down_shortly_and_longer_each_time_and_persists() -> None:
    shelf, clock, ask = Shelf(), HeldClock(), Scripted(overloaded())
    entries = logged(working_session(20))

    def attempt() -> Compaction:
        return engine(ask, state=shelf, clock=clock).compress(entries)

    attempt()
    clock.pass_s(19)
    cooled = attempt()
    assert cooled.outcome == "digest"
    assert ask.calls == 1, "cooling down: no call"
    assert "because the last summary could not be used (the next is requested in 41 s)" in cooled.message
    clock.pass_s(40)
    clock.pass_s(2)
    attempt()
    assert ask.calls == 2
    clock.pass_s(61)
    attempt()
    assert ask.calls == 2, "the second cool-down is longer"
    clock.pass_s(60)
    attempt()
    assert ask.calls == 3


@pytest.mark.spec("F3")
def test_a_lasting_failure_cools_down_long_and_a_success_ends_it() -> None:
    shelf, clock = Shelf(), HeldClock()
    ask = Scripted(refused_key(), GOOD)
    entries = logged(working_session(20))
    engine(ask, state=shelf, clock=clock).compress(entries)
    clock.pass_s(599)
    engine(ask, state=shelf, clock=clock).compress(entries)
    assert ask.calls == 1
    clock.pass_s(2)
    assert engine(ask, state=shelf, clock=clock).compress(entries).outcome == "compacted"
    assert shelf.get("compressor.cooldown") is None


@pytest.mark.spec("F3")
def test_no_provider_at_all_cools_down_long() -> None:
    clock, ask = HeldClock(), Scripted(ConfigError("no endpoint is configured"))
    made, entries = engine(ask, clock=clock), logged(working_session(20))
    made.compress(entries)
    clock.pass_s(599)
    made.compress(entries)
    assert ask.calls == 1
    clock.pass_s(2)
    made.compress(entries)
    assert ask.calls == 2


@pytest.mark.spec("D5", "F3")
@pytest.mark.parametrize("limit", [8_000, None])
def test_a_summary_model_that_overflows_is_asked_again_in_parts(limit: int | None) -> None:
    too_long = ProviderError(ErrorVerdict("prompt_too_long", "too long", 400, context_limit=limit))
    ask = Scripted(too_long, GOOD)
    done = engine(ask).compress(logged(working_session(60, chars=190)))
    assert done.outcome == "compacted"
    assert 1 < ask.calls <= 8
    never = Scripted(too_long)
    assert engine(never).compress(logged(working_session(60, chars=190))).outcome == "digest"
    assert never.calls == 2


@pytest.mark.spec("D5", "F3")
def test_an_implausible_window_in_an_error_of_the_summary_model_is_ignored() -> None:
    ask = Scripted(ProviderError(ErrorVerdict("prompt_too_long", "too long", 400, context_limit=3)), GOOD)
    assert engine(ask).compress(logged(working_session(60, chars=190))).outcome == "compacted"
    assert ask.calls == 2, "one request for half of the window, not one for each few tokens"


@pytest.mark.spec("F3")
def test_the_user_ignores_a_cool_down_and_reads_of_the_failure() -> None:
    shelf, clock, ask = Shelf(), HeldClock(), Scripted(overloaded())
    made, entries = engine(ask, state=shelf, clock=clock), logged(working_session(20))
    made.compress(entries)
    done = made.compress(entries, reason="user")
    assert ask.calls == 2
    assert done.outcome == "digest"
    assert "overloaded" in done.message


@pytest.mark.spec("F3")
def test_the_services_own_waiting_time_is_respected() -> None:
    clock = HeldClock()
    ask = Scripted(ProviderError(ErrorVerdict("rate_limit", "slow down", 429, retry_after_s=300)))
    made, entries = engine(ask, clock=clock), logged(working_session(20))
    made.compress(entries)
    clock.pass_s(299)
    made.compress(entries)
    assert ask.calls == 1


@pytest.mark.spec("F3", "C5")
def test_a_damaged_state_counts_as_none() -> None:
    shelf = Shelf()
    shelf.kept = {"compressor.cooldown": "x", "compressor.pause": [1], "compressor.count": {"a": 1}}
    done = engine(Scripted(), state=shelf).compress(logged(working_session(20)))
    assert done.outcome == "compacted"


@pytest.mark.spec("M1")
def test_an_end_and_a_new_start_forget_the_old_counter() -> None:
    made = engine()
    made.update_from_response(CanonicalUsage(input_tokens=60_000))
    made.on_session_end("s_1")
    made.on_session_start("s_9")
    assert not made.should_compress()


@pytest.mark.spec("B2")
def test_a_model_switch_forgets_what_the_old_model_counted() -> None:
    made = engine()
    made.update_from_response(CanonicalUsage(input_tokens=60_000))
    made.update_model(context_length=WINDOW, model="another")
    assert not made.should_compress()


@pytest.mark.spec("E5")
def test_a_handoff_of_an_older_banner_is_read_and_replaced() -> None:
    entries = logged(working_session(20))
    done = engine(Scripted()).compress(entries)
    old = next(s.message for s in done.plan if isinstance(s, Insert))
    worn = Message(old.role, old.text.replace("colleague's hand-over", "stranger's letter"), kind="handoff")
    assert handoff_of(worn) == done.handoff_data
    history = [Entry(0, worn), *logged(working_session(20), 1)]
    again = engine(Scripted()).compress(history)
    assert "stranger's letter" not in "".join(m.text for m in again.messages)


@pytest.mark.spec("D1")
@pytest.mark.parametrize(("minutes", "words"), [(0, "less than a minute"), (1, "a minute"), (4, "4 minutes"), (45, "")])
def test_a_compaction_within_minutes_of_another_explains_itself(minutes: int, words: str) -> None:
    def tight() -> ContextCompressor:
        return engine(clock=clock, target_ratio=0.8)

    clock = HeldClock()
    entries = logged(working_session(20))
    first = tight().compress(entries)
    assert "The one before was" not in first.message
    clock.pass_s(minutes * 60)
    history = go_on(first, entries, working_session(20))
    again = tight().compress(history)
    assert (f"The one before was {words} ago: what is kept" in again.message) == bool(words)
    assert "The one before" not in tight().compress(history, reason="user").message


@pytest.mark.spec("D1")
def test_a_compaction_that_leaves_room_does_not_warn_of_too_little() -> None:
    clock = HeldClock()
    entries = logged(working_session(20))
    history = go_on(engine(clock=clock).compress(entries), entries, working_session(20))
    made = engine(clock=clock)
    again = made.compress(history)
    assert again.after_tokens < made.budgets.threshold_tokens / 2
    assert "The one before" not in again.message
