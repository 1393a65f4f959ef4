"""The conversation list, search results and conversation header of the web UI."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perdure.commands.titles import title_of
from perdure.core.display import describe_report
from perdure.core.errors import NotFound
from perdure.core.ports import SearchAnswer, SearchHit, SearchReport
from perdure.store.listing import NEWEST_FIRST, ConversationFilter, ListedConversation, ListOrder
from perdure.store.records import Conversation
from perdure.store.store import SessionStore
from perdure.web.schemas import (
    ConversationHead,
    ConversationListResponse,
    ConversationRow,
    FailureCounts,
    FiguresRow,
    Filters,
    GaugeRow,
    SearchAnswerRow,
    SearchHitRow,
    SearchPage,
    SessionRow,
    TotalsRow,
)
from perdure.web.scoped_store import ScopedStore

_MOST_CHILDREN = 200


def conversation_head(scoped: ScopedStore, conversation: Conversation) -> ConversationHead:
    store = scoped.store
    summaries, _ = store.listing.page(ConversationFilter(ids=(conversation.id,)))
    if not summaries:
        raise NotFound(f"{conversation.id} was deleted just now")
    children_of = ConversationFilter(parent_id=conversation.id, visibility=scoped.visibility)
    children, _ = store.listing.page(children_of, limit=_MOST_CHILDREN)
    return ConversationHead(
        id=conversation.id,
        title=row_of(summaries[0]).title,
        source=conversation.source,
        kind=conversation.kind,
        parent_id=conversation.parent_id,
        user_key=conversation.user.stored_key,
        tip_session_id=conversation.tip_session_id,
        created_at=conversation.created_at_ms,
        updated_at=conversation.updated_at_ms,
        last_seq=conversation.last_seq,
        sessions=[SessionRow.model_validate(s) for s in store.conversations.chain(conversation.id)],
        totals=TotalsRow.model_validate(store.ledger.totals(conversation.id)),
        handoffs=sorted(store.log.handoffs(conversation.id)),
        failures=FailureCounts.model_validate(store.listing.figures([conversation.id])[conversation.id]),
        gauge=_gauge(store, conversation.id),
        children=[row_of(b) for b in children],
    )


def _gauge(store: SessionStore, conversation_id: str) -> GaugeRow | None:
    """Context usage as it was stored; without a composition where a compaction or an undo has changed it since."""
    usage = store.ledger.context_usage(conversation_id)
    if usage is None:
        return None
    composition = {} if usage.is_changed else dict(usage.composition)
    return GaugeRow(
        model=usage.model,
        tokens=usage.tokens,
        window=usage.window,
        threshold=usage.threshold,
        composition=composition,
    )


# A search that lists conversations groups this many of the best hits.
_MOST_HITS = 200
# Conversations that match by their title alone come last.
_MOST_TITLED = 20


def conversation_page(
    scoped: ScopedStore,
    filters: ConversationFilter,
    *,
    query: str = "",
    cursor: str | None = None,
    limit: int = 50,
    order: ListOrder = NEWEST_FIRST,
) -> ConversationListResponse:
    """Return a page of conversations in the given order; with a query, the matching ones, best first, on one page."""
    if query.strip():
        rows, note = _matching_rows(scoped, filters, query, limit)
        return ConversationListResponse(conversations=_with_figures(scoped, rows), next_cursor=None, note=note)
    page, following = scoped.store.listing.page(filters, cursor=cursor, limit=limit, order=order)
    rows = _with_figures(scoped, [row_of(b) for b in page])
    return ConversationListResponse(conversations=rows, next_cursor=following)


def _with_figures(scoped: ScopedStore, rows: Sequence[ConversationRow]) -> list[ConversationRow]:
    figures = scoped.store.listing.figures([row.id for row in rows])
    return [row.model_copy(update={"figures": FiguresRow.model_validate(figures[row.id])}) for row in rows]


def search_page(scoped: ScopedStore, query: str, filters: ConversationFilter, *, limit: int = 20) -> SearchPage:
    """Return the messages that match a query, best first."""
    most = _MOST_HITS if filters.source else limit
    report = _report(scoped, filters, query, most)
    rows_by_id = _rows_of(scoped, filters, report.hits)
    visible = [h for h in report.hits if h.conversation_id in rows_by_id][:limit]
    hits = [hit_row(h, title=rows_by_id[h.conversation_id].title) for h in visible]
    return SearchPage(hits=hits, note=describe_report(report))


def filters(scoped: ScopedStore) -> Filters:
    browsing = scoped.store.listing
    return Filters(sources=browsing.sources(scoped.visibility), models=browsing.models(scoped.visibility))


def row_of(browsed: ListedConversation) -> ConversationRow:
    """Return one row of a list; an untitled conversation shows its first message."""
    conversation, opening = browsed.conversation, browsed.opening
    return ConversationRow(
        id=conversation.id,
        title=conversation.title or (title_of(opening.message.text) if opening is not None else ""),
        source=conversation.source,
        model=browsed.model,
        kind=conversation.kind,
        user_key=conversation.user.stored_key,
        created_at=conversation.created_at_ms,
        updated_at=conversation.updated_at_ms,
        messages=conversation.last_seq,
    )


def hit_row(hit: SearchHit, *, title: str) -> SearchHitRow:
    kind, _, rest = hit.address.partition(":")
    return SearchHitRow(
        conversation_id=hit.conversation_id,
        title=title,
        seq=int(rest) if kind == "m" else None,
        output_id=rest if kind == "output" else None,
        role=hit.role,
        created_at=hit.created_at_ms,
        snippet=hit.excerpt,
        marks=list(hit.marks),
        answer=_answer_row(hit.answer) if hit.answer is not None else None,
    )


def _answer_row(answer: SearchAnswer) -> SearchAnswerRow:
    seq = int(answer.address.removeprefix("m:"))
    return SearchAnswerRow(seq=seq, role=answer.role, snippet=answer.excerpt, marks=list(answer.marks))


def _report(scoped: ScopedStore, filters: ConversationFilter, query: str, limit: int) -> SearchReport:
    scope = {"since_ms": filters.since_ms, "until_ms": filters.until_ms}
    return scoped.store.search_index.report(query, visibility=filters.visibility, scope=scope, limit=limit)


def _matching_rows(
    scoped: ScopedStore, filters: ConversationFilter, query: str, limit: int
) -> tuple[list[ConversationRow], str]:
    """Conversations in the order of their best hit, as every search ranks, then those that match by title alone."""
    titled, _ = scoped.store.listing.page(replace(filters, title=query.strip()), limit=_MOST_TITLED)
    rows: dict[str, ConversationRow] = {}
    report = _report(scoped, filters, query, _MOST_HITS)
    rows_by_id = _rows_of(scoped, filters, report.hits)
    for hit in report.hits:
        row = rows_by_id.get(hit.conversation_id)
        if row is None or row.id in rows:
            continue
        visible = hit_row(hit, title=row.title)
        update = {"snippet": visible.snippet, "marks": visible.marks, "hit_seq": visible.seq}
        rows[row.id] = row.model_copy(update=update)
    by_title = [row_of(b) for b in titled if b.conversation.id not in rows][: limit - 1]
    return [*list(rows.values())[: limit - len(by_title)], *by_title], describe_report(report)


def _rows_of(scoped: ScopedStore, filters: ConversationFilter, hits: Sequence[SearchHit]) -> dict[str, ConversationRow]:
    """Return the conversations of some hits that match the filters; the hits were already filtered by time."""
    ids = tuple({h.conversation_id: None for h in hits})
    page, _ = scoped.store.listing.page(replace(filters, ids=ids, since_ms=None, until_ms=None), limit=_MOST_HITS)
    return {b.conversation.id: row_of(b) for b in page}
