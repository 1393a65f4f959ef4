"""One table decides what is done about a failed call."""

from __future__ import annotations

from typing import get_args

import pytest

from perdure.agent.model_call import ADVICE, Attempts, advice, lower_output_cap
from perdure.core.error_policy import POLICIES
from perdure.core.errors import ErrorKind, ErrorVerdict


def _all_actions(kind: ErrorKind, *, may_compact: bool = True) -> list[str]:
    """Every action for a call that fails the same way each time, on a route with one fallback, up to giving up."""
    attempts, done = Attempts(), []
    while (not done or done[-1] != "give_up") and len(done) < 20:
        done.append(attempts.next_action(ErrorVerdict(kind), may_compact=may_compact))
        attempts.is_route_used_up = done.count("reroute") > 1
    return done


def test_every_kind_of_error_has_a_row_and_a_word_of_advice() -> None:
    assert set(POLICIES) == set(ADVICE) == set(get_args(ErrorKind))


@pytest.mark.spec("G4")
def test_a_prompt_that_stays_too_long_is_compacted_three_times_and_no_more() -> None:
    assert _all_actions("prompt_too_long") == ["compact"] * 3 + ["give_up"]


@pytest.mark.spec("C1")
def test_with_compaction_off_an_overflow_ends_with_advice() -> None:
    assert _all_actions("prompt_too_long", may_compact=False) == ["give_up"]
    assert "/new" in advice(ErrorVerdict("prompt_too_long", "prompt is too long"), Attempts())


@pytest.mark.spec("G2")
def test_an_output_cap_lowers_the_allowance_before_anything_else() -> None:
    assert _all_actions("output_cap")[0] == "lower_output"
    assert lower_output_cap(ErrorVerdict("output_cap", output_limit=4_096), 21_333) == 4_096
    assert lower_output_cap(ErrorVerdict("output_cap"), 8_000) == 4_000
    assert lower_output_cap(ErrorVerdict("output_cap", output_limit=8_000), 8_000) == 4_000
    assert lower_output_cap(ErrorVerdict("output_cap", output_limit=1), None) == 16


@pytest.mark.spec("J10")
@pytest.mark.parametrize("kind", ["rate_limit", "overloaded", "auth", "quota", "transport"])
def test_what_another_route_may_mend_goes_there(kind: ErrorKind) -> None:
    assert _all_actions(kind) == ["reroute", "reroute", "give_up"]


@pytest.mark.parametrize("kind", ["bad_request", "unknown"])
def test_a_request_no_recovery_is_known_for_is_never_repeated(kind: ErrorKind) -> None:
    assert _all_actions(kind) == ["give_up"]


@pytest.mark.spec("G2")
def test_too_many_images_are_dropped_once_and_then_explained() -> None:
    verdict, attempts = ErrorVerdict("bad_request", "too many images", image_limit=20), Attempts()
    assert [attempts.next_action(verdict, may_compact=True) for _ in range(2)] == ["drop_images", "give_up"]
    assert "Send fewer images" in advice(verdict, attempts)


@pytest.mark.spec("G2")
def test_only_an_allowance_that_no_prompt_explains_is_a_cap_worth_remembering() -> None:
    attempts = Attempts()
    attempts.lower_output(ErrorVerdict("output_cap", output_limit=977, context_limit=4_097), 4_096)
    assert (attempts.output_tokens, attempts.has_found_cap) == (977, False)
    attempts.lower_output(ErrorVerdict("output_cap", output_limit=800, request_limit=6_000), 4_096)
    assert not attempts.has_found_cap
    attempts.lower_output(ErrorVerdict("output_cap", output_limit=512), 4_096)
    assert (attempts.output_tokens, attempts.has_found_cap) == (512, True)


@pytest.mark.spec("G4")
def test_the_last_word_says_what_happened_what_was_tried_and_what_to_do() -> None:
    said = advice(ErrorVerdict("prompt_too_long", "prompt is too long: 9 > 8"), Attempts(compactions=3))
    for wanted in (
        "prompt is too long: 9 > 8.",
        "Compacted 3 times",
        "/new",
        "/compress",
        "Nothing of the conversation is lost",
    ):
        assert wanted in said


@pytest.mark.spec("G4")
@pytest.mark.parametrize(("kind", "before"), [("prompt_too_long", []), ("output_cap", ["lower_output"] * 3)])
def test_where_nothing_is_left_to_compact_it_is_not_tried_again(kind: ErrorKind, before: list[str]) -> None:
    attempts = Attempts(compactions=1, is_nothing_left=True)
    actions = [attempts.next_action(ErrorVerdict(kind), may_compact=True) for _ in range(len(before) + 1)]
    assert actions == [*before, "give_up"]
    assert "Nothing more could be compacted." in advice(ErrorVerdict(kind, "too long"), attempts)
