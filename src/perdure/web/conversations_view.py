"""Conversations as rows: listed, searched and filtered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from perdure.commands.titles import title_of
from perdure.core.ports import SearchHit
from perdure.store.browsing import Browsed, ConversationFilter
from perdure.web.shapes import ConversationPage, ConversationRow, Filters, SearchHitRow, SearchPage
from perdure.web.sight import Sight

# Of a search that lists conversations, so many of the best hits are looked at.
_MOST_HITS = 200


def conversation_page(
    sight: Sight, wanted: ConversationFilter, *, query: str = "", cursor: str | None = None, limit: int = 50
) -> ConversationPage:
    """A page of conversations, last used first; with a query those it is found in, the best first, on one page."""
    if query.strip():
        return ConversationPage(conversations=_found(sight, wanted, query, limit), next_cursor=None)
    page, following = sight.store.browsing.page(wanted, cursor=cursor, limit=limit)
    return ConversationPage(conversations=[row_of(b) for b in page], next_cursor=following)


def search_page(sight: Sight, query: str, wanted: ConversationFilter, *, limit: int = 20) -> SearchPage:
    """Every place a query is found, the best first."""
    most = _MOST_HITS if wanted.source else limit
    hits = sight.store.search(query, visibility=wanted.visibility, scope=_scope(wanted), limit=most)
    known = _rows_of(sight, wanted, hits)
    shown = [h for h in hits if h.conversation_id in known][:limit]
    return SearchPage(hits=[hit_row(h, title=known[h.conversation_id].title) for h in shown])


def filters(sight: Sight) -> Filters:
    browsing = sight.store.browsing
    return Filters(sources=browsing.sources(sight.visibility), models=browsing.models(sight.visibility))


def row_of(browsed: Browsed) -> ConversationRow:
    """One line of a list; a conversation nobody titled is called by what was first said in it."""
    conversation, opening = browsed.conversation, browsed.opening
    return ConversationRow(
        id=conversation.id,
        title=conversation.title or (title_of(opening.message.text) if opening is not None else ""),
        source=conversation.source,
        model=browsed.model,
        kind=conversation.kind,
        user_key=conversation.user_key,
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
    )


def _found(sight: Sight, wanted: ConversationFilter, query: str, limit: int) -> list[ConversationRow]:
    """Conversations titled so, then those in which it was said."""
    titled, _ = sight.store.browsing.page(replace(wanted, title=query.strip()), limit=limit)
    rows = {b.conversation.id: row_of(b) for b in titled}
    hits = sight.store.search(query, visibility=wanted.visibility, scope=_scope(wanted), limit=_MOST_HITS)
    known = _rows_of(sight, wanted, hits)
    for hit in hits:
        row = rows.get(hit.conversation_id) or known.get(hit.conversation_id)
        if row is None or row.snippet is not None:
            continue
        shown = hit_row(hit, title=row.title)
        told = {"snippet": shown.snippet, "marks": shown.marks, "hit_seq": shown.seq}
        rows[row.id] = row.model_copy(update=told)
    return list(rows.values())[:limit]


def _rows_of(sight: Sight, wanted: ConversationFilter, hits: Sequence[SearchHit]) -> dict[str, ConversationRow]:
    """The conversations of some hits, as far as they are wanted; the time was asked of the hits themselves."""
    ids = tuple({h.conversation_id: None for h in hits})
    page, _ = sight.store.browsing.page(replace(wanted, ids=ids, since_ms=None, until_ms=None), limit=_MOST_HITS)
    return {b.conversation.id: row_of(b) for b in page}


def _scope(wanted: ConversationFilter) -> dict[str, Any]:
    return {"since_ms": wanted.since_ms, "until_ms": wanted.until_ms}
