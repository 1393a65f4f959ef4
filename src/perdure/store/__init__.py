"""Durable session storage: an append-only message log, views over it, search, usage and leases.

    SessionStore → roles (log, conversations, compactions, ledger, leases, state, search, outputs, transfer)
                 → StoreContext (database, text index, clock, ids) → Database port → SQLite | PostgreSQL

A message is written once and never changed. A session's history is a list of spans over the log followed by the
session's own messages; a compaction writes a handoff, a child session and its spans in one transaction. Start with
`records.py` for the data model and views, and `store.py` for the API.
"""

from __future__ import annotations

from perdure.store.records import (
    AppendResult,
    CallRecord,
    ChangeSet,
    Conversation,
    ConversationChange,
    ConversationPage,
    Lease,
    NewHandoff,
    Plan,
    RouteRecord,
    Session,
    SessionHistory,
    Span,
    StoredEvent,
    StoredHandoff,
    TimelineEntry,
    TimelinePage,
    Totals,
    UsageRow,
)
from perdure.store.store import SessionStore, open_store

__all__ = [
    "AppendResult",
    "CallRecord",
    "ChangeSet",
    "Conversation",
    "ConversationChange",
    "ConversationPage",
    "Lease",
    "NewHandoff",
    "Plan",
    "RouteRecord",
    "Session",
    "SessionHistory",
    "SessionStore",
    "Span",
    "StoredEvent",
    "StoredHandoff",
    "TimelineEntry",
    "TimelinePage",
    "Totals",
    "UsageRow",
    "open_store",
]
