"""The history rules: what breaks, how it is mended, where one may cut."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given

from perdure.core import rules
from perdure.core.messages import Message, TextPart, ToolCall, assistant, system, tool_result, user
from support.histories import broken_histories, valid_histories

pytestmark = pytest.mark.spec("K1", "K2", "K3")

CALL = ToolCall("call_1", "terminal", '{"command":"ls"}')
OTHER = ToolCall("call_2", "read_file", '{"path":"a.py"}')


@given(broken_histories())
def test_whatever_is_repaired_is_valid_and_repairing_again_changes_nothing(history: list[Message]) -> None:
    mended = rules.repair(history)
    assert rules.violations(mended) == []
    assert rules.is_valid(mended)
    assert rules.repair(mended) is mended


@given(broken_histories())
def test_the_quick_check_agrees_with_the_full_one(history: list[Message]) -> None:
    assert rules.is_valid(history) == (rules.violations(history) == [])


@given(valid_histories())
def test_a_valid_history_comes_back_as_the_very_same_list(history: list[Message]) -> None:
    assert rules.repair(history) is history


@given(broken_histories())
def test_repair_loses_no_word_of_user_or_assistant(history: list[Message]) -> None:
    kept = "\n".join(m.text for m in rules.repair(history))
    for m in history:
        if m.role in ("user", "assistant"):
            for part in m.parts:
                if isinstance(part, TextPart):
                    assert part.text in kept


@given(valid_histories())
def test_cutting_where_allowed_leaves_no_pair_split(history: list[Message]) -> None:
    for i in rules.cut_points(history):
        for half in (history[:i], history[i:]):
            assert rules.Pairs().violations(half) == []
    assert {0, len(history)} <= rules.cut_points(history)


def test_a_cut_never_falls_between_a_call_and_its_results() -> None:
    history = [user("q"), assistant(None, (CALL, OTHER)), tool_result("call_1", "a"), tool_result("call_2", "b")]
    assert rules.cut_points(history) == {0, 1, 4}


def test_two_user_messages_become_one_of_two_parts() -> None:
    (mended,) = rules.repair([user("first"), user("second")])
    assert mended.parts == (TextPart("first"), TextPart("second"))


def test_neighbours_of_different_names_are_labelled_with_them() -> None:
    alice, bob = Message("user", "Keep it.", name="alice"), Message("user", "Raise it.", name="bob")
    (mended,) = rules.repair([alice, bob, user("Which?")])
    assert [p.text for p in mended.parts] == ["alice: Keep it.", "bob: Raise it.", "user: Which?"]
    assert mended.name is None
    (same,) = rules.repair([alice, replace(alice, content="And soon.")])
    assert (same.name, [p.text for p in same.parts]) == ("alice", ["Keep it.", "And soon."])


def test_a_key_stays_only_where_all_merged_messages_have_it() -> None:
    (mended,) = rules.repair([Message("user", t, extra={"id": t, "room": 4}) for t in "ab"])
    assert mended.extra == {"room": 4}
    note, request = rules.repair([user("q"), assistant("a"), system("be brief"), user("c")])[2].parts
    assert (note, request) == (TextPart("[System note] be brief"), TextPart("c"))


def test_the_last_calls_of_an_open_history_get_no_made_up_results() -> None:
    history = [user("q"), user("now"), assistant(None, (CALL, OTHER)), tool_result("call_2", "b")]
    mended = rules.repair_open(history)
    assert [m.text for m in mended] == ["q\nnow", "", "b"]
    closed = rules.repair_open([*history, user("and?")])
    assert rules.MISSING_RESULT in [m.text for m in closed], "a call behind which the conversation went on is not open"
    assert rules.repair_pairs(history) is history


def test_two_assistant_messages_become_one_with_all_calls_and_their_results() -> None:
    history = [user("q"), assistant("thinking"), assistant("calling", (CALL,)), tool_result("call_1", "a")]
    mended = rules.repair(history)
    assert [m.role for m in mended] == ["user", "assistant", "tool"]
    assert mended[1].tool_calls == (CALL,)
    assert [p.text for p in mended[1].parts] == ["thinking", "calling"]


def test_a_result_without_its_call_is_removed() -> None:
    mended = rules.repair([user("q"), tool_result("gone", "stale"), assistant("done")])
    assert [m.role for m in mended] == ["user", "assistant"]


def test_a_call_without_its_result_gets_a_stub_that_says_so() -> None:
    mended = rules.repair([user("q"), assistant(None, (CALL,)), user("and?")])
    assert [m.role for m in mended] == ["user", "assistant", "tool", "assistant", "user"]
    assert mended[2].text == rules.MISSING_RESULT
    assert mended[2].tool_call_id == "call_1"


def test_a_result_that_comes_late_moves_up_to_its_call() -> None:
    history = [user("q"), assistant(None, (CALL,)), user("wait"), tool_result("call_1", "late")]
    mended = rules.repair(history)
    assert mended[2].text == "late"
    assert sum(m.role == "tool" for m in mended) == 1


def test_of_two_results_for_one_call_the_first_stays() -> None:
    history = [user("q"), assistant(None, (CALL,)), tool_result("call_1", "one"), tool_result("call_1", "two")]
    assert [m.text for m in rules.repair(history) if m.role == "tool"] == ["one"]


def test_results_out_of_order_are_not_touched() -> None:
    history = [user("q"), assistant(None, (CALL, OTHER)), tool_result("call_2", "b"), tool_result("call_1", "a")]
    assert rules.repair(history) is history


def test_a_result_may_name_its_call_by_either_of_two_ids() -> None:
    two_ids = ToolCall("call_1", "f", extra={"item_id": "fc_1"})
    for named in ("call_1", "fc_1", "call_1|fc_1"):
        history = [user("q"), assistant(None, (two_ids,)), tool_result(named, "a"), assistant("ok")]
        assert rules.repair(history) is history


def test_equal_and_empty_ids_become_unique_and_keep_their_results() -> None:
    calls = (CALL, CALL, ToolCall("", "f"))
    results = [tool_result("call_1", "a"), tool_result("call_1", "b"), tool_result("", "c")]
    history = [user("q"), assistant(None, calls), *results]
    mended = rules.repair(history)
    ids = [c.id for c in mended[1].tool_calls]
    assert len(set(ids)) == 3
    assert [(m.tool_call_id, m.text) for m in mended[2:]] == list(zip(ids, "abc", strict=True))


def test_a_history_that_opens_with_the_assistant_gets_a_word_from_the_users_side() -> None:
    mended = rules.repair([system("s"), assistant("hello")])
    assert [m.role for m in mended] == ["system", "user", "assistant"]
    assert mended[1].kind == "note"


def test_a_system_message_in_the_middle_becomes_a_note() -> None:
    mended = rules.repair([user("a"), assistant("b"), system("be brief"), user("c")])
    assert [m.role for m in mended] == ["user", "assistant", "user"]
    assert "be brief" in mended[2].text


def test_repair_never_mutates_what_it_was_given() -> None:
    history = [user("a"), user("b"), tool_result("x", "y")]
    before = list(history)
    rules.repair(history)
    assert history == before


def test_each_violation_says_where_and_what() -> None:
    found = rules.violations([user("a"), user("b"), assistant(None, (CALL,))])
    assert {(v.rule, v.index) for v in found} == {("pairs", 2), ("turns", 1)}
    assert all(str(v.index) in v.what for v in found)


def _halves(*ids: str) -> Message:
    return assistant(None, tuple(ToolCall(i, f"tool_{i}") for i in ids))


@pytest.mark.spec("K2")
def test_results_of_calls_with_a_common_half_are_paired_by_their_whole_ids() -> None:
    history = [user("go"), _halves("a|b1", "a|b2"), tool_result("a|b2", "second"), tool_result("a|b1", "first")]
    mended = rules.repair(history)
    assert rules.violations(mended) == []
    calls = mended[1].tool_calls
    assert [r.text for r in mended[2:]] == ["first", "second"]
    assert [rules.find_call(calls, r.tool_call_id) for r in mended[2:]] == list(calls)
    assert len({c.id.partition("|")[0] for c in calls}) == 2, "the half that is sent must tell them apart"
    assert rules.repair(mended) is mended


@pytest.mark.spec("K2")
def test_a_half_that_two_calls_share_names_neither_and_one_that_is_unique_names_its_call() -> None:
    asking = _halves("a1|shared", "a2|shared")
    assert rules.find_call(asking.tool_calls, "shared") is None
    assert rules.find_call(asking.tool_calls, "a2") is asking.tool_calls[1]
    mended = rules.repair([user("go"), asking, tool_result("shared", "whose?"), tool_result("a2", "second")])
    assert rules.violations(mended) == []
    assert [r.text for r in mended[2:]] == [rules.MISSING_RESULT, "second"]


@pytest.mark.spec("K2")
def test_thousands_of_calls_with_a_common_half_are_mended_quickly() -> None:
    ids = [f"a|{n}" for n in range(400)]
    start = time.perf_counter()
    mended = rules.repair([user("go"), _halves(*ids), *(tool_result(i, i) for i in reversed(ids))])
    assert time.perf_counter() - start < 2
    assert [r.text for r in mended[2:]] == ids
