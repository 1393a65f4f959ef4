"""Views as lists of spans: pure arithmetic on intervals, the heart of compaction and undo.

A view is an ordered tuple of disjoint spans. A handoff, written later than what it stands for, may stand before
messages of a lower `seq`: the order of the spans is the order of the view.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from perdure.core.errors import StoreError
from perdure.core.intervals import merge_intervals
from perdure.store.records import NewHandoff, Plan, Span, StoredHandoff

View = tuple[Span, ...]


def merge_spans(spans: Iterable[Span]) -> View:
    """The same messages in the same order, in as few spans as possible."""
    return tuple(Span(lo, hi) for lo, hi in merge_intervals((span.lo, span.hi) for span in spans))


def subtract_spans(view: Sequence[Span], taken: Iterable[Span]) -> View:
    """What is left of a view, in its order."""
    left = list(view)
    for cut in taken:
        left = [piece for span in left for piece in _minus(span, cut)]
    return merge_spans(left)


def truncate_view(view: Sequence[Span], seq: int) -> View:
    """A view as far as one message: everything written later is left out."""
    return merge_spans(Span(s.lo, min(s.hi, seq)) for s in view if s.lo <= seq)


def view_contains(view: Iterable[Span], seq: int) -> bool:
    return any(seq in span for span in view)


def validate_plan(plan: Plan, view: View) -> None:
    """Raises StoreError unless the plan keeps parts of this view, each at most once and in its order."""
    last = (-1, 0)
    for kept in (p for p in plan if isinstance(p, Span)):
        # Neighbours in a view are joined, so that what is kept in one piece lies in one span of it.
        at = next((i for i, span in enumerate(view) if kept.lo in span), None)
        if at is None or kept.hi not in view[at] or not len(kept):
            raise StoreError(f"the plan keeps {kept.address}, which is not in the session's view")
        if (at, kept.lo) <= last:
            raise StoreError(f"the plan keeps {kept.address} twice or out of order")
        last = (at, kept.hi)


def covers_of(plan: Plan, view: View) -> list[View]:
    """What each new handoff stands for: what it says, or (the first that says nothing) all that nothing else does."""
    new = [p for p in plan if isinstance(p, NewHandoff)]
    said = [span for h in new for span in h.covers or ()]
    dropped = subtract_spans(view, [*(p for p in plan if isinstance(p, Span)), *said])
    out: list[View] = []
    for handoff in new:
        out.append(merge_spans(handoff.covers) if handoff.covers is not None else dropped)
        if handoff.covers is None:
            dropped = ()
    return out


def undo_newest_compaction(view: View, handoffs: Mapping[int, StoredHandoff]) -> View:
    """The view before its newest compaction, with everything said since. Raises StoreError where there was none.

    `handoffs` are all of the conversation's, by seq.
    """
    standing = [h for seq, h in handoffs.items() if view_contains(view, seq)]
    if not standing:
        raise StoreError("nothing to undo: this session's view holds no handoff")
    newest = max(standing, key=lambda h: h.seq)
    lifted = [Span(h.seq, h.seq) for h in standing if h.session_id == newest.session_id]
    since = subtract_spans(view, [*newest.replaced, *lifted])
    return merge_spans([*newest.replaced, *since])


def expand_handoffs(view: View, handoffs: Mapping[int, StoredHandoff]) -> View:
    """A view with every handoff opened, and those within them, down to what was really said."""
    while any(view_contains(view, seq) for seq in handoffs):
        view = undo_newest_compaction(view, handoffs)
    return view


def _minus(span: Span, cut: Span) -> Iterator[Span]:
    if cut.hi < span.lo or span.hi < cut.lo:
        yield span
        return
    yield Span(span.lo, cut.lo - 1)
    yield Span(cut.hi + 1, span.hi)
