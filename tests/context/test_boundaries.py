"""Where a history is parted: head, middle, tail, and what is kept between handoff and tail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perdure.context.retention import Boundaries, Limits, find_boundaries
from perdure.core.messages import HANDOFF_FIRST_LINE, Message, ToolCall, assistant, system, tool_result, user

LIMITS = Limits(tail_tokens=1_000, head_tokens=500, room_tokens=10_000)


def handoff() -> Message:
    return Message("user", HANDOFF_FIRST_LINE, kind="handoff")


def asking(*ids: str, text: str | None = None) -> Message:
    return assistant(text, tuple(ToolCall(i, "terminal") for i in ids))


def turns(count: int) -> list[Message]:
    return [m for n in range(count) for m in (user(f"request {n}"), assistant(f"reply {n}"))]


def parted(messages: list[Message], size: int | list[int] = 100, limits: Limits = LIMITS) -> Boundaries:
    tokens = [size] * len(messages) if isinstance(size, int) else size
    return find_boundaries(messages, tokens, limits)


@pytest.mark.spec("D2")
def test_head_is_the_first_messages_behind_the_system_prompt() -> None:
    found = parted([system("s"), system("t"), *turns(40)])
    assert (found.lead, found.head_end) == (2, 5)


@pytest.mark.spec("D2")
def test_tail_is_walked_back_until_its_budget_is_spent() -> None:
    found = parted(turns(40), limits=replace(LIMITS, protect_last_n=1))
    assert found.tail_start == 70  # ten messages of a hundred tokens


@pytest.mark.spec("D2")
@pytest.mark.parametrize(("size", "kept"), [(70, 20), (75, 20), (76, 13), (200, 5)])
def test_protect_last_n_holds_up_to_one_and_a_half_budgets(size: int, kept: int) -> None:
    assert 80 - parted(turns(40), size).tail_start == kept


@pytest.mark.spec("D3")
def test_tail_start_moves_back_to_the_calling_message() -> None:
    messages = [*turns(10), user("go"), asking("a", "b"), tool_result("a", "x"), tool_result("b", "y"), *turns(1)]
    sizes = [100] * 20 + [10, 10, 600, 300, 350, 350]
    found = parted(messages, sizes, replace(LIMITS, protect_last_n=1))
    assert found.tail_start == 21
    assert messages[found.tail_start].tool_calls


@pytest.mark.spec("D3")
def test_a_group_too_large_for_any_room_leaves_the_tail_as_a_whole() -> None:
    messages = [*turns(10), user("go"), asking("a", "b"), tool_result("a", "x"), tool_result("b", "y"), assistant("ok")]
    sizes = [100] * 20 + [10, 10, 50_000, 900, 100]
    found = parted(messages, sizes, replace(LIMITS, protect_last_n=1))
    assert found.tail_start == 24
    assert found.pinned == (20,)


@pytest.mark.spec("D3")
def test_head_moves_past_the_results_of_its_last_call() -> None:
    messages = [user("go"), assistant("a"), user("b"), asking("a", "b"), tool_result("a", ""), tool_result("b", "")]
    found = parted([*messages, *turns(40)], limits=replace(LIMITS, protect_first_n=4))
    assert found.head_end == 6


@pytest.mark.spec("D3", "D4")
def test_head_never_ends_in_an_open_call() -> None:
    messages = [
        user("go"),
        asking("a"),
        tool_result("a", ""),
        user("newest"),
        *(asking("b"), tool_result("b", "")) * 30,
    ]
    found = parted(messages, limits=replace(LIMITS, protect_first_n=2))
    assert found.head_end == 3
    assert parted(messages[3:], limits=replace(LIMITS, protect_first_n=2)).head_end == 0


@pytest.mark.spec("D4")
def test_the_newest_request_far_behind_the_tail_is_kept_before_it() -> None:
    messages = [
        *turns(5),
        user("port it"),
        *(m for n in range(90) for m in (asking(f"c{n}"), tool_result(f"c{n}", ""))),
    ]
    found = parted(messages)
    assert found.pinned[-1] == 10
    assert 10 not in found.middle
    assert found.middle[-1] == found.tail_start - 1


@pytest.mark.spec("D4")
def test_the_only_request_stands_behind_the_handoff_not_in_the_head() -> None:
    messages = [user("port it"), *(m for n in range(90) for m in (asking(f"c{n}"), tool_result(f"c{n}", "")))]
    found = parted(messages)
    assert found.head_end == 0
    assert found.pinned == (0,)


@pytest.mark.spec("D4")
def test_the_last_visible_reply_is_kept_where_it_fits() -> None:
    steps = [m for n in range(40) for m in (asking(f"c{n}"), tool_result(f"c{n}", ""))]
    messages = [*turns(5), user("go"), assistant("plan: first the lexer"), user("yes"), *steps]
    sizes = [100] * 12 + [100] + [45] * 80
    found = parted(messages, sizes)
    assert found.pinned == (11, 12)
    sizes[11] = 5_000
    assert parted(messages, sizes).pinned == (12,)


@pytest.mark.spec("D4", "D8", "K1")
def test_a_reply_is_not_kept_where_it_would_become_one_with_a_call() -> None:
    messages = [*turns(5), user("go"), assistant("plan"), user("yes"), asking("c"), tool_result("c", ""), user("and?")]
    sizes = [100] * 10 + [100, 700, 2_000, 10, 10, 10]
    found = parted(messages, sizes, replace(LIMITS, protect_last_n=1))
    assert (found.pinned, found.tail_start) == ((), 13)
    before_a_user = [*messages[:13], user("and?")]
    assert parted(before_a_user, [*sizes[:13], 10], replace(LIMITS, protect_last_n=1)).pinned == (11,)


@pytest.mark.spec("D4", "D8")
def test_a_reply_kept_beside_a_long_request_stays_when_the_request_has_become_the_tail() -> None:
    before = [*turns(5), assistant("plan"), user("long"), asking("c"), tool_result("c", "")]
    sizes = [100] * 10 + [60, 1_480, 100, 9_000]
    first = parted(before, sizes)
    assert (first.pinned, first.tail_start) == ((10, 11), 14)
    second = parted([handoff(), before[10], before[11]], [300, 60, 1_480])
    assert not second.has_content


@pytest.mark.spec("D2", "D8")
def test_protect_last_n_never_reaches_beyond_the_room_one_message_at_a_time() -> None:
    limits = replace(LIMITS, room_tokens=1_200, protect_last_n=12)
    first = parted(turns(20), 100, limits)
    assert first.size - first.tail_start == 10
    again = [handoff(), *turns(20)[first.tail_start :]]
    assert not parted(again, [300, *[100] * 10], limits).has_content


@pytest.mark.spec("D4")
def test_handoffs_and_notes_are_not_user_messages() -> None:
    note = Message("user", "a reminder", kind="note")
    steps = [m for n in range(40) for m in (asking(f"c{n}"), tool_result(f"c{n}", ""))]
    messages = [user("the request"), assistant("hm"), handoff(), note, *steps]
    assert 0 in parted(messages).pinned


@pytest.mark.spec("D8")
def test_nothing_but_a_handoff_between_head_and_tail_is_nothing_to_compact() -> None:
    assert not parted([*turns(1), user("x"), handoff(), *turns(4)]).has_content
    assert not parted(turns(4)).has_content
    assert not parted([]).has_content
    assert parted([*turns(1), user("x"), handoff(), *turns(40)]).has_content


@pytest.mark.spec("D9")
def test_the_head_decays_after_the_first_compaction() -> None:
    messages = [*turns(2), handoff(), *turns(40)]
    assert parted(messages).head_end == 0
    assert parted(messages, limits=replace(LIMITS, head_decays=False)).head_end == 3


@pytest.mark.spec("D9")
def test_a_head_that_is_kept_never_reaches_past_the_handoff() -> None:
    messages = [user("first"), handoff(), *turns(40)]
    assert parted(messages, limits=replace(LIMITS, head_decays=False)).head_end == 1


@pytest.mark.spec("C9")
def test_no_head_where_the_window_is_too_small_for_one() -> None:
    assert parted(turns(40), limits=replace(LIMITS, head_tokens=0)).head_end == 0


@pytest.mark.spec("C3")
def test_few_but_huge_messages_count() -> None:
    messages = [user("go"), assistant("a book"), user("and now?")]
    assert parted(messages, [10, 90_000, 10]).middle == (1,)
    messages = [user("go"), asking("a"), tool_result("a", ""), assistant("so?"), user("and now?"), assistant("hm")]
    assert parted(messages, [10, 10, 90_000, 10, 10, 10]).has_content


@pytest.mark.spec("D2", "D4")
def test_the_newest_step_stays_though_it_alone_exceeds_the_tail_budget() -> None:
    """Its result has not been read yet: dropped, it would only be fetched again, for ever."""
    messages = [*turns(20), user("go"), asking("a"), tool_result("a", "")]
    sizes = [100] * 40 + [10, 10, 5_000]
    assert parted(messages, sizes).tail_start == 41
    sizes[-1] = 50_000  # but not when nothing else would fit
    assert parted(messages, sizes).tail_start == 43


@pytest.mark.spec("D2")
def test_a_system_prompt_takes_nothing_from_the_tail_until_the_threshold_leaves_less() -> None:
    messages, limits = [system("s"), *turns(40)], replace(LIMITS, protect_last_n=1)
    small = parted(messages, [100, *[100] * 80], limits)
    large = parted(messages, [5_000, *[100] * 80], limits)
    assert small.tail_start == large.tail_start == 71
    # It is sent all the same: what it leaves below the threshold is all that the tail can have.
    assert parted(messages, [9_400, *[100] * 80], limits).tail_start == 76


@pytest.mark.spec("D2", "D4")
def test_a_request_that_fills_the_room_still_leaves_a_quarter_of_the_tail_for_what_was_done() -> None:
    messages = [user("the whole book"), *(assistant(f"step {n}") for n in range(40))]
    found = parted(messages, [50_000, *[50] * 40], replace(LIMITS, protect_last_n=1))
    assert found.pinned == (0,)
    assert found.size - found.tail_start == 5


@pytest.mark.spec("D2")
def test_what_a_head_gives_up_because_it_is_too_large_the_tail_may_have() -> None:
    found = parted([*turns(40), user("the newest")], limits=replace(LIMITS, protect_first_n=1_000, protect_last_n=1))
    assert (found.head_end, found.size - found.tail_start) == (5, 10)


@pytest.mark.spec("C4b", "D4")
@pytest.mark.parametrize("later", [[], [user("and now?")]], ids=["in the turn", "after an interrupt"])
def test_unread_results_stay_whole_beyond_the_tail_budget(later: list[Message]) -> None:
    group = [asking("a", "b"), tool_result("a", "x"), tool_result("b", "y")]
    messages = [*turns(10), user("go"), *group, *later]
    sizes = [100] * 20 + [10, 10, 5_000, 4_000] + [10] * len(later)
    limits = replace(LIMITS, room_tokens=3_000, unread_tokens=20_000)
    found = parted(messages, sizes, limits)
    assert found.tail_start == found.unread == 21
    assert 3 in found.middle
    assert parted(messages, sizes, replace(limits, unread_tokens=9_000)).unread is None


@pytest.mark.spec("C4b")
def test_results_that_a_reply_follows_are_read() -> None:
    messages = [*turns(10), user("go"), asking("a"), tool_result("a", "x"), assistant("It is x."), user("and now?")]
    assert parted(messages, [100] * 22 + [5_000, 10, 10]).unread is None


@pytest.mark.spec("C4b", "D2")
def test_unread_results_are_not_in_a_head_that_is_shown_shortened() -> None:
    messages = [user("go"), asking("a"), tool_result("a", "x"), user("newest")]
    assert parted(messages, [10, 10, 5_000, 10]).head_end <= 1
