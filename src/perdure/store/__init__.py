"""Sessions that cannot be lost: an immutable log, views over it, search, accounts and leases, in SQLite or PostgreSQL.

    SessionStore → roles (log, conversations, compaction, ledger, leases, state, search, outputs, transfer)
                 → Backing (database, text index, clock, ids) → Database port → SQLite | PostgreSQL

A message is written once. A session's history is a few spans over the log, then its own messages; a compaction writes a
handoff, a session and its spans in one transaction. Read `records.py` for the nouns, `views.py` for the idea,
`store.py` for what one can do.
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
