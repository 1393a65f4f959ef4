"""`SessionStore`, the facade over the store roles, and `open_store`, which opens it from a path or URL."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from perdure.config.env import make_home
from perdure.core.arguments import (
    COUNT,
    ID,
    LABEL,
    MESSAGE_OR_LIST,
    PATH,
    TEXT,
    TEXTS,
    USER_KEY,
    ArgumentKind,
    check_arguments,
    optional,
)
from perdure.core.concurrency import SystemClock
from perdure.core.errors import ConfigError, StoreUnavailable
from perdure.core.ports import Clock, Page, SearchHit
from perdure.core.visibility import EVERYONE, OWNER, Everyone, Owner, User, Visibility
from perdure.store.backup import write_backup
from perdure.store.changes import ChangeFeed
from perdure.store.checkpoints import FileCheckpoints
from perdure.store.conversations import Compactions, Conversations
from perdure.store.db.database import to_text
from perdure.store.db.sqlite import open_sqlite
from perdure.store.encoding import IdSource, TimeIds
from perdure.store.inbox import MessageInbox
from perdure.store.leases import Leases
from perdure.store.ledger import Ledger, Savings
from perdure.store.listing import ConversationListing
from perdure.store.maintenance import (
    ConversationDeleter,
    IndexRebuild,
    ProgressCallback,
    Redact,
    Reindexer,
    Scrubber,
    ScrubResult,
    log_progress,
)
from perdure.store.messages import AnyMessage, MessageLog
from perdure.store.outputs import BlobStore, FileBlobStore, OutputStore
from perdure.store.queries import CONVERSATION_SCOPE, ClientHistories, ScopedState, StoreContext
from perdure.store.records import (
    AppendResult,
    CallRecord,
    DeleteResult,
    Lease,
    Plan,
    RouteRecord,
    Session,
    SessionHistory,
    StoredEvent,
)
from perdure.store.schedules import Schedules
from perdure.store.search.addresses import Addresses
from perdure.store.search.index import FtsIndex
from perdure.store.search.search import SearchIndex
from perdure.store.search.tokenizer import VERSION
from perdure.store.search.vectors import VectorIndex
from perdure.store.timeline import Timeline
from perdure.store.transfer import Transfer
from perdure.store.verification import Verifier

if TYPE_CHECKING:
    from perdure.config.settings import Settings

_VISIBILITY = ArgumentKind("EVERYONE, OWNER or a User", lambda v: isinstance(v, Owner | User | Everyone))
_POSTGRES = ("postgresql://", "postgres://")


class SessionStore:
    """Durable storage of conversations. Synchronous and thread-safe; each role is an object of its own.

    .conversations     create, branch, delegate, look up, list     .log            append, ingest, history, read
    .compactions       compact, undo                               .ledger         calls, events, totals, usage
    .savings           what caching and compaction saved           .leases         one writer at a time
    .search_index      search, open an address                     .addresses      messages behind an address
    .outputs           complete tool outputs                       .transfer       export and import
    .timeline          pages of messages, their events             .changes        change feed for live clients
    .listing           filtered lists of conversations             .inbox          queue of a gateway's messages
    .client_histories  positions of clients without ids            .verifier       find damaged rows
    .rebuild           the index after an upgrade                  .schedules      prompts run by the clock
    .vectors           search by meaning (extra `recall`)
    .state()           key-value state that survives restarts
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
        self.schedules = Schedules(context)
        self.client_histories = ClientHistories(context)
        self.outputs = OutputStore(context, blobs)
        self.checkpoints = FileCheckpoints(self.conversations, self.ledger, blobs)
        self.verifier = Verifier(context, self.outputs)
        self.addresses = Addresses(context, self.outputs)
        self.vectors = VectorIndex(context)
        self.search_index = SearchIndex(context, self.outputs, self.addresses, self.vectors)
        self.rebuild = IndexRebuild(self.reindexer())
        self.transfer = Transfer(
            context, conversations=self.conversations, log=self.log, ledger=self.ledger, outputs=self.outputs
        )

    @check_arguments(system_prompt=TEXT, source=LABEL, user_key=optional(USER_KEY), chat_key=LABEL, title=TEXT)
    def create(
        self,
        *,
        system_prompt: str = "",
        route: RouteRecord | None = None,
        source: str = "",
        user_key: str | None = None,
        chat_key: str = "",
        title: str = "",
    ) -> Session:
        """Create a conversation, of the machine's owner by default, and return its first session."""
        return self.conversations.create(
            system_prompt=system_prompt,
            route=route,
            source=source,
            user=OWNER if user_key is None else User(user_key),
            chat_key=chat_key,
            title=title,
        )

    @check_arguments(any_id=ID, messages=MESSAGE_OR_LIST)
    def append(
        self,
        any_id: str,
        messages: AnyMessage | Sequence[AnyMessage],
        *,
        after_seq: int | None = None,
        lease: Lease | None = None,
        events: Sequence[StoredEvent] = (),
        calls: Sequence[CallRecord] = (),
    ) -> AppendResult:
        """Append messages to the conversation's tip, durably; see MessageLog.append."""
        return self.log.append(any_id, messages, after_seq=after_seq, lease=lease, events=events, calls=calls)

    @check_arguments(session_id=ID)
    def history(self, session_id: str) -> SessionHistory:
        """Return the stored view of a session, before the projection for a request; the tip for a conversation id."""
        return self.log.history(session_id)

    @check_arguments(any_id=ID, system_prompt=optional(TEXT))
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
        """End the tip session and continue in a child session; see Compactions.compact."""
        return self.compactions.compact(
            any_id, plan, system_prompt=system_prompt, route=route, up_to_seq=up_to_seq, lease=lease
        )

    @check_arguments(any_id=ID)
    def undo(self, any_id: str, *, lease: Lease | None = None) -> Session:
        """Continue in a child session without the newest compaction; nothing is deleted."""
        return self.compactions.undo(any_id, lease=lease)

    @check_arguments(any_id=ID)
    def get_compression_tip(self, any_id: str, *, visibility: Visibility = EVERYONE) -> str:
        """Return the id of the newest session of a conversation, the one a resume continues."""
        return self.conversations.get_compression_tip(any_id, visibility=visibility)

    @check_arguments(query=TEXT, visibility=_VISIBILITY, limit=COUNT, rewordings=TEXTS)
    def search(
        self,
        query: str,
        *,
        visibility: Visibility = EVERYONE,
        scope: Mapping[str, Any] | None = None,
        limit: int = 20,
        rewordings: Sequence[str] = (),
    ) -> Sequence[SearchHit]:
        """Search messages and outputs, the best matches first; any text is a valid query.

        `rewordings` are up to four queries for the same in other words; their rankings are joined.
        """
        return self.search_index.search(query, visibility=visibility, scope=scope, limit=limit, rewordings=rewordings)

    @check_arguments(address=TEXT, conversation_id=ID, offset=COUNT, limit=COUNT)
    def open(self, address: str, *, conversation_id: str, offset: int = 0, limit: int = 20_000) -> Page:
        """Return a page of the text at `m:57`, `m:120-180`, `h:501` or `output:o_…`. Raises NotFound."""
        return self.search_index.open(address, conversation_id=conversation_id, offset=offset, limit=limit)

    @check_arguments(any_id=ID)
    def delete(self, any_id: str, *, lease: Lease | None = None) -> DeleteResult:
        """Delete a conversation permanently; see ConversationDeleter.delete."""
        # An entry can only be removed from the index once it is there.
        self.rebuild.wait()
        return ConversationDeleter(self._context, self.outputs).delete(any_id, lease=lease)

    @check_arguments(any_id=ID)
    def scrub(self, any_id: str, redact: Redact, *, lease: Lease | None = None) -> ScrubResult:
        """Redact everything stored of a conversation; see Scrubber.scrub."""
        self.rebuild.wait()
        result = Scrubber(self._context, self.outputs).scrub(any_id, redact, lease=lease)
        self.checkpoints.discard(self.conversations.get(any_id).id)
        return result

    @check_arguments(path=PATH)
    def backup(self, path: str | Path) -> None:
        """Write a complete backup, outputs included, while the store is in use."""
        write_backup(self._context.database, self.outputs.blobs, Path(path).expanduser())

    def reindexer(self, *, version: int = VERSION) -> Reindexer:
        """Return the reindexer, which `rebuild` runs in the background when a store is opened."""
        return Reindexer(self._context, self.outputs, version=version)

    @check_arguments(scope=LABEL)
    def state(self, scope: str) -> ScopedState:
        """Return the key-value state of a scope."""
        return ScopedState(self._context, scope)

    @check_arguments(any_id=ID)
    def conversation_state(self, any_id: str) -> ScopedState:
        """Return the key-value state of a conversation, which is deleted with it."""
        return ScopedState(self._context, f"{CONVERSATION_SCOPE}{self.conversations.get(any_id).id}")

    @property
    def is_usable(self) -> bool:
        """Whether the store is open in this process and its database file is still in place."""
        return self._context.database.is_usable

    def close(self) -> None:
        """Finish pending writes and close. An unclosed store is closed when garbage-collected or at exit."""
        self.rebuild.close()
        self.vectors.close()
        self._context.database.close()

    def __enter__(self) -> SessionStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_store(
    path_or_url: str | os.PathLike[str],
    *,
    clock: Clock | None = None,
    ids: IdSource | None = None,
    on_progress: ProgressCallback = log_progress,
) -> SessionStore:
    """Open the store at a file path, `sqlite:///path` or `postgresql://…`, creating or migrating it as needed.

    `on_progress` receives a line of text for slow steps, such as rebuilding the index after an upgrade.
    Raises StoreUnavailable, and ConfigError for a value that is neither a path nor a URL.
    """
    if not isinstance(path_or_url, str | os.PathLike):
        raise ConfigError(f"open_store takes a path or a database URL, not {path_or_url!r:.80}")
    path_or_url = os.fsdecode(path_or_url)
    clock = clock or SystemClock()
    ids = ids or TimeIds(clock)
    if str(path_or_url).startswith(_POSTGRES):
        return _ready(_open_postgres(str(path_or_url), clock, ids), on_progress)
    path = _file_of(str(path_or_url))
    database, blobs = open_sqlite(path, clock=clock), FileBlobStore(path)
    # Blobs are removed after the transaction that deletes their rows; finish what a crash interrupted.
    blobs.sweep(to_text(r[0]) for r in database.read(lambda tx: tx.rows("SELECT DISTINCT conversation FROM tombstone")))
    return _ready(SessionStore(StoreContext(database, FtsIndex(), clock, ids), blobs), on_progress)


