"""`SessionStore`: one object, small roles. `open_store` makes it of a path or a URL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from perdure.core.clock import SystemClock
from perdure.core.errors import StoreUnavailable
from perdure.core.ports import Clock, Page, SearchHit
from perdure.core.visibility import EVERYONE, Visibility
from perdure.store.backup import write_backup
from perdure.store.blobs import BlobStore, FileBlobStore
from perdure.store.changes import ChangeFeed
from perdure.store.compactions import Compactions
from perdure.store.context import StoreContext
from perdure.store.conversations import Conversations
from perdure.store.db.sqlite import open_sqlite
from perdure.store.db.sqlite_fts import FtsIndex
from perdure.store.ids import IdSource, TimeIds
from perdure.store.inbox import MessageInbox
from perdure.store.kv import ClientHistories, ScopedState
from perdure.store.leases import Leases
from perdure.store.ledger import Ledger, Savings
from perdure.store.listing import ConversationListing
from perdure.store.maintenance import (
    ConversationDeleter,
    ProgressCallback,
    Redact,
    Reindexer,
    Scrubber,
    ScrubResult,
    Verifier,
    log_progress,
)
from perdure.store.messages import AnyMessage, MessageLog
from perdure.store.outputs import OutputStore
from perdure.store.records import (
    AppendResult,
    DeleteResult,
    Lease,
    Plan,
    RouteRecord,
    Session,
    SessionHistory,
    StoredEvent,
)
from perdure.store.search.addresses import Addresses
from perdure.store.search.search import SearchIndex
from perdure.store.search.tokenizer import VERSION
from perdure.store.timeline import Timeline
from perdure.store.transfer import Transfer

_POSTGRES = ("postgresql://", "postgres://")


class SessionStore:
    """Everything said, kept for ever. Synchronous and thread-safe; each role is a small object of its own.

    .conversations   create, branch, delegate, find, list, title      .log      append, ingest, history, read
    .compactions     compact, undo                                    .ledger   calls, events, totals, usage
    .leases          one writer at a time                             .state()  small values that survive a restart
    .finder          search, open an address                          .outputs  tool outputs kept whole
    .transfer        export and import                                .timeline pages of the whole story
    .changes         what is new since a cursor, for live pages       .browsing lists for people who look
    .timeline         where in the story events and calls belong       .savings  what caches and compactions spared
    .inbox           messages a gateway owes an answer for            .fingerprints  where unnamed clients are
    .verifier        which stored messages are damaged
    """

    def __init__(self, context: StoreContext, blobs: BlobStore) -> None:
        self._context = context
        self.conversations = Conversations(context)
        self.log = MessageLog(context)
        self.timeline = Timeline(context)
        self.changes = ChangeFeed(context)
        self.listing = ConversationListing(context)
        self.savings = Savings(context)
        self.compactions = Compactions(context)
        self.ledger = Ledger(context)
        self.leases = Leases(context)
        self.inbox = MessageInbox(context)
        self.client_histories = ClientHistories(context)
        self.verifier = Verifier(context)
        self.outputs = OutputStore(context, blobs)
        self.addresses = Addresses(context, self.outputs)
        self.search_index = SearchIndex(context, self.outputs, self.addresses)
        self.transfer = Transfer(
            context, conversations=self.conversations, log=self.log, ledger=self.ledger, outputs=self.outputs
        )

    def create(
        self,
        *,
        system_prompt: str = "",
        route: RouteRecord | None = None,
        source: str = "",
        user_key: str = "",
        chat_key: str = "",
        title: str = "",
    ) -> Session:
        """A new conversation's first session."""
        return self.conversations.create(
            system_prompt=system_prompt, route=route, source=source, user_key=user_key, chat_key=chat_key, title=title
        )

    def append(
        self,
        any_id: str,
        messages: AnyMessage | Sequence[AnyMessage],
        *,
        after_seq: int | None = None,
        lease: Lease | None = None,
        events: Sequence[StoredEvent] = (),
    ) -> AppendResult:
        """Adds to the conversation's tip, durably; see Log.append."""
        return self.log.append(any_id, messages, after_seq=after_seq, lease=lease, events=events)

    def history(self, session_id: str) -> SessionHistory:
        """One session as it is sent; a conversation id means its tip."""
        return self.log.history(session_id)

    def compact(
        self,
        any_id: str,
        plan: Plan,
        *,
        system_prompt: str | None = None,
        route: RouteRecord | None = None,
        up_to_seq: int | None = None,
        lease: Lease | None = None,
    ) -> Session:
        """Ends the tip and goes on in a child; see Compactions.compact."""
        return self.compactions.compact(
            any_id, plan, system_prompt=system_prompt, route=route, up_to_seq=up_to_seq, lease=lease
        )

    def undo(self, any_id: str, *, lease: Lease | None = None) -> Session:
        """Goes on as if the newest compaction had not been; nothing is deleted."""
        return self.compactions.undo(any_id, lease=lease)

    def get_compression_tip(self, any_id: str) -> str:
        """The newest continuation of any id of a conversation: where a resume lands."""
        return self.conversations.get_compression_tip(any_id)

    def search(
        self,
        query: str,
        *,
        visibility: Visibility = EVERYONE,
        scope: Mapping[str, Any] | None = None,
        limit: int = 20,
    ) -> Sequence[SearchHit]:
        """Newest first, ranked among the newest; any text is a query."""
        return self.search_index.search(query, visibility=visibility, scope=scope, limit=limit)

    def open(self, address: str, *, conversation_id: str, offset: int = 0, limit: int = 20_000) -> Page:
        """What `m:57`, `m:120-180`, `h:501` or `output:o_…` stands for, a page at a time."""
        return self.search_index.open(address, conversation_id=conversation_id, offset=offset, limit=limit)

    def delete(self, any_id: str, *, lease: Lease | None = None) -> DeleteResult:
        """Takes a whole conversation away for good; see ConversationDeleter.delete."""
        return ConversationDeleter(self._context, self.outputs).delete(any_id, lease=lease)

    def scrub(self, any_id: str, redact: Redact, *, lease: Lease | None = None) -> ScrubResult:
        """Redacts everything stored of a conversation; see Scrubber.scrub."""
        return Scrubber(self._context, self.outputs).scrub(any_id, redact, lease=lease)

    def backup(self, path: str | Path) -> None:
        """A whole copy, outputs included, while the store is in use."""
        write_backup(self._context.database, self.outputs.blobs, Path(path).expanduser())

    def reindexer(self, *, version: int = VERSION) -> Reindexer:
        """Builds the index anew where another tokenizer made it; done by itself when a store is opened."""
        return Reindexer(self._context, self.outputs, version=version)

    def state(self, scope: str) -> ScopedState:
        """Small values that survive a restart, apart for each scope."""
        return ScopedState(self._context, scope)

    def conversation_state(self, any_id: str) -> ScopedState:
        """Small values that live as long as one conversation."""
        return ScopedState(self._context, f"conversation:{self.conversations.get(any_id).id}")

    @property
    def is_usable(self) -> bool:
        """Whether it is open here, and what it was opened at is still there."""
        return self._context.database.is_usable

    def close(self) -> None:
        """Waits for what is being written. A store nobody closes is closed with its last reference, or at exit."""
        self._context.database.close()

    def __enter__(self) -> SessionStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_store(
    path_or_url: str | Path,
    *,
    clock: Clock | None = None,
    ids: IdSource | None = None,
    on_progress: ProgressCallback = log_progress,
) -> SessionStore:
    """The store at a file path, `sqlite:///path` or `postgresql://…`. Made if it is new, brought up to date if old.

    `say` is told, line by line, what takes long: building the index anew after an upgrade.
    """
    clock = clock or SystemClock()
    ids = ids or TimeIds(clock)
    if str(path_or_url).startswith(_POSTGRES):
        return _ready(_open_postgres(str(path_or_url), clock, ids), on_progress)
    path = _file_of(str(path_or_url))
    database, blobs = open_sqlite(path, clock=clock), FileBlobStore(path)
    # Files are outside the transaction that deleted their rows: a crash in between is made good here.
    blobs.sweep(r[0] for r in database.read(lambda tx: tx.rows("SELECT DISTINCT conversation FROM tombstone")))
    return _ready(SessionStore(StoreContext(database, FtsIndex(), clock, ids), blobs), on_progress)


