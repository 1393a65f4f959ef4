"""Views as spans: the arithmetic beneath compaction and undo."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.core.usage import NOT_REPORTED
from perdure.store.records import (
    NewHandoff,
    Span,
    StoredHandoff,
    View,
    covers_of,
    expand_handoffs,
    merge_spans,
    subtract_spans,
    truncate_view,
    undo_newest_compaction,
    validate_plan,
)
from support.store import handoff


def seqs(view: View) -> list[int]:
    return [s for span in view for s in range(span.lo, span.hi + 1)]


def view_of(numbers: set[int]) -> View:
    return merge_spans(Span(n, n) for n in sorted(numbers))


SETS = st.sets(st.integers(1, 60))


@given(SETS)
def test_merging_keeps_every_message_in_order_in_the_fewest_spans(numbers: set[int]) -> None:
    view = view_of(numbers)
    assert seqs(view) == sorted(numbers)
    assert len(view) == sum(n - 1 not in numbers for n in numbers)


@given(SETS, SETS, st.integers(0, 61))
def test_subtract_and_truncate_are_set_arithmetic(numbers: set[int], removed: set[int], last: int) -> None:
    assert seqs(subtract_spans(view_of(numbers), view_of(removed))) == sorted(numbers - removed)
    assert seqs(truncate_view(view_of(numbers), last)) == [n for n in sorted(numbers) if n <= last]


@given(SETS.filter(bool), st.data())
def test_kept_and_covered_spans_make_up_the_whole_view(numbers: set[int], data: st.DataObject) -> None:
    view = view_of(numbers)
    retained = data.draw(st.sets(st.sampled_from(sorted(numbers))))
    plan = (*view_of(retained), handoff())
    validate_plan(plan, view)
    (covered,) = covers_of(plan, view)
    assert sorted([*seqs(covered), *retained]) == sorted(numbers)


def test_two_handoffs_divide_the_dropped_messages_as_specified() -> None:
    view = (Span(1, 20),)
    plan = (NewHandoff(handoff().message, covers=(Span(1, 5),)), handoff(), Span(18, 20))
    assert covers_of(plan, view) == [(Span(1, 5),), (Span(6, 17),)]


@given(st.lists(st.tuples(SETS, st.integers(0, 6)), min_size=1, max_size=6))
def test_undoing_every_compaction_restores_every_message_in_order(rounds: list[tuple[set[int], int]]) -> None:
    handoffs: dict[int, StoredHandoff] = {}
    view: View = ()
    originals: list[int] = []
    last = 0
    before: list[View] = []
    for number, (choice, more) in enumerate(rounds):
        new = list(range(last + 1, last + more + 1))
        originals, last = originals + new, last + more
        view = merge_spans([*view, *(Span(n, n) for n in new)])
        before.append(view)
        retained = [Span(s, s) for s in seqs(view) if s in choice]
        (covered,) = covers_of((handoff(), *retained), view)
        last += 1
        handoffs[last] = StoredHandoff("c", last, f"s{number}", covered, view, "", "", None, None, NOT_REPORTED, {}, 0)
        view = merge_spans([Span(last, last), *retained])
    assert seqs(undo_newest_compaction(view, handoffs)) == seqs(before[-1])
    assert seqs(expand_handoffs(view, handoffs)) == originals
