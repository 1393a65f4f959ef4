"""Views as ordered lists of spans: the interval arithmetic behind compaction and undo.

A view is an ordered tuple of disjoint spans. A handoff has a higher `seq` than the messages it summarizes but precedes
the messages that follow them, so the order of the spans, not of the seqs, is the order of the view.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from perdure.core.datastructures import merge_intervals
from perdure.core.errors import StoreError
from perdure.store.records import NewHandoff, Plan, Span, StoredHandoff

View = tuple[Span, ...]


def merge_spans(spans: Iterable[Span]) -> View:
    """Merge adjacent spans and drop empty ones; order and messages are unchanged."""
    return tuple(Span(lo, hi) for lo, hi in merge_intervals((span.lo, span.hi) for span in spans))


def subtract_spans(view: Sequence[Span], removed: Iterable[Span]) -> View:
    """Return a view without the messages of `removed`, in its order."""
    rest = list(view)
    for cut in removed:
        rest = [piece for span in rest for piece in _minus(span, cut)]
    return merge_spans(rest)


def truncate_view(view: Sequence[Span], seq: int) -> View:
    """Return a view without messages after `seq`."""
    return merge_spans(Span(s.lo, min(s.hi, seq)) for s in view if s.lo <= seq)


def view_contains(view: Iterable[Span], seq: int) -> bool:
    return any(seq in span for span in view)


def validate_plan(plan: Plan, view: View) -> None:
    """Raise StoreError unless the plan's spans are parts of the view, each at most once and in its order."""
    last = (-1, 0)
    for span in (p for p in plan if isinstance(p, Span)):
        # Adjacent spans of a view are merged, so a kept span lies within one of them.
        index = next((i for i, part in enumerate(view) if span.lo in part), None)
        if index is None or span.hi not in view[index] or not len(span):
            raise StoreError(f"the plan keeps {span.address}, which is not in the session's view")
        if (index, span.lo) <= last:
            raise StoreError(f"the plan keeps {span.address} twice or out of order")
        last = (index, span.hi)


def covers_of(plan: Plan, view: View) -> list[View]:
    """Return the spans each new handoff covers; the first without explicit `covers` gets everything left over."""
    new = [p for p in plan if isinstance(p, NewHandoff)]
    explicit = [span for h in new for span in h.covers or ()]
    dropped = subtract_spans(view, [*(p for p in plan if isinstance(p, Span)), *explicit])
    out: list[View] = []
    for handoff in new:
        out.append(merge_spans(handoff.covers) if handoff.covers is not None else dropped)
        if handoff.covers is None:
            dropped = ()
    return out


def undo_newest_compaction(view: View, handoffs: Mapping[int, StoredHandoff]) -> View:
    """Return the view before its newest compaction, followed by later messages.

    `handoffs` are all handoffs of the conversation, by seq. Raises StoreError when the view contains none.
    """
    visible = [h for seq, h in handoffs.items() if view_contains(view, seq)]
    if not visible:
        raise StoreError("nothing to undo: this session's view contains no handoff")
    newest = max(visible, key=lambda h: h.seq)
    removed = [Span(h.seq, h.seq) for h in visible if h.session_id == newest.session_id]
    since = subtract_spans(view, [*newest.replaced, *removed])
    return merge_spans([*newest.replaced, *since])


def expand_handoffs(view: View, handoffs: Mapping[int, StoredHandoff]) -> View:
    """Replace every handoff of a view, recursively, by the messages it covers."""
    # Each step removes a handoff, except where a damaged one claims to have replaced itself.
    for _ in handoffs:
        if not any(view_contains(view, seq) for seq in handoffs):
            break
        view = undo_newest_compaction(view, handoffs)
    return view


def _minus(span: Span, cut: Span) -> Iterator[Span]:
    if cut.hi < span.lo or span.hi < cut.lo:
        yield span
        return
    yield Span(span.lo, cut.lo - 1)
    yield Span(cut.hi + 1, span.hi)