def store_location(path_or_url: str | Path) -> str:
    """One spelling for each place a store can be opened at. Raises StoreUnavailable for what names none."""
    if str(path_or_url).startswith(_POSTGRES):
        return str(path_or_url)
    return str(_file_of(str(path_or_url)).resolve())


def _ready(store: SessionStore, on_progress: ProgressCallback) -> SessionStore:
    """Finishes what a crash or an upgrade left to do."""
    try:
        store.outputs.finish_erasing()
        store.reindexer().run(on_progress)
    except BaseException:
        store.close()
        raise
    return store


def _open_postgres(url: str, clock: Clock, ids: IdSource) -> SessionStore:
    # Imported here: the driver is an extra, and costs time that a person with a file should not pay.
    try:
        from perdure.store.db.postgres import open_postgres
        from perdure.store.db.postgres_blobs import PostgresBlobStore
        from perdure.store.db.postgres_fts import TsvectorIndex
    except ImportError as error:
        raise StoreUnavailable(
            f"PostgreSQL needs a driver that is not installed ({error}): pip install 'perdure[postgres]'"
        ) from error
    database = open_postgres(url, clock=clock)
    return SessionStore(StoreContext(database, TsvectorIndex(), clock, ids), PostgresBlobStore(database))


def _file_of(where: str) -> Path:
    """The file a path or `sqlite:///path` names. Raises StoreUnavailable for what names none."""
    scheme, separator, rest = where.partition("://")
    if separator and scheme != "sqlite":
        raise StoreUnavailable(f"{scheme}:// is no database Perdure knows; give a file path or postgresql://…")
    name = rest.removeprefix("/") if separator else where
    if not name.strip():
        raise StoreUnavailable("the store's path is empty; give a file path or postgresql://…")
    if name == ":memory:":
        raise StoreUnavailable("a store in memory would lose every session; give a file path")
    if "\0" in name:
        raise StoreUnavailable("the store's path holds a NUL character; give a file path")
    # Absolute: a process that changes its folder must not go on in another file.
    return Path(name).expanduser().absolute()
