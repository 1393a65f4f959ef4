"""What stands above a conversation: its name, its chain of sessions, its figures, and its gauge after the last call."""

from __future__ import annotations

from perdure.core.errors import NotFound
from perdure.store.browsing import ConversationFilter
from perdure.store.records import CallRecord, Conversation, Session, Totals
from perdure.store.savings import MADE, prompt_sizes
from perdure.store.store import SessionStore
from perdure.web.conversations_view import row_of
from perdure.web.shapes import ConversationHead, GaugeRow, SessionRow, TotalsRow
from perdure.web.sight import Sight

_MOST_CHILDREN = 200
_LAST_CALLS = 50


def conversation_head(sight: Sight, conversation: Conversation) -> ConversationHead:
    store = sight.store
    found, _ = store.browsing.page(ConversationFilter(ids=(conversation.id,)))
    if not found:
        raise NotFound(f"{conversation.id} was deleted just now")
    children_of = ConversationFilter(parent_id=conversation.id, visibility=sight.visibility)
    children, _ = store.browsing.page(children_of, limit=_MOST_CHILDREN)
    return ConversationHead(
        id=conversation.id,
        title=row_of(found[0]).title,
        source=conversation.source,
        kind=conversation.kind,
        parent_id=conversation.parent_id,
        user_key=conversation.user_key,
        tip_session_id=conversation.tip_session_id,
        created_at=conversation.created_at_ms,
        updated_at=conversation.updated_at_ms,
        last_seq=conversation.last_seq,
        sessions=[_session_row(s) for s in store.conversations.chain(conversation.id)],
        totals=totals_row(store.ledger.totals(conversation.id)),
        handoffs=sorted(store.log.handoffs(conversation.id)),
        gauge=_gauge(store, conversation.id),
        children=[row_of(b) for b in children],
    )


def totals_row(totals: Totals) -> TotalsRow:
    usage = totals.usage
    return TotalsRow(
        calls=totals.calls,
        input_tokens=usage.input_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        cost_usd=totals.cost_usd,
        unpriced_calls=totals.unpriced_calls,
        unreported_calls=totals.unreported_calls,
        compactions=totals.compactions,
    )


def _session_row(session: Session) -> SessionRow:
    return SessionRow(
        id=session.id,
        began_by=session.began_by,
        model=session.route.model,
        first_seq=session.first_seq,
        last_seq=session.last_seq,
        started_at=session.started_at_ms,
        ended_at=session.ended_at_ms,
        end_reason=session.end_reason,
    )


def _gauge(store: SessionStore, conversation_id: str) -> GaugeRow | None:
    """The window after the newest call of the conversation itself: its prompt and its reply, as far as reported; or
    what a compaction, or its undo, has made of it since. What fills it is then not known until the next call."""
    calls = store.ledger.calls(conversation_id, limit=_LAST_CALLS)
    last = next((c for c in reversed(calls) if c.task == "main"), None)
    if last is None:
        return None
    since = _size_since(store, conversation_id, last)
    return GaugeRow(
        model=last.route.model,
        tokens=since if since is not None else last.usage.total_tokens or last.estimate_tokens or 0,
        window=last.window_tokens,
        threshold=last.threshold_tokens,
        composition={} if since is not None else dict(last.composition),
    )


def _size_since(store: SessionStore, conversation_id: str, last: CallRecord) -> int | None:
    """The prompt's size by what happened after the last call; None where nothing did that is known."""
    made = [e for e in store.ledger.events(conversation_id, kind="compaction") if e.payload.get("outcome") in MADE]
    undone = store.ledger.events(conversation_id, kind="undo")
    newest = max([*made, *undone], key=lambda e: e.id, default=None)
    if newest is None or newest.created_at_ms < last.ended_at_ms or not made:
        return None
    before, after = prompt_sizes(made[-1].payload)
    return after if newest.kind == "compaction" else before