def open_user_store(settings: Settings, home: Path) -> SessionStore:
    """Open the store that the settings name, by default the file in the home folder. The caller closes it."""
    return open_store(user_store_path(settings, home))


def user_store_path(settings: Settings, home: Path) -> str | Path:
    """Return the path or URL of the store that the settings name; creates the home folder if the store is there."""
    if settings.store.url:
        return settings.store.url
    return Path(settings.store.path) if settings.store.path else make_home(home) / "perdure.db"


def store_location(path_or_url: str | Path) -> str:
    """Normalize a path or URL, so that equal locations compare equal. Raises StoreUnavailable."""
    if str(path_or_url).startswith(_POSTGRES):
        return str(path_or_url)
    return str(_file_of(str(path_or_url)).resolve())


def _ready(store: SessionStore, on_progress: ProgressCallback) -> SessionStore:
    """Finish interrupted erasures and start rebuilding the index if needed."""
    try:
        store.outputs.finish_erasing()
        store.rebuild.start(on_progress)
    except BaseException:
        store.close()
        raise
    return store


def _open_postgres(url: str, clock: Clock, ids: IdSource) -> SessionStore:
    # Imported lazily: the driver is an optional extra and slow to import.
    try:
        from perdure.store.db.postgres import open_postgres
        from perdure.store.db.postgres_blobs import PostgresBlobStore
        from perdure.store.search.index import TsvectorIndex
    except ImportError as error:
        raise StoreUnavailable(
            f"PostgreSQL needs a driver that is not installed ({error}): pip install 'perdure[postgres]'"
        ) from error
    database = open_postgres(url, clock=clock)
    return SessionStore(StoreContext(database, TsvectorIndex(), clock, ids), PostgresBlobStore(database))


def _file_of(where: str) -> Path:
    """Return the file of a path or `sqlite:///path`. Raises StoreUnavailable."""
    scheme, separator, rest = where.partition("://")
    if separator and scheme != "sqlite":
        raise StoreUnavailable(f"{scheme}:// is not supported; give a file path or postgresql://…")
    name = rest.removeprefix("/") if separator else where
    if not name.strip():
        raise StoreUnavailable("the store's path is empty; give a file path or postgresql://…")
    if name == ":memory:":
        raise StoreUnavailable("a store in memory would lose every session; give a file path")
    if "\0" in name:
        raise StoreUnavailable("the store's path contains a NUL character; give a file path")
    # Absolute, so that changing the working directory does not switch files.
    return Path(name).expanduser().absolute()
